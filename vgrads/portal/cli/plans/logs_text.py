"""Attempts at the tasks of a run, as text. Few imports: listing them must be fast."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from vgrads.kernel.units import format_duration
from vgrads.portal.cli.terminal import rows_under
from vgrads.portal.records.reading.attempts import attempts_at
from vgrads.portal.records.reading.reader import open_reader

Json = dict[str, Any]


def logs_of(run_id: str, task: str | None) -> Json:
    """Return every attempt of a run, or at a task, for ``vgrads logs --json``. Raise InputError
    where there is none."""
    with open_reader() as reader:
        return {"run": run_id, "attempts": attempts_at(reader, run_id, task)}


def logs_text(answer: Json, whole: bool) -> Any:
    """Return the attempts as a table; with ``whole``, each with its output."""
    if not whole:
        return attempts_table(answer["attempts"])
    text = Text()
    for row in answer["attempts"]:
        text.append(
            (
                f"{row['workflow']}/{row['task']} replica {row['copy']}, attempt "
                f"{row['attempt'] + 1}: {_slot_outcome(row)}\n"
            ),
            style="bold",
        )
        for name in ("stdout", "stderr"):
            if row[name]:
                text.append(f"  {name}:\n", style="dim")
                text.append("".join(f"    {line}\n" for line in row[name].splitlines()))
        if row["folder"]:
            text.append(f"  {row['folder']}\n", style="dim")
    return text if answer["attempts"] else "no attempt has started"


def attempts_table(rows: list[Json]) -> Table:
    """Return a table of attempts: slot, run time, result."""
    table = rows_under(
        "task", "copy", "attempt", "state", "exit", "began", "seconds", "slot", "why"
    )
    for row in rows:
        seconds = "–" if row["seconds"] is None else f"{row['seconds']:.1f}"
        table.add_row(
            Text(f"{row['workflow']}/{row['task']}"),
            str(row["copy"]),
            str(row["attempt"] + 1),
            row["state"],
            "–" if row["exit"] is None else str(row["exit"]),
            format_duration(row["started_s"]),
            seconds,
            Text(row["slot"]),
            Text(row["reason"] or ""),
        )
    return table


def _slot_outcome(row: Json) -> str:
    took = "" if row["seconds"] is None else f" after {row['seconds']:.1f} s"
    why = f": {row['reason']}" if row["reason"] else ""
    return f"{row['state']}{took} at {row['slot']}{why}"
