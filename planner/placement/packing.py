"""Trials: place as many whole workflows as fit into given windows of slots, with the cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.rows import TaskRows, make_rows, merge_workflows
from vgrads.planner.placement.window_packing import (
    WINDOW,
    PlacementShape,
    Room,
    fill,
    make_room,
    with_more_steps,
)
from vgrads.planner.placement.windows import Window
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow

_MISSES = 4  # workflow shapes without room until the search ends
EARLY, DENSE, TOGETHER = WAYS = ("early", "dense", "together")
MOST_WORK = 1_000_000_000
"""Work of all packing of a draft, in steps of profiles: two or three seconds."""
_SHARE = 4  # a search may use a fourth of the work that is left,
_LEAST_WORK, _WORK_FOR_TASK = 20_000_000, 30_000  # but no more than is of use for its tasks
_WORK_PER_TASK = 100  # for each placed in a trial
_LOOKS = 8  # loop steps per candidate window, on average
Row = tuple[str, tuple[str, ...], Any, Any]
"""A workflow, its tasks in the order of placement, and the start and window of each."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Workflows that fit into windows.

    ``usd``: maximum cost of opened windows; ``sure``: probability that all slots are ready, with
    those of one queue counted as one.
    """

    windows: tuple[Window, ...] = ()
    rows: tuple[Row, ...] = ()
    usd: float = 0.0
    sure: float = 1.0

    def rank(self, required: float) -> tuple[int, float, float]:
        """Rank by number of workflows, then by lowest cost if the requested probability is reached,
        otherwise by highest probability."""
        if self.sure >= required:
            return len(self.rows), required, -self.usd
        return len(self.rows), self.sure, -self.usd


@dataclass(kw_only=True)
class Packer:
    """Tries windows for ``count`` of these workflows, for a share of the work that is left.

    ``least_s``: processor-seconds of the smallest, and the longest critical path among these;
    ``needs``: processors and memory of their tasks.
    """

    draft: Draft
    names: Sequence[str]
    count: int
    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        self._sites = {name: n for n, name in enumerate(sorted({slot.site for slot in self.slots}))}
        self._links = self.draft.snapshot.moves_between(list(self._sites))
        works_s = {name: self._work_s(name) for name in self.names}
        # so that most workflows fit
        self.names = sorted(self.names, key=lambda name: works_s[name])
        first = self.names[: self.count]
        tasks = sum(len(self._workflow(name).order) for name in first)
        usual, left = max(_LEAST_WORK, _WORK_FOR_TASK * tasks), MOST_WORK - self.draft.work
        self._most_work = self.draft.work + min(usual, left // _SHARE)
        shapes = {id(self._workflow(name).tasks): name for name in first}
        self.needs = {
            kind for n in shapes.values() for kind in self.rows_of(self._workflow(n)).kinds
        }
        longest = (self.draft.snapshot.longest_s(self._workflow(name)) for name in shapes.values())
        self.least_s = sum(works_s[name] for name in first), max(longest, default=0.0)

    @property
    def exhausted(self) -> bool:
        """True if the work for its trials is done."""
        return self.draft.work >= self._most_work

    def _work_s(self, name: str) -> float:
        tasks = self.rows_of(self._workflow(name)).tasks
        return float((tasks["length_s"] * tasks["procs"]).sum())

    def trial(self, windows: Sequence[Window], way: str = EARLY, above: int = 0) -> Packing:
        """Place as many of the workflows as fit. One after the other, each task as early as
        possible (``EARLY``) or in the first window that leaves enough time for its successors
        (``DENSE``); or the tasks of all ``TOGETHER``, those with the longest remainder first,
        searched for numbers ``above`` a known one."""
        if not windows:
            return Packing()
        if way != TOGETHER:
            # no window leaves endless time: a task then goes where it ends first
            limit_s = float(max(w.end_s for w in windows)) if way == DENSE else -np.inf
            return self._pack_each(windows, limit_s)
        best, low, high, number = Packing(), above, self.count + 1, self.count
        while high - low > 1:
            packing = self._together(windows, number)
            if packing.rows:
                best, low = packing, number
            else:
                high = number
            number = (low + high) // 2
        return best

    def _pack_each(self, windows: Sequence[Window], limit_s: float) -> Packing:
        room, misses = self._room(windows), 0
        rows: list[Row] = []
        for _, same in groupby(self.names, key=lambda n: id(self._workflow(n).tasks)):
            names = list(same)[: self.count - len(rows)]
            shape = self.rows_of(self._workflow(names[0]))
            room, placed, starts_s, where = self._fill(room, windows, (shape, len(names), limit_s))
            rows += [(names[n], shape.order, starts_s[n], where[n]) for n in range(placed)]
            misses += placed < len(names)
            if misses >= _MISSES or len(rows) == self.count:
                break
        return self._computed(windows, rows)

    def _together(self, windows: Sequence[Window], number: int) -> Packing:
        names = self.names[:number]
        parts = [self.rows_of(self._workflow(name)) for name in names]
        shape, turns = merge_workflows(parts)
        _, placed, starts_s, where = self._fill(self._room(windows), windows, (shape, 1, -np.inf))
        if not placed:
            return Packing()
        start_s, window = np.empty_like(starts_s[0]), np.empty_like(where[0])
        start_s[turns], window[turns] = starts_s[0], where[0]
        ends = np.cumsum([len(part.order) for part in parts])
        rows = [
            (
                name,
                part.order,
                start_s[end - len(part.order) : end],
                window[end - len(part.order) : end],
            )
            for name, part, end in zip(names, parts, ends, strict=True)
        ]
        return self._computed(windows, rows)

    def _fill(
        self, room: Room, windows: Sequence[Window], what: tuple[TaskRows, int, float]
    ) -> tuple[Room, int, Any, Any]:
        """Call :func:`vgrads.planner.placement.window_packing.fill`; return the room, with more
        space for steps if these were too few, and the results."""
        rows, number, limit_s = what
        holds = np.array([[w.slot.holds(kind) for w in windows] for kind in rows.kinds])
        shape = PlacementShape(rows.tasks, rows.parents, rows.mib, holds, self._links, limit_s)
        starts_s = np.zeros((number, len(shape.tasks) - 1))
        where = np.zeros(starts_s.shape, np.int64)
        act = fill.after(starts_s.size * (len(windows) * _LOOKS + 20))
        placed, before = 0, int(room.work[0])
        while True:
            more = int(act(room, shape, starts_s[placed:], where[placed:]))
            placed += more if more >= 0 else -1 - more
            if more >= 0:
                self.draft.work += int(room.work[0]) - before + _WORK_PER_TASK * starts_s.size
                return room, placed, starts_s, where
            # compiled code cannot enlarge arrays: it returns, and goes on with more space
            room = with_more_steps(room)

    def _computed(self, windows: Sequence[Window], rows: Sequence[Row]) -> Packing:
        first_s, last_s = np.full(len(windows), np.inf), np.zeros(len(windows))
        speed = np.array([w.slot.speed for w in windows])
        for name, _, starts_s, where in rows:
            tasks = self.rows_of(self._workflow(name)).tasks
            np.minimum.at(first_s, where, starts_s)
            np.maximum.at(last_s, where, starts_s + tasks["length_s"][:-1] / speed[where])
        used = [
            (w, *when) for w, *when in zip(windows, first_s, last_s, strict=True) if when[1] > 0
        ]
        usd = sum(
            w.slot.cost_usd(last - w.requested_at(first)) for w, first, last in used if w.opened
        )
        together: dict[str, float] = {}
        for w, _, _ in used:
            ready_s = w.begin_s if w.slot.fixed else w.begin_s - w.requested_s
            there = w.slot.curve.by(ready_s)
            together[w.slot.shared] = min(there, together.get(w.slot.shared, 1.0))
        up = math.prod(w.slot.up for w, _, _ in used)
        return Packing(
            windows=tuple(windows),
            rows=tuple(rows),
            usd=usd,
            sure=up * math.prod(together.values()),
        )

    def _workflow(self, name: str) -> Workflow:
        return self.draft.snapshot.workflow_by_name[name]

    def _room(self, windows: Sequence[Window]) -> Room:
        steps = [self.draft.slots.calendar(w.slot.id).steps(0) for w in windows]
        rows = [
            (w.begin_s, w.end_s, w.slot.procs, w.slot.speed, self._sites[w.slot.site], 0.0)
            for w in windows
        ]
        return make_room(np.array(rows, WINDOW).view(np.recarray), steps)

    def rows_of(self, workflow: Workflow) -> TaskRows:
        """Return the tasks by their latest start, parents first; equal workflows share them."""
        shapes = self.draft.snapshot.computed.setdefault("rows", {})
        if id(workflow.tasks) not in shapes:
            shapes[id(workflow.tasks)] = make_rows(workflow, self.draft.snapshot)
        rows: TaskRows = shapes[id(workflow.tasks)]
        return rows
