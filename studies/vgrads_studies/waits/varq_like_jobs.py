"""Waits of real jobs that reservations take: of a like job, or of the nearest by shape.

Both requested at most twice and at least half the time W + T − s that the reservation requests at
the instant s. A *like* job has processors of the same power of two and is submitted within a
quarter of an hour after s. Of several it is one of the same queue, if there is one, whose requested
time is the nearest to W + T − s; of equal ones the first.

Where none is, it is the *neighbour*: at most twice or half as many processors, submitted at most
two hours before or after s and after the last evaluation of the policy, so unseen by it. Of these
the one with the least distance is taken: √(Δ²log₂ processors + Δ²log₂ time), one more for another
queue and for every quarter of an hour.

Limits on both sides, because a job that requests more waits longer: with lenders that request at
least as much, reservations would be judged by larger jobs than they are.

The reservation waits from s on as long as that job from its own submission on. Its outcome is
certain when that job has waited T − s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Reservation
from vgrads_studies.promises.recorded import GATHER_S

NEAR_S = 7200.0
_NEAR = 1.0 + 1e-9  # limit of distances by shape, in powers of two, with rounding


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
        self._queue = started.queue
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
        time = np.abs(self._longer(part, question, submit_s))
        alike = self._procs[part].astype(int) == int(np.log2(question.reservation.procs))
        rows = np.flatnonzero(alike & (time <= _NEAR))
        if not len(rows):
            return None
        same = rows[self._queue[part][rows] == question.queue]
        rows = same if len(same) else rows
        return int(first) + int(rows[np.argmin(time[rows])])

    def _neighbour(
        self, question: ReservationQuestion, submit_s: float, last_look_s: float
    ) -> int | None:
        earliest_s = max(last_look_s, submit_s - NEAR_S)
        first, last = np.searchsorted(self._submit_s, [earliest_s, submit_s + NEAR_S], side="right")
        part = slice(int(first), int(last))
        procs = self._procs[part] - np.log2(question.reservation.procs)
        time = self._longer(part, question, submit_s)
        near = (np.abs(procs) <= _NEAR) & (np.abs(time) <= _NEAR)
        if not near.any():
            return None
        late = np.abs(self._submit_s[part] - submit_s) / GATHER_S
        away = np.hypot(procs, time) + late + (self._queue[part] != question.queue)
        return int(first) + int(np.argmin(np.where(near, away, np.inf)))

    def _longer(
        self, part: slice, question: ReservationQuestion, submit_s: float
    ) -> NDArray[np.float64]:
        """Return log₂ of these jobs' requested times ÷ that of the reservation at this instant."""
        requested_s = question.reservation.walltime_s + question.start_by_s - submit_s
        longer: NDArray[np.float64] = self._time[part] - np.log2(max(1.0, requested_s))
        return longer
