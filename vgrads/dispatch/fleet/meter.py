"""What a manager's tasks cost it, told by their ends: the samples that its capacity rests on.

Hosts tell how long each transfer lasted; where several go on at once each lasts longer, and the
link is busy only once. So what counts for a task is the time that its transfers add to the time in
which any was under way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vgrads.dispatch.core.records import End
from vgrads.dispatch.storage.bag_files import Read
from vgrads.pool.capacity import Capacity, capacity
from vgrads.pool.samples import Meter, TaskTimes, fold

_BATCH = 500
_REMEMBERED_S = 1800.0
_MOST_FILES = 100_000


@dataclass
class Covered:
    """The time in which at least one of some transfers was under way."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def add(self, begin_s: float, end_s: float) -> float:
        """One more transfer: the seconds that were not covered before."""
        if end_s <= begin_s:
            return 0.0
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
        if gone > 64:
            del self.begins[:gone], self.ends[:gone]


@dataclass
class Firsts:
    """Which files hosts have, and which of them came because a host is new."""

    _had: set[tuple[int, str]] = field(default_factory=set)
    _seen_s: dict[str, float] = field(default_factory=dict)
    _joined_s: dict[int, float] = field(default_factory=dict)

    def work(self, host: int, came_s: float, at_s: float, reads: Sequence[Read]) -> float:
        """The share of what was sent for a task that any host would have had to get for it.

        Not so what all tasks of its bag read, nor what others had read before the host came with
        its first task.
        """
        for known in (self._had, self._seen_s, self._joined_s):
            if len(known) > _MOST_FILES:
                known.clear()
        joined_s = self._joined_s.setdefault(host, came_s)
        own = cold = 0.0
        for one in reads:
            first_s = self._seen_s.setdefault(one.digest, at_s)
            if (host, one.digest) in self._had:
                continue
            self._had.add((host, one.digest))
            if one.common or first_s < joined_s:
                cold += one.mib
            else:
                own += one.mib
        if own + cold > 0.0:
            return own / (own + cold)
        return 0.0 if reads else 1.0


@dataclass
class TaskMeter:
    """One manager's samples, in constant memory. Times in seconds of the manager's clock."""

    meter: Meter = field(default_factory=Meter)
    wrong: int = 0
    right: int = 0
    up: Covered = field(default_factory=Covered)
    down: Covered = field(default_factory=Covered)
    _fresh: list[TaskTimes] = field(default_factory=list)
    _first: Firsts = field(default_factory=Firsts)
    _procs: Counter[int] = field(default_factory=Counter)
    _loop_s: float = 0.0
    _busy: int = 0

    def add(self, procs: int, end: End, category: str, reads: Sequence[Read] = ()) -> None:
        """An attempt has ended. ``reads``: its inputs, where they are known."""
        if end.code != 0:
            self.wrong += 1
            return
        self.right += 1
        ran_from_s = end.at_s - end.sent_s - end.ran_s
        ready_s = ran_from_s - end.waited_s
        came_s = ready_s - end.fetched_s
        in_s = self.up.add(came_s, ready_s) * self._first.work(end.host, came_s, end.at_s, reads)
        out_s = self.down.add(end.at_s - end.sent_s, end.at_s)
        self._procs[procs] += 1
        self._fresh.append(
            TaskTimes(execution_s=end.ran_s, in_s=in_s, out_s=out_s, category=category)
        )
        if len(self._fresh) >= _BATCH:
            self._fold()

    def look(self, loop_s: float, busy: int) -> None:
        """``loop_s``: processor seconds that the manager's loop has used since the last look;
        ``busy``: tasks that run."""
        self._loop_s += loop_s
        self._busy = busy
        self._fold()

    def _fold(self) -> None:
        if not self._fresh:
            return
        each_s, self._loop_s = self._loop_s / len(self._fresh), 0.0
        fresh, self._fresh = [replace(one, loop_s=each_s) for one in self._fresh], []
        self.meter = fold(self.meter, fresh, self._busy)

    @property
    def failing(self) -> bool:
        """True where all that has ended so far has failed."""
        return self.wrong > 0 and not self.right

    def capacity(self) -> Capacity | None:
        """How many tasks at once the manager can feed; None while that is not known."""
        return capacity(self.meter)

    def capacity_json(self) -> dict[str, Any] | None:
        """For the ledger, in processors: an interval of 90 %, what hinders more, and each
        resource."""
        found = self.capacity()
        if found is None:
            return None
        procs = (
            self._procs.total()
            and sum(n * count for n, count in self._procs.items()) / self._procs.total()
        )
        workers = found.workers
        return {
            "low": workers.low * procs,
            "value": workers.value * procs,
            "high": workers.high * procs,
            "bottleneck": found.bottleneck,
            "tasks": found.tasks,
            "cycle_s": found.cycle_s,
            "execution_s": float(self.meter.all.means[0]),
            "resources": {
                n: [one.low * procs, one.value * procs, one.high * procs]
                for n, one in found.resources.items()
            },
        }
