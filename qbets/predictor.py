"""Predictor of a queue: jobs arrive, wait and start; bounds are issued and judged on the way.

A miss is judged against the bound issued at submission, as soon as it is certain: when a job starts
later than its bound, or when it still waits after it (an early miss: a stalled queue shows only its
short waits). A job cancelled while waiting is right-censored: it counts as a miss if it had
exceeded its bound, and never as a wait, because its time until cancellation would bias the bound
downwards.

``bmbp`` keeps one stream per queue; ``qbets`` one for each cluster of similar jobs, and an adaptive
correction over all.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats
from vgrads.kernel.errors import InputError
from vgrads.qbets.adaptive_correction import AdaptiveCorrection, tighten_level
from vgrads.qbets.arrays import Array, JobArrays
from vgrads.qbets.clusters import SIZES, find_bin, find_edges
from vgrads.qbets.downtime import DowntimeWatch
from vgrads.qbets.stream import ObservedWait, WaitStream, compute_corrected_bounds
from vgrads.qbets.views import FULL

METHODS = {"bmbp": "none", "qbets": "backlog", "state": "backlog"}
"""Method → the size by which jobs are clustered."""
LEARNED = 0.95
"""Quantile and confidence at which the state of a queue is learned."""
RECORDED = 1000
"""Newest bounds whose outcome is kept."""
_FIRST_BINNING = 1000  # waits before the first binning; minimum between two
_GROWTH = 0.25  # growth of the history after which it is binned again
_PER_BIN = 2  # least history of a bin, in units of the minimum history


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Promised quantile of a predictor and its grouping of jobs. ``size`` None: that of the method.
    ``view``: which jobs are known at each instant (:data:`vgrads.qbets.views.VIEWS`).

    ``correction``: be stricter while misses accumulate (never for ``bmbp``). ``knows_queue``:
    questions name the queue of their job. ``knows_user``: questions name their user, so the user's
    jobs in the queue and past waits count; without it nothing is learned from users, because
    questions could not use it. ``procs``, ``request_s``: fixed values for every job and every
    question, if a history does not distinguish its jobs by
    them (None: the values of each).
    """

    method: str = "qbets"
    quantile: float = 0.95
    confidence: float = 0.95
    arrays: bool = True
    size: str | None = None
    correction: bool = True
    knows_user: bool = True
    knows_queue: bool = True
    procs: int | None = None
    request_s: float | None = None
    view: str = FULL

    @property
    def cluster_size(self) -> str:
        chosen = self.size or METHODS[self.method]
        return "product" if chosen == "backlog" and not self.knows_user else chosen

    def as_question(self, arrival: JobArrival) -> JobArrival:
        """Return a job with the properties that a question has."""
        user = arrival.user if self.knows_user else -1
        queue = arrival.queue if self.knows_queue else -1
        return JobArrival(arrival.procs, arrival.request_s, user, queue)

    def shape(self, procs: int, request_s: float) -> tuple[int, float]:
        """Return processors and requested time of a job or a question, as far as history
        distinguishes jobs by them."""
        return (
            procs if self.procs is None else self.procs,
            request_s if self.request_s is None else self.request_s,
        )

    @property
    def looks_at_state(self) -> bool:
        """True if the method needs the waiting and running jobs."""
        return self.method == "state"

    def for_bounds(self, probability: float) -> Settings:
        """Return how bounds of this probability are learned. By the state, one curve answers for
        all probabilities and confidences, so that two answers never differ by what they learned."""
        if self.looks_at_state:
            return replace(self, quantile=LEARNED, confidence=LEARNED)
        return replace(self, quantile=probability)

    @property
    def sees_waiting(self) -> bool:
        """True if the jobs that wait are known."""
        return self.view == FULL

    def check(self) -> None:
        """Raise InputError for a method or size that does not exist."""
        if self.method not in METHODS:
            raise InputError(
                f"unknown method '{self.method}'",
                where="method",
                fix=f"known: {', '.join(METHODS)}",
            )
        if self.cluster_size not in SIZES:
            raise InputError(
                f"unknown size '{self.size}'", where="size", fix=f"known: {', '.join(SIZES)}"
            )


class IssuedRecord(NamedTuple):
    """Of the newest bounds at the quantile of the settings: how many are judged, how many held."""

    judged: int = 0
    held: int = 0


UNJUDGED = IssuedRecord()


