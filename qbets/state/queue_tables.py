"""Tables of a queue's state, and how events change them: compiled loops over whole histories.

:class:`vgrads.qbets.state.queue_state.QueueState` owns the tables. Users, queues and shapes are row
numbers here; −1 is unknown. Jobs have the number under which they were submitted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled

RECENT = 256
"""Starts that are stored one by one."""
_WAITS = 10  # stored waits of a shape
_FORGET = 0.1  # weight of a new wait in a user's or queue's mean
_FORGET_RATIO = 0.02  # weight of a run time in the mean of all jobs
_LATELY_S = 3600.0
SUBMIT, END, LEAVE, END_AT_ONCE = 0, 1, 2, 3
"""Kinds of events, in the order of simultaneous ones."""
MOST, BUSY, RATIO, STARTED, WAITING, RUNNING, FIRST, LAST = 0, 1, 2, 3, 4, 5, 6, 7
"""Columns of ``numbers``: processors of the machine (the most ever seen busy), busy processors,
mean share of the request that jobs use, number of starts, rows in use of the two tables, and first
and last of the submissions of the last hour."""


Codes = tuple[int, int, int]
"""Row numbers of a user, a queue and a shape."""


class Tables(NamedTuple):
    """The state as arrays, some with room for more rows.

    ``waiting``: submitted, processors, request, expected run, user, queue, shape, job;
    ``running``: processors, started, request, expected run, user, queue, job;
    ``recent``: started, log wait, log product, and, where jobs appear at their ends, processors and
    end; ``users``: last and mean log wait, used shares of
    the last two requests, their number; ``queues``: mean log wait, busy processors, most ever busy;
    ``shapes``: last submission, last start, number of starts, newest log waits; ``like``: shape and
    user of the job with the newest start estimates, their end of use, the number of waiting jobs,
    and the four estimates.
    """

    waiting: Floats
    running: Floats
    recent: Floats
    users: Floats
    queues: Floats
    shapes: Floats
    arrived: Floats
    like: Floats
    numbers: Floats


class JobColumns(NamedTuple):
    """Jobs of a history by row: submission, start, processors, request, and numbers of user, queue
    and shape."""

    submit_s: Floats
    start_s: Floats
    procs: Floats
    request_s: Floats
    user: Ints
    queue: Ints
    shape: Ints


def new_tables() -> Tables:
    """Return the tables of an empty queue."""
    numbers = np.zeros(8)
    # one processor, because features divide by the size of the machine
    numbers[MOST], numbers[RATIO] = 1.0, 0.5
    return Tables(
        waiting=np.empty((64, 8)),
        running=np.empty((64, 7)),
        recent=np.full((RECENT, 5), np.nan),
        users=np.full((16, 5), np.nan),
        queues=np.full((4, 3), np.nan),
        shapes=np.full((16, 3 + _WAITS), np.nan),
        arrived=np.empty(64),
        like=np.full(8, -1.0),
        numbers=numbers,
    )


def with_room(tables: Tables, jobs: int, users: int, queues: int, shapes: int) -> Tables:
    """Return the tables with room for this many more jobs, and for these totals of the others.

    All jobs that wait may start before another one is submitted.
    """
    numbers = tables.numbers
    starts = int(numbers[WAITING]) + jobs
    first, last = int(numbers[FIRST]), int(numbers[LAST])
    arrived = tables.arrived
    # the window only moves forward: its submissions move to the front, with room for more
    if last + jobs > len(arrived):
        arrived = np.concatenate([arrived[first:last], np.empty(max(64, 2 * jobs, last - first))])
        numbers[FIRST], numbers[LAST] = 0, last - first
    return tables._replace(
        waiting=_lengthen_table(tables.waiting, starts),
        running=_lengthen_table(tables.running, int(numbers[RUNNING]) + starts),
        users=_lengthen_table(tables.users, users),
        queues=_lengthen_table(tables.queues, queues),
        shapes=_lengthen_table(tables.shapes, shapes),
        arrived=arrived,
    )


def _lengthen_table(table: Floats, rows: int) -> Floats:
    """Return a table with at least this many rows; new ones are NaN."""
    if rows <= len(table):
        return table
    result = np.full((max(rows, 2 * len(table), 16), table.shape[1]), np.nan)
    result[: len(table)] = table
    return result


def copied(tables: Tables) -> Tables:
    """Return a separate copy, without the room for more rows."""
    numbers = tables.numbers
    used = tables._replace(
        waiting=tables.waiting[: int(numbers[WAITING])],
        running=tables.running[: int(numbers[RUNNING])],
        arrived=tables.arrived[: int(numbers[LAST])],
    )
    return Tables(*(table.copy() for table in used))


@compiled
def expected_run(tables: Tables, user: int, request: float) -> float:
    """Return an expected run time: the share of the request that the user's last two jobs used, or
    all jobs."""
    share = tables.numbers[RATIO]
    if user >= 0 and tables.users[user, 4] >= 1:
        share = tables.users[user, 2]
        if tables.users[user, 4] >= 2:
            share = (share + tables.users[user, 3]) / 2
    return float(max(1.0, share * request))


@compiled
def submit_job(
    tables: Tables, job: int, at_s: float, size: tuple[float, float], codes: Codes
) -> None:
    """Record a submission."""
    (procs, request), (user, queue, shape), numbers = size, codes, tables.numbers
    row = tables.waiting[int(numbers[WAITING])]
    row[0], row[1], row[2], row[3] = at_s, procs, request, expected_run(tables, user, request)
    row[4], row[5], row[6], row[7] = user, queue, shape, job
    numbers[WAITING] += 1
    tables.arrived[int(numbers[LAST])] = at_s
    numbers[LAST] += 1
    if shape >= 0:
        tables.shapes[shape, 0] = at_s


@compiled
def _take(table: Floats, count: int, column: int, job: int) -> int:
    """Move a job's row behind the others, whose order stays; return its place."""
    spot = 0
    while table[spot, column] != job:
        spot += 1
    columns = table.shape[1]
    row = np.empty(columns)
    for field in range(columns):
        row[field] = table[spot, field]
    for n in range(spot, count - 1):
        for field in range(columns):
            table[n, field] = table[n + 1, field]
    for field in range(columns):
        table[count - 1, field] = row[field]
    return count - 1


