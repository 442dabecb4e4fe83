"""Plain queries on stored records.

Commands that only show what is stored read an SQLite file of the current version with Python's own
module: importing SQLAlchemy and the tables alone takes longer than such a command. Every other
database is opened as for writing, which creates or migrates it; one of an earlier version is
refused.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vgrads.api.config import home
from vgrads.kernel.earlier_versions import refuse_file
from vgrads.kernel.errors import SiteError
from vgrads.kernel.user_files import open_user_file, protect_database

HEAD = "0305"
"""The newest revision in ``portal/records/migrations/versions``."""
BUSY_S = 10.0
"""How long SQLite waits for a lock, in seconds."""
OPERATOR = "local"
"""Owner of what is done at the command line; its learned run times serve everybody."""
_SQLITE = "sqlite:///"
_HEADER = b"SQLite format 3\0"


def database_url() -> str:
    """Return ``VGRADS_DB``, else an SQLite file in :func:`vgrads.api.config.home`."""
    return os.environ.get("VGRADS_DB") or database_in(home())


def database_in(folder: Path) -> str:
    """Return the URL of the SQLite file in a home."""
    return f"{_SQLITE}{folder / 'vgrads.db'}"


class RecordReader(Protocol):
    """Reads records, in any kind of database."""

    def rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the result of a query, whose parameters are written ``:name``."""

    def now_s(self) -> float | None:
        """Return the clock of the database, in seconds; None where it has none."""


@runtime_checkable
class RecordWriter(RecordReader, Protocol):
    """Reads and changes records, in any kind of database."""

    def change(self, query: str, **values: object) -> None:
        """Run a statement in a transaction of its own: on disk on return."""


class SqliteReader:
    """Reads and changes an SQLite file that exists."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection, self._file = connection, file

    def rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the result of a query, whose parameters are written ``:name``."""
        with self._reported():
            return self._connection.execute(query, values).fetchall()

    def change(self, query: str, **values: object) -> None:
        """Run a statement in a transaction of its own; the parameters are written ``:name``."""
        stored = {name: _convert_to_stored(value) for name, value in values.items()}
        with self._reported(), self._connection:
            self._connection.execute(query, stored)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if is_damaged(error):
                raise damage_error(self._file, error) from error
            raise database_error(error) from error

    def now_s(self) -> None:
        """SQLite has no clock that other machines could compare with their own."""


def database_error(error: BaseException) -> SiteError:
    """Convert an error of a database to one that is reported in a line, and retried later."""
    text = (str(error).splitlines() or ["no error message"])[0]
    fix = "free space on its disk" if "full" in text else "check VGRADS_DB"
    return SiteError(text, site="database", transient=True, fix=fix)


def is_damaged(error: BaseException) -> bool:
    """Return True for an error of a damaged SQLite file."""
    # the low byte is the primary code; the others only refine it
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def damage_error(file: Path | None, error: BaseException) -> SiteError:
    """Return what to do about a damaged file; names the newest copy beside it."""
    copies = [path for path in file.parent.glob("*") if _is_copy(path, file)] if file else []
    newest = max(copies, key=lambda path: path.stat().st_mtime, default=None)
    source = f"'{newest}', the newest copy beside it" if newest else "a copy of 'vgrads db backup'"
    return SiteError(
        f"{file or 'the file'} is damaged: {error}",
        site="database",
        transient=False,
        fix=(
            "stop all vgrads processes, move it and its -wal and -shm files away, and put "
            f"{source} in its place; without a copy, 'sqlite3 FILE .recover' may save part of it"
        ),
    )


def _is_copy(path: Path, file: Path) -> bool:
    """Return True for another SQLite database with a name like that of ``file``."""
    if path == file or not path.name.startswith(file.stem) or not path.is_file():
        return False
    try:
        with open_user_file(path) as opened:
            return opened.read(len(_HEADER)) == _HEADER
    except OSError:  # a part of the database, or a link to it
        return False


@contextmanager
def open_current(url: str | None = None) -> Iterator[SqliteReader | None]:
    """Open an SQLite file of this version with Python's own module; None for every other
    database, also for one that does not exist yet."""
    file = _find_plain_file(url or database_url())
    if file is None or not file.is_file():
        yield None
        return
    refuse_file(file)
    protect_database(file)
    with closing(sqlite3.connect(file, timeout=BUSY_S)) as connection:
        yield SqliteReader(connection, file) if _is_current(connection) else None


def is_missing() -> bool:
    """True where the user's database is an SQLite file that does not exist yet."""
    file = _find_plain_file(database_url())
    return file is not None and not file.is_file()


def _find_plain_file(url: str) -> Path | None:
    """Return the file of an SQLite URL without parameters; None for every other URL."""
    path = url.removeprefix(_SQLITE)
    plain = path != url and path not in ("", ":memory:") and not set("?%") & set(path)
    return Path(path) if plain else None


def _is_current(connection: sqlite3.Connection) -> bool:
    """Return True for a database of this version; errors are those of opening it for writing."""
    try:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
    except sqlite3.Error:
        return False


def _convert_to_stored(value: object) -> object:
    """Return a value as SQLAlchemy stores it in SQLite: instants as text, without a zone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value


def new_id(prefix: str) -> str:
    """Return a short id that is hard to guess."""
    return f"{prefix}-{secrets.token_hex(5)}"


def as_instant(value: str | datetime) -> datetime:
    """Return an instant of a row: SQLite stores it as text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
