"""What the operator's commands show: tokens, audit, settings; and the copy of a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from sqlmodel import Session, col, select

from kernel.errors import InputError
from portal.access import Access
from portal.config import database_url
from portal.settings import ServiceSettings
from portal.sites import choose_catalog
from portal.store import Store
from portal.tables import AuditRow

Json = dict[str, Any]
_SQLITE = "sqlite:///"


def _when(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*row)
    return table


def tokens_table(rows: Sequence[Json]) -> Table:
    """Tokens for a person."""
    heads = ("id", "user", "scopes", "for", "expires (UTC)")
    return _table(
        heads, [(r["id"], r["user"], r["scopes"], r["name"], _when(r["expires_s"])) for r in rows]
    )


def audit_rows(store: Store, user: str | None, limit: int) -> list[Json]:
    """The newest entries of the audit log."""
    query = select(AuditRow).order_by(col(AuditRow.id).desc()).limit(limit)
    if user is not None:
        query = query.where(AuditRow.user == user)
    with Session(store.engine) as session:
        return [row.model_dump(exclude={"id"}) for row in session.exec(query)]


def audit_table(rows: Sequence[Json]) -> Table:
    """The audit log for a person."""
    heads = ("when (UTC)", "user", "from", "action", "what", "answer")
    cells = [
        (_when(r["at_s"]), r["user"], r["address"], r["action"], r["object"], str(r["status"])) for r in rows
    ]  # fmt: skip
    return _table(heads, cells)


def back_up(url: str | None, file: Path) -> None:
    """A consistent copy of an SQLite database, also while others write to it; InputError for any other."""
    chosen = url or database_url()
    if not chosen.startswith(_SQLITE):
        raise InputError("is not an SQLite database", where="--db", fix="for PostgreSQL: pg_dump")
    source = Path(chosen.removeprefix(_SQLITE))
    if not source.is_file():
        raise InputError("there is no database", where=str(source))
    if file.exists():
        raise InputError("is there already", where=str(file))
    draft = file.with_name(file.name + ".draft")
    try:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(draft)) as new:
            old.backup(new)
        draft.replace(file)
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"cannot be written: {error}", where=str(file)) from error


def try_settings(settings: ServiceSettings) -> Json:
    """The settings that rule, once the database answers and the sites can be read."""
    from portal.serving import refuse_open_door  # which itself needs much

    with Store(settings.database) as store:
        access = Access(store.engine)
        refuse_open_door(settings, access)
        tokens = len(access.tokens())
    catalog = choose_catalog(settings.sites)
    told = settings.model_dump(mode="json") | {"db": _without_password(settings.database)}
    if told["oidc"]:
        told["oidc"]["client_secret"] = (
            "set" if settings.oidc and settings.oidc.client_secret else ""
        )
    return {"settings": told, "sites": [site.name for site in catalog.sites], "tokens": tokens}


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{login.partition(':')[0]}{at}{place}" if at else url


def settings_text(told: Mapping[str, Any]) -> str:
    """Settings for a person."""
    lines = [f"{name} = {value!r}" for name, value in told["settings"].items()]
    return "\n".join([*lines, f"sites: {', '.join(told['sites'])}", f"tokens: {told['tokens']}"])
