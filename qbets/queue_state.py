"""State of a queue at a submission, as numbers: waiting jobs, running jobs, recent events.

Updated with events in time order, as :class:`vgrads.qbets.predictor.QueuePredictor` is; nothing
here uses later information. :data:`FEATURES` names the numbers, in order.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from copy import copy

import numpy as np

from vgrads.kernel.arrays import Floats
from vgrads.kernel.compiled import compiled
from vgrads.qbets.job_rows import JobRows, JobShape, WaitMemory
from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.start_estimates import room_at, start_estimates

_RECENT = 256  # starts that are stored one by one
_DAY_S = 86_400.0
_LATELY_S = 3600.0
USUAL = -1.0  # stands for an unknown value
_SHAPES = 1000  # stored shapes, those of the latest jobs
_WAITS = 10  # stored waits of each
_FORGET_RATIO = 0.02  # weight of a run time in the mean of all jobs

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


TimedArrival = tuple[float, JobArrival]
"""A reported job, and the seconds that it has waited, or run, so far."""


class QueueState:
    """Waiting and running jobs, and the newest starts."""

    def __init__(self) -> None:
        self.most = 1  # processors of the machine: the most ever seen busy
        self.busy = 0
        self.waiting = JobRows(6)  # submitted, processors, request, expected run, user, queue
        self.running = JobRows(5)  # processors, started, request, expected run, user
        self.recent = np.full((_RECENT, 3), np.nan)  # started, log wait, log product
        self.started = 0
        self.users: dict[int, WaitMemory] = defaultdict(WaitMemory)
        self.queues: dict[int, WaitMemory] = defaultdict(WaitMemory)
        self.ratio = 0.5
        self.arrivals: deque[float] = deque()
        self.shapes: dict[tuple[float, float], JobShape] = {}

    def expected_s(self, job: JobArrival) -> float:
        """Return an expected run time: the share of the request that the user's last two jobs used,
        or all jobs."""
        ratios = self.users[job.user].ratios if job.user >= 0 else deque[float]()
        share: float = sum(ratios) / len(ratios) if ratios else self.ratio
        return max(1.0, share * max(job.request_s, 1.0))

    def submit(self, key: int, at_s: float, job: JobArrival) -> None:
        """Record a submission."""
        row = (at_s, max(job.procs, 1), max(job.request_s, 1.0), self.expected_s(job))
        self.waiting.add(key, *row, job.user, job.queue)
        self.arrivals.append(at_s)
        shape = self.shapes.pop(row[1:3], JobShape(at_s))
        self.shapes[row[1:3]] = JobShape(at_s, shape.started_s, shape.waits)  # as the newest of all
        if len(self.shapes) > _SHAPES:
            del self.shapes[next(iter(self.shapes))]

    def start(self, key: int, at_s: float) -> None:
        """Record the start of a waiting job."""
        submit_s, procs, request_s, expected_s, user, queue = self.waiting.take(key).tolist()
        log_wait = math.log1p(at_s - submit_s)
        self.recent[self.started % _RECENT] = at_s, log_wait, math.log(procs * request_s)
        self.started += 1
        self.queues[int(queue)].waited(log_wait)
        shape = self.shapes.get((procs, request_s))
        if shape is not None:
            waits = (*shape.waits[1 - _WAITS :], log_wait)
            self.shapes[procs, request_s] = JobShape(shape.came_s, at_s, waits)
        if user >= 0:
            self.users[int(user)].waited(log_wait)
        self.running.add(key, procs, at_s, request_s, expected_s, user)
        self.busy += int(procs)
        self.most = max(self.most, self.busy)

    def end(self, key: int, at_s: float) -> None:
        """Record the end of a running job and learn the used share of its request."""
        procs, started_s, request_s, _, user = self.running.take(key).tolist()
        self.busy -= int(procs)
        share = min(1.0, (at_s - started_s) / request_s)
        self.ratio += _FORGET_RATIO * (share - self.ratio)
        if user >= 0:
            self.users[int(user)].ratios.append(share)

    def withdraw(self, key: int) -> None:
        """Record that a waiting job leaves without a start."""
        self.waiting.take(key)

    def with_waiting(self, job: JobArrival, at_s: float, count: int) -> QueueState:
        """Return the queue with ``count`` more of these jobs, submitted now; this one is
        unchanged."""
        same = copy(self)
        same.waiting, same.arrivals = self.waiting.copied(), self.arrivals.copy()
        same.shapes = self.shapes.copy()
        for number in range(count):
            same.submit(-1 - number, at_s, job)
        return same

    def with_queue(
        self, waiting: Sequence[TimedArrival], running: Sequence[TimedArrival], at_s: float
    ) -> QueueState:
        """Return the queue with these waiting and running jobs instead, as reported at ``at_s``.
        Recent events are shifted to just before that: the newest start is that of the newest
        running job."""
        same = copy(self)
        same.waiting, same.running, same.busy = JobRows(6), JobRows(5), 0
        for key, (age_s, job) in enumerate(
            sorted(running, key=lambda timed_arrival: -timed_arrival[0])
        ):
            procs, request_s = max(job.procs, 1), max(job.request_s, 1.0)
            same.running.add(key, procs, at_s - age_s, request_s, self.expected_s(job), job.user)
            same.busy += procs
        same.most = max(self.most, same.busy)
        timed_arrivals = sorted((*waiting, *running), key=lambda timed_arrival: -timed_arrival[0])
        same.arrivals = deque(at_s - age_s for age_s, _ in timed_arrivals if age_s < _LATELY_S)
        for key, (age_s, job) in enumerate(
            sorted(waiting, key=lambda timed_arrival: -timed_arrival[0])
        ):
            procs, request_s = max(job.procs, 1), max(job.request_s, 1.0)
            row = (at_s - age_s, procs, request_s, self.expected_s(job), job.user, job.queue)
            same.waiting.add(-1 - key, *row)
        same.recent = self.recent.copy()
        newest_s = at_s - min((age_s for age_s, _ in running), default=0.0)
        later_s = newest_s - np.nanmax(self.recent[:, 0]) if self.started else 0.0
        same.recent[:, 0] += later_s
        same.shapes = {
            key: JobShape(
                min(at_s, shape.came_s + later_s), min(at_s, shape.started_s + later_s), shape.waits
            )
            for key, shape in self.shapes.items()
        }
        return same

    def features(self, job: JobArrival, at_s: float, unix_start_s: float = 0.0) -> Floats:
        """Return the numbers of :data:`FEATURES` for a job that would be submitted now; NaN if
        unknown."""
        while self.arrivals and self.arrivals[0] < at_s - _LATELY_S:
            self.arrivals.popleft()
        user = self.users.get(job.user) if job.user >= 0 else None
        queue = self.queues.get(job.queue) if job.queue >= 0 else None
        clock = at_s + unix_start_s
        message = (
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
            *self._recent_waits(job, at_s),
        )
        steps = _RECENT + (len(self.waiting.keys) + len(self.running.keys)) ** 2
        past = (self.recent, self.started, self.most)
        features = _features.after(steps)
        return np.asarray(features(message, at_s, self.waiting.rows, self.running.rows, past))

    def _recent_waits(self, job: JobArrival, at_s: float) -> tuple[float, float, float, float]:
        """Return for identical jobs: time since the last submission and since the last start, the
        last wait and the longest of ten."""
        shape = self.shapes.get((max(job.procs, 1), max(job.request_s, 1.0)))
        if shape is None:
            return (math.nan,) * 4
        came = math.log1p(at_s - shape.came_s)
        if not shape.waits:
            return came, math.nan, math.nan, math.nan
        return came, math.log1p(at_s - shape.started_s), shape.waits[-1], max(shape.waits)


@compiled
def _features(
    message: tuple[float, ...],
    now: float,
    waiting: Floats,
    running: Floats,
    past: tuple[Floats, int, float],
) -> Floats:
    procs, request, expected, user, queue, hour, weekday, last, mean, queue_mean = message[:10]
    recent, started, most = past
    result = np.full(len(FEATURES), np.nan)
    product = procs * request
    result[0], result[1], result[2] = math.log(procs), math.log(request), math.log(product)
    result[3], result[4], result[5] = procs / most, hour, weekday
    _of_waiting(result, message, now, waiting, most)
    rest = np.empty((len(running), 3))
    own, busy, left, likely_left = 0.0, 0.0, 0.0, 0.0
    for n in range(len(running)):
        rest[n, 0] = running[n, 0]
        elapsed = now - running[n, 1]
        rest[n, 1] = max(1.0, running[n, 2] - elapsed)
        likely = running[n, 3] - elapsed
        rest[n, 2] = likely if likely > 0 else 0.5 * rest[n, 1]  # it has run longer than expected
        own += running[n, 0] if running[n, 4] == user else 0.0
        busy += rest[n, 0]
        left += rest[n, 0] * rest[n, 1]
        likely_left += rest[n, 0] * rest[n, 2]
    result[8] = own if user >= 0 else np.nan
    result[17], result[18], result[19] = (
        len(running),
        1.0 - busy / most,
        (most - busy - procs) / most,
    )
    result[20] = math.log1p(left / most)
    result[21] = math.log1p(likely_left / most)
    result[22] = math.log1p(room_at(rest, most, min(procs, most), 1))
    result[23] = math.log1p(room_at(rest, most, min(procs, most), 2))
    starts = start_estimates(waiting[:, 1:4], rest, most, (int(procs), request, expected))
    for rule in range(4):
        result[24 + rule] = math.log1p(starts[rule])
    _of_recent(result, math.log(product), now, recent, started)
    result[37], result[38], result[39], result[40] = last, mean, queue_mean, queue
    result[43], result[46], result[47], result[48], result[49] = message[10:]
    return result


@compiled
def _of_waiting(
    result: Floats, message: tuple[float, ...], now: float, waiting: Floats, most: float
) -> None:
    procs, request, _, user, queue = message[:5]
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
        submit, width, requested, expected, owner, place = waiting[n]
        age = now - submit
        wide += width
        work += width * requested
        likely += width * expected
        if width * requested <= product:
            smaller += width * requested
            as_small = max(as_small, age)
        short += requested <= request
        narrow += width <= procs
        same += place == queue
        if owner == user and user >= 0:
            own += 1
            own_work += width * requested
        if width == procs and requested == request:
            equal += 1
            oldest_equal = max(oldest_equal, age)
        oldest = max(oldest, age)
        ages += age
        like += age > 3600.0 and 0.5 * product <= width * requested <= 2.0 * product
    result[6], result[7] = own, math.log1p(own_work / most)
    result[9], result[10], result[11] = len(waiting), wide / most, math.log1p(work / most)
    result[12], result[13] = math.log1p(likely / most), math.log1p(smaller / most)
    result[14], result[15], result[16] = short, narrow, same
    result[33], result[34] = math.log1p(oldest), math.log1p(ages / max(1, len(waiting)))
    result[35], result[36] = math.log1p(as_small), like
    result[44], result[45] = equal, math.log1p(oldest_equal)


@compiled
def _of_recent(
    result: Floats, log_product: float, now: float, recent: Floats, started: int
) -> None:
    retained = min(started, len(recent))
    if retained == 0:
        return
    ten, hundred, longest, weight, alike, worst, lately = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for back in range(retained):
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
    result[28], result[29], result[30] = (
        ten / min(retained, 10),
        hundred / min(retained, 100),
        longest,
    )
    result[31] = alike / weight if weight > 1e-9 else np.nan
    result[32] = worst
    result[41] = math.log1p(now - recent[(started - 1) % len(recent), 0])
    result[42] = lately
