"""Where the database is, and how it is opened: what a connection begins with, what its errors
become."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import ExceptionContext, make_url
from sqlalchemy import event as sql_event
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError
from sqlmodel import create_engine

from vgrads.api.config import home
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.reconnect import DatabaseLost, connection_options, is_lost

_SQLITE, _BUSY_MS = "sqlite:///", 10_000


def database_url() -> str:
    """``VGRADS_DB``, else an SQLite file in :func:`vgrads.api.config.home`."""
    return os.environ.get("VGRADS_DB") or f"sqlite:///{home() / 'vgrads.db'}"


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for any other, or one in memory."""
    try:
        found = make_url(url)
    except ArgumentError:
        return None
    if found.get_backend_name() != "sqlite" or found.database in (None, "", ":memory:"):
        return None
    return Path(str(found.database))


def close_to_others(url: str) -> None:
    """Take from everybody else what older versions left open: the home with its runs, the
    database's files."""
    here, place = home(), sqlite_file(url)
    files = [place.with_name(place.name + more) for more in ("", "-wal", "-shm")] if place else []
    for path in (here, here / "runs", *files):
        if path.exists() and path.stat().st_mode & 0o077:
            with suppress(PermissionError):  # somebody else's: theirs to close
                path.chmod(path.stat().st_mode & 0o700)


def open_engine(url: str | None = None) -> SqlEngine:
    """The database, as it is; InputError for a URL that is none, or of a kind that is not
    installed."""
    chosen = url or database_url()
    if chosen == f"{_SQLITE}{home() / 'vgrads.db'}":
        home().mkdir(parents=True, exist_ok=True, mode=0o700)
    file = sqlite_file(chosen)
    if file is not None:
        _make_secret(file)
    try:
        engine = create_engine(chosen, **connection_options(make_url(chosen)))
    except (ArgumentError, ImportError) as error:
        raise InputError(f"cannot be used: {error}", where="database URL") from error
    sql_event.listen(engine, "handle_error", _translate)
    if engine.dialect.name == "sqlite":
        sql_event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _make_secret(file: Path) -> None:
    """A new database's file, for nobody else. One that is there is not opened: closing it would
    take all of this process's locks off it (https://www.sqlite.org/howtocorrupt.html, 2.2)."""
    with suppress(OSError):  # there already; or it cannot be made, which is told when it is used
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))


def _translate(context: ExceptionContext) -> SiteError | None:
    """A database that cannot do what it is asked is a site that fails: said in a line, asked again
    later."""
    lost = is_lost(context)
    database = isinstance(context.sqlalchemy_exception, OperationalError | InternalError)
    if context.is_pre_ping or not (database or context.is_disconnect):
        return None
    said = (str(context.original_exception).splitlines() or ["no word"])[0]
    if lost:
        return DatabaseLost(said, site="database", transient=True, fix="see VGRADS_DB")
    fix = "free some room on its disk" if "full" in said else "see VGRADS_DB"
    return SiteError(said, site="database", transient=True, fix=fix)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Readers beside one writer; a commit is on disk before anything is done about it."""
    for pragma in (f"busy_timeout={_BUSY_MS}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    end_s = time.monotonic() + _BUSY_MS / 1000.0
    # two that come first at once: the one that finds it locked is refused without being made to
    # wait
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)
