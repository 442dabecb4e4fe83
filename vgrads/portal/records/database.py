"""Location and opening of the database: connection setup, translation of errors."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import ExceptionContext, make_url
from sqlalchemy import event as sql_event
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError
from sqlmodel import create_engine

from vgrads.api.config import chosen_home, home, make_home
from vgrads.kernel.earlier_versions import refuse_file
from vgrads.kernel.errors import InputError, SiteError
from vgrads.kernel.extras import require
from vgrads.kernel.user_files import Identity, identity_of, protect_database
from vgrads.portal.records.reader import (
    BUSY_S,
    damage_error,
    database_error,
    database_in,
    database_url,
    is_damaged,
)
from vgrads.portal.records.reconnect import DatabaseLost, connection_options, is_lost

_CREATION_S = 2.0  # between the creation of a file and its first page, by another process


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite database; None for any other, or one in memory."""
    try:
        result = make_url(url)
    except ArgumentError:
        return None
    if result.get_backend_name() != "sqlite" or result.database in (None, "", ":memory:"):
        return None
    return Path(str(result.database))


def close_to_others(url: str) -> None:
    """Remove permissions of other users from the home with its runs, and from the database's
    files. Raise InputError where an earlier version wrote them."""
    here, file = home(), sqlite_file(url)
    files = []
    if file is not None:
        refuse_file(file)
        files = [file.with_name(file.name + more) for more in ("", "-wal", "-shm")]
    for path in (here, here / "runs", *files):
        if path.exists() and path.stat().st_mode & 0o077:
            with suppress(PermissionError):  # another user's file: not ours to change
                path.chmod(path.stat().st_mode & 0o700)


def open_engine(url: str | None = None) -> SqlEngine:
    """Open the database, without changes. Raise InputError for an invalid URL, a kind that is not
    installed, or a file of an earlier version."""
    chosen = url or database_url()
    if chosen == database_in(chosen_home()):
        make_home()
    file = sqlite_file(chosen)
    if file is not None:
        refuse_file(file)
        protect_database(file)
        _begin(file)
        refuse_empty(file)
    try:
        if make_url(chosen).drivername == "postgresql+psycopg":
            require("postgres", "PostgreSQL", "database URL")
        # errors would show the values of a statement, among them URLs with secrets
        engine = create_engine(chosen, hide_parameters=True, **connection_options(make_url(chosen)))
    except (ArgumentError, ImportError) as error:
        raise InputError(f"cannot be used: {error}", where="database URL") from error
    pool = type(engine.pool)
    logging.getLogger(f"{pool.__module__}.{pool.__name__}").addFilter(_is_no_interrupt)
    sql_event.listen(engine, "handle_error", _translate)
    if engine.dialect.name == "sqlite":
        sql_event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return whether a message of the pool of connections is about anything but Ctrl-C, which the
    command reports itself."""
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


def _begin(file: Path) -> None:
    """Create a new database's file. It gets its name when its first page is written: an empty one,
    which a full disk or a killed process leaves, is damaged. SiteError if it cannot be written. One
    that exists is not opened: closing it would release all of this process's locks on it
    (https://www.sqlite.org/howtocorrupt.html, 2.2)."""
    if os.path.lexists(file):
        return
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with suppress(OSError):  # as of a folder that is missing: reported on use
        try:
            _write_first_page(draft)
            os.link(draft, file)
        except FileExistsError:  # another process was quicker
            return
        except OSError:  # a file system without links
            _write_first_page(file)
        finally:
            draft.unlink(missing_ok=True)


def _write_first_page(file: Path) -> None:
    """Create a file readable only by its owner, and a database in it."""
    os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(file, timeout=BUSY_S)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise database_error(error) from error


def refuse_empty(file: Path) -> None:
    """Raise SiteError for a file without content: SQLite takes it for a new database, in which
    nothing that was stored is left."""
    end_s = time.monotonic() + _CREATION_S
    while file.is_file() and not file.stat().st_size:
        if time.monotonic() > end_s:
            raise damage_error(file, EmptyDatabase("it is empty (0 bytes)"))
        time.sleep(0.02)


class EmptyDatabase(Exception):
    """A database file without content."""


class OpenedFile:
    """The SQLite file that an engine has open, to notice that it was deleted or replaced: what is
    stored in it afterwards is lost with the last process that has it open."""

    def __init__(self, engine: SqlEngine) -> None:
        file = sqlite_file(str(engine.url))
        self._file = "" if file is None else os.path.realpath(file)
        self._last = self._identities() if self._file else []
        self._opened = self._last[:1]
        if self._file:
            sql_event.listen(engine, "commit", lambda _: self.refuse_lost())

    def refuse_lost(self) -> None:
        """Raise SiteError where the file was deleted or replaced; it is quick where nothing has
        changed."""
        if not self._file or (current := self._identities()) == self._last:
            return
        reason = self._loss(current)
        if reason:
            raise SiteError(
                reason,
                site="database",
                transient=False,
                fix=(
                    "stop it and put a copy in its place; what it stored since is only in the "
                    f"files that it has open, /proc/{os.getpid()}/fd: copy these first"
                ),
            )
        self._last = current

    def _loss(self, current: list[Identity | None]) -> str:
        if current[0] is None:
            return f"{self._file} was deleted while this process has it open"
        if current[:1] != self._opened:
            return f"{self._file} was replaced by another file while this process has it open"
        deleted = {f"{self._file}-wal (deleted)", f"{self._file} (deleted)"}
        for opened in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                if str(opened.readlink()) in deleted:
                    return f"the log of {self._file} was deleted while this process has it open"
        return ""

    def _identities(self) -> list[Identity | None]:
        """Return what the names of the database and its log stand for now."""
        return [identity_of(self._file), identity_of(f"{self._file}-wal")]


def _translate(context: ExceptionContext) -> SiteError | None:
    """Convert a database error to a site error: reported in a line, retried later. SQLAlchemy calls
    Ctrl-C in the middle of a statement a lost connection; it remains what it is."""
    if not isinstance(context.original_exception, Exception):
        return None
    if is_damaged(context.original_exception):
        return damage_error(
            sqlite_file(str(context.engine.url)) if context.engine else None,
            context.original_exception,
        )
    lost = is_lost(context)
    database = isinstance(context.sqlalchemy_exception, OperationalError | InternalError)
    if context.is_pre_ping or not (database or context.is_disconnect):
        return None
    error = database_error(context.original_exception)
    if lost:
        return DatabaseLost(error.what, site="database", transient=True, fix="check VGRADS_DB")
    return error


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Set up SQLite: readers concurrent with one writer; a commit is on disk before it takes
    effect."""
    for pragma in (f"busy_timeout={BUSY_S * 1000:.0f}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    end_s = time.monotonic() + BUSY_S
    # of two first connections at once, the one that finds it locked fails without a wait
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)