@compiled
def start_job(tables: Tables, job: int, at_s: float) -> None:
    """Record the start of a waiting job."""
    numbers = tables.numbers
    row = tables.waiting[_take(tables.waiting, int(numbers[WAITING]), 7, job)]
    numbers[WAITING] -= 1
    procs, request, user, queue, shape = row[1], row[2], int(row[4]), int(row[5]), int(row[6])
    log_wait = math.log1p(at_s - row[0])
    newest = tables.recent[int(numbers[STARTED]) % RECENT]
    newest[0], newest[1], newest[2] = at_s, log_wait, math.log(procs * request)
    numbers[STARTED] += 1
    if shape >= 0:
        _remember_shape(tables.shapes[shape], at_s, log_wait)
    if user >= 0:
        tables.users[user, 0] = log_wait
        tables.users[user, 1] = _update_mean(tables.users[user, 1], log_wait)
    running = tables.running[int(numbers[RUNNING])]
    running[0], running[1], running[2], running[3] = procs, at_s, request, row[3]
    running[4], running[5], running[6] = user, queue, job
    numbers[RUNNING] += 1
    numbers[BUSY] += procs
    numbers[MOST] = max(numbers[MOST], numbers[BUSY])
    if queue >= 0:
        own = tables.queues[queue]
        own[0] = _update_mean(own[0], log_wait)
        # NaN: no job of this queue has run yet
        own[1] = procs + (0.0 if math.isnan(own[1]) else own[1])
        own[2] = own[1] if math.isnan(own[2]) else max(own[1], own[2])


@compiled
def _update_mean(mean: float, value: float) -> float:
    return value if math.isnan(mean) else mean + _FORGET * (value - mean)


@compiled
def _remember_shape(row: Floats, at_s: float, log_wait: float) -> None:
    count = 0 if math.isnan(row[2]) else int(row[2])
    row[1], row[2], row[3 + count % _WAITS] = at_s, count + 1, log_wait


@compiled
def withdraw_job(tables: Tables, job: int) -> None:
    """Remove a waiting job that is cancelled."""
    _take(tables.waiting, int(tables.numbers[WAITING]), 7, job)
    tables.numbers[WAITING] -= 1


@compiled
def end_job(tables: Tables, job: int, at_s: float) -> None:
    """Record the end of a running job and learn the used share of its request."""
    numbers = tables.numbers
    row = tables.running[_take(tables.running, int(numbers[RUNNING]), 6, job)]
    numbers[RUNNING] -= 1
    numbers[BUSY] -= row[0]
    if row[5] >= 0:
        tables.queues[int(row[5]), 1] -= row[0]
    # jobs that ran past their request would make expected runs longer than any request
    share = min(1.0, (at_s - row[1]) / row[2])
    numbers[RATIO] += _FORGET_RATIO * (share - numbers[RATIO])
    user = int(row[4])
    if user >= 0:
        own = tables.users[user]
        count = 0 if math.isnan(own[4]) else int(own[4])
        own[3] = own[2]
        own[2], own[4] = share, count + 1


@compiled
def show_job(
    tables: Tables,
    job: int,
    now_s: float,
    since: tuple[float, float],
    size: tuple[float, float],
    codes: Codes,
) -> None:
    """Record a job that appears after its start, from ``since``: its submission and start. It
    counts as an arrival of now."""
    submit_job(tables, job, since[0], size, codes)
    tables.arrived[int(tables.numbers[LAST]) - 1] = now_s
    start_job(tables, job, since[1])


@compiled
def note_busy(tables: Tables, procs: float, start_s: float, end_s: float) -> None:
    """Estimate the processors of a machine of which only ended jobs are known: those of the newest
    jobs that had begun when the last of them did, and had not ended."""
    numbers, recent = tables.numbers, tables.recent
    # the row of the start that was recorded just before
    newest = recent[(int(numbers[STARTED]) - 1) % RECENT]
    newest[3], newest[4] = procs, end_s
    busy = 0.0
    for n in range(min(int(numbers[STARTED]), RECENT)):
        if recent[n, 0] <= start_s < recent[n, 4]:
            busy += recent[n, 3]
    numbers[MOST] = max(numbers[MOST], busy)


@compiled
def lately(tables: Tables, at_s: float) -> float:
    """Return the number of submissions within the last hour, and forget earlier ones."""
    numbers = tables.numbers
    first, last = int(numbers[FIRST]), int(numbers[LAST])
    while first < last and tables.arrived[first] < at_s - _LATELY_S:
        first += 1
    numbers[FIRST] = first
    return float(last - first)
