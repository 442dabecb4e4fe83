"""Arrays of jobs: hundreds of equal jobs of one user in one minute are one observation.

Jobs of one user with the same processors and requested time, submitted within a minute of the
first, form an array. Its waits count once per minute of starts, and it votes once for "kept" and
once for "missed" when change points are judged. The backtest still scores each of its jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.traces.records import JobLog

GAP_S = 60.0
Shape = tuple[int, int, float]


@dataclass(slots=True)
class Array:
    """One array: the submission of its first job, its votes, the minute of its last counted
    start."""

    first_s: float
    kept: bool = False
    missed: bool = False
    minute: float = -1.0

    def may_vote(self, missed: bool) -> bool:
        """Return True the first time that this outcome is reported."""
        voted = self.missed if missed else self.kept
        if missed:
            self.missed = True
        else:
            self.kept = True
        return not voted

    def counts(self, start_s: float) -> bool:
        """Return True for the first start within a minute."""
        minute = start_s // GAP_S
        fresh = minute != self.minute
        self.minute = minute
        return fresh


class JobArrays:
    """The newest array of every shape; older ones live while any of their jobs waits."""

    def __init__(self) -> None:
        self.newest: dict[Shape, Array] = {}

    def join(self, shape: Shape, at_s: float) -> Array:
        """Return the array of a job of this shape that is submitted now."""
        array = self.newest.get(shape)
        if array is None or abs(at_s - array.first_s) > GAP_S:
            array = self.newest[shape] = Array(at_s)
        return array

    def forget(self, before_s: float) -> None:
        """Remove arrays that no new job can join; bounds memory over months."""
        self.newest = {s: a for s, a in self.newest.items() if a.first_s >= before_s - GAP_S}


def count_distinct_starts(log: JobLog, until_s: float) -> tuple[int, int]:
    """Return the number of jobs that had started by an instant, and the number of their starts that
    count as separate observations."""
    arrays, joined = JobArrays(), []
    columns = (log.user, log.procs, log.request_s, log.submit_s)
    for user, procs, request_s, submit_s in zip(*(c.tolist() for c in columns), strict=True):
        shape = (user, procs, request_s)
        # jobs of an unknown user may be of several people: no two of them are joined
        joined.append(arrays.join(shape, submit_s) if user >= 0 else Array(submit_s))
    started = np.flatnonzero(log.started & (log.start_s <= until_s))
    order = started[np.argsort(log.start_s[started], kind="stable")]
    counted = sum(
        joined[row].counts(at_s)
        for row, at_s in zip(order.tolist(), log.start_s[order].tolist(), strict=True)
    )
    return len(order), counted
