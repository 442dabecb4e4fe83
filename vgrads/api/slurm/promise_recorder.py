"""Records the promises of groups over time, for their pages."""

from __future__ import annotations

import time
from collections.abc import Callable

from vgrads.api.slurm.groups import GroupPromises, GroupStatus
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.table import promise_event

_EVERY_S = 5.0
_PARTS = 50
"""A promise is recorded at most once in this part of the time since its run began: the points of a
run grow with the logarithm of its duration."""
_LEAST_CHANGE = 0.01
_MOST_OF_TIME = 0.02
"""The share of the time that may be used for computing promises."""


class PromiseRecorder:
    """Stores how the promise of each group changes, until its run is over."""

    def __init__(self, journal: JobJournal, clock: Callable[[], float]) -> None:
        self._journal, self._clock = journal, clock
        self._groups = GroupPromises(journal.table, clock)
        self._open = set(journal.table.promises)
        self._next_s, self._next_id = 0.0, journal.table.next_id

    def look(self) -> None:
        """Store the promises that have changed."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        began_s = time.perf_counter()
        self._open |= self._groups.unfinished_names() | self._new_names()
        for name in sorted(self._open):
            status = self._groups.status(name)
            if status is not None:
                self._record(status, now_s)
            if status is None or status.is_over:
                self._open.discard(name)
        took_s = time.perf_counter() - began_s
        # groups that take long to compute are computed less often
        self._next_s = now_s + max(_EVERY_S, took_s / _MOST_OF_TIME)

    def _new_names(self) -> set[str]:
        """Return the groups that got jobs since the last call, also those that have ended."""
        table = self._journal.table
        since, self._next_id = self._next_id, table.next_id
        return {name for name, jobs in table.groups.items() if jobs and jobs[-1] >= since}

    def _record(self, status: GroupStatus, now_s: float) -> None:
        points = self._journal.table.promises.get(status.name, [])
        points = [point for point in points if point[0] >= status.began_s]
        if points and not _is_news(points[-1], status, now_s):
            return
        event = promise_event(status.name, now_s, status.promise, status.began_s)
        self._journal.write(event, durable=False)


def _is_news(last: tuple[float, float | None], status: GroupStatus, now_s: float) -> bool:
    """Return True where a promise differs from the last one that was recorded, and enough time has
    passed; certainty is recorded at once."""
    last_s, before = last
    if before is None or status.promise is None:
        return before is not status.promise
    if status.promise == before:
        return False
    if status.promise in (0.0, 1.0):
        return True
    changed = abs(status.promise - before) >= _LEAST_CHANGE
    # a run of any length gets about so many points
    return changed and now_s - last_s >= (now_s - status.began_s) / _PARTS
