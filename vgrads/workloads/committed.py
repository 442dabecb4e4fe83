"""Managers that assign a task to a cluster on arrival, where it may have to queue; compiled.

ECT chooses the cluster where the task would end first, its queue included, from a chart of when
each processor will be idle (§2.4); flocking lets users move from manager to manager whenever they
have to wait (§2.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from vgrads.kernel import heap
from vgrads.kernel.arrays import Bools, Columns, Floats, Ints
from vgrads.workloads.scheduling import Assigned, earliest_end

push, pop = heap.push.fast, heap.pop.fast

PERIOD_S = 60.0
"""Maximum age of a chart, in seconds; the paper's managers look "periodically", at an unstated
interval."""


class Charts(NamedTuple):
    """Clusters with a queue each, and a chart for each: when its processors will be idle, by the
    reported run times.

    Over clusters: ``free`` processors, ``head`` and ``tail`` of the queue, whether the chart is
    ``stale`` (a task ended at another time than reported; also where all processors are busy that
    should be idle) and when it was ``drawn``. Over processors, from ``offset`` on: ``running``
    tasks and ``idle_at``, a heap. Over tasks: the task ``behind`` it in a queue, its ``place``
    among the running ones, when it ``began``, the ``guess`` of its run time.
    """

    offset: Ints
    free: Ints
    head: Ints
    tail: Ints
    stale: Bools
    drawn: Floats
    running: Ints
    idle_at: Floats
    number: Ints
    behind: Ints
    place: Ints
    began: Floats
    guess: Floats


@njit(cache=True)
def _make_charts(procs: Ints, estimate_s: Floats) -> Charts:
    clusters, count, room = len(procs), len(estimate_s), procs.sum()
    offset = np.concatenate((np.zeros(1, np.int64), np.cumsum(procs)))
    return Charts(
        offset,
        procs.copy(),
        np.full(clusters, -1, np.int64),
        np.full(clusters, -1, np.int64),
        np.zeros(clusters, np.bool_),
        np.zeros(clusters),
        np.full(room, -1, np.int64),
        np.zeros(room),
        np.zeros(room, np.int64),
        np.full(count, -1, np.int64),
        np.full(count, -1, np.int64),
        np.full(count, np.nan),
        estimate_s.copy(),
    )


@njit(cache=True)
def _put(q: Charts, c: int, at: float, lasts: float) -> None:
    """Add a task to the chart at the earliest idle processor, from then or from ``at`` on."""
    keys, numbers = (
        q.idle_at[q.offset[c] : q.offset[c + 1]],
        q.number[q.offset[c] : q.offset[c + 1]],
    )
    begin = max(at, keys[0])
    size = pop(keys, numbers, len(keys))
    push(keys, numbers, size, begin + lasts, 0)


@njit(cache=True)
def _redraw_chart(q: Charts, c: int, now: float, speed: float) -> None:
    """Compute the chart of a cluster's running and waiting tasks. A task that outlasts its estimate
    is assumed to be half done: a prediction that has run out must be corrected (Tsafrir, Etsion and
    Feitelson 2007, doi:10.1109/TPDS.2007.70606)."""
    first, last = q.offset[c], q.offset[c + 1]
    q.idle_at[first:last] = now
    for k in range(first, last - q.free[c]):
        task = q.running[k]
        so_far, left = now - q.began[task], q.began[task] + q.guess[task] / speed - now
        _put(q, c, now, left if left > 0.0 else so_far)
    task = q.head[c]
    while task >= 0:
        _put(q, c, now, q.guess[task] / speed)
        task = q.behind[task]
    q.stale[c], q.drawn[c] = False, now


@njit(cache=True)
def _launch(q: Charts, task: int, c: int, now: float) -> None:
    """Start a task in a cluster."""
    k = q.offset[c + 1] - q.free[c]
    q.running[k], q.place[task], q.began[task] = task, k, now
    q.free[c] -= 1


@njit(cache=True)
def _leave(q: Charts, task: int, c: int) -> None:
    """End a task; the last running one takes its place in the list."""
    q.free[c] += 1
    moved = q.running[q.offset[c + 1] - q.free[c]]
    q.running[q.place[task]], q.place[moved] = moved, q.place[task]


@njit(cache=True)
def _append(q: Charts, task: int, c: int) -> None:
    """Append a task to a cluster's queue."""
    if q.head[c] < 0:
        q.head[c] = task
    else:
        q.behind[q.tail[c]] = task
    q.tail[c] = task


@njit(cache=True)
def _expect(q: Charts, speed: Floats, now: float, idle_s: Floats) -> None:
    """Compute when each cluster will be free for one more task: a stale chart is computed again, at
    most once per period."""
    for c in range(len(speed)):
        first = q.offset[c]
        stale = q.stale[c] or (q.free[c] == 0 and q.idle_at[first] < now)
        if stale and now - q.drawn[c] >= PERIOD_S:
            _redraw_chart(q, c, now, speed[c])
        idle_s[c] = now if q.free[c] > 0 else max(now, q.idle_at[first])


