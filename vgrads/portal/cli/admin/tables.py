"""Output of the operator's commands: tokens, the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from vgrads.portal.cli.terminal import rows_under

Json = dict[str, Any]


def _when(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = rows_under(*heads)
    for row in rows:
        table.add_row(*row)
    return table


def tokens_table(rows: Sequence[Json]) -> Table:
    """Return the table of tokens."""
    heads = ("id", "user", "scopes", "for", "expires (UTC)")
    return _table(
        heads, [(r["id"], r["user"], r["scopes"], r["name"], _when(r["expires_s"])) for r in rows]
    )


def audit_table(rows: Sequence[Json]) -> Table:
    """Return the table of the audit log."""
    heads = ("when (UTC)", "user", "from", "action", "what", "answer")
    cells = [
        (_when(r["at_s"]), r["user"], r["address"], r["action"], r["object"], str(r["status"]))
        for r in rows
    ]
    return _table(heads, cells)
