"""The state of a queue at a submission, as numbers: who waits, who runs, what was seen lately.

Fed with what happens, in time order, as :class:`vgrads.qbets.predictor.QueuePredictor` is; nothing
here knows anything later than what it was told. :data:`FEATURES` names the numbers, in order.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats
from vgrads.kernel.compiled import compiled
from vgrads.qbets.predictor import Arrival
from vgrads.qbets.start_estimates import room_at, start_estimates

_RECENT = 256  # starts that are remembered one by one
_DAY_S = 86_400.0
_LATELY_S = 3600.0
USUAL = -1.0  # stands for what is not known
_SHAPES = 1000  # that are remembered, those that came last
_WAITS = 10  # that are remembered of each
_FORGET = 0.1  # share by which a new wait moves a user's or queue's mean
_FORGET_RATIO = 0.02  # and a run time that of all jobs

FEATURES = (
    "processors",
    "requested time",
    "processors × time",
    "share of the machine",
    "hour",
    "weekday",
    "own jobs waiting",
    "own work waiting",
    "own processors running",
    "jobs waiting",
    "processors waiting",
    "work waiting",
    "expected work waiting",
    "work of smaller jobs waiting",
    "jobs as short waiting",
    "jobs as narrow waiting",
    "jobs of this queue waiting",
    "jobs running",
    "free share",
    "free beyond this job",
    "work left running",
    "expected work left running",
    "room by request",
    "room by expectation",
    "start by FCFS",
    "start by EASY",
    "start by conservative",
    "start by expected runs",
    "last 10 waits",
    "last 100 waits",
    "longest of 30 waits",
    "waits of like jobs",
    "longest wait of like jobs",
    "oldest waiting",
    "mean age waiting",
    "oldest as small waiting",
    "like jobs waiting for long",
    "user's last wait",
    "user's waits",
    "queue's waits",
    "queue",
    "since the last start",
    "starts lately",
    "arrivals lately",
    "same waiting",
    "oldest same waiting",
    "since the same came",
    "since the same started",
    "last wait of the same",
    "longest wait of the same",
)


Seen = tuple[float, Arrival]
"""A job that somebody tells of, and for how many seconds it has waited, or run, already."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a user or a queue: the last wait, means of waits and of run ÷
    request."""

    last: float = math.nan
    mean: float = math.nan
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=2))

    def waited(self, log_wait: float) -> None:
        self.last = log_wait
        self.mean = (
            log_wait if math.isnan(self.mean) else self.mean + _FORGET * (log_wait - self.mean)
        )


class _Shape(NamedTuple):
    """What is remembered of jobs exactly alike: when the last came and started, the newest logs of
    waits."""

    came_s: float
    started_s: float = math.nan
    waits: tuple[float, ...] = ()


class _Rows:
    """Rows of numbers by the key of a job, in the order in which they came. O(rows) to take one
    out."""

    def __init__(self, columns: int) -> None:
        self.table = np.empty((64, columns))
        self.keys: list[int] = []

    def add(self, key: int, *row: float) -> None:
        count = len(self.keys)
        if count == len(self.table):
            self.table = np.vstack([self.table, np.empty_like(self.table)])
        self.table[count] = row
        self.keys.append(key)

    def take(self, key: int) -> Floats:
        spot, count = self.keys.index(key), len(self.keys)
        row: Floats = self.table[spot].copy()
        self.table[spot : count - 1] = self.table[spot + 1 : count]
        del self.keys[spot]
        return row

    @property
    def rows(self) -> Floats:
        return self.table[: len(self.keys)]

    def copied(self) -> _Rows:
        """The same rows, apart from these."""
        same = _Rows(self.table.shape[1])
        same.table, same.keys = self.table.copy(), self.keys.copy()
        return same


class QueueState:
    """Who waits and who runs now, and what the newest starts were like."""

    def __init__(self) -> None:
        self.most = 1  # processors of the machine: the most ever seen busy
        self.busy = 0
        self.waiting = _Rows(6)  # submitted, processors, request, expected run, user, queue
        self.running = _Rows(5)  # processors, started, request, expected run, user
        self.recent = np.full((_RECENT, 3), np.nan)  # started, log wait, log product
        self.started = 0
        self.users: dict[int, _Memory] = defaultdict(_Memory)
        self.queues: dict[int, _Memory] = defaultdict(_Memory)
        self.ratio = 0.5
        self.arrivals: deque[float] = deque()
        self.shapes: dict[tuple[float, float], _Shape] = {}

    def expected_s(self, job: Arrival) -> float:
        """A likely run time: as much of the request as the user's last two jobs used, or as jobs
        did."""
        ratios = self.users[job.user].ratios if job.user >= 0 else deque[float]()
        share: float = sum(ratios) / len(ratios) if ratios else self.ratio
        return max(1.0, share * max(job.request_s, 1.0))

    def submit(self, key: int, at_s: float, job: Arrival) -> None:
        """A job enters the queue."""
        row = (at_s, max(job.procs, 1), max(job.request_s, 1.0), self.expected_s(job))
        self.waiting.add(key, *row, job.user, job.queue)
        self.arrivals.append(at_s)
        known = self.shapes.pop(row[1:3], _Shape(at_s))
        self.shapes[row[1:3]] = _Shape(at_s, known.started_s, known.waits)  # as the newest of all
        if len(self.shapes) > _SHAPES:
            del self.shapes[next(iter(self.shapes))]

    def start(self, key: int, at_s: float) -> None:
        """A waiting job starts."""
        submit_s, procs, request_s, expected_s, user, queue = self.waiting.take(key).tolist()
        log_wait = math.log1p(at_s - submit_s)
        self.recent[self.started % _RECENT] = at_s, log_wait, math.log(procs * request_s)
        self.started += 1
        self.queues[int(queue)].waited(log_wait)
        shape = self.shapes.get((procs, request_s))
        if shape is not None:
            waits = (*shape.waits[1 - _WAITS :], log_wait)
            self.shapes[procs, request_s] = _Shape(shape.came_s, at_s, waits)
        if user >= 0:
            self.users[int(user)].waited(log_wait)
        self.running.add(key, procs, at_s, request_s, expected_s, user)
        self.busy += int(procs)
        self.most = max(self.most, self.busy)

    def end(self, key: int, at_s: float) -> None:
        """A running job ends: how much of its request it used is known now."""
        procs, started_s, request_s, _, user = self.running.take(key).tolist()
        self.busy -= int(procs)
        share = min(1.0, (at_s - started_s) / request_s)
        self.ratio += _FORGET_RATIO * (share - self.ratio)
        if user >= 0:
            self.users[int(user)].ratios.append(share)

    def withdraw(self, key: int) -> None:
        """A waiting job leaves without starting."""
        self.waiting.take(key)

    def with_waiting(self, job: Arrival, at_s: float, count: int) -> QueueState:
        """The queue as it would be with so many more of these, submitted now; this one stays as it
        is."""
        same = copy(self)
        same.waiting, same.arrivals = self.waiting.copied(), self.arrivals.copy()
        same.shapes = self.shapes.copy()
        for number in range(count):
            same.submit(-1 - number, at_s, job)
        return same

    def told(self, waiting: Sequence[Seen], running: Sequence[Seen], at_s: float) -> QueueState:
        """The queue with these waiting and running instead, as somebody tells at ``at_s``. What was
        seen lately is taken for having been seen just before: the newest start is that of the
        newest running job."""
        same = copy(self)
        same.waiting, same.running, same.busy = _Rows(6), _Rows(5), 0
        for key, (age_s, job) in enumerate(sorted(running, key=lambda one: -one[0])):
            procs, request_s = max(job.procs, 1), max(job.request_s, 1.0)
            same.running.add(key, procs, at_s - age_s, request_s, self.expected_s(job), job.user)
            same.busy += procs
        same.most = max(self.most, same.busy)
        told = sorted((*waiting, *running), key=lambda one: -one[0])
        same.arrivals = deque(at_s - age_s for age_s, _ in told if age_s < _LATELY_S)
        for key, (age_s, job) in enumerate(sorted(waiting, key=lambda one: -one[0])):
            procs, request_s = max(job.procs, 1), max(job.request_s, 1.0)
            row = (at_s - age_s, procs, request_s, self.expected_s(job), job.user, job.queue)
            same.waiting.add(-1 - key, *row)
        same.recent = self.recent.copy()
        newest_s = at_s - min((age_s for age_s, _ in running), default=0.0)
        later_s = newest_s - np.nanmax(self.recent[:, 0]) if self.started else 0.0
        same.recent[:, 0] += later_s
        same.shapes = {
            key: _Shape(
                min(at_s, seen.came_s + later_s), min(at_s, seen.started_s + later_s), seen.waits
            )
            for key, seen in self.shapes.items()
        }
        return same

    def features(self, job: Arrival, at_s: float, unix_start_s: float = 0.0) -> Floats:
        """The numbers of :data:`FEATURES` for a job that would be submitted now; NaN where
        unknown."""
        while self.arrivals and self.arrivals[0] < at_s - _LATELY_S:
            self.arrivals.popleft()
        user = self.users.get(job.user) if job.user >= 0 else None
        queue = self.queues.get(job.queue) if job.queue >= 0 else None
        clock = at_s + unix_start_s
        told = (
            float(max(job.procs, 1)),
            max(job.request_s, 1.0),
            self.expected_s(job),
            float(job.user),
            float(job.queue),
            (clock % _DAY_S) / 3600.0,
            float(int(clock / _DAY_S) % 7),
            user.last if user else math.nan,
            user.mean if user else math.nan,
            queue.mean if queue else math.nan,
            float(len(self.arrivals)),
            *self._seen_of(job, at_s),
        )
        steps = _RECENT + (len(self.waiting.keys) + len(self.running.keys)) ** 2
        past = (self.recent, self.started, self.most)
        features = _features.after(steps)
        return np.asarray(features(told, at_s, self.waiting.rows, self.running.rows, past))

    def _seen_of(self, job: Arrival, at_s: float) -> tuple[float, float, float, float]:
        """Of jobs exactly alike: since when none came, none started, the last wait and the longest
        of ten."""
        shape = self.shapes.get((max(job.procs, 1), max(job.request_s, 1.0)))
        if shape is None:
            return (math.nan,) * 4
        came = math.log1p(at_s - shape.came_s)
        if not shape.waits:
            return came, math.nan, math.nan, math.nan
        return came, math.log1p(at_s - shape.started_s), shape.waits[-1], max(shape.waits)


@compiled
def _features(
    told: tuple[float, ...],
    now: float,
    waiting: Floats,
    running: Floats,
    past: tuple[Floats, int, float],
) -> Floats:
    procs, request, expected, user, queue, hour, weekday, last, mean, queue_mean = told[:10]
    recent, started, most = past
    found = np.full(len(FEATURES), np.nan)
    product = procs * request
    found[0], found[1], found[2] = math.log(procs), math.log(request), math.log(product)
    found[3], found[4], found[5] = procs / most, hour, weekday
    _of_waiting(found, told, now, waiting, most)
    rest = np.empty((len(running), 3))
    own, busy, left, likely_left = 0.0, 0.0, 0.0, 0.0
    for n in range(len(running)):
        rest[n, 0] = running[n, 0]
        elapsed = now - running[n, 1]
        rest[n, 1] = max(1.0, running[n, 2] - elapsed)
        likely = running[n, 3] - elapsed
        rest[n, 2] = likely if likely > 0 else 0.5 * rest[n, 1]  # it outlived what was expected
        own += running[n, 0] if running[n, 4] == user else 0.0
        busy += rest[n, 0]
        left += rest[n, 0] * rest[n, 1]
        likely_left += rest[n, 0] * rest[n, 2]
    found[8] = own if user >= 0 else np.nan
    found[17], found[18], found[19] = len(running), 1.0 - busy / most, (most - busy - procs) / most
    found[20] = math.log1p(left / most)
    found[21] = math.log1p(likely_left / most)
    found[22] = math.log1p(room_at(rest, most, min(procs, most), 1))
    found[23] = math.log1p(room_at(rest, most, min(procs, most), 2))
    starts = start_estimates(waiting[:, 1:4], rest, most, (int(procs), request, expected))
    for rule in range(4):
        found[24 + rule] = math.log1p(starts[rule])
    _of_recent(found, math.log(product), now, recent, started)
    found[37], found[38], found[39], found[40] = last, mean, queue_mean, queue
    found[43], found[46], found[47], found[48], found[49] = told[10:]
    return found


@compiled
def _of_waiting(
    found: Floats, told: tuple[float, ...], now: float, waiting: Floats, most: float
) -> None:
    procs, request, _, user, queue = told[:5]
    product = procs * request
    own, own_work, wide, work, likely, smaller, short, narrow, same = (
        0,
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
        0,
        0,
        0,
    )
    oldest, ages, as_small, like, equal, oldest_equal = 0.0, 0.0, 0.0, 0, 0, 0.0
    for n in range(len(waiting)):
        submit, width, asked, expected, owner, place = waiting[n]
        age = now - submit
        wide += width
        work += width * asked
        likely += width * expected
        if width * asked <= product:
            smaller += width * asked
            as_small = max(as_small, age)
        short += asked <= request
        narrow += width <= procs
        same += place == queue
        if owner == user and user >= 0:
            own += 1
            own_work += width * asked
        if width == procs and asked == request:
            equal += 1
            oldest_equal = max(oldest_equal, age)
        oldest = max(oldest, age)
        ages += age
        like += age > 3600.0 and 0.5 * product <= width * asked <= 2.0 * product
    found[6], found[7] = own, math.log1p(own_work / most)
    found[9], found[10], found[11] = len(waiting), wide / most, math.log1p(work / most)
    found[12], found[13] = math.log1p(likely / most), math.log1p(smaller / most)
    found[14], found[15], found[16] = short, narrow, same
    found[33], found[34] = math.log1p(oldest), math.log1p(ages / max(1, len(waiting)))
    found[35], found[36] = math.log1p(as_small), like
    found[44], found[45] = equal, math.log1p(oldest_equal)


@compiled
def _of_recent(found: Floats, log_product: float, now: float, recent: Floats, started: int) -> None:
    kept = min(started, len(recent))
    if kept == 0:
        return
    ten, hundred, longest, weight, alike, worst, lately = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for back in range(kept):
        at, wait, size = recent[(started - 1 - back) % len(recent)]
        ten += wait if back < 10 else 0.0
        hundred += wait if back < 100 else 0.0
        longest = max(longest, wait) if back < 30 else longest
        near = math.exp(-(size - log_product) * (size - log_product))
        weight += near
        alike += near * wait
        if abs(size - log_product) < 1.0:
            worst = max(worst, wait)
        lately += at > now - 3600.0
    found[28], found[29], found[30] = ten / min(kept, 10), hundred / min(kept, 100), longest
    found[31] = alike / weight if weight > 1e-9 else np.nan
    found[32] = worst
    found[41] = math.log1p(now - recent[(started - 1) % len(recent), 0])
    found[42] = lately
