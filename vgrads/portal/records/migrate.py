"""The schema of the database: created, or migrated to this version step by step (Alembic), all or
nothing, after a copy of an SQLite file is made beside it. Databases of versions that were never
published are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy import Engine as SqlEngine
from sqlmodel import SQLModel

from vgrads.kernel.earlier_versions import refuse_tables
from vgrads.kernel.errors import InputError
from vgrads.portal.records import tables
from vgrads.portal.records.backup import back_up_before_upgrade
from vgrads.portal.records.database import sqlite_file
from vgrads.portal.records.reader import HEAD

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 7_411_802  # key of PostgreSQL's migration lock (arbitrary)
_VERSION = "alembic_version"
STEPS = Path(__file__).parent / "migrations"
"""Alembic's folder of the steps."""


def prepare(engine: SqlEngine, head: str = HEAD, steps: Path = STEPS) -> None:
    """Migrate the database to ``head`` by the steps in a folder. Raise InputError where another
    version wrote it that this one does not read."""
    if current(engine) == head:
        return
    _refuse_earlier(engine)
    with engine.connect() as connection:
        _begin_alone(connection)
        names = set(inspect(connection).get_table_names())
        if names and _read_version(connection) == head:
            pass  # another process was faster
        elif tables.SetRow.__tablename__ in names:
            _move(connection, head, steps)
        else:
            SQLModel.metadata.create_all(connection)
            _stamp_version(connection)
        _end_alone(connection)


def current(engine: SqlEngine) -> str | None:
    """Return the version of the database; None where it has none, being empty."""
    with engine.connect() as connection:
        return _read_version(connection)


def _refuse_earlier(engine: SqlEngine) -> None:
    with engine.connect() as connection:
        names = inspect(connection).get_table_names()
        refuse_tables(names, _read_version(connection), engine.url.render_as_string())


def _read_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION):
        return None
    name: str | None = connection.execute(text(f"SELECT version_num FROM {_VERSION}")).scalar()
    return name


LOSSES = {
    "0301": "all data of the database",
    "0302": "the targets of alarms",
    "0303": "the rules of alarms of owners",
    "0304": "the sizes of sets that wait to be planned",
    "0305": "which sets and bags are archived",
}
"""Data lost when a step is reversed."""


def losses(engine: SqlEngine, version: str, steps: Path = STEPS) -> list[str]:
    """Return the data that a migration to a version would lose."""
    with engine.connect() as connection:
        text = _read_version(connection)
    if text is None or version not in ("base", *_list_steps(steps)):
        return []
    return [
        lost for step, lost in sorted(LOSSES.items()) if version < step <= text or version == "base"
    ]


def move(
    engine: SqlEngine, version: str, lose_data: bool = False, steps: Path = STEPS
) -> Path | None:
    """Migrate the database to a version, up or down; return the copy that was made before. Raise
    InputError where that loses data, unless ``lose_data``, or where an earlier version wrote it."""
    _refuse_earlier(engine)
    lost = losses(engine, version, steps)
    if lost and not lose_data:
        raise InputError(
            f"would lose {'; '.join(lost)}",
            where="VERSION",
            fix="with --lose-data it does, after a backup",
        )
    with engine.connect() as connection:
        _begin_alone(connection)
        backup = _move(connection, version, steps)
        _end_alone(connection)
    return backup


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


def _stamp_version(connection: Connection) -> None:
    shape = f"CREATE TABLE IF NOT EXISTS {_VERSION} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
    connection.execute(text(shape))
    connection.execute(text(f"DELETE FROM {_VERSION}"))  # of a database reverted to an empty schema
    connection.execute(text(f"INSERT INTO {_VERSION} VALUES ('{HEAD}')"))


def _move(connection: Connection, version: str, steps: Path) -> Path | None:
    """Carry out steps within a transaction that excludes other writers; return the copy that was
    made before."""
    from alembic import command  # loaded only when needed
    from alembic.script import ScriptDirectory

    config = alembic_config(connection, steps)
    script = ScriptDirectory.from_config(config)
    revisions = {step.revision for step in script.walk_revisions()}
    text = _read_version(connection)
    if text is not None and text not in revisions:
        raise InputError(
            f"was written by a newer vgrads (version {text}; this one supports {max(revisions)})",
            where="database",
            fix="use that version",
        )
    if version not in revisions | {"base"}:
        raise InputError(
            f"no version '{version}'", where="VERSION", fix=", ".join(sorted(revisions))
        )
    url = connection.engine.url.render_as_string(hide_password=False)
    backup = None
    if text not in (None, version) and sqlite_file(url) is not None:
        backup = back_up_before_upgrade(url, version)
    down = version == "base" or (text is not None and version < text)
    (command.downgrade if down else command.upgrade)(config, version)
    return backup


def _list_steps(steps: Path) -> list[str]:
    return sorted(file.name.partition("_")[0] for file in (steps / "versions").glob("0*.py"))


def alembic_config(connection: Connection | None = None, steps: Path = STEPS) -> Config:
    """Return the Alembic configuration for the steps in a folder."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(steps))
    config.attributes["connection"] = connection
    return config
