"""Simulator of one resource manager over clusters, compiled: bags arrive, tasks are selected,
placed, replicated, ended.

The scheduling procedure of §2.2 at every arrival and completion. Processors of one cluster are
equal, so the state is counts for each cluster and each user, a heap of eligible tasks, one of
running tasks, and a ring of running tasks that may be replicated in turn. Replicas are cancelled
when the first of them ends.

The state is stored in a few matrices whose rows and columns have names. The work at every start and
end is in one loop on purpose: an array that is passed to a function is reference-counted, and
counting a dozen for each task made the loop four times slower.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vgrads.kernel import heap
from vgrads.kernel.arrays import Columns, Floats, Ints
from vgrads.workloads.scheduling import (
    FASTEST,
    MEASURED,
    Assigned,
    best_measured,
    fastest_free,
    next_free,
)
from vgrads.workloads.selection import (
    ALL,
    EVERYTHING,
    LEAST_USED,
    OLDEST,
    PRIORITY,
    TASK,
    highest_priority,
    in_turn,
    least_used,
)

push, pop = heap.push.fast, heap.pop.fast

ELIGIBLE, ARRIVED, OLDEST_BAG, TURN, LAST, REPLICAS = range(6)  # counters
CHOOSE, PORTION, PLACE = range(3)  # of the policy
RUNTIME, RANK, BEGAN, ENDED, WINNING, SPENT = range(6)  # of tasks, in seconds
WHERE, CREATED, OWNER = range(3)  # of tasks, numbers
USED, SINCE = range(2)  # of users, in seconds
IN_USE, WAITING, NEXT = range(3)  # of users, numbers
USER, FIRST, TAKEN, OF_USER = range(4)  # of bags; OF_USER: bags sorted by user


@njit(cache=True)
def run_manager(
    bags: Columns, tasks: Columns, system: Columns, policy: tuple[int, int, int, int]
) -> Assigned:
    """Simulate a workload; return for each task: first start, end, cluster and start of the replica
    that ended first.

    ``bags``: submit_s, user, first; ``tasks``: runtime_s, rank; ``system``: procs, speed;
    ``policy``: choose, portion, place, replicas. Last come the processor seconds of all replicas,
    and the number of replicas.
    """
    submit_s, speed, count = bags[0], system[1], len(bags[0])
    p = np.array([policy[0], policy[1], policy[2]])
    n, t, i, u, v, e_keys, e_tasks = _begin(bags, tasks)
    b, most, free, measured = (
        _make_bag_table(bags, v),
        policy[3] + 1,
        system[0].copy(),
        np.zeros(len(speed), np.int64),
    )
    starts, places = np.zeros((len(t), most)), np.zeros((len(t), most), np.int64)
    room, idle = system[0].sum() + len(t) * (most - 1) + 1, system[0].sum()
    r_keys, r_replicas = np.empty(room), np.empty(room, np.int64)
    ring = np.empty(len(t) * most + 1 if most > 1 else 1, np.int64)
    running, head, tail = 0, 0, 0
    while n[ARRIVED] < count or running > 0:
        now = r_keys[0] if running > 0 else np.inf
        if n[ARRIVED] < count:
            now = min(now, submit_s[n[ARRIVED]])
        while n[ARRIVED] < count and submit_s[n[ARRIVED]] <= now:
            _process_arrival(n, p, t, i, b, v, e_keys, e_tasks)
        while running > 0 and r_keys[0] <= now:
            # one number holds a task and its replica
            task = r_replicas[0] // most
            winner = r_replicas[0] - task * most
            running = pop(r_keys, r_replicas, running)
            if not np.isnan(t[task, ENDED]):
                continue  # it was cancelled when another replica ended
            t[task, ENDED], t[task, WINNING] = now, starts[task, winner]
            i[task, WHERE] = places[task, winner] >> 1
            for k in range(i[task, CREATED]):
                cluster = places[task, k] >> 1
                free[cluster] += 1
                idle += 1
                if k == winner or not places[task, k] & 1:
                    measured[cluster] += 1
                t[task, SPENT] += now - starts[task, k]
                u[USED, i[task, OWNER]] += now - starts[task, k]
                # a user's present use is IN_USE × now − SINCE, without a visit of each task
                u[SINCE, i[task, OWNER]] -= starts[task, k]
                v[IN_USE, i[task, OWNER]] -= 1
        while idle > 0:
            if n[ELIGIBLE] == 0 and p[CHOOSE] != EVERYTHING:
                _refill_eligible(now, n, p, t, b, u, v, e_keys, e_tasks)
            task = -1
            if n[ELIGIBLE] > 0:
                task = e_tasks[0]
                n[ELIGIBLE] = pop(e_keys, e_tasks, n[ELIGIBLE])
                t[task, BEGAN] = now
            while task < 0 and head < tail:  # no task waits: replicate running ones, in turn
                if np.isnan(t[ring[head], ENDED]) and i[ring[head], CREATED] < most:
                    task = ring[head]
                    n[REPLICAS] += 1
                head += 1
            if task < 0:
                break
            cluster, number, user = (
                _choose_cluster(n, p, free, measured, speed),
                i[task, CREATED],
                i[task, OWNER],
            )
            # a processor on which no task has ended; kept in the last bit of the place
            fresh = measured[cluster] == 0
            measured[cluster] -= not fresh
            free[cluster] -= 1
            idle -= 1
            starts[task, number], places[task, number] = now, 2 * cluster + fresh
            i[task, CREATED] = number + 1
            u[SINCE, user] += now
            v[IN_USE, user] += 1
            running = push(
                r_keys,
                r_replicas,
                running,
                now + t[task, RUNTIME] / speed[cluster],
                task * most + number,
            )
            if number + 1 < most:
                ring[tail] = task
                tail += 1
    return (
        t[:, BEGAN].copy(),
        t[:, ENDED].copy(),
        i[:, WHERE].copy(),
        t[:, WINNING].copy(),
        t[:, SPENT].sum(),
        n[REPLICAS],
    )


@njit(cache=True)
def _begin(bags: Columns, tasks: Columns) -> tuple[Ints, Floats, Ints, Floats, Ints, Floats, Ints]:
    """Create counters, tables of tasks and users, and the heap of eligible tasks."""
    count, users = len(tasks[0]), bags[1].max() + 1
    n = np.zeros(6, np.int64)
    n[TURN], n[LAST] = -1, -1
    t, i = np.full((count, 6), np.nan), np.zeros((count, 3), np.int64)
    t[:, RUNTIME], t[:, RANK], t[:, SPENT], i[:, WHERE] = tasks[0], tasks[1], 0.0, -1
    u, v = np.zeros((2, users)), np.zeros((3, users), np.int64)
    return n, t, i, u, v, np.empty(count + 1), np.empty(count + 1, np.int64)


@njit(cache=True)
def _make_bag_table(bags: Columns, v: Ints) -> Ints:
    """Return users, first tasks, and bags in the order of their users; ``v``: where each user's
    begin."""
    count = len(bags[0])
    b = np.zeros((4, count + 1), np.int64)
    b[USER, :count], b[FIRST] = bags[1], bags[2]
    # stable: the bags of a user stay in the order of their arrival
    b[OF_USER, :count] = np.argsort(bags[1], kind="mergesort")
    for bag in range(count):
        if bags[1][bag] + 1 < v.shape[1]:
            v[NEXT, bags[1][bag] + 1] += 1
    v[NEXT] = np.cumsum(v[NEXT])
    return b


@njit(cache=True)
def _process_arrival(
    n: Ints, p: Ints, t: Floats, i: Ints, b: Ints, v: Ints, e_keys: Floats, e_tasks: Ints
) -> None:
    """Process the arrival of the next bag."""
    bag = n[ARRIVED]
    user = b[USER, bag]
    for task in range(b[FIRST, bag], b[FIRST, bag + 1]):
        i[task, OWNER] = user
        if p[CHOOSE] == EVERYTHING:
            n[ELIGIBLE] = push(e_keys, e_tasks, n[ELIGIBLE], t[task, RANK], task)
    if p[CHOOSE] != EVERYTHING:
        v[WAITING, user] += b[FIRST, bag + 1] - b[FIRST, bag]
    n[ARRIVED] += 1


@njit(cache=True)
def _refill_eligible(
    now: float,
    n: Ints,
    p: Ints,
    t: Floats,
    b: Ints,
    u: Floats,
    v: Ints,
    e_keys: Floats,
    e_tasks: Ints,
) -> None:
    """Refill the eligible set, by the selection policy."""
    if p[CHOOSE] == OLDEST:
        if n[OLDEST_BAG] < n[ARRIVED]:
            for task in range(b[FIRST, n[OLDEST_BAG]], b[FIRST, n[OLDEST_BAG] + 1]):
                n[ELIGIBLE] = push(e_keys, e_tasks, n[ELIGIBLE], t[task, RANK], task)
            n[OLDEST_BAG] += 1
        return
    if p[CHOOSE] == PRIORITY:
        user = highest_priority(v[WAITING])
    elif p[CHOOSE] == LEAST_USED:
        user = least_used(v[WAITING], u[USED], v[IN_USE], u[SINCE], now)
    else:
        user = in_turn(v[WAITING], n[TURN])
        n[TURN] = user if user >= 0 else n[TURN]
    while user >= 0 and v[WAITING, user] > 0:
        bag = b[OF_USER, v[NEXT, user]]
        begin = b[FIRST, bag] + b[TAKEN, bag]
        end = begin + 1 if p[PORTION] == TASK else b[FIRST, bag + 1]
        for task in range(begin, end):
            n[ELIGIBLE] = push(e_keys, e_tasks, n[ELIGIBLE], t[task, RANK], task)
        b[TAKEN, bag] += end - begin
        v[WAITING, user] -= end - begin
        if end == b[FIRST, bag + 1]:
            v[NEXT, user] += 1
        if p[PORTION] != ALL:
            break


@njit(cache=True)
def _choose_cluster(n: Ints, p: Ints, free: Ints, measured: Ints, speed: Floats) -> int:
    """Return the cluster with the preferred free processor."""
    if p[PLACE] == FASTEST:
        return fastest_free(free, speed)
    if p[PLACE] == MEASURED:
        return best_measured(free, measured, speed)
    n[LAST] = next_free(free, n[LAST])
    return int(n[LAST])
