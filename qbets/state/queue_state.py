"""State of a queue: waiting jobs, running jobs, recent events.

Updated with events in time order, one by one or a whole history at once; nothing here uses later
information.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from vgrads.kernel.arrays import Bools, Floats, Ints
from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.state import queue_tables
from vgrads.qbets.state.queue_features import (
    FEATURES,
    VIEW_CODES,
    features_of,
    replay_events,
)
from vgrads.qbets.state.queue_tables import (
    BUSY,
    FIRST,
    LAST,
    MOST,
    RUNNING,
    STARTED,
    WAITING,
    JobColumns,
    copied,
    new_tables,
    with_room,
)
from vgrads.qbets.views import FULL

_LATELY_S = 3600.0
TimedArrival = tuple[float, JobArrival]
"""A reported job, and the seconds that it has waited, or run, so far."""
Size = tuple[float, float]


def size_of(procs: int, request_s: float) -> Size:
    """Return processors and requested time as the state counts them: at least one of each."""
    return float(max(procs, 1)), max(request_s, 1.0)


class QueueState:
    """Waiting and running jobs, and the newest starts."""

    def __init__(self) -> None:
        self.tables = new_tables()
        self._users: dict[int, int] = {}
        self._queues: dict[int, int] = {}
        self._shapes: dict[Size, int] = {}

    @property
    def waiting(self) -> list[int]:
        """The numbers of the waiting jobs."""
        rows = self.tables.waiting[: int(self.tables.numbers[WAITING]), 7]
        return [int(job) for job in rows]

    def expected_s(self, job: JobArrival) -> float:
        """Return an expected run time: the share of the request that the user's last two jobs used,
        or all jobs."""
        user = self._users.get(job.user, -1)
        return queue_tables.expected_run.plain(self.tables, user, max(job.request_s, 1.0))

    def submit(self, key: int, at_s: float, job: JobArrival) -> None:
        """Record a submission."""
        size = size_of(job.procs, job.request_s)
        codes = (
            _find_code(self._users, job.user),
            _find_code(self._queues, job.queue),
            self._shapes.setdefault(size, len(self._shapes)),
        )
        self._make_room(1)
        queue_tables.submit_job.plain(self.tables, key, at_s, size, codes)

    def start(self, key: int, at_s: float) -> None:
        """Record the start of a waiting job."""
        self._make_room(1)
        queue_tables.start_job.plain(self.tables, key, at_s)

    def end(self, key: int, at_s: float) -> None:
        """Record the end of a running job and learn the used share of its request."""
        queue_tables.end_job.plain(self.tables, key, at_s)

    def withdraw(self, key: int) -> None:
        """Remove a waiting job that is cancelled."""
        queue_tables.withdraw_job.plain(self.tables, key)

    def _make_room(self, jobs: int) -> None:
        totals = (len(self._users), len(self._queues), len(self._shapes))
        self.tables = with_room(self.tables, jobs, *totals)

    def columns(
        self,
        times: tuple[Floats, Floats],
        sizes: tuple[Floats, Floats],
        users: Ints,
        queues: Ints,
    ) -> JobColumns:
        """Return jobs of a history as columns of numbers; these are the same in later questions.
        ``times``: of submission and start; ``sizes``: processors and requested times."""
        procs, request_s = np.maximum(sizes[0], 1.0), np.maximum(sizes[1], 1.0)
        # both numbers as one complex number: np.unique then finds distinct pairs in one sort
        shapes, pairs = self._shapes, procs + 1j * request_s
        distinct, firsts, places = np.unique(pairs, return_index=True, return_inverse=True)
        for pair in distinct[np.argsort(firsts)].tolist():
            shapes.setdefault((pair.real, pair.imag), len(shapes))
        codes = [shapes[pair.real, pair.imag] for pair in distinct.tolist()]
        return JobColumns(
            submit_s=times[0],
            start_s=times[1],
            procs=procs,
            request_s=request_s,
            user=_find_codes(self._users, users),
            queue=_find_codes(self._queues, queues),
            shape=np.array(codes, dtype=np.int64)[places],
        )

    def replay(
        self,
        events: tuple[Floats, Ints, Ints],
        jobs: JobColumns,
        started: Bools,
        how: tuple[int, float, bool, bool],
        rows: int,
        view: str = FULL,
    ) -> Floats:
        """Apply events of a view, and return the features of ``rows`` submissions, as ``how`` says
        (:func:`vgrads.qbets.state.queue_features.replay_events`)."""
        submissions = int((events[1] == queue_tables.SUBMIT).sum())
        self._make_room(max(submissions, int((events[1] == queue_tables.LEAVE).sum())))
        result = np.empty((rows, len(FEATURES)), dtype=np.float64)
        work = 10 * len(events[0]) + 8 * rows * queue_tables.RECENT
        step = replay_events.after(work)
        step(self.tables, events, jobs, started, (*how, VIEW_CODES[view]), result)
        return result

    def with_waiting(self, job: JobArrival, at_s: float, count: int) -> QueueState:
        """Return the queue with ``count`` more of these jobs, submitted now; this one is
        unchanged."""
        same = self.separate()
        # start estimates of the shorter queue must not be used for this one
        same.tables.like[:] = -1.0
        for number in range(count):
            # negative, because the numbers of a history's jobs are its rows
            same.submit(-1 - number, at_s, job)
        return same

    def separate(self) -> QueueState:
        """Return a separate copy."""
        same = copy(self)
        same.tables = copied(self.tables)
        same._users, same._queues = self._users.copy(), self._queues.copy()
        same._shapes = self._shapes.copy()
        return same

    def with_queue(
        self, waiting: Sequence[TimedArrival], running: Sequence[TimedArrival], at_s: float
    ) -> QueueState:
        """Return the queue with these waiting and running jobs instead, as reported at ``at_s``.
        Recent events are shifted to just before that: the newest start is that of the newest
        running job."""
        same = self.separate()
        # the estimates are of the queue before
        same.tables.like[:] = -1.0
        numbers = same.tables.numbers
        numbers[WAITING] = numbers[RUNNING] = numbers[BUSY] = numbers[FIRST] = numbers[LAST] = 0
        same.tables.queues[:, 1] = np.where(np.isnan(same.tables.queues[:, 1]), np.nan, 0.0)
        newest_s = at_s - min((age_s for age_s, _ in running), default=0.0)
        later_s = newest_s - np.nanmax(self.tables.recent[:, 0]) if numbers[STARTED] else 0.0
        same.tables.recent[:, 0] += later_s
        times = same.tables.shapes[:, :2]
        same.tables.shapes[:, :2] = np.minimum(at_s, times + later_s)
        for key, (age_s, job) in enumerate(sorted(running, key=lambda item: -item[0])):
            same._add_running(key, at_s - age_s, job)
        # oldest first: start estimates take the table's order as the order of the queue
        for key, (age_s, job) in enumerate(sorted(waiting, key=lambda item: -item[0])):
            same._add_waiting(-1 - key, at_s - age_s, job)
        ages_s = sorted((age_s for age_s, _ in (*waiting, *running)), reverse=True)
        arrived = [at_s - age_s for age_s in ages_s if age_s < _LATELY_S]
        same.tables = same.tables._replace(arrived=np.array([*arrived, 0.0]))
        numbers[FIRST], numbers[LAST] = 0, len(arrived)
        numbers[MOST] = max(numbers[MOST], numbers[BUSY])
        return same

    def _row(self, job: JobArrival) -> tuple[float, float, float, int, int, int]:
        procs, request_s = size_of(job.procs, job.request_s)
        user, queue = _find_code(self._users, job.user), _find_code(self._queues, job.queue)
        shape = self._shapes.get((procs, request_s), -1)
        self._make_room(1)
        return procs, request_s, self.expected_s(job), user, queue, shape

    def _add_running(self, key: int, started_s: float, job: JobArrival) -> None:
        procs, request_s, expected_s, user, queue, _ = self._row(job)
        tables = self.tables
        row = (procs, started_s, request_s, expected_s, user, queue, key)
        tables.running[int(tables.numbers[RUNNING])] = row
        tables.numbers[RUNNING] += 1
        tables.numbers[BUSY] += procs
        if queue >= 0:
            own = tables.queues[queue]
            own[1] = procs + np.nan_to_num(own[1])
            own[2] = np.fmax(own[1], own[2])

    def _add_waiting(self, key: int, submit_s: float, job: JobArrival) -> None:
        procs, request_s, expected_s, user, queue, shape = self._row(job)
        tables = self.tables
        row = (submit_s, procs, request_s, expected_s, user, queue, shape, key)
        tables.waiting[int(tables.numbers[WAITING])] = row
        tables.numbers[WAITING] += 1

    def features(self, job: JobArrival, at_s: float, unix_start_s: float = 0.0) -> Floats:
        """Return the features of a job that would be submitted now, NaN if unknown, as
        :data:`vgrads.qbets.state.queue_features.FEATURES`."""
        procs, request_s = size_of(job.procs, job.request_s)
        question = (
            procs,
            request_s,
            self._users.get(job.user, -1),
            self._queues.get(job.queue, -1),
            self._shapes.get((procs, request_s), -1),
        )
        numbers, result = self.tables.numbers, np.empty(len(FEATURES))
        # conservative backfilling is quadratic in the number of jobs
        steps = queue_tables.RECENT + int(numbers[WAITING] + numbers[RUNNING]) ** 2
        write = features_of.after(steps)
        own = self.tables._replace(like=self.tables.like.copy())  # a question changes nothing
        write(own, at_s, at_s + unix_start_s, question, result)
        return result


def _find_code(codes: dict[int, int], value: int) -> int:
    """Return the row number of a user or queue; −1 if unknown."""
    return codes.setdefault(value, len(codes)) if value >= 0 else -1


def _find_codes(codes: dict[int, int], values: Ints) -> Ints:
    """Return the row numbers of many, new ones in the order of their first appearance."""
    distinct, firsts, places = np.unique(values, return_index=True, return_inverse=True)
    # in the order of first appearance, as single events would number them
    for value in distinct[np.argsort(firsts)].tolist():
        _find_code(codes, value)
    return np.array([codes.get(value, -1) for value in distinct.tolist()], dtype=np.int64)[places]
