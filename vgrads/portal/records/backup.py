"""Copies of an SQLite database, while it is in use."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from vgrads.kernel.earlier_versions import refuse_file
from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import protect_database
from vgrads.portal.records.database import refuse_empty, sqlite_file
from vgrads.portal.records.reader import database_url


def back_up(url: str | None, file: Path) -> None:
    """Make a consistent copy of an SQLite database, also during writes. Raise InputError for any
    other."""
    source = _find_file(url)
    if not source.is_file():
        raise InputError("there is no database", where=str(source))
    if file.exists():
        raise InputError("already exists", where=str(file))
    refuse_empty(source)
    draft = file.with_name(file.name + ".draft")
    refuse_file(source)
    protect_database(source)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_RDWR, 0o600))  # as private as the database
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(draft)) as new:
            old.backup(new)
        draft.replace(file)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be written: {why}", where=str(file)) from error


def back_up_before_upgrade(url: str, version: str) -> Path:
    """Copy an SQLite database to its own folder, before it is migrated to a version. Raise
    InputError for any other."""
    source = _find_file(url)
    replica = source.with_name(f"{source.name}.before-{version}-{secrets.token_hex(3)}")
    back_up(url, replica)
    return replica


def _find_file(url: str | None) -> Path:
    path = sqlite_file(url or database_url())
    if path is None:
        raise InputError(
            "is not an SQLite database", where="--db", fix="back up PostgreSQL with pg_dump"
        )
    return path
