"""Output of the operator's commands: tokens, the audit log, checks of an installation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from vgrads.portal.cli.terminal import rows_under
from vgrads.portal.doctor.checks import Check, count

Json = dict[str, Any]
_STYLES = {"ok": "green", "doubtful": "yellow", "wrong": "bold red", "unknown": "dim"}


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


def checks_text(checks: Sequence[Check]) -> Group:
    """Return the checks, what to do about them, and their number by state."""
    table = rows_under("check", "state", "result", whole=("check", "state"))
    for check in checks:
        state = Text(check.state, style=_STYLES[check.state])
        table.add_row(check.name, state, Text(check.message))
    fixes = [
        Text(f"{check.name}: {check.fix}")
        for state in ("wrong", "doubtful", "unknown", "ok")
        for check in checks
        if check.state == state and check.fix
    ]
    heading = [Text("What to do", style="bold")] if fixes else []
    summary = Text(f"{count(checks, 'wrong')} wrong, {count(checks, 'doubtful')} doubtful")
    return Group(table, *heading, *fixes, *([Text()] if fixes else []), summary)
