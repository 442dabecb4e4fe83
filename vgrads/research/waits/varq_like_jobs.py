"""Waits of real jobs that reservations take: of the next like job, or of the nearest by shape.

A *like* job has processors of the same power of two and a requested time of at least W + T − s, and
is submitted within a quarter of an hour after the instant s. One of the same queue is preferred.

Where none is, it is the *neighbour*: submitted at most two hours before or after s and after the
last evaluation of the policy, so unseen by it; at most twice or half as many processors, at most
four times or a quarter of the requested time, and processors × requested time at least those of the
reservation, so that it is never the smaller one. Of these the one with the least distance is taken:
√(Δ²log₂ processors + Δ²log₂ time), one more for another queue and for every quarter of an hour.

The reservation waits from s on as long as that job from its own submission on. Its outcome is
certain when that job has waited T − s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.research.promises.recorded import GATHER_S
from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Reservation

NEAR_S = 7200.0
_PROCS, _TIME = 1.0, 2.0  # limits of a neighbour's distances, in powers of two
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationQuestion:
    """A reservation requested at ``at_s`` in a queue of the log."""

    number: int
    at_s: float
    reservation: Reservation
    queue: int = -1

    @property
    def start_by_s(self) -> float:
        """Return T, on the log's clock."""
        return self.at_s + self.reservation.start_by_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationResult:
    """Outcome of a question: refused, or submitted; ``start_s`` None without a job to take the wait
    of. That one was submitted ``lag_s`` after the reservation; ``neighbour``: it is no like job."""

    question: ReservationQuestion
    submit_s: float | None = None
    start_s: float | None = None
    lag_s: float = 0.0
    neighbour: bool = False

    @property
    def kept(self) -> bool:
        return self.start_s is not None and self.start_s <= self.question.start_by_s

    @property
    def settled_s(self) -> float:
        """Return when the outcome is certain: at T, and for a later job's wait as long after that
        as it came later."""
        return self.question.start_by_s + max(0.0, self.lag_s)

    @property
    def idle_s(self) -> float:
        """Return the processor seconds held before T."""
        if self.start_s is None:
            return 0.0
        return max(0.0, self.question.start_by_s - self.start_s) * self.question.reservation.procs


class LikeJobs:
    """Started jobs of a log, whose waits reservations take."""

    def __init__(self, log: JobLog) -> None:
        started = log.select(log.started)
        self._submit_s, self._start_s = started.submit_s, started.start_s
        self._procs = np.log2(np.maximum(1, started.procs))
        self._request_s, self._queue = started.request_s, started.queue
        self._time = np.log2(np.maximum(1.0, started.request_s))

    def submit(
        self, question: ReservationQuestion, submit_s: float, last_look_s: float
    ) -> ReservationResult:
        """Give the reservation the wait of a job for a submission at this instant, by a policy
        that has seen jobs up to ``last_look_s``."""
        like = self._like(question, submit_s)
        row = self._neighbour(question, submit_s, last_look_s) if like is None else like
        if row is None:
            return ReservationResult(question=question, submit_s=submit_s)
        came_s = float(self._submit_s[row])
        return ReservationResult(
            question=question,
            submit_s=submit_s,
            start_s=submit_s + (float(self._start_s[row]) - came_s),
            lag_s=came_s - submit_s,
            neighbour=like is None,
        )

    def _like(self, question: ReservationQuestion, submit_s: float) -> int | None:
        first, last = np.searchsorted(self._submit_s, [submit_s, submit_s + GATHER_S])
        part = slice(int(first), int(last))
        least_s = question.reservation.walltime_s + question.start_by_s - submit_s
        width = int(np.log2(question.reservation.procs))
        alike = self._procs[part].astype(int) == width
        rows = np.flatnonzero(alike & (self._request_s[part] >= least_s))
        if not len(rows):
            return None
        same = rows[self._queue[part][rows] == question.queue]
        return int(first) + int(same[0] if len(same) else rows[0])

    def _neighbour(
        self, question: ReservationQuestion, submit_s: float, last_look_s: float
    ) -> int | None:
        earliest_s = max(last_look_s, submit_s - NEAR_S)
        first, last = np.searchsorted(self._submit_s, [earliest_s, submit_s + NEAR_S], side="right")
        part = slice(int(first), int(last))
        least_s = question.reservation.walltime_s + question.start_by_s - submit_s
        procs = self._procs[part] - np.log2(question.reservation.procs)
        time = self._time[part] - np.log2(max(1.0, least_s))
        near = (np.abs(procs) <= _PROCS) & (np.abs(time) <= _TIME) & (procs + time >= -_ROUNDING)
        if not near.any():
            return None
        late = np.abs(self._submit_s[part] - submit_s) / GATHER_S
        away = np.hypot(procs, time) + late + (self._queue[part] != question.queue)
        return int(first) + int(np.argmin(np.where(near, away, np.inf)))
