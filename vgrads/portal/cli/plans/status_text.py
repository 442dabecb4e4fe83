"""Runs as a list, and one of them whole, for a person. Few imports: asking how things stand must be
quick."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from vgrads.portal.cli.terminal import rows_under

Json = dict[str, Any]


def print_runs(out: Console, rows: Sequence[Json]) -> None:
    """Runs as a table, and below it what asks for attention."""
    if not rows:
        out.print(
            "no run yet: 'vgrads run SET' begins one, 'vgrads demo' shows it", highlight=False
        )
        return
    heads = ("run", "set", "state", "started", "due", "promise", "in time", "cost")
    table = rows_under(*heads, whole=("run", "promise"))
    for row in rows:
        table.add_row(
            row["run"],
            Text(row["name"]),
            state_text(row),
            clock(row["started"]),
            clock(row["due"]),
            _share(row["promise"]),
            _in_time(row),
            "–" if not row["cost_usd"] else f"${row['cost_usd']:.2f}",
        )
    out.print(table)
    for row in rows:
        if row["hint"]:
            out.print(f"{row['run']}: {row['hint']}", style="yellow", soft_wrap=True)


def print_run(out: Console, row: Json) -> None:
    """One run, whole."""
    print_runs(out, [row])
    if "tasks" not in row:
        return
    out.print(_progress(row) + ".", highlight=False)
    for line in row["held"]:
        out.print(f"  holds {line}", highlight=False, markup=False)
    for one in row["troubles"]:
        out.print(
            f"  {one['workflow']}/{one['task']}: {one['reason']}",
            style="red",
            highlight=False,
            markup=False,
        )
        for line in one["stderr"].splitlines()[-5:]:
            out.print(f"      {line}", highlight=False, markup=False)
        if one["folder"]:
            out.print(f"    all it printed: {one['folder']}", highlight=False, markup=False)
    if row["troubles"]:
        out.print(f"every attempt: vgrads logs {row['run']}", highlight=False)


def _progress(row: Json) -> str:
    """What is done, and how sure the promise is now."""
    tasks = row["tasks"]
    told = f"{tasks['done']} of {tasks['of']} tasks and {row['workflows_done']} workflows are done"
    if tasks["before"] and not tasks["of"]:
        return f"nothing was left to be done: {tasks['before']} tasks were done by an earlier run"
    if tasks["before"]:
        told += f"; {tasks['before']} more were done by an earlier run"
    if "promise_now" in row:
        told += f"; the promise stands at {row['promise_now']:.3f} now"
        if row["expected_end"]:
            told += f", expected end {clock(row['expected_end'])}"
    return told


def state_text(row: Json) -> str:
    """How a run stands, and whether somebody looks after it."""
    return f"{row['state']}, its manager is gone" if row["manager"] == "gone" else str(row["state"])


def clock(instant: str | None) -> str:
    """An RFC 3339 instant by the clock of whoever reads, with its zone."""
    if instant is None:
        return "–"
    return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M %Z}"


def _share(chance: float | None) -> str:
    return "–" if chance is None else f"{chance:.3f}"


def _in_time(row: Json) -> str:
    outcome = row["outcome"]
    if "in_time" in outcome:
        return f"{outcome['in_time']}, {outcome['needed']} needed"
    return "–" if row["needed"] is None else f"{row['needed']} needed"
