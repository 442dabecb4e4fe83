"""The schema of the database: created, or migrated to this version step by step (Alembic), all or
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy import Engine as SqlEngine
from sqlmodel import SQLModel

from vgrads.kernel.errors import InputError
from vgrads.portal.records import tables
from vgrads.portal.records.reader import HEAD

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 7_411_802  # key of PostgreSQL's migration lock (arbitrary)
_VERSION = "alembic_version"


def prepare(engine: SqlEngine) -> None:
    """Migrate the database to this version's schema. Raise InputError where a newer vgrads wrote
    it."""
    if current(engine) == HEAD:
        return
    with engine.connect() as connection:
        _begin_alone(connection)
        names = set(inspect(connection).get_table_names())
        if names and _version_of(connection) == HEAD:
            pass  # another process was faster
        elif tables.SetRow.__tablename__ in names:
            _move(connection, HEAD)
        else:
            SQLModel.metadata.create_all(connection)
            _stamp(connection)
        _end_alone(connection)


def current(engine: SqlEngine) -> str | None:
    """Return the version of the database; None where it has none, being empty or older than
    versions."""
    with engine.connect() as connection:
        return _version_of(connection)


def _version_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION):
        return None
    name: str | None = connection.execute(text(f"SELECT version_num FROM {_VERSION}")).scalar()
    return name


LOSSES = {
    "0001": "all data of the database",
    "0002": (
        "tokens, sessions, opened sites, the audit log, stored plans, idempotency keys and "
        "queued work"
    ),
    "0011": "records of issued forecasts, and their scores",
    "0013": "the numbers of accounts of users whose names have the same digest",
    "0014": "how much is known of the waits that score forecasts",
    "0015": "the views of queues in which forecasts were learned",
    "0016": "with which options sets are planned again",
}
"""Data lost when a step is reversed."""


def losses(engine: SqlEngine, version: str) -> list[str]:
    """Return the data that a migration to a version would lose."""
    with engine.connect() as connection:
        text = _version_of(connection)
    if text is None or version not in ("base", *_list_steps()):
        return []
    return [
        lost for step, lost in sorted(LOSSES.items()) if version < step <= text or version == "base"
    ]


def move(engine: SqlEngine, version: str, lose_data: bool = False) -> None:
    """Migrate the database to a version, up or down. Raise InputError where that loses data, unless
    ``lose_data``."""
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
    """Lock the schema for one process at a time; its changes are undone if it dies."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")  # tables are rebuilt
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
    connection.execute(text(f"DELETE FROM {_VERSION}"))  # of a database reverted to an empty schema
    connection.execute(text(f"INSERT INTO {_VERSION} VALUES ('{HEAD}')"))


def _move(connection: Connection, version: str) -> None:
    from alembic import command  # loaded only when needed
    from alembic.script import ScriptDirectory

    config = alembic_config(connection)
    script = ScriptDirectory.from_config(config)
    existing = {step.revision for step in script.walk_revisions()}
    text = _version_of(connection)
    if text is not None and text not in existing:
        raise InputError(
            f"was written by a newer vgrads (version {text}; this one supports {HEAD})",
            where="database",
            fix="use that version",
        )
    if version not in existing | {"base"}:
        raise InputError(
            f"no version '{version}'", where="VERSION", fix=", ".join(sorted(existing))
        )
    down = version == "base" or (text is not None and version < text)
    (command.downgrade if down else command.upgrade)(config, version)


def _list_steps() -> list[str]:
    folder = Path(__file__).parent / "migrations" / "versions"
    return sorted(file.name.partition("_")[0] for file in folder.glob("0*.py"))


def alembic_config(connection: Connection | None = None) -> Config:
    """Return the Alembic configuration for the steps that ship with vgrads."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config
