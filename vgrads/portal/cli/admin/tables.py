"""Output of the operator's commands: tokens, the audit log, checks of an installation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.portal.doctor.checks import Check, count

Json = dict[str, Any]
_STYLES = {"ok": "green", "doubtful": "yellow", "wrong": "bold red", "unknown": "dim"}


def _format_time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M")


def tokens_table(rows: Sequence[Json]) -> TextTable:
    """Return the table of tokens."""
    columns = (
        Column("id"),
        Column("user", shorten=True),
        Column("scopes", shorten=True, fold=1),
        Column("for", shorten=True, fold=3),
        Column("expires (UTC)", fold=2),
    )
    cells = (
        (r["id"], r["user"], r["scopes"], r["name"], _format_time(r["expires_s"])) for r in rows
    )
    return TextTable(columns, tuple(map(Row, cells)))


def audit_table(rows: Sequence[Json]) -> TextTable:
    """Return the table of the audit log."""
    columns = (
        Column("when (UTC)"),
        Column("user", shorten=True),
        Column("from", fold=3),
        Column("action", fold=1),
        Column("what", shorten=True),
        Column("answer", right=True, fold=2),
    )
    cells = (
        (
            _format_time(r["at_s"]),
            r["user"],
            r["address"],
            r["action"],
            r["object"],
            str(r["status"]),
        )
        for r in rows
    )
    return TextTable(columns, tuple(map(Row, cells)))


def checks_text(checks: Sequence[Check]) -> list[TextTable | str]:
    """Return the checks, what to do about them, and their number by state."""
    columns = (Column("check"), Column("state"), Column("result", below=True))
    rows = tuple(
        Row((check.name, check.state, check.message), styles={"state": _STYLES[check.state]})
        for check in checks
    )
    fixes = [
        f"{check.name}: {check.fix}"
        for state in ("wrong", "doubtful", "unknown", "ok")
        for check in checks
        if check.state == state and check.fix
    ]
    summary = f"{count(checks, 'wrong')} wrong, {count(checks, 'doubtful')} doubtful"
    heading = ["What to do", *fixes, ""] if fixes else []
    return [TextTable(columns, rows), *heading, summary]
