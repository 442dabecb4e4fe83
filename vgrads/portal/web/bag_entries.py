"""Bags in the list of all work: their states in the words of the pages, and their goals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import read_status
from vgrads.kernel.units import format_count
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.bags import ENDED, BagEntry, read_all_bags, read_bag_status
from vgrads.portal.web.set_display import (
    CANCELLED,
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    WAITING,
    DisplayState,
    PromiseSummary,
    state_with,
)
from vgrads.portal.web.work_entry import WorkEntry, unix_s

Json = Mapping[str, Any]
_STATES = {
    "waiting": WAITING,
    "running": RUNNING,
    "interrupted": INTERRUPTED,
    "done": DONE,
    "failed": FAILED,
    "cancelled": CANCELLED,
}


class BagEntries:
    """Lists of bags; one for each service. Those that have ended are read once."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._ended: dict[str, tuple[BagEntry, WorkEntry]] = {}

    def entries(self, owner: str | None) -> list[WorkEntry]:
        """Return the bags of an owner, or of all, newest first."""
        # one file has the status of all bags of a dispatcher
        status_of = cache(lambda dispatcher: read_status(dispatcher_folder(dispatcher)))
        return [self._entry(row, status_of) for row in read_all_bags(self._reader, owner)]

    def _entry(self, row: BagEntry, status_of: Callable[[str], Json]) -> WorkEntry:
        last = self._ended.get(row.id)
        if last is not None and last[0] == row:
            return last[1]
        if row.state not in ENDED:
            return entry_of(row, read_bag_status(row, status_of(row.dispatcher)))
        entry = entry_of(row, json.loads(row.summary))
        self._ended[row.id] = row, entry
        return entry


def entry_of(row: BagEntry, status: Json) -> WorkEntry:
    """Return the entry of a bag with this status, empty before it was measured."""
    goal = status.get("goal") or {}
    due = goal.get("due")
    return WorkEntry(
        kind="bag",
        id=row.id,
        name=row.name,
        owner=row.owner or "command line",
        created_s=unix_s(row.created),
        promise=_find_promise(goal),
        run=None,
        state=_find_state(row, goal),
        probability=goal.get("promise"),
        due_s=datetime.fromisoformat(due).timestamp() if due else None,
        goes_on=row.state not in ENDED,
        progress=_describe_progress(row, status),
        spent_usd=goal.get("spent_usd"),
        archived=row.archived_s is not None,
    )


def _find_state(row: BagEntry, goal: Json) -> DisplayState:
    """Return the state of a bag: that of its goal where it works for one, or has done so."""
    by_goal = state_with(goal.get("state"))
    return by_goal if by_goal and row.state in ("running", "done") else _STATES[row.state]


def _find_promise(goal: Json) -> PromiseSummary:
    if not goal:
        return PromiseSummary()
    return PromiseSummary(
        feasible=True,
        probability=goal.get("promise"),
        requested=goal.get("requested") or 0.9,
        needed=goal.get("required"),
        budget_usd=goal.get("budget_usd"),
    )


def _describe_progress(row: BagEntry, status: Json) -> str:
    done, failed = status.get("done") or 0, status.get("failed") or 0
    words = f"{done:,} of {format_count(row.tasks, 'task')} done"
    return f"{words}, {failed:,} failed" if failed else words
