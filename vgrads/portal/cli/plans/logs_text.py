"""Attempts at the tasks of a run, as text. Few imports: listing them must be fast."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_duration
from vgrads.portal.records.reading.attempts import read_attempts_at
from vgrads.portal.records.reading.opening import open_reader

Json = dict[str, Any]


def logs_of(run_id: str, task: str | None) -> Json:
    """Return every attempt of a run, or at a task, for ``vgrads logs --json``. Raise InputError
    where there is none."""
    with open_reader() as reader:
        return {"run": run_id, "attempts": read_attempts_at(reader, run_id, task)}


def logs_text(answer: Json, whole: bool) -> Any:
    """Return the attempts as a table; with ``whole``, each with its output."""
    if not whole:
        return attempts_table(answer["attempts"])
    text = Text()
    for row in answer["attempts"]:
        text.append(
            (
                f"{row['workflow']}/{row['task']} replica {row['copy']}, attempt "
                f"{row['attempt'] + 1}: {_format_slot_outcome(row)}\n"
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


_COLUMNS = (
    Column("task", shorten=True),
    Column("state"),
    Column("exit", right=True, fold=1),
    Column("run time", right=True, fold=2),
    Column("attempt", right=True, fold=3),
    Column("replica", right=True, fold=5),
    Column("began", right=True, fold=6),
    Column("slot", shorten=True, fold=4),
    Column("reason", below=True),
)


def attempts_table(rows: list[Json]) -> TextTable:
    """Return a table of attempts: slot, run time, result; the reason of a failure below it."""
    return TextTable(_COLUMNS, tuple(map(_make_attempt_row, rows)))


def _make_attempt_row(row: Json) -> Row:
    cells = (
        f"{row['workflow']}/{row['task']}",
        row["state"],
        "–" if row["exit"] is None else str(row["exit"]),
        "–" if row["seconds"] is None else f"{row['seconds']:.1f} s",
        str(row["attempt"] + 1),
        str(row["copy"]),
        format_duration(row["started_s"]),
        row["slot"],
        row["reason"] or "",
    )
    style = "red" if row["state"] == "failed" else ""
    return Row(cells, styles={"state": style, "": style})


def _format_slot_outcome(row: Json) -> str:
    took = "" if row["seconds"] is None else f" after {row['seconds']:.1f} s"
    why = f": {row['reason']}" if row["reason"] else ""
    return f"{row['state']}{took} at {row['slot']}{why}"
