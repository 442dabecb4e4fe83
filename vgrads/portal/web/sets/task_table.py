"""The table of a set's tasks: a row for each, those that need attention first."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from starlette.concurrency import run_in_threadpool

from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.run_routes import is_left
from vgrads.portal.web.service import Service

Json = dict[str, Any]
_MOST_ROWS = 300
_ORDER = ("failed", "running", "waiting", "planned", "cancelled", "skipped", "done")


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
    whole = task_rows(chart["placements"], attempts) + _rows_before(chart.get("done", ()))
    rows = [row for row in whole if _has(row, find)]
    more = max(0, len(rows) - _MOST_ROWS)
    return empty | {"tasks": rows[:_MOST_ROWS], "more": more, "complete": complete}


def retry_key(service: Service, run: RunRow | None) -> str:
    """Return a fresh key for the form that retries a run; empty where there is nothing to retry."""
    if run is None or run.state in GOES_ON or json.loads(run.how).get("engine") != "vgrads":
        return ""
    return secrets.token_hex(16) if is_left(service, run) else ""


def _has(row: Json, find: str) -> bool:
    """Return True where all words occur in the displayed text of a task."""
    text = (
        f"{row['workflow']}/{row['task']} {row['state']} {row['slot']} {row['reason']}".casefold()
    )
    return all(word in text for word in find.casefold().split())


def task_rows(placements: Iterable[Json], attempts: Iterable[Json]) -> list[Json]:
    """Return a row for each task: the state of its best replica, and the results of its
    attempts."""
    result: dict[tuple[str, str], Json] = {}
    for placement in placements:
        row = {
            "workflow": placement["workflow"],
            "task": placement["task"],
            "state": placement["state"],
            "slot": placement["slot"],
            "attempts": 0,
            "exit": None,
            "seconds": None,
            "times": None,
            "site": "",
            "reason": placement.get("reason") or "",
        }
        existing = result.setdefault((placement["workflow"], placement["task"]), row)
        if _better(placement["state"], existing["state"]):
            result[placement["workflow"], placement["task"]] = row
    for placement in attempts:
        row = result.setdefault(
            (placement["workflow"], placement["task"]), dict(placement) | {"attempts": 0}
        )
        row["attempts"] += placement.get("count", 1)
        if placement["state"] == row["state"]:
            row |= {key: placement[key] for key in ("exit", "seconds", "times", "site", "slot")}
            row["reason"] = placement["reason"] or ""
    return sorted(result.values(), key=lambda r: (_rank(r["state"]), r["workflow"], r["task"]))


def _rows_before(done: Iterable[Json]) -> list[Json]:
    """Return a row for each task that an earlier run did."""
    nothing = {
        "slot": "",
        "attempts": 0,
        "exit": None,
        "seconds": None,
        "times": None,
        "site": "",
        "state": "done",
    }
    return [{**nothing, **item, "reason": f"done before, in {item['run']}"} for item in done]


def _better(name: str, other: str) -> bool:
    """Return True where the state of a replica represents its task better than that of another."""
    best = ("done", "running", "waiting", "planned", "failed", "cancelled", "skipped")
    return best.index(name) < best.index(other)


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)
