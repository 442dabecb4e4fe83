"""Features of a queue's state for a job, computed from its tables (compiled)."""

from __future__ import annotations

import math

import numpy as np

from vgrads.kernel.arrays import Bools, Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.qbets import views
from vgrads.qbets.state.queue_tables import (
    BUSY,
    LEAVE,
    MOST,
    RECENT,
    RUNNING,
    STARTED,
    SUBMIT,
    WAITING,
    JobColumns,
    Tables,
    end_job,
    expected_run,
    lately,
    note_busy,
    show_job,
    start_job,
    submit_job,
    withdraw_job,
)
from vgrads.qbets.state.start_estimates import room_at, start_estimates

USUAL = -1.0
"""Stands for an unknown value."""
_DAY_S = 86_400.0
LIKE_S = 60.0
"""Start estimates stay for like jobs of one minute of the log's clock."""
_LIKE = 0.05  # change of a queue's length for which they stay

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
    "work of this queue waiting",
    "oldest of this queue waiting",
    "processors of this queue running",
    "free share of this queue",
)
COUNT = len(FEATURES)
_FULL, _STARTED, _ENDED = range(3)
VIEW_CODES = {views.FULL: _FULL, views.STARTED: _STARTED, views.ENDED: _ENDED}
"""Numbers of the views, for compiled loops."""


@compiled
def features_of(
    tables: Tables,
    at_s: float,
    clock_s: float,
    job: tuple[float, float, int, int, int],
    result: Floats,
) -> None:
    """Write :data:`FEATURES` of a job that would be submitted now into ``result``; NaN if unknown.

    ``job``: processors, request, user, queue, shape; ``clock_s``: Unix time. For equal jobs of a
    user within a minute start estimates are computed once, while the length of the queue changes by
    less than a twentieth.
    """
    procs, request, user, queue, shape = job
    numbers, most = tables.numbers, tables.numbers[MOST]
    waiting = tables.waiting[: int(numbers[WAITING])]
    running = tables.running[: int(numbers[RUNNING])]
    expected = expected_run(tables, user, request)
    product = procs * request
    for n in range(COUNT):
        result[n] = np.nan
    result[0], result[1], result[2] = math.log(procs), math.log(request), math.log(product)
    result[3] = procs / most
    result[4], result[5] = (clock_s % _DAY_S) / 3600.0, float(int(clock_s / _DAY_S) % 7)
    _describe_waiting(result, (procs, request, user, queue), at_s, waiting, most)
    rest = _describe_running(result, (procs, user), at_s, running, most, numbers[BUSY])
    like, length = tables.like, len(waiting)
    same = shape >= 0 and like[0] == shape and like[1] == user and at_s < like[2]
    if not same or abs(length - like[3]) > _LIKE * like[3]:
        end_s = (math.floor(at_s / LIKE_S) + 1) * LIKE_S
        like[0], like[1], like[2], like[3] = shape, user, end_s, length
        start_estimates(waiting[:, 1:4], rest, most, (procs, request, expected), like[4:])
    for rule in range(4):
        result[24 + rule] = math.log1p(like[4 + rule])
    _describe_recent(result, math.log(product), at_s, tables.recent, int(numbers[STARTED]))
    if user >= 0:
        result[37], result[38] = tables.users[user, 0], tables.users[user, 1]
    _describe_queue(result, tables, queue)
    result[43] = lately(tables, at_s)
    if shape >= 0:
        _describe_shape(result, tables.shapes[shape], at_s)


@compiled
def _describe_queue(result: Floats, tables: Tables, queue: int) -> None:
    result[40] = queue
    if queue < 0:
        return
    busy, most = tables.queues[queue, 1], tables.queues[queue, 2]
    result[39] = tables.queues[queue, 0]
    if most > 0:
        result[52], result[53] = busy / tables.numbers[MOST], 1.0 - busy / most


@compiled
def _describe_shape(result: Floats, row: Floats, at_s: float) -> None:
    """Describe identical jobs: time since the last submission and since the last start, the last
    wait and the longest of ten."""
    if math.isnan(row[0]):
        return
    result[46] = math.log1p(at_s - row[0])
    if math.isnan(row[2]):
        return
    room = len(row) - 3
    count, longest = int(row[2]), 0.0
    for n in range(min(count, room)):
        longest = max(longest, row[3 + n])
    result[47] = math.log1p(at_s - row[1])
    result[48], result[49] = row[3 + (count - 1) % room], longest


