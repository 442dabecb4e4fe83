"""Homes and databases of versions that were never published: recognised, refused and left as they
are.

A file is read without its locks and without its log (``immutable``): a connection that honours them
creates and changes files beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from vgrads.kernel.errors import InputError

_LAST_REVISIONS = {"0002": "0.1", "0008": "0.2", "0016": "0.3.0.dev0"}
"""The last revision of the tables of each version; they were numbered from 0001."""
_OWN_TABLE, _REVISIONS = "workflow_set", "alembic_version"
UNREADABLE = "which this version does not read"
BEGIN_ANEW = "set VGRADS_HOME to a new folder, or move the old one away"
_OTHER_DATABASE = "set VGRADS_DB to a new database, and VGRADS_HOME to a new folder"
_others: set[Path] = set()


def earlier_version(tables: Collection[str], revision: str | None) -> str:
    """Return the version that wrote a database, by its tables and their revision; empty where it is
    none of the earlier ones."""
    if _OWN_TABLE not in tables:
        return ""
    if revision is None:
        return next(iter(_LAST_REVISIONS.values()))
    return next((v for last, v in _LAST_REVISIONS.items() if "0001" <= revision <= last), "")


def refuse_tables(tables: Collection[str], revision: str | None, database: str) -> None:
    """Raise InputError where an earlier version wrote a database, given by its tables and their
    revision."""
    if version := earlier_version(tables, revision):
        raise InputError(_format_version(version), where=database, fix=_OTHER_DATABASE)


def refuse_file(file: Path) -> None:
    """Raise InputError where an earlier version wrote an SQLite file. Nothing is changed."""
    if version := version_of_file(file):
        raise InputError(_format_version(version), where=str(file), fix=_OTHER_DATABASE)


def refuse_home(folder: Path) -> None:
    """Raise InputError where an earlier version wrote a home. Nothing is changed."""
    if version := version_of_file(folder / "vgrads.db"):
        raise InputError(_format_version(version), where=str(folder), fix=BEGIN_ANEW)


def _format_version(version: str) -> str:
    return f"was written by vgrads {version}, {UNREADABLE}"


def version_of_file(file: Path) -> str:
    """Return the earlier version that wrote an SQLite file; empty for any other file, which is not
    read again."""
    if file in _others or not file.is_file():
        return ""
    tables, revision = _read(file, "immutable=1")
    if not tables:  # its process was killed before it moved the log's pages into the file
        tables, revision = _read(file, "readonly_shm=1")
    version = earlier_version(tables, revision)
    if not version:
        _others.add(file)
    return version


def _read(file: Path, how: str) -> tuple[set[str], str | None]:
    """Return the tables of an SQLite file, and their revision; none where it cannot be read, which
    is reported when it is opened."""
    import sqlite3  # noqa: PLC0415 loaded only where there is a file

    try:
        connection = sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&{how}", uri=True)
        try:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            tables = {name for (name,) in connection.execute(query)}
            if _REVISIONS not in tables:
                return tables, None
            row = connection.execute(f"SELECT version_num FROM {_REVISIONS}").fetchone()
            return tables, str(row[0]) if row else ""
        finally:
            connection.close()
    except sqlite3.Error:
        return set(), None
