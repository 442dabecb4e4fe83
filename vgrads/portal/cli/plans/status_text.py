"""Runs as a list, or one in detail, as text. Few imports: the status command must be fast."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from vgrads.portal.cli.terminal import rows_under

Json = dict[str, Any]


def print_runs(out: Console, rows: Sequence[Json]) -> None:
    """Print runs as a table, followed by those that need attention."""
    if not rows:
        out.print(
            "no runs yet: start one with 'vgrads run SET', or try 'vgrads demo'", highlight=False
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
    """Print one run in detail."""
    print_runs(out, [row])
    if "tasks" not in row:
        return
    out.print(_progress(row) + ".", highlight=False)
    for line in row["slots"]:
        out.print(f"  holds {line}", highlight=False, markup=False)
    for item in row["troubles"]:
        out.print(
            f"  {item['workflow']}/{item['task']}: {item['reason']}",
            style="red",
            highlight=False,
            markup=False,
        )
        for line in item["stderr"].splitlines()[-5:]:
            out.print(f"      {line}", highlight=False, markup=False)
        if item["folder"]:
            out.print(f"    full output: {item['folder']}", highlight=False, markup=False)
    if row["troubles"]:
        out.print(f"all attempts: vgrads logs {row['run']}", highlight=False)


def _progress(row: Json) -> str:
    """Return the progress, and the current probability of the promise."""
    tasks = row["tasks"]
    text = f"{tasks['done']} of {tasks['of']} tasks and {row['workflows_done']} workflows are done"
    if tasks["before"] and not tasks["of"]:
        return f"nothing was left to be done: {tasks['before']} tasks were done by an earlier run"
    if tasks["before"]:
        text += f"; {tasks['before']} more were done by an earlier run"
    if "promise_now" in row:
        text += f"; the current promise is {row['promise_now']:.3f}"
        if row["expected_end"]:
            text += f", expected end {clock(row['expected_end'])}"
    return text


def state_text(row: Json) -> str:
    """Return the state of a run, and whether it has a manager."""
    return (
        f"{row['state']}, its manager has ended" if row["manager"] == "gone" else str(row["state"])
    )


def clock(instant: str | None) -> str:
    """Format an RFC 3339 instant in the reader's local time, with its zone."""
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