@compiled
def _describe_running(
    result: Floats,
    job: tuple[float, int],
    at_s: float,
    running: Floats,
    most: float,
    busy: float,
) -> Floats:
    """Return processors, request left and expected rest of the running jobs."""
    procs, user = job
    rest = np.empty((len(running), 3))
    own, left, likely_left = 0.0, 0.0, 0.0
    for n in range(len(running)):
        rest[n, 0] = running[n, 0]
        elapsed = at_s - running[n, 1]
        # jobs can run past their request until their site ends them
        rest[n, 1] = max(1.0, running[n, 2] - elapsed)
        likely = running[n, 3] - elapsed
        rest[n, 2] = likely if likely > 0 else 0.5 * rest[n, 1]  # it has run longer than expected
        own += running[n, 0] if running[n, 4] == user else 0.0
        left += rest[n, 0] * rest[n, 1]
        likely_left += rest[n, 0] * rest[n, 2]
    if user >= 0:
        result[8] = own
    result[17], result[18] = len(running), 1.0 - busy / most
    result[19] = (most - busy - procs) / most
    result[20], result[21] = math.log1p(left / most), math.log1p(likely_left / most)
    result[22] = math.log1p(room_at(rest, most, min(procs, most), 1))
    result[23] = math.log1p(room_at(rest, most, min(procs, most), 2))
    return rest


@compiled
def _describe_waiting(
    result: Floats,
    job: tuple[float, float, int, int],
    now: float,
    waiting: Floats,
    most: float,
) -> None:
    procs, request, user, queue = job
    product = procs * request
    own, own_work, wide, work, likely, smaller = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    short, narrow, same, same_work, oldest_same = 0, 0, 0, 0.0, 0.0
    oldest, ages, as_small, like, equal, oldest_equal = 0.0, 0.0, 0.0, 0, 0, 0.0
    for n in range(len(waiting)):
        submit, width, requested = waiting[n, 0], waiting[n, 1], waiting[n, 2]
        age = now - submit
        wide += width
        work += width * requested
        likely += width * waiting[n, 3]
        if width * requested <= product:
            smaller += width * requested
            as_small = max(as_small, age)
        short += requested <= request
        narrow += width <= procs
        if waiting[n, 5] == queue:
            same += 1
            same_work += width * requested
            oldest_same = max(oldest_same, age)
        if waiting[n, 4] == user and user >= 0:
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
    result[50], result[51] = math.log1p(same_work / most), math.log1p(oldest_same)


@compiled
def _describe_recent(
    result: Floats, log_product: float, now: float, recent: Floats, started: int
) -> None:
    retained = min(started, RECENT)
    if retained == 0:
        return
    ten, hundred, longest, weight, alike, worst, lately = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0
    newest = recent[(started - 1) % RECENT, 0]
    for back in range(retained):
        row = (started - 1 - back) % RECENT
        at, wait, size = recent[row, 0], recent[row, 1], recent[row, 2]
        ten += wait if back < 10 else 0.0
        hundred += wait if back < 100 else 0.0
        longest = max(longest, wait) if back < 30 else longest
        # Gaussian weight of jobs alike in the logarithm of processors × time
        near = math.exp(-(size - log_product) * (size - log_product))
        weight += near
        alike += near * wait
        if abs(size - log_product) < 1.0:
            worst = max(worst, wait)
        lately += at > now - 3600.0
        newest = max(newest, at)
    result[28], result[29] = ten / min(retained, 10), hundred / min(retained, 100)
    result[30] = longest
    result[31] = alike / weight if weight > 1e-9 else np.nan
    result[32] = worst
    result[41] = math.log1p(now - newest)
    result[42] = lately


@compiled
def replay_events(
    tables: Tables,
    events: tuple[Floats, Ints, Ints],
    jobs: JobColumns,
    started: Bools,
    how: tuple[int, float, bool, bool, int],
    result: Floats,
) -> None:
    """Apply events to the tables, and write the features of each submission from a row on into
    ``result``, in the order of events.

    ``how``: that row, Unix time of the log's zero, whether questions name users and queues, and
    the number of the view (:data:`VIEW_CODES`).
    """
    times, kinds, rows = events
    awake, unix_start_s, users, queues, view = how
    written = 0
    for n in range(len(times)):
        at_s, kind, row = times[n], kinds[n], rows[n]
        user, queue, shape = jobs.user[row], jobs.queue[row], jobs.shape[row]
        size = (jobs.procs[row], jobs.request_s[row])
        if kind == SUBMIT:
            if awake <= row:
                job = (size[0], size[1], user if users else -1, queue if queues else -1, shape)
                if view != _FULL:  # others may never appear, so no estimates are shared
                    tables.like[0] = -1.0
                # before the submission: a job must not see itself in the queue
                features_of(tables, at_s, at_s + unix_start_s, job, result[written])
                written += 1
            if view == _FULL:
                submit_job(tables, row, at_s, size, (user, queue, shape))
        elif kind != LEAVE:
            end_job(tables, row, at_s)
        elif view != _FULL:
            since = (jobs.submit_s[row], jobs.start_s[row])
            show_job(tables, row, at_s, since, size, (user, queue, shape))
            if view == _ENDED:
                end_job(tables, row, at_s)
                note_busy(tables, size[0], since[1], at_s)
        elif started[row]:
            start_job(tables, row, at_s)
        else:
            withdraw_job(tables, row)