@njit(cache=True)
def run_earliest(bags: Columns, tasks: Columns, system: Columns, by_user: bool) -> Assigned:
    """Simulate ECT with reported run times, or with ``by_user`` the last one that ended of the same
    user.

    Where reported times are right, the chart is never stale, and starts are those of the chart.
    Free processors and waiting tasks of a cluster are exact, not estimated.
    """
    submit_s, user_of, first = bags
    runtime_s, estimate_s = tasks
    procs, speed = system
    count, arrived, spent, total, ended_tasks = len(submit_s), 0, 0.0, 0.0, 0
    ended, where = np.full(len(runtime_s), np.nan), np.full(len(runtime_s), -1, np.int64)
    q, idle_s = _make_charts(procs, estimate_s), np.zeros(len(procs))
    keys, numbers, size = np.empty(procs.sum() + 1), np.empty(procs.sum() + 1, np.int64), 0
    owner, observed = np.repeat(user_of, np.diff(first)), np.full(user_of.max() + 1, np.nan)
    while arrived < count or size > 0:
        now = keys[0] if size > 0 else np.inf
        if arrived < count:
            now = min(now, submit_s[arrived])
        while size > 0 and keys[0] <= now:
            task = numbers[0]
            size = pop(keys, numbers, size)
            c = where[task]
            ended[task] = now
            spent += now - q.began[task]
            _leave(q, task, c)
            q.stale[c] |= q.guess[task] != runtime_s[task]
            observed[owner[task]] = runtime_s[task]
            total, ended_tasks = total + runtime_s[task], ended_tasks + 1
            task = q.head[c]
            if task >= 0:
                q.head[c] = q.behind[task]
                _launch(q, task, c, now)
                size = push(keys, numbers, size, now + runtime_s[task] / speed[c], task)
        while arrived < count and submit_s[arrived] <= now:
            for task in range(first[arrived], first[arrived + 1]):
                if by_user:
                    last = observed[owner[task]]
                    q.guess[task] = (
                        last
                        if not np.isnan(last)
                        else (total / ended_tasks if ended_tasks else 1.0)
                    )
                _expect(q, speed, now, idle_s)
                c = earliest_end(now, q.guess[task], idle_s, speed)
                where[task] = c
                _put(q, c, now, q.guess[task] / speed[c])
                if q.free[c] > 0:
                    _launch(q, task, c, now)
                    size = push(keys, numbers, size, now + runtime_s[task] / speed[c], task)
                else:
                    _append(q, task, c)
            arrived += 1
    return q.began, ended, where, q.began.copy(), spent, 0


@njit(cache=True)
def run_flock(bags: Columns, tasks: Columns, system: Columns) -> Assigned:
    """Simulate flocking: users send task after task to one manager while it starts them at once,
    and go to the next when it does not."""
    submit_s, user_of, first = bags
    runtime_s, rank = tasks
    procs, speed = system
    count, clusters, bag_count = len(runtime_s), len(procs), len(submit_s)
    free = procs.copy()
    began, ended, where = (
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, -1, np.int64),
    )
    # users begin at different managers, so that not all of them crowd the first
    current = np.arange(user_of.max() + 1) % clusters
    q_keys = [np.empty(64) for _ in range(clusters)]
    q_tasks = [np.empty(64, np.int64) for _ in range(clusters)]
    queued = np.zeros(clusters, np.int64)
    keys, numbers, running = np.empty(procs.sum() + 1), np.empty(procs.sum() + 1, np.int64), 0
    arrived, now, spent = 0, 0.0, 0.0
    while arrived < bag_count or running > 0:
        now = keys[0] if running > 0 else np.inf
        if arrived < bag_count:
            now = min(now, submit_s[arrived])
        while running > 0 and keys[0] <= now:
            task = numbers[0]
            running = pop(keys, numbers, running)
            c = where[task]
            ended[task] = now
            spent += now - began[task]
            free[c] += 1
            if queued[c] > 0:
                task = q_tasks[c][0]
                queued[c] = pop(q_keys[c], q_tasks[c], queued[c])
                free[c] -= 1
                began[task] = now
                running = push(keys, numbers, running, now + runtime_s[task] / speed[c], task)
        while arrived < bag_count and submit_s[arrived] <= now:
            u = user_of[arrived]
            for task in range(first[arrived], first[arrived + 1]):
                c = current[u]
                where[task] = c
                if free[c] > 0:
                    free[c] -= 1
                    began[task] = now
                    running = push(keys, numbers, running, now + runtime_s[task] / speed[c], task)
                    continue
                if queued[c] == len(q_keys[c]):  # double the capacity
                    q_keys[c] = np.concatenate((q_keys[c], q_keys[c]))
                    q_tasks[c] = np.concatenate((q_tasks[c], q_tasks[c]))
                queued[c] = push(q_keys[c], q_tasks[c], queued[c], rank[task], task)
                current[u] = (c + 1) % clusters
            arrived += 1
    return began, ended, where, began.copy(), spent, 0
