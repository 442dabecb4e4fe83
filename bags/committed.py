"""Managers that give a task to a cluster when it comes, where it may then have to queue; compiled.

ECT looks for the cluster where the task would end first, its queue included; flocking lets users wander from
manager to manager whenever they are made to wait (§2.2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bags.heap import pop, push
from bags.scheduling import earliest_end


@njit(cache=True)
def run_gantt(bags: Any, runtime_s: Any, system: Any) -> Any:
    """ECT where run times are known: the chart of every processor is exact, so starts are known at once."""
    submit_s, _, first = bags
    procs, speed = system
    count, clusters = len(runtime_s), len(procs)
    offset = np.concatenate((np.zeros(1, np.int64), np.cumsum(procs)))
    idle_at, number = np.zeros(procs.sum()), np.zeros(procs.sum(), np.int64)
    began, ended, where = np.empty(count), np.empty(count), np.empty(count, np.int64)
    soonest = np.zeros(clusters)
    spent = 0.0
    for bag in range(len(submit_s)):
        now = submit_s[bag]
        for task in range(first[bag], first[bag + 1]):
            c = earliest_end(now, runtime_s[task], soonest, speed)
            begin = max(now, soonest[c])
            end = begin + runtime_s[task] / speed[c]
            began[task], ended[task], where[task] = begin, end, c
            spent += end - begin
            keys, numbers = idle_at[offset[c] : offset[c + 1]], number[offset[c] : offset[c + 1]]
            size = pop(keys, numbers, procs[c])
            push(keys, numbers, size, end, 0)
            soonest[c] = keys[0]
    return began, ended, where, began.copy(), spent, 0


class Queues(NamedTuple):
    """Clusters with a queue each: what is free, runs and waits; ``ends``: sum of the ends that are expected."""

    free: Any
    busy: Any
    ends: Any
    queued: Any
    head: Any
    tail: Any
    behind: Any
    keys: Any
    tasks: Any
    size: Any
    began: Any
    guess: Any


@njit(cache=True)
def _launch(q: Queues, task: int, c: int, now: float, times: Any) -> None:
    """A task begins in a cluster; ``times``: what it really takes there, and what is guessed."""
    q.free[c] -= 1
    q.busy[c] += 1
    q.began[task] = now
    q.ends[c] += now + times[1]
    q.size[0] = push(q.keys, q.tasks, q.size[0], now + times[0], task)


@njit(cache=True)
def _append(q: Queues, task: int, c: int) -> None:
    """A task waits in a cluster's queue."""
    q.queued[c] += q.guess[task]
    if q.head[c] < 0:
        q.head[c] = task
    else:
        q.behind[q.tail[c]] = task
    q.tail[c] = task


@njit(cache=True)
def _expect(q: Queues, speed: Any, procs: Any, now: float, idle_s: Any) -> None:
    """When each cluster will be free for one more task, as far as is told."""
    for c in range(len(speed)):
        left = max(0.0, q.ends[c] - q.busy[c] * now) + q.queued[c] / speed[c]
        idle_s[c] = now if q.free[c] > 0 else now + left / procs[c]


@njit(cache=True)
def _queues(procs: Any, estimate_s: Any) -> Queues:
    clusters, count, all_procs = len(procs), len(estimate_s), procs.sum()
    return Queues(
        procs.copy(), np.zeros(clusters, np.int64), np.zeros(clusters), np.zeros(clusters),
        np.full(clusters, -1, np.int64), np.full(clusters, -1, np.int64), np.full(count, -1, np.int64),
        np.empty(all_procs + 1), np.empty(all_procs + 1, np.int64), np.zeros(1, np.int64), np.full(count, np.nan),
        estimate_s.copy(),
    )  # fmt: skip


@njit(cache=True)
def run_guessing(bags: Any, tasks: Any, system: Any, by_user: bool) -> Any:
    """ECT by what is told of run times, or with ``by_user`` by the last one that ended of the same user.

    A cluster is thought to be free for a new task when what runs and waits there, as far as is told, has gone
    through its processors; what is known of it (which are free) is not guessed.
    """
    submit_s, user_of, first = bags
    runtime_s, estimate_s = tasks
    procs, speed = system
    count, arrived, spent, total, known = len(submit_s), 0, 0.0, 0.0, 0
    ended, where = np.full(len(runtime_s), np.nan), np.full(len(runtime_s), -1, np.int64)
    q, idle_s = _queues(procs, estimate_s), np.zeros(len(procs))
    owner, seen = np.repeat(user_of, np.diff(first)), np.full(user_of.max() + 1, np.nan)
    while arrived < count or q.size[0] > 0:
        now = q.keys[0] if q.size[0] > 0 else np.inf
        if arrived < count:
            now = min(now, submit_s[arrived])
        while q.size[0] > 0 and q.keys[0] <= now:
            task = q.tasks[0]
            q.size[0] = pop(q.keys, q.tasks, q.size[0])
            c = where[task]
            ended[task] = now
            spent += now - q.began[task]
            q.free[c] += 1
            q.busy[c] -= 1
            q.ends[c] -= q.began[task] + q.guess[task] / speed[c]
            seen[owner[task]] = runtime_s[task]
            total, known = total + runtime_s[task], known + 1
            task = q.head[c]
            if task >= 0:
                q.head[c] = q.behind[task]
                q.queued[c] -= q.guess[task]
                _launch(q, task, c, now, (runtime_s[task] / speed[c], q.guess[task] / speed[c]))
        while arrived < count and submit_s[arrived] <= now:
            for task in range(first[arrived], first[arrived + 1]):
                if by_user:
                    last = seen[owner[task]]
                    q.guess[task] = (
                        last if not np.isnan(last) else (total / known if known else 1.0)
                    )
                _expect(q, speed, procs, now, idle_s)
                c = earliest_end(now, q.guess[task], idle_s, speed)
                where[task] = c
                if q.free[c] > 0:
                    _launch(q, task, c, now, (runtime_s[task] / speed[c], q.guess[task] / speed[c]))
                else:
                    _append(q, task, c)
            arrived += 1
    return q.began, ended, where, q.began.copy(), spent, 0


@njit(cache=True)
def run_flock(bags: Any, tasks: Any, system: Any) -> Any:
    """Users send task after task to one manager while it starts them at once, and turn to the next when it does not."""
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
                if queued[c] == len(q_keys[c]):  # twice the room
                    q_keys[c] = np.concatenate((q_keys[c], q_keys[c]))
                    q_tasks[c] = np.concatenate((q_tasks[c], q_tasks[c]))
                queued[c] = push(q_keys[c], q_tasks[c], queued[c], rank[task], task)
                current[u] = (c + 1) % clusters
            arrived += 1
    return began, ended, where, began.copy(), spent, 0
