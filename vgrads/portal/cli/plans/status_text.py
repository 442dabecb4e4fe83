"""Runs as a list, or one in detail, as text. Few imports: the status command must be fast."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count, format_duration

Json = dict[str, Any]
_OLD_S = 60.0  # age of a promise that is shown
_STYLES = {"kept": "green", "broken": "red", "failed": "red", "interrupted": "yellow"}


def print_runs(out: Console, rows: Sequence[Json], total: int | None = None) -> None:
    """Print runs as a table, a line each; advice about a run that needs it follows its line.
    ``total``: number of runs, where these are the newest of them."""
    if not rows:
        out.print("no runs yet: start one with 'vgrads run SET', or try 'vgrads demo'")
        return
    out.print(runs_table(rows))
    if total is not None and total > len(rows):
        out.print(f"the newest {len(rows):,} of {format_count(total, 'run')}; --limit shows more")


def runs_table(rows: Sequence[Json]) -> TextTable:
    """Return the table of runs."""
    # a machine has two zones where it has summer time
    zones = {zone(row["started"]) for row in rows}
    due = f"due ({zones.pop()})" if len(zones) == 1 else "due"
    columns = (
        Column("run"),
        Column("set", shorten=True),
        Column("state"),
        Column(due, fold=1),
        Column("promise", right=True, fold=2),
        Column("in time", fold=3),
        Column("cost", right=True, fold=5),
        Column("started", fold=4),
    )
    return TextTable(columns, tuple(map(_run_row, rows)))


def _run_row(row: Json) -> Row:
    cells = (
        row["run"],
        row["name"],
        row["state"],
        minute(row["due"]),
        _format_share(row["promise"]),
        _format_in_time(row),
        "–" if not row["cost_usd"] else f"${row['cost_usd']:.2f}",
        minute(row["started"]),
    )
    notes = (row["hint"],) if row["hint"] else ()
    return Row(cells, notes, {"state": _STYLES.get(row["state"], ""), "": "yellow"})


def print_run(out: Console, row: Json) -> None:
    """Print one run in detail."""
    print_runs(out, [row])
    if "tasks" not in row:
        return
    out.print(_format_progress(row) + ".", highlight=False)
    # a promise that was kept needs no reasons
    if row["state"] != "kept":
        for line in row["delays"]:
            out.print(f"  delay: {line}", highlight=False, markup=False)
    for alarm in row["alarms"]:
        out.print(f"  {alarm_line(alarm)}", highlight=False, markup=False)
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


def alarm_line(alarm: Json) -> str:
    """Return a message about a promise in one line: when, about what, and who got it."""
    who = f"sent to {', '.join(alarm['sent_to'])}" if alarm["sent_to"] else "sent to nobody"
    failed = [f"; {item['target']} failed: {item['reason']}" for item in alarm["failed"]]
    return f"alarm {clock(alarm['at'])}: {alarm['state']}; {who}{''.join(failed)}"


def _format_progress(row: Json) -> str:
    """Return the progress, and the current probability of the promise."""
    tasks = row["tasks"]
    text = (
        f"{tasks['done']} of {format_count(tasks['of'], 'task')} and "
        f"{format_count(row['workflows_done'], 'workflow', 'are')} done"
    )
    if tasks["before"] and not tasks["of"]:
        return (
            f"nothing was left to be done: {format_count(tasks['before'], 'task', 'were')} "
            "done by an earlier run"
        )
    if tasks["before"]:
        text += f"; {tasks['before']} more were done by an earlier run"
    if row.get("promise_now") is not None:
        text += f"; {row['promise_state']}: the promise is {row['promise_now']:.3f}"
        if row["promise_age_s"] >= _OLD_S:
            text += f" as of {format_duration(row['promise_age_s'])} ago"
        if row["failing"]:
            text += f"; {row['failing']}"
        if row["expected_end"]:
            text += f", expected end {clock(row['expected_end'])}"
    return text


def clock(instant: str | None) -> str:
    """Format an RFC 3339 instant in the reader's local time, with its zone."""
    return "–" if instant is None else f"{minute(instant)} {zone(instant)}"


def minute(instant: str | None) -> str:
    """Format an RFC 3339 instant in the reader's local time."""
    return "–" if instant is None else f"{_format_local(instant):%Y-%m-%d %H:%M}"


def zone(instant: str) -> str:
    """Return the reader's local time zone at an instant."""
    return f"{_format_local(instant):%Z}"


def _format_local(instant: str) -> datetime:
    return datetime.fromisoformat(instant).astimezone()


def _format_share(chance: float | None) -> str:
    return "–" if chance is None else f"{chance:.3f}"


def _format_in_time(row: Json) -> str:
    outcome = row["outcome"]
    if "in_time" in outcome:
        return f"{outcome['in_time']} of {outcome['needed']}"
    return "–" if row["needed"] is None else f"of {row['needed']}"
