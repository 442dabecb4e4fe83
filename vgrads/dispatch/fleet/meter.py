"""Costs of tasks at their manager, from reported ends: the samples for its capacity.

Agents report how long each transfer lasted; concurrent transfers last longer, but the link is busy
only once. So a task counts the time that its transfers add to the time in which any transfer was in
progress.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vgrads.dispatch.storage.bag_files import InputFile
from vgrads.exchange.values import AttemptEnd
from vgrads.pool.capacity import Capacity, capacity
from vgrads.pool.samples import Meter, TaskTimes, fold

_BATCH = 500
_REMEMBERED_S = 1800.0
_MOST_FILES = 100_000


@dataclass
class Covered:
    """The time in which at least one of several transfers was in progress."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def add(self, begin_s: float, end_s: float) -> float:
        """Add a transfer; return the seconds that were not covered before."""
        if end_s <= begin_s:
            return 0.0
        # the intervals are disjoint and ascending: these are all that overlap or touch the new one
        first, last = bisect_left(self.ends, begin_s), bisect_right(self.begins, end_s)
        before = sum(
            e - b for b, e in zip(self.begins[first:last], self.ends[first:last], strict=True)
        )
        if first < last:
            begin_s, end_s = min(begin_s, self.begins[first]), max(end_s, self.ends[last - 1])
        self.begins[first:last], self.ends[first:last] = [begin_s], [end_s]
        self._forget(end_s - _REMEMBERED_S)
        return end_s - begin_s - before

    def _forget(self, before_s: float) -> None:
        gone = bisect_left(self.ends, before_s)
        # in batches, since a deletion at the start of a list moves all that follows
        if gone > 64:
            del self.begins[:gone], self.ends[:gone]


@dataclass
class FirstTasks:
    """Files cached at agents, and which of them were sent because an agent is new."""

    _had: set[tuple[int, str]] = field(default_factory=set)
    _first_s: dict[str, float] = field(default_factory=dict)
    _joined_s: dict[int, float] = field(default_factory=dict)

    def work(self, agent: int, came_s: float, at_s: float, reads: Sequence[InputFile]) -> float:
        """Return the share of a task's input bytes that any agent would have had to fetch for it.

        Excluded are inputs of all tasks of its bag, and inputs that others had read before the
        agent joined with its first task.
        """
        for by_agent in (self._had, self._first_s, self._joined_s):
            # memory stays constant; the price is that some files count once more as read for the
            # first time
            if len(by_agent) > _MOST_FILES:
                by_agent.clear()
        joined_s = self._joined_s.setdefault(agent, came_s)
        # bytes that any agent would have to fetch, and those that only a new one must
        own = cold = 0.0
        for timing in reads:
            first_s = self._first_s.setdefault(timing.digest, at_s)
            if (agent, timing.digest) in self._had:
                continue
            self._had.add((agent, timing.digest))
            if timing.common or first_s < joined_s:
                cold += timing.mib
            else:
                own += timing.mib
        if own + cold > 0.0:
            return own / (own + cold)
        # all inputs were cached: nothing was fetched; without inputs there is nothing to exclude
        return 0.0 if reads else 1.0


@dataclass
class TaskMeter:
    """Samples of one manager, in constant memory. Times in seconds of the manager's clock."""

    meter: Meter = field(default_factory=Meter)
    wrong: int = 0
    right: int = 0
    up: Covered = field(default_factory=Covered)
    down: Covered = field(default_factory=Covered)
    _fresh: list[TaskTimes] = field(default_factory=list)
    _first: FirstTasks = field(default_factory=FirstTasks)
    _procs: Counter[int] = field(default_factory=Counter)
    _loop_s: float = 0.0
    _busy: int = 0

    def add(
        self, procs: int, end: AttemptEnd, category: str, reads: Sequence[InputFile] = ()
    ) -> None:
        """Record the end of an attempt. ``reads``: its inputs, where known."""
        if end.code != 0:
            self.wrong += 1
            return
        self.right += 1
        # an end has durations only: its instants follow backwards from the report
        ran_from_s = end.at_s - end.sent_s - end.ran_s
        ready_s = ran_from_s - end.waited_s
        came_s = ready_s - end.fetched_s
        in_s = self.up.add(came_s, ready_s) * self._first.work(end.agent, came_s, end.at_s, reads)
        out_s = self.down.add(end.at_s - end.sent_s, end.at_s)
        self._procs[procs] += 1
        self._fresh.append(
            TaskTimes(execution_s=end.ran_s, in_s=in_s, out_s=out_s, category=category)
        )
        if len(self._fresh) >= _BATCH:
            self._fold()

    def look(self, loop_s: float, busy: int) -> None:
        """Record a sample. ``loop_s``: processor seconds that the manager's loop has used since the
        last one; ``busy``: running tasks."""
        self._loop_s += loop_s
        self._busy = busy
        self._fold()

    def _fold(self) -> None:
        if not self._fresh:
            return
        each_s, self._loop_s = self._loop_s / len(self._fresh), 0.0
        fresh, self._fresh = [replace(times, loop_s=each_s) for times in self._fresh], []
        self.meter = fold(self.meter, fresh, self._busy)

    @property
    def failing(self) -> bool:
        """Return True where all attempts so far have failed."""
        return self.wrong > 0 and not self.right

    def capacity(self) -> Capacity | None:
        """Return how many concurrent tasks the manager can feed; None while unknown."""
        return capacity(self.meter)

    def capacity_json(self) -> dict[str, Any] | None:
        """Return the capacity for the ledger, in processors: an interval of 90 %, the limiting
        factors, and each resource."""
        capacity = self.capacity()
        if capacity is None:
            return None
        procs = (
            self._procs.total()
            and sum(n * count for n, count in self._procs.items()) / self._procs.total()
        )
        workers = capacity.workers
        return {
            "low": workers.low * procs,
            "value": workers.value * procs,
            "high": workers.high * procs,
            "bottleneck": capacity.bottleneck,
            "tasks": capacity.tasks,
            "cycle_s": capacity.cycle_s,
            "execution_s": float(self.meter.all.means[0]),
            "resources": {
                n: [resource.low * procs, resource.value * procs, resource.high * procs]
                for n, resource in capacity.resources.items()
            },
        }
