"""The database and its backups: read without changing or creating a file."""

from __future__ import annotations

import json
import shlex
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import inspect, make_url, text

from vgrads.kernel.earlier_versions import BEGIN_ANEW, UNREADABLE, earlier_version
from vgrads.portal.doctor.checks import Check, Unavailable, describe
from vgrads.portal.doctor.machine import UsedSite
from vgrads.portal.records.database import open_engine, sqlite_file
from vgrads.portal.records.reader import HEAD

QUICK_CHECK_S = 20.0
"""Longest integrity check of one file."""
_DAY_S = 86400.0
_OLD_DAYS = 7.0
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock
_HEADER = b"SQLite format 3\0"
_APART = ("-wal", "-shm", "-journal", ".draft")
_INTACT = ("ok",)
_NO_DATABASE = "there is no database"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """A database. ``version``: of its schema; None where it has none. ``earlier``: the version of
    vgrads that wrote it, where this one does not read it. ``integrity``: SQLite's findings, ``ok``
    where it is intact; none where it was not checked. ``error``: why it cannot be read."""

    where: str
    exists: bool = True
    empty: bool = False
    version: str | None = None
    earlier: str = ""
    integrity: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFacts:
    """The newest backup of a database. ``error``: why it cannot be used."""

    path: Path
    changed_s: float
    error: str = ""


def read_database(url: str) -> DatabaseFacts:
    """Read a database's version and, of an SQLite file, its integrity. InputError for a URL that is
    not valid."""
    file = sqlite_file(url)
    if file is not None:
        return read_file(file)
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            tables = inspect(connection).get_table_names()
            query = text("SELECT version_num FROM alembic_version")
            version = connection.execute(query).scalar() if "alembic_version" in tables else None
    finally:
        engine.dispose()
    return DatabaseFacts(
        where=make_url(url).render_as_string(),
        empty=not tables,
        version=version,
        earlier=earlier_version(tables, version),
    )


def stored_sites(url: str) -> list[UsedSite]:
    """Return the sites in a database; nothing where it has none yet."""
    file = sqlite_file(url)
    query = "SELECT name, document FROM site ORDER BY name"
    if file is None:
        engine = open_engine(url)
        try:
            with engine.connect() as connection:
                rows = [(str(name), str(body)) for name, body in connection.execute(text(query))]
        finally:
            engine.dispose()
    elif file.exists():
        with closing(sqlite3.connect(_make_address(file), uri=True, timeout=5.0)) as opened:
            rows = opened.execute(query).fetchall()
    else:
        rows = []
    return [_list_used(name, json.loads(body)) for name, body in rows]


def _list_used(name: str, document: Mapping[str, Any]) -> UsedSite:
    host = (document.get("access") or {}).get("host")
    return UsedSite(name=name, driver=str(document.get("driver") or ""), host=str(host or ""))


def read_file(file: Path) -> DatabaseFacts:
    """Read an SQLite file."""
    if not file.exists():
        return DatabaseFacts(where=str(file), exists=False)
    if not file.stat().st_size:
        return DatabaseFacts(where=str(file), error="is empty (0 bytes)")
    try:
        with closing(sqlite3.connect(_make_address(file), uri=True, timeout=5.0)) as connection:
            return _read_facts(connection, file)
    except (sqlite3.Error, OSError) as error:
        return DatabaseFacts(where=str(file), error=describe(error))


def _make_address(file: Path) -> str:
    """Return the URL under which SQLite opens a file and writes nothing.

    A read-only connection to a database in WAL mode creates the files of the log where they are
    missing, and leaves them. Where there is none, no process uses the database, and it can be read
    as one that does not change.
    """
    logs = [file.with_name(file.name + suffix) for suffix in ("-wal", "-shm")]
    how = "readonly_shm=1" if all(log.exists() for log in logs) else "immutable=1"
    return f"file:{quote(str(file.absolute()))}?mode=ro&{how}"


def _read_facts(connection: sqlite3.Connection, file: Path) -> DatabaseFacts:
    end_s = time.monotonic() + QUICK_CHECK_S
    # SQLite calls this while it works, and interrupts the query where it returns True
    connection.set_progress_handler(lambda: time.monotonic() > end_s, _STEPS)
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = {name for (name,) in connection.execute(query)}
    version = None
    if "alembic_version" in tables:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        version = str(row[0]) if row else None
    try:
        integrity = tuple(str(row[0]) for row in connection.execute("PRAGMA quick_check(5)"))
    except sqlite3.OperationalError as error:
        # interrupted because the time was over, which is no damage
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        integrity = ()
    return DatabaseFacts(
        where=str(file),
        empty=not tables,
        version=version,
        earlier=earlier_version(tables, version),
        integrity=integrity,
    )


def backups_of(file: Path) -> list[Path]:
    """Return the backups of a database in its folder: files named like it."""
    if not file.parent.is_dir():
        return []
    return sorted(path for path in file.parent.iterdir() if _is_backup(path, file))


