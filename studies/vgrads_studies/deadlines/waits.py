"""Waits in a recorded queue: those that a request at an instant meets, and those seen before it."""

from __future__ import annotations

import numpy as np

from vgrads.traces.records import JobLog

_NEAR, _RECENT = 3.0, 100


class QueueWaits:
    """The started jobs of a log of about one width."""

    def __init__(self, log: JobLog, procs: float) -> None:
        near = log.started & (log.procs >= procs / _NEAR) & (log.procs <= procs * _NEAR)
        self.name = log.name
        self._submit_s, self._wait_s = log.submit_s[near], log.wait_s[near]
        self._start_s = self._submit_s + self._wait_s
        self._by_start = np.argsort(self._start_s, kind="stable")
        self._sorted_start_s = self._start_s[self._by_start]

    def __len__(self) -> int:
        return len(self._submit_s)

    def instant_s(self, share: float) -> float:
        """Return the instant at which this share of the jobs has been submitted."""
        return float(self._submit_s[int(share * (len(self) - 1))])

    def wait_s(self, at_s: float) -> float:
        """Return the wait of the next job submitted at an instant or later."""
        position = int(np.searchsorted(self._submit_s, at_s))
        return float(self._wait_s[min(position, len(self) - 1)])

    def past_s(self, at_s: float) -> tuple[float, ...]:
        """Return a forecast from what was seen before an instant: waits of the last jobs that had
        started, as many of all earlier ones, and those of the jobs that wait, whose ends are
        expected as those of jobs that waited as long. Ascending."""
        count = int(np.searchsorted(self._sorted_start_s, at_s))
        before = self._wait_s[self._by_start[:count]]
        recent = before[-_RECENT:]
        earlier = before[:: max(1, len(before) // len(recent))] if len(recent) else recent
        earlier_s = np.sort(np.concatenate([recent, earlier]))
        is_waiting = (self._submit_s <= at_s) & (self._start_s > at_s)
        lasting = []
        for elapsed_s in at_s - self._submit_s[is_waiting][-_RECENT:]:
            longer = earlier_s[np.searchsorted(earlier_s, elapsed_s, side="right") :]
            lasting.append(float(np.median(longer)) if len(longer) else 2.0 * float(elapsed_s))
        return tuple(np.sort(np.concatenate([earlier_s, lasting])).tolist())
