"""A queue's predictor: jobs come, wait and start; bounds are issued and judged on the way.

A miss is judged against the bound issued at submission, at the moment when it is certain: when a
job starts later than its bound, or when it is still waiting past it (an early miss: a stalled queue
shows only its short waits). A job withdrawn while waiting is right-censored: it counts as a miss if
it had outlived its bound, and never as a wait, because taking the time until it was given up for a
wait would pull the bound down.

``bmbp`` keeps one stream a queue; ``qbets`` one for each cluster of like jobs, and a referee over
all.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.qbets.arrays import Array, Arrays
from vgrads.qbets.clusters import SIZES, bin_of, find_edges
from vgrads.qbets.downtime import DowntimeWatch
from vgrads.qbets.referee import Referee, stricter
from vgrads.qbets.stream import Known, WaitStream

METHODS = {"bmbp": "none", "qbets": "backlog", "state": "backlog"}
"""Method → the size that jobs are clustered by."""
_FIRST_BINNING = 1000  # waits before the first binning, and at least as many between two
_GROWTH = 0.25  # share by which the history grows before it is binned again
_PER_BIN = 2  # least history of a bin, in units of the minimum history


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a predictor promises and how it groups jobs. ``size`` None: as the method says.

    ``referee``: be stricter while misses pile up (never for ``bmbp``). ``knows_user``: questions
    name their user, so what that one has in the queue and has seen counts; without it nothing is
    learned from who a user was, for nobody could tell it when asking. ``procs``, ``request_s``:
    what every job and every question is taken to ask for, where a history does not tell its jobs
    apart by it (None: as each says).
    """

    method: str = "qbets"
    quantile: float = 0.95
    confidence: float = 0.95
    arrays: bool = True
    size: str | None = None
    referee: bool = True
    knows_user: bool = True
    procs: int | None = None
    request_s: float | None = None

    @property
    def cluster_size(self) -> str:
        chosen = self.size or METHODS[self.method]
        return "product" if chosen == "backlog" and not self.knows_user else chosen

    def as_asked(self, arrival: Arrival) -> Arrival:
        """A job as a question would tell of it."""
        return arrival if self.knows_user else Arrival(arrival.procs, arrival.request_s)

    def shape(self, procs: int, request_s: float) -> tuple[int, float]:
        """Processors and requested time of a job or a question, as far as history tells jobs apart
        by them."""
        return (
            procs if self.procs is None else self.procs,
            request_s if self.request_s is None else self.request_s,
        )

    @property
    def looks_at_state(self) -> bool:
        """The method needs to know who waits and who runs."""
        return self.method == "state"

    def check(self) -> None:
        """InputError for a method or size that does not exist."""
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


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job as it is known at submission; −1 where something is not."""

    procs: int = 1
    request_s: float = -1.0
    user: int = -1
    queue: int = -1


NOBODY = Arrival()
"""An asker of whom nothing is known."""


@dataclass(slots=True)
class Waiting:
    """A job in the queue and the bound that it was given."""

    submit_s: float
    bound_s: float | None
    size: float
    user: int
    array: Array
    judged: bool = False


class QueuePredictor:
    """Fed with what happens in one queue, in time order; asked for bounds at any moment."""

    follows_ends = False
    due = False

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self.edges: list[float] = []
        self.streams = [self._stream(())]
        self.change_points: list[float] = []
        self.downtime = DowntimeWatch()
        self.now_s = -math.inf
        self.waiting: dict[int, Waiting] = {}
        self.ahead: Counter[int] = Counter()
        self.arrays = Arrays()
        self.referee = Referee(settings.quantile)
        self.sequence = 0
        self.next_binning = _FIRST_BINNING
        self._size_by = settings.cluster_size
        self._expiries: list[tuple[float, int]] = []

    def _stream(self, known: tuple[Known, ...] | list[Known]) -> WaitStream:
        return WaitStream(self.settings.quantile, self.settings.confidence, known)

    def submit(self, job: int, at_s: float, arrival: Arrival) -> float | None:
        """A job enters the queue: the bound on its wait, None while history is too short."""
        self.advance(at_s)
        size = SIZES[self._size_by](arrival.procs, arrival.request_s, self.ahead[arrival.user])
        bound = self._bound(self.streams[bin_of(self.edges, size)])
        array = self._array(arrival, at_s)
        self.expect(job, Waiting(at_s, bound, size, arrival.user, array))
        if arrival.user >= 0:
            self.ahead[arrival.user] += 1
        self.downtime.submitted()
        return bound

    def bin_for(self, arrival: Arrival) -> int:
        """Number of the cluster of a job that would be submitted now."""
        size = SIZES[self._size_by](arrival.procs, arrival.request_s, self.ahead[arrival.user])
        return bin_of(self.edges, size)

    def _bound(self, stream: WaitStream) -> float | None:
        """The stream's bound, stricter while the referee says so."""
        bound, caution = stream.bound, self.caution
        if bound is None or caution >= 1.0:
            return bound
        quantile = self.settings.quantile
        return max(bound, stream.stricter_bound(stricter(quantile, caution, quantile)))

    @property
    def caution(self) -> float:
        """What the referee asks for; always 1 for ``bmbp``."""
        watched = self.settings.referee and self.settings.method != "bmbp"
        return self.referee.caution if watched else 1.0

    def expect(self, job: int, waiting: Waiting) -> None:
        """Keep a job as waiting, with the instant at which its bound will be missed."""
        self.waiting[job] = waiting
        if waiting.bound_s is not None and not waiting.judged:
            heapq.heappush(self._expiries, (waiting.submit_s + waiting.bound_s, job))

    def _array(self, arrival: Arrival, at_s: float) -> Array:
        if not self.settings.arrays or arrival.user < 0:
            return Array(at_s)
        return self.arrays.join((arrival.user, arrival.procs, arrival.request_s), at_s)

    def start(self, job: int, at_s: float) -> None:
        """A job leaves the queue by starting: its wait is known now."""
        self.advance(at_s)
        waiting = self._leave(job)
        self.downtime.started(at_s)
        if waiting.bound_s is not None and not waiting.judged:
            self._judge(waiting, False, at_s)
        if waiting.array.counts(at_s):
            known = Known(self.sequence, at_s - waiting.submit_s, waiting.size)
            self.sequence += 1
            self.streams[bin_of(self.edges, waiting.size)].add(known)
            if self.sequence >= self.next_binning:
                self._bin_again()

    def withdraw(self, job: int, at_s: float) -> None:
        """A job leaves the queue without ever starting."""
        self.advance(at_s)
        self._leave(job)

    def end(self, job: int, at_s: float) -> None:
        """A running job ends, of which past waits say nothing."""

    def train(self) -> None:
        """Nothing is learned apart from what happens."""

    def _leave(self, job: int) -> Waiting:
        waiting = self.waiting.pop(job)
        if waiting.user >= 0:
            self.ahead[waiting.user] -= 1
            if not self.ahead[waiting.user]:
                del self.ahead[waiting.user]
        return waiting

    def advance(self, at_s: float) -> None:
        """Time passes; jobs that have now waited longer than their bound are misses."""
        if at_s < self.now_s:
            raise InputError(f"the clock runs backwards: {at_s} after {self.now_s}")
        self.now_s = at_s
        while self._expiries and self._expiries[0][0] < at_s:
            expiry, job = heapq.heappop(self._expiries)
            waiting = self.waiting.get(job)
            if waiting is not None:
                waiting.judged = True
                self._judge(waiting, True, expiry)

    def _judge(self, waiting: Waiting, missed: bool, at_s: float) -> None:
        self.referee.judge(missed)
        if not waiting.array.may_vote(missed):
            return
        if self.streams[bin_of(self.edges, waiting.size)].judge(missed):
            self.change_points.append(at_s)

    def _bin_again(self) -> None:
        """Find the clusters anew from the history that still applies, and deal it out to them."""
        count = sum(len(stream) for stream in self.streams)
        self.next_binning = self.sequence + max(_FIRST_BINNING, int(_GROWTH * count))
        self.arrays.forget(self.now_s)
        if self._size_by == "none":
            return
        known = sorted(k for stream in self.streams for k in stream.known)
        waits_s, sizes = (np.array([k[column] for k in known]) for column in (1, 2))
        minimum = _PER_BIN * self.streams[0].minimum
        self.edges = find_edges(sizes, waits_s, minimum)
        dealt: list[list[Known]] = [[] for _ in range(len(self.edges) + 1)]
        for entry in known:
            dealt[bin_of(self.edges, entry.size)].append(entry)
        self.streams = [self._stream(part) for part in dealt]

    def check(self) -> None:
        """Every stream holds its own sizes only; who waits is counted; nobody expired unnoticed."""
        for index, stream in enumerate(self.streams):
            stream.check()
            if any(bin_of(self.edges, k.size) != index for k in stream.known):
                raise AssertionError(f"stream {index} holds sizes outside of {self.edges}")
        self.referee.check()
        users = Counter(w.user for w in self.waiting.values() if w.user >= 0)
        if users != self.ahead:
            raise AssertionError(f"{self.ahead} wait by count, {users} in fact")
        for job, w in self.waiting.items():
            if w.bound_s is not None and not w.judged and w.submit_s + w.bound_s < self.now_s:
                raise AssertionError(f"job {job} has outlived its bound unnoticed")