def _is_backup(path: Path, file: Path) -> bool:
    if path == file or not path.name.startswith(file.stem) or path.name.endswith(_APART):
        return False
    if not path.is_file():
        return False
    if ".db" in path.name:
        return True
    with path.open("rb") as opened:
        return opened.read(len(_HEADER)) == _HEADER


def newest_backup(file: Path) -> BackupFacts | None:
    """Return the newest backup beside a database, and whether it opens; None where there is
    none."""
    newest = max(backups_of(file), key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return None
    facts = read_file(newest)
    damage = "; ".join(facts.integrity) if facts.integrity not in (_INTACT, ()) else ""
    problem = facts.error or damage or ("it has no tables" if facts.empty else "")
    return BackupFacts(path=newest, changed_s=newest.stat().st_mtime, error=problem)


def judge_database(facts: DatabaseFacts | Unavailable) -> list[Check]:
    """Judge whether the database opens, its version, its integrity."""
    return [_judge_opening(facts), _judge_version(facts), _judge_integrity(facts)]


def _judge_opening(facts: DatabaseFacts | Unavailable) -> Check:
    name = "database"
    if isinstance(facts, Unavailable):
        return Check(name, "wrong", f"cannot be read: {facts.reason}", "check VGRADS_DB")
    if not facts.exists:
        text = f"{facts.where} does not exist"
        return Check(name, "doubtful", text, "the first command that stores something creates it")
    if facts.error:
        fix = "check its permissions; if it is damaged, put a backup in its place"
        return Check(name, "wrong", f"{facts.where}: {facts.error}", fix)
    return Check(name, "ok", f"{facts.where} opens")


def _judge_version(facts: DatabaseFacts | Unavailable) -> Check:
    name = "schema version"
    missing = _list_missing(facts)
    if missing or isinstance(facts, Unavailable):
        return Check(name, "unknown", missing)
    if facts.empty:
        text = "the database has no tables yet"
        return Check(name, "doubtful", text, "the first command that stores something adds them")
    if facts.version == HEAD:
        return Check(name, "ok", f"version {HEAD}: that of this command")
    if facts.earlier:
        text = f"{facts.where} was written by vgrads {facts.earlier}, {UNREADABLE}"
        return Check(name, "wrong", text, BEGIN_ANEW)
    if facts.version is None or facts.version < HEAD:
        text = f"version {facts.version or 'unknown'}; this command uses {HEAD}"
        fix = "the next command migrates it, and makes a copy of an SQLite file before"
        return Check(name, "doubtful", text, fix)
    text = f"version {facts.version}, of a newer vgrads; this command supports {HEAD}"
    return Check(name, "wrong", text, "use the vgrads that wrote it")


def _judge_integrity(facts: DatabaseFacts | Unavailable) -> Check:
    name = "integrity"
    missing = _list_missing(facts)
    if missing or isinstance(facts, Unavailable):
        return Check(name, "unknown", missing)
    if not facts.integrity:
        text = "not checked: PostgreSQL, or the check took too long"
        return Check(
            name, "unknown", text, "use pg_amcheck, or 'sqlite3 FILE \"PRAGMA quick_check\"'"
        )
    if facts.integrity == _INTACT:
        return Check(name, "ok", "SQLite found no damage")
    text = f"{facts.where} is damaged: {'; '.join(facts.integrity)}"
    return Check(name, "wrong", text, "stop all vgrads processes and put a backup in its place")


def _list_missing(facts: DatabaseFacts | Unavailable) -> str:
    if isinstance(facts, Unavailable):
        return "the database cannot be read"
    if not facts.exists:
        return _NO_DATABASE
    return "the database does not open" if facts.error else ""


def judge_backup(
    file: Path | None, exists: bool, backup: BackupFacts | Unavailable | None, now_s: float
) -> Check:
    """Judge the newest backup beside the database: its age, and whether it opens. ``file``: None
    for PostgreSQL."""
    name = "backup"
    if file is None:
        return Check(name, "unknown", "PostgreSQL is not backed up by vgrads", "use pg_dump")
    day = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d")
    fix = f"vgrads db backup {shlex.quote(str(file.with_name(f'{file.stem}-{day}{file.suffix}')))}"
    if isinstance(backup, Unavailable):
        return Check(name, "unknown", backup.reason)
    if backup is None:
        if not exists:
            return Check(name, "unknown", _NO_DATABASE)
        text = "none beside the database (backups in other folders are not visible here)"
        return Check(name, "doubtful", text, fix)
    if backup.error:
        return Check(name, "wrong", f"{backup.path} cannot be used: {backup.error}", fix)
    days = max(0.0, now_s - backup.changed_s) / _DAY_S
    text = f"{backup.path} opens; it is {days:.1f} days old"
    return Check(name, "doubtful", text, fix) if days > _OLD_DAYS else Check(name, "ok", text)
