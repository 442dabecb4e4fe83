"""The table of a set's tasks: a row for each, those that need attention first."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool

from vgrads.kernel.units import format_duration, format_seconds
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.run_routes import is_left
from vgrads.portal.web.service import Service

Json = dict[str, Any]
_MOST_ROWS = 300
_ORDER = ("failed", "running", "waiting", "planned", "cancelled", "skipped", "done")
_TONES = {"failed": "bad", "running": "good"}
_OVERHEAD = ("waited_s", "in_s", "out_s", "commit_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTask:
    """A task: the state of its best replica, and the result of its last attempt in that state."""

    workflow: str
    task: str
    state: str
    slot: str = ""
    site: str = ""
    attempts: int = 0
    exit: int | None = None
    seconds: float | None = None
    times: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCell:
    """A cell of the table; ``text``: empty where there is no value; ``number``: it stands at the
    right; ``tone``: a CSS class; ``path``: where it leads."""

    label: str
    text: str
    number: bool = False
    tone: str = ""
    title: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskColumn:
    """A column of the table after that of the names."""

    label: str
    text: Callable[[ListedTask], str]
    number: bool = False
    tone: Callable[[ListedTask], str] = lambda _: ""
    title: Callable[[ListedTask], str] = lambda _: ""

    def cell(self, result: ListedTask) -> TaskCell:
        """Return the cell of a task."""
        text = self.text(result)
        return TaskCell(
            label=self.label,
            text=text,
            number=self.number,
            tone=self.tone(result) if text else "none",
            title=self.title(result) if text else "",
        )


async def task_parts(
    service: Service, head: Head, run: RunRow | None, chart: Json | None, find: str = ""
) -> Json:
    """Return the values of the table's template; not all tasks of a very large set. ``run``: the
    newest of the set; ``chart``: its chart, None without a plan; ``find``: a part of the displayed
    text of tasks."""
    again = await run_in_threadpool(retry_key, service, run)
    empty = {"set_id": head.id, "tasks": [], "more": 0, "find": find, "again": again}
    empty |= {"complete": True}
    if chart is None:
        return empty
    attempts, complete = await service.attempts.of(run) if run is not None else ([], True)
    whole = task_rows(chart["placements"], attempts) + _list_rows_before(chart.get("done", ()))
    rows = [row for row in whole if _has(row, find)]
    more = max(0, len(rows) - _MOST_ROWS)
    tasks = table_of(head.id, rows[:_MOST_ROWS], bool(again))
    return empty | {"tasks": tasks, "more": more, "complete": complete}


def retry_key(service: Service, run: RunRow | None) -> str:
    """Return a fresh key for the form that retries a run; empty where there is nothing to retry."""
    if run is None or run.state in GOES_ON or json.loads(run.how).get("engine") != "vgrads":
        return ""
    return secrets.token_hex(16) if is_left(service, run) else ""


def table_of(set_id: str, rows: Sequence[ListedTask], again: bool) -> list[list[TaskCell]]:
    """Return the cells of tasks, row by row, without the columns that have no value in any row.
    ``again``: tasks that are not done can be run again, from their pages."""
    columns = [column for column in _COLUMNS if any(map(column.text, rows))]
    return [
        [_name_cell(set_id, row, again), *(column.cell(row) for column in columns)] for row in rows
    ]


def _name_cell(set_id: str, row: ListedTask, again: bool) -> TaskCell:
    names = (quote(name, safe="") for name in (row.workflow, row.task))
    has_page = row.attempts or (again and row.state != "done")
    path = f"/sets/{set_id}/tasks/{'/'.join(names)}" if has_page else ""
    return TaskCell(label="Task", text=f"{row.workflow}/{row.task}", path=path)


def _format_elapsed(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return format_duration(seconds) if seconds >= 60 else format_seconds(seconds)


def _format_peak(row: ListedTask) -> str:
    mib = row.times.get("peak_mib")
    return f"{mib:.0f} MiB" if mib else ""


def _compute_overhead(row: ListedTask) -> str:
    return (
        format_seconds(sum(row.times.get(name, 0.0) for name in _OVERHEAD), 2) if row.times else ""
    )


def _list_overhead(row: ListedTask) -> str:
    spent = [(words, row.times.get(name, 0.0)) for name, words in SPENT if name not in _OF_TASK]
    return ", ".join(f"{format_seconds(seconds, 2)} {words}" for words, seconds in spent if seconds)


SPENT = (
    ("waited_s", "waited for its place"),
    ("in_s", "for its inputs"),
    ("ran_s", "ran"),
    ("cpu_s", "of processors"),
    ("out_s", "for its outputs"),
    ("commit_s", "until these were on the disk"),
    ("own_s", "of the manager itself"),
)
"""What an attempt spends time for, in the order in which it happens."""
_OF_TASK = ("ran_s", "cpu_s")
_COLUMNS = (
    TaskColumn(
        label="State", text=lambda row: row.state, tone=lambda row: _TONES.get(row.state, "")
    ),
    TaskColumn(label="Attempts", text=lambda row: str(row.attempts or ""), number=True),
    TaskColumn(
        label="Exit code", text=lambda row: "" if row.exit is None else str(row.exit), number=True
    ),
    TaskColumn(label="Elapsed", text=lambda row: _format_elapsed(row.seconds), number=True),
    TaskColumn(
        label="CPU time",
        text=lambda row: _format_elapsed(row.times.get("cpu_s") or None),
        number=True,
    ),
    TaskColumn(label="Max RSS", text=_format_peak, number=True),
    TaskColumn(label="Overhead", text=_compute_overhead, number=True, title=_list_overhead),
    TaskColumn(label="Slot", text=lambda row: row.slot),
    TaskColumn(label="Reason", text=lambda row: row.reason),
)


def _has(row: ListedTask, find: str) -> bool:
    """Return True where all words occur in the displayed text of a task."""
    text = f"{row.workflow}/{row.task} {row.state} {row.slot} {row.reason}".casefold()
    return all(word in text for word in find.casefold().split())


def task_rows(placements: Iterable[Json], attempts: Iterable[Json]) -> list[ListedTask]:
    """Return a row for each task: the state of its best replica, and the results of its
    attempts."""
    result: dict[tuple[str, str], ListedTask] = {}
    for placement in placements:
        key = placement["workflow"], placement["task"]
        current = result.get(key)
        if current is None or _is_better(placement["state"], current.state):
            result[key] = ListedTask(
                workflow=key[0],
                task=key[1],
                state=placement["state"],
                slot=placement["slot"],
                reason=placement.get("reason") or "",
            )
    for attempt in attempts:
        key = attempt["workflow"], attempt["task"]
        row = result.get(key) or ListedTask(workflow=key[0], task=key[1], state=attempt["state"])
        row = replace(row, attempts=row.attempts + attempt.get("count", 1))
        # attempts with another state say nothing about the one that is shown
        result[key] = _add_result(row, attempt) if attempt["state"] == row.state else row
    return sorted(result.values(), key=lambda row: (_rank(row.state), row.workflow, row.task))


def _add_result(row: ListedTask, attempt: Json) -> ListedTask:
    return replace(
        row,
        exit=attempt["exit"],
        seconds=attempt["seconds"],
        times=attempt["times"] or {},
        site=attempt["site"],
        slot=attempt["slot"],
        reason=attempt["reason"] or "",
    )


def _list_rows_before(done: Iterable[Json]) -> list[ListedTask]:
    """Return a row for each task that an earlier run did."""
    return [
        ListedTask(
            workflow=item["workflow"],
            task=item["task"],
            state="done",
            reason=f"done before, in {item['run']}",
        )
        for item in done
    ]


def _is_better(name: str, other: str) -> bool:
    """Return True where the state of a replica represents its task better than that of another."""
    best = ("done", "running", "waiting", "planned", "failed", "cancelled", "skipped")
    return best.index(name) < best.index(other)


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)
