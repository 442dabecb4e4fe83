"""What can be said of a run from its record: what it holds, what went wrong, every attempt and what
it printed."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vgrads.api.plans.attempts import attempts_json, attempts_of, printed, troubles
from vgrads.api.plans.execution import Outcome
from vgrads.api.wiring import any_real
from vgrads.execmgr.core.endings import workflows_done
from vgrads.execmgr.core.journal import fold
from vgrads.execmgr.core.remainder import progress_of
from vgrads.kernel.units import format_duration
from vgrads.planner.replan import promise_now
from vgrads.portal.cli.terminal import rows_under
from vgrads.portal.jobs.standings import attempts_at
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import GOES_ON, Store

Json = dict[str, Any]
_MOST_NAMED, _SAID = 3, 2000  # tasks that failed, and bytes of what each said last


def held_slots(record: RunRecord) -> list[str]:
    """What a run holds at real sites, a line each; nothing of simulated ones, which end with their
    manager."""
    books = record.books()
    if not books or not any_real(record.setup().catalog, books[0].plan):
        return []
    state = fold(books, record.events())
    book = books[state.version]
    return [
        (
            f"{slot}: {book.uses[slot].slot.procs} processors at {book.uses[slot].slot.site}, "
            f"{one.state.name.lower()}"
        )
        + (f" ({one.reason})" if one.reason else "")
        for slot, one in state.slots.items()
        if one.state is not None and not one.state.ended and book.uses[slot].slot.kind != "local"
    ]


def name_troubles(outcome: Outcome, record: RunRecord, folder: Path, out: Console) -> None:
    """Of a run that was not kept: the tasks that failed, how, and where they said why."""
    found = troubles(outcome.state) if outcome.verdict == "broken" else []
    if not found:
        return
    attempts, _ = attempts_of(record.books(), record.events())
    for (workflow, task), reason in found[:_MOST_NAMED]:
        out.print(f"  {workflow}/{task}: {reason}", style="red", highlight=False, markup=False)
        tried = [one for one in attempts if one.key[:2] == (workflow, task)]
        if tried:
            _, err, place = printed(folder, tried[-1], _SAID)
            for line in err.splitlines()[-5:]:
                out.print(f"      {line}", highlight=False, markup=False)
            if place is not None:
                out.print(f"    all it printed: {place}", highlight=False, markup=False)
    out.print(f"every attempt: vgrads logs {record.run_id}", highlight=False)


def logs_of(run_id: str, task: str | None) -> Json:
    """``vgrads logs --json``: every attempt of a run, or at a task; InputError where there is none
    such."""
    with Store() as store:
        store.get_run(run_id)
        return {"run": run_id, "attempts": attempts_at(store, run_id, task)}


def logs_text(answer: Json, whole: bool) -> Any:
    """The attempts as a table; with ``whole``, each with what it printed."""
    if not whole:
        return attempts_table(answer["attempts"])
    text = Text()
    for row in answer["attempts"]:
        text.append(
            (
                f"{row['workflow']}/{row['task']} copy {row['copy']}, attempt "
                f"{row['attempt'] + 1}: {_fate(row)}\n"
            ),
            style="bold",
        )
        for name in ("stdout", "stderr"):
            if row[name]:
                text.append(f"  {name}:\n", style="dim")
                text.append("".join(f"    {line}\n" for line in row[name].splitlines()))
        if row["folder"]:
            text.append(f"  {row['folder']}\n", style="dim")
    return text if answer["attempts"] else "nothing has begun"


def attempts_table(rows: list[Json]) -> Table:
    """Attempts in a table: where, how long, how it ended."""
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


def _fate(row: Json) -> str:
    took = "" if row["seconds"] is None else f" after {row['seconds']:.1f} s"
    why = f": {row['reason']}" if row["reason"] else ""
    return f"{row['state']}{took} at {row['slot']}{why}"


def details_of(store: Store, row: Json) -> Json:
    """What the journal of one run adds to its row: progress, the present promise, what went
    wrong."""
    record = RunRecord(store.engine, row["run"])
    books = record.books()
    if not books:
        return row
    attempts, state = attempts_of(books, record.events())
    book = books[state.version]
    more: Json = {
        "tasks": {
            "done": len(state.done),
            "of": len({p.task_key for p in book.plan.placements}),
            "before": len(book.plan.done),
        },
        "workflows_done": len(workflows_done(book, state)),
        "held": held_slots(record) if row["state"] in GOES_ON else [],
    }
    if row["state"] in GOES_ON:
        outlook = promise_now(book.plan, book.snapshot, progress_of(book, state))
        began = datetime.fromisoformat(row["started"])
        end = None if outlook.end_s is None else began + timedelta(seconds=outlook.end_s)
        more |= {
            "promise_now": outlook.probability,
            "expected_end": end.isoformat() if end else None,
        }
    folder = record.setup().options.folder
    last = {one.key[:2]: one for one in attempts}
    failed = [
        next(attempts_json([last[task]], folder, _SAID)) | {"reason": reason}
        for task, reason in troubles(state)[:_MOST_NAMED]
        if task in last
    ]
    return row | more | {"troubles": failed}
