"""The database's shape: made new, or brought up to this version step by step (Alembic), all or
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy import Engine as SqlEngine
from sqlmodel import SQLModel

from vgrads.kernel.errors import InputError
from vgrads.portal.records import tables

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0008"
"""The newest step in ``portal/records/migrations/versions``."""
_LOCK = 7_411_802  # any number: of the lock under which PostgreSQL is changed
_VERSION = "alembic_version"


def prepare(engine: SqlEngine) -> None:
    """Give the database this version's shape; InputError where a newer vgrads wrote it."""
    if current(engine) == HEAD:
        return
    with engine.connect() as connection:
        _begin_alone(connection)
        names = set(inspect(connection).get_table_names())
        if names and _version_of(connection) == HEAD:
            pass  # another process was quicker
        elif tables.SetRow.__tablename__ in names:
            _move(connection, HEAD)
        else:
            SQLModel.metadata.create_all(connection)
            _stamp(connection)
        _end_alone(connection)


def current(engine: SqlEngine) -> str | None:
    """The version of the database; None where it has none, being empty or older than versions."""
    with engine.connect() as connection:
        return _version_of(connection)


def _version_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {_VERSION}")).scalar()
    return found


LOSSES = {
    "0001": "everything that the database holds",
    "0002": (
        "tokens, sessions, opened sites, the audit log, kept plans, idempotency keys and "
        "queued work"
    ),
}
"""What is gone when a step is taken back."""


def losses(engine: SqlEngine, version: str) -> list[str]:
    """What taking the database to a version would lose."""
    with engine.connect() as connection:
        found = _version_of(connection)
    if found is None or version not in ("base", *_known_steps()):
        return []
    return [
        lost
        for step, lost in sorted(LOSSES.items())
        if version < step <= found or version == "base"
    ]


def move(engine: SqlEngine, version: str, lose_data: bool = False) -> None:
    """Take the database to a version, up or down; InputError where that loses data, unless told
    to."""
    lost = losses(engine, version)
    if lost and not lose_data:
        raise InputError(
            f"would lose {'; '.join(lost)}",
            where="VERSION",
            fix="with --lose-data it does, after a backup",
        )
    with engine.connect() as connection:
        _begin_alone(connection)
        _move(connection, version)
        _end_alone(connection)


def _begin_alone(connection: Connection) -> None:
    """One process at a time changes the shape; what it did is undone if it dies."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")  # tables are rebuilt on the way
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))


def _end_alone(connection: Connection) -> None:
    connection.commit()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")


def _stamp(connection: Connection) -> None:
    shape = f"CREATE TABLE IF NOT EXISTS {_VERSION} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
    connection.execute(text(shape))
    connection.execute(
        text(f"DELETE FROM {_VERSION}")
    )  # of a database that was taken down to nothing
    connection.execute(text(f"INSERT INTO {_VERSION} VALUES ('{HEAD}')"))


def _move(connection: Connection, version: str) -> None:
    from alembic import command  # loaded where there is something to change
    from alembic.script import ScriptDirectory

    config = alembic_config(connection)
    script = ScriptDirectory.from_config(config)
    known = {step.revision for step in script.walk_revisions()}
    found = _version_of(connection)
    if found is not None and found not in known:
        raise InputError(
            f"was written by a newer vgrads (version {found}, this one knows {HEAD})",
            where="database",
            fix="use that one",
        )
    if version not in known | {"base"}:
        raise InputError(f"no version '{version}'", where="VERSION", fix=", ".join(sorted(known)))
    down = version == "base" or (found is not None and version < found)
    (command.downgrade if down else command.upgrade)(config, version)


def _known_steps() -> list[str]:
    folder = Path(__file__).parent / "migrations" / "versions"
    return sorted(file.name.partition("_")[0] for file in folder.glob("0*.py"))


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic over the steps that ship with vgrads."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config
