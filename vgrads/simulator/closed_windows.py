"""Closed windows of a batch cluster: no job starts that would run into one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgrads.simulator.backfill import BatchJob

_NEAR_S = 1e-6  # rounding of instants
Ends = Sequence[tuple[float, int]]
"""``(expected end, processors)`` of running jobs in ascending order."""


@dataclass(order=True, frozen=True, slots=True)
class _ClosedSpan:
    """From ``begin_s`` to ``end_s`` at most ``left`` processors are in use."""

    begin_s: float
    end_s: float
    left: int


@dataclass(slots=True)
class ClosedWindows:
    """The windows that are not over, the earliest first."""

    _windows: list[_ClosedSpan] = field(default_factory=list)
    _announced: set[float] = field(default_factory=set)  # ends that were returned already

    def add(self, begin_s: float, end_s: float, left: int) -> None:
        """Add a window."""
        insort(self._windows, _ClosedSpan(begin_s, end_s, left))

    def startable(
        self, queue: list[BatchJob], ends: Ends, now_s: float
    ) -> tuple[list[BatchJob], list[float]]:
        """Return the jobs of a queue that, started now, run into no window, and the instants at
        which the others are to be examined again, each once."""
        self._windows = [window for window in self._windows if window.end_s > now_s]
        if not self._windows or not queue:
            return queue, []
        jobs, opens_s = queue, []
        last_s = now_s + max(job.limit_s for job in queue)
        for window in self._windows:
            # later windows begin later still
            if window.begin_s > last_s:
                break
            remaining = _select_outside(jobs, window, ends, now_s)
            if len(remaining) < len(jobs) and window.end_s not in self._announced:
                self._announced.add(window.end_s)
                opens_s.append(window.end_s)
            jobs = remaining
        return jobs, opens_s


def _select_outside(
    jobs: list[BatchJob], window: _ClosedSpan, ends: Ends, now_s: float
) -> list[BatchJob]:
    """Return the jobs that end before a window, or have room in it."""
    first = bisect_left(ends, (max(window.begin_s, now_s) + _NEAR_S, 0))
    room = window.left - sum(procs for _, procs in ends[first:])
    result = []
    for job in jobs:
        if now_s + job.limit_s <= window.begin_s + _NEAR_S:
            result.append(job)
        elif job.procs <= room:
            room -= job.procs
            result.append(job)
    return result