def count_outcomes(missed: Collection[bool]) -> IssuedRecord:
    """Return the record of bounds, of each whether it was missed."""
    return IssuedRecord(len(missed), len(missed) - sum(missed))


@dataclass(frozen=True, slots=True)
class JobArrival:
    """Properties of a job at submission; −1 if unknown."""

    procs: int = 1
    request_s: float = -1.0
    user: int = -1
    queue: int = -1


NOBODY = JobArrival()
"""An unknown user of a question."""


@dataclass(slots=True)
class Waiting:
    """A job in the queue and the bound issued to it."""

    submit_s: float
    bound_s: float | None
    size: float
    user: int
    array: Array
    judged: bool = False


class QueuePredictor:
    """Updated with the events of one queue, in time order; returns bounds at any moment."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self.edges: list[float] = []
        self.streams = [self._stream(())]
        self.change_points: list[float] = []
        self.downtime = DowntimeWatch()
        self.now_s = -math.inf
        self.waiting: dict[int, Waiting] = {}
        self._unseen: dict[int, float | None] = {}  # bounds of jobs that have not appeared yet
        self.ahead: Counter[int] = Counter()
        self.arrays = JobArrays()
        self.correction = AdaptiveCorrection(settings.quantile)
        self.missed: deque[bool] = deque(maxlen=RECORDED)
        self.sequence = 0
        self.next_binning = _FIRST_BINNING
        self._size_by = settings.cluster_size
        self._expiries: list[tuple[float, int]] = []

    def _stream(self, observed: tuple[ObservedWait, ...] | list[ObservedWait]) -> WaitStream:
        return WaitStream(self.settings.quantile, self.settings.confidence, observed)

    def submit(self, job: int, at_s: float, arrival: JobArrival) -> float | None:
        """Record a submission and return the bound on its wait, None while history is too short."""
        self.advance(at_s)
        size = SIZES[self._size_by](arrival.procs, arrival.request_s, self.ahead[arrival.user])
        bound = self._bound(self.streams[find_bin(self.edges, size)])
        if not self.settings.sees_waiting:
            self._unseen[job] = bound
            return bound
        array = self._array(arrival, at_s)
        self.expect(job, Waiting(at_s, bound, size, arrival.user, array))
        if arrival.user >= 0:
            self.ahead[arrival.user] += 1
        self.downtime.submitted()
        return bound

    def show(self, job: int, submit_s: float, wait_s: float, arrival: JobArrival) -> None:
        """Record a job that appears after its start, in a view without waiting jobs, and learn its
        wait. A bound that was issued at its submission is judged now."""
        size = SIZES[self._size_by](arrival.procs, arrival.request_s, 0)
        bound = self._unseen.pop(job, None)
        waiting = Waiting(submit_s, bound, size, arrival.user, self._array(arrival, submit_s))
        self._learn(waiting, submit_s + wait_s, bound is not None and wait_s > bound)

    def bounds_at(
        self, arrival: JobArrival, levels: Sequence[float], confidence: float
    ) -> tuple[Floats, float]:
        """Return the bounds at these levels, NaN for none, for a job that would be submitted now,
        and the longest of the waits that they are from (0 for none)."""
        waits_s = self.streams[self.bin_for(arrival)].sorted_waits
        correction = self.correction_factor, self.settings.quantile
        bounds_s = compute_corrected_bounds(waits_s, levels, confidence, correction)
        return bounds_s, float(waits_s.max(initial=0.0))

    def bin_for(self, arrival: JobArrival) -> int:
        """Return the number of the cluster of a job that would be submitted now."""
        size = SIZES[self._size_by](arrival.procs, arrival.request_s, self.ahead[arrival.user])
        return find_bin(self.edges, size)

    def _bound(self, stream: WaitStream) -> float | None:
        """Return the stream's bound, stricter under an adaptive correction."""
        bound, correction_factor = stream.bound, self.correction_factor
        if bound is None or correction_factor >= 1.0:
            return bound
        quantile = self.settings.quantile
        return max(
            bound, stream.stricter_bound(tighten_level(quantile, correction_factor, quantile))
        )

    @property
    def correction_factor(self) -> float:
        """Factor of the adaptive correction; always 1 for ``bmbp``."""
        watched = self.settings.correction and self.settings.method != "bmbp"
        return self.correction.correction_factor if watched else 1.0

    def expect(self, job: int, waiting: Waiting) -> None:
        """Record a job as waiting, with the instant at which its bound will be missed."""
        self.waiting[job] = waiting
        if waiting.bound_s is not None and not waiting.judged:
            heapq.heappush(self._expiries, (waiting.submit_s + waiting.bound_s, job))

    def _array(self, arrival: JobArrival, at_s: float) -> Array:
        if not self.settings.arrays or arrival.user < 0:
            return Array(at_s)
        return self.arrays.join((arrival.user, arrival.procs, arrival.request_s), at_s)

    def start(self, job: int, at_s: float) -> None:
        """Record the start of a job and learn its wait."""
        self.advance(at_s)
        waiting = self._leave(job)
        self.downtime.started(at_s)
        self._learn(waiting, at_s, False)

    def _learn(self, waiting: Waiting, at_s: float, missed: bool) -> None:
        """Judge the bound of a job that started, unless it was judged before, and learn its
        wait."""
        if waiting.bound_s is not None and not waiting.judged:
            self._judge(waiting, missed, at_s)
        if waiting.array.counts(at_s):
            observed_wait = ObservedWait(self.sequence, at_s - waiting.submit_s, waiting.size)
            self.sequence += 1
            self.streams[find_bin(self.edges, waiting.size)].add(observed_wait)
            if self.sequence >= self.next_binning:
                self._bin_again()

    def withdraw(self, job: int, at_s: float) -> None:
        """Record that a job leaves the queue without a start."""
        self.advance(at_s)
        self._leave(job)

    def _leave(self, job: int) -> Waiting:
        waiting = self.waiting.pop(job)
        if waiting.user >= 0:
            self.ahead[waiting.user] -= 1
            if not self.ahead[waiting.user]:
                # zeros would stay for every user who ever submitted
                del self.ahead[waiting.user]
        return waiting

    def advance(self, at_s: float) -> None:
        """Advance the time; jobs that have now waited longer than their bound are misses."""
        if at_s < self.now_s:
            raise InputError(f"the clock runs backwards: {at_s} after {self.now_s}")
        self.now_s = at_s
        # a start exactly at the bound keeps it
        while self._expiries and self._expiries[0][0] < at_s:
            expiry, job = heapq.heappop(self._expiries)
            # a job that has left stays in the heap: removing it there would cost a search
            waiting = self.waiting.get(job)
            if waiting is not None:
                waiting.judged = True
                self._judge(waiting, True, expiry)

    def _judge(self, waiting: Waiting, missed: bool, at_s: float) -> None:
        self.correction.judge(missed)
        self.missed.append(missed)
        # the adaptive correction counts every job, change points only one outcome of an array each
        if not waiting.array.may_vote(missed):
            return
        if self.streams[find_bin(self.edges, waiting.size)].judge(missed):
            self.change_points.append(at_s)

    def _bin_again(self) -> None:
        """Recompute the clusters from the history that still applies, and distribute it among
        them."""
        count = sum(len(stream) for stream in self.streams)
        self.next_binning = self.sequence + max(_FIRST_BINNING, int(_GROWTH * count))
        # here, because it is rare enough to visit all arrays
        self.arrays.forget(self.now_s)
        if self._size_by == "none":
            return
        # in order of observation: streams remove their oldest waits first
        observed_waits = sorted(k for stream in self.streams for k in stream.observed)
        waits_s, sizes = (np.array([k[column] for k in observed_waits]) for column in (1, 2))
        # twice the least history, so that a bin still has a bound after some of its waits are cut
        minimum = _PER_BIN * self.streams[0].minimum
        self.edges = find_edges(sizes, waits_s, minimum)
        dealt: list[list[ObservedWait]] = [[] for _ in range(len(self.edges) + 1)]
        for entry in observed_waits:
            dealt[find_bin(self.edges, entry.size)].append(entry)
        self.streams = [self._stream(part) for part in dealt]

    def check(self) -> None:
        """Check that every stream has only its own sizes, that waiting jobs are counted, and that
        no job expired unnoticed."""
        for index, stream in enumerate(self.streams):
            stream.check()
            if any(find_bin(self.edges, k.size) != index for k in stream.observed):
                raise AssertionError(f"stream {index} holds sizes outside of {self.edges}")
        self.correction.check()
        users = Counter(w.user for w in self.waiting.values() if w.user >= 0)
        if users != self.ahead:
            raise AssertionError(f"{self.ahead} wait by count, {users} in fact")
        for job, w in self.waiting.items():
            if w.bound_s is not None and not w.judged and w.submit_s + w.bound_s < self.now_s:
                raise AssertionError(f"job {job} has outlived its bound unnoticed")
