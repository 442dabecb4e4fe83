"""A queue's predictor: jobs come, wait and start; bounds are issued and judged on the way.

A miss is judged against the bound issued at submission, at the moment when it is certain: when a
job starts later than its bound, or when it is still waiting past it (an early miss: a stalled queue
shows only its short waits). A job withdrawn while waiting tells only that its wait would have been
longer; it counts as a miss if it had outlived its bound, and never as a wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernel.errors import InputError
from qbets.stream import WaitStream
from traces.records import JobLog

METHODS = ("bmbp", "qbets")
_SUBMIT, _LEAVE = 0, 1


@dataclass(slots=True)
class _Waiting:
    submit_s: float
    bound_s: float | None
    judged: bool = False


class QueuePredictor:
    """Fed with what happens in one queue, in time order; asked for bounds at any moment."""

    def __init__(self, quantile: float = 0.95, confidence: float = 0.95) -> None:
        self.stream = WaitStream(quantile, confidence)
        self.change_points: list[float] = []
        self._now = -np.inf
        self._waiting: dict[int, _Waiting] = {}
        self._expiries: list[tuple[float, int]] = []

    def submit(self, job: int, at_s: float) -> float | None:
        """A job enters the queue: the bound on its wait, None while history is too short."""
        self.advance(at_s)
        bound = self.stream.bound
        self._waiting[job] = _Waiting(at_s, bound)
        if bound is not None:
            heapq.heappush(self._expiries, (at_s + bound, job))
        return bound

    def start(self, job: int, at_s: float) -> None:
        """A job leaves the queue by starting: its wait is known now."""
        self.advance(at_s)
        waiting = self._waiting.pop(job)
        if waiting.bound_s is not None and not waiting.judged:
            self._judge(False, at_s)
        self.stream.add(at_s - waiting.submit_s)

    def withdraw(self, job: int, at_s: float) -> None:
        """A job leaves the queue without ever starting."""
        self.advance(at_s)
        del self._waiting[job]

    def advance(self, at_s: float) -> None:
        """Time passes; jobs that have now waited longer than their bound are misses."""
        if at_s < self._now:
            raise InputError(f"the clock runs backwards: {at_s} after {self._now}")
        self._now = at_s
        while self._expiries and self._expiries[0][0] < at_s:
            expiry, job = heapq.heappop(self._expiries)
            waiting = self._waiting.get(job)
            if waiting is not None:
                waiting.judged = True
                self._judge(True, expiry)

    def _judge(self, missed: bool, at_s: float) -> None:
        if self.stream.judge(missed):
            self.change_points.append(at_s)


def queue_events(log: JobLog, until_s: float = np.inf) -> Iterator[tuple[float, int, int]]:
    """``(time, kind, row)`` in time order, submissions first among simultaneous ones.

    Submissions first: whoever submits at the very second in which another job starts does not know
    that yet.
    """
    rows = np.arange(len(log))
    times = np.concatenate([log.submit_s, log.start_s])
    kinds = np.repeat([_SUBMIT, _LEAVE], len(log))
    order = np.lexsort((np.concatenate([rows, rows]), kinds, times))
    order = order[times[order] <= until_s]
    return zip(
        times[order].tolist(),
        kinds[order].tolist(),
        np.concatenate([rows, rows])[order].tolist(),
        strict=True,
    )


def replay(log: JobLog, predictor: QueuePredictor, until_s: float = np.inf) -> list[float | None]:
    """Feed a history up to an instant; the bounds issued to each job submitted by then."""
    issued: list[float | None] = []
    started = log.started.tolist()
    for at_s, kind, row in queue_events(log, until_s):
        if kind == _SUBMIT:
            issued.append(predictor.submit(row, at_s))
        elif started[row]:
            predictor.start(row, at_s)
        else:
            predictor.withdraw(row, at_s)
    if np.isfinite(until_s):
        predictor.advance(max(until_s, predictor._now))
    return issued


def learn(
    log: JobLog, quantile: float, confidence: float, until_s: float = np.inf
) -> QueuePredictor:
    """A predictor that knows everything that had become known by ``until_s``."""
    predictor = QueuePredictor(quantile, confidence)
    replay(log, predictor, until_s)
    return predictor
