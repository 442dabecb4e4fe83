"""One resource manager over clusters, compiled: bags arrive, tasks are selected, placed, copied, ended.

The scheduling procedure of §2.2 at every arrival and completion. Processors of one cluster are alike, so the
state is counts for each cluster and each user, a heap of what is eligible, one of what runs, and a ring of
running tasks that may be copied in turn. Copies are cancelled when the first of them ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bags.heap import pop, push
from bags.scheduling import FASTEST, MEASURED, best_measured, fastest_free, next_free
from bags.selection import (
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

ELIGIBLE, RUNNING, HEAD, TAIL, ARRIVED, OLDEST_BAG, TURN, LAST, COPIES = range(9)
"""Places of the counters."""


class Load(NamedTuple):
    """What does not change: columns over bags, tasks and clusters, and the policy's codes."""

    submit_s: Any
    user_of: Any
    first: Any
    runtime_s: Any
    rank: Any
    procs: Any
    speed: Any
    choose: int
    portion: int
    place: int
    most: int  # copies of a task, the first one included


class State(NamedTuple):
    """What changes, in arrays. ``fresh``: the copy got a processor on which nothing had ended."""

    n: Any
    free: Any
    measured: Any
    began: Any
    ended: Any
    where: Any
    winning: Any
    cluster: Any
    start: Any
    fresh: Any
    made: Any
    owner: Any
    e_keys: Any
    e_tasks: Any
    r_keys: Any
    r_copies: Any
    ring: Any
    used: Any
    in_use: Any
    since: Any
    waiting: Any
    of_user: Any
    next_bag: Any
    taken: Any
    spent: Any


@njit(cache=True)
def run_manager(bags: Any, tasks: Any, system: Any, policy: Any) -> Any:
    """Play a workload; returns for each task: first start, end, cluster and start of the copy that ended first.

    ``bags``: submit_s, user, first; ``tasks``: runtime_s, rank; ``system``: procs, speed; ``policy``: choose,
    portion, place, copies. Last come the processor seconds that all copies took, and how many copies there were.
    """
    choose, portion, place, copies = policy
    load = Load(
        bags[0], bags[1], bags[2], tasks[0], tasks[1], system[0], system[1], choose, portion, place, copies + 1
    )  # fmt: skip
    state = _begin(load)
    n, count = state.n, len(load.submit_s)
    while n[ARRIVED] < count or n[RUNNING] > 0:
        now = state.r_keys[0] if n[RUNNING] > 0 else np.inf
        if n[ARRIVED] < count:
            now = min(now, load.submit_s[n[ARRIVED]])
        while n[ARRIVED] < count and load.submit_s[n[ARRIVED]] <= now:
            _arrive(load, state)
        while n[RUNNING] > 0 and state.r_keys[0] <= now:
            _end(load, state, now)
        idle = state.free.sum()
        while idle > 0:
            if n[ELIGIBLE] == 0:
                _refill(load, state, now)
            task = _next_task(load, state, now)
            if task < 0:
                break
            _start(load, state, task, now)
            idle -= 1
    return state.began, state.ended, state.where, state.winning, state.spent[0], n[COPIES]


@njit(cache=True)
def _begin(load: Load) -> State:
    count, clusters, bags, most = (
        len(load.runtime_s),
        len(load.procs),
        len(load.submit_s),
        load.most,
    )
    users = load.user_of.max() + 1
    n = np.zeros(9, np.int64)
    n[TURN], n[LAST] = -1, -1
    next_bag = np.zeros(users, np.int64)
    for bag in range(bags):
        if load.user_of[bag] + 1 < users:
            next_bag[load.user_of[bag] + 1] += 1
    room = load.procs.sum() + count * (most - 1) + 1
    return State(
        n, load.procs.copy(), np.zeros(clusters, np.int64), np.full(count, np.nan), np.full(count, np.nan),
        np.full(count, -1, np.int64), np.full(count, np.nan), np.full((count, most), -1, np.int64),
        np.zeros((count, most)), np.zeros((count, most), np.bool_), np.zeros(count, np.int64),
        np.zeros(count, np.int64), np.empty(count + 1), np.empty(count + 1, np.int64), np.empty(room),
        np.empty(room, np.int64), np.empty(count * most + 1 if most > 1 else 1, np.int64), np.zeros(users),
        np.zeros(users, np.int64), np.zeros(users), np.zeros(users, np.int64),
        np.argsort(load.user_of, kind="mergesort"), np.cumsum(next_bag), np.zeros(bags, np.int64), np.zeros(1),
    )  # fmt: skip


@njit(cache=True)
def _make_eligible(load: Load, state: State, begin: int, end: int) -> None:
    for task in range(begin, end):
        state.n[ELIGIBLE] = push(
            state.e_keys, state.e_tasks, state.n[ELIGIBLE], load.rank[task], task
        )


@njit(cache=True)
def _arrive(load: Load, state: State) -> None:
    """The next bag comes."""
    bag = state.n[ARRIVED]
    begin, end, user = load.first[bag], load.first[bag + 1], load.user_of[bag]
    state.owner[begin:end] = user
    if load.choose == EVERYTHING:
        _make_eligible(load, state, begin, end)
    else:
        state.waiting[user] += end - begin
    state.n[ARRIVED] += 1


@njit(cache=True)
def _end(load: Load, state: State, now: float) -> None:
    """What is to end next ends: its task is done, and all copies of it give their processors back."""
    task, number = state.r_copies[0] // load.most, state.r_copies[0] % load.most
    state.n[RUNNING] = pop(state.r_keys, state.r_copies, state.n[RUNNING])
    if not np.isnan(state.ended[task]):
        return  # it was cancelled when another copy ended
    state.ended[task], state.where[task] = now, state.cluster[task, number]
    state.winning[task] = state.start[task, number]
    user = state.owner[task]
    for k in range(state.made[task]):
        c, took = state.cluster[task, k], now - state.start[task, k]
        state.free[c] += 1
        if k == number or not state.fresh[task, k]:
            state.measured[c] += 1
        state.spent[0] += took
        state.used[user] += took
        state.in_use[user] -= 1
        state.since[user] -= state.start[task, k]


@njit(cache=True)
def _refill(load: Load, state: State, now: float) -> None:
    """A new eligible set, by the selection policy."""
    n = state.n
    if load.choose == OLDEST:
        if n[OLDEST_BAG] < n[ARRIVED]:
            bag = n[OLDEST_BAG]
            n[OLDEST_BAG] += 1
            _make_eligible(load, state, load.first[bag], load.first[bag + 1])
        return
    user = -1
    if load.choose == PRIORITY:
        user = highest_priority(state.waiting)
    elif load.choose == LEAST_USED:
        user = least_used(state.waiting, state.used, state.in_use, state.since, now)
    elif load.choose != EVERYTHING:
        user = in_turn(state.waiting, n[TURN])
        n[TURN] = user if user >= 0 else n[TURN]
    while user >= 0 and state.waiting[user] > 0:
        bag = state.of_user[state.next_bag[user]]
        begin = load.first[bag] + state.taken[bag]
        end = begin + 1 if load.portion == TASK else load.first[bag + 1]
        _make_eligible(load, state, begin, end)
        state.taken[bag] += end - begin
        state.waiting[user] -= end - begin
        if end == load.first[bag + 1]:
            state.next_bag[user] += 1
        if load.portion != ALL:
            break


@njit(cache=True)
def _next_task(load: Load, state: State, now: float) -> int:
    """The best eligible task; where nothing waits, a running one to be copied; −1 where there is neither."""
    n = state.n
    if n[ELIGIBLE] > 0:
        task = state.e_tasks[0]
        n[ELIGIBLE] = pop(state.e_keys, state.e_tasks, n[ELIGIBLE])
        state.began[task] = now
        return int(task)
    while n[HEAD] < n[TAIL]:
        task = state.ring[n[HEAD]]
        n[HEAD] += 1
        if np.isnan(state.ended[task]) and state.made[task] < load.most:
            n[COPIES] += 1
            return int(task)
    return -1


@njit(cache=True)
def _start(load: Load, state: State, task: int, now: float) -> None:
    """One more copy of a task runs, on the processor that the scheduling policy prefers."""
    n, number = state.n, state.made[task]
    if load.place == FASTEST:
        c = fastest_free(state.free, load.speed)
    elif load.place == MEASURED:
        c = best_measured(state.free, state.measured, load.speed)
    else:
        c = next_free(state.free, n[LAST])
        n[LAST] = c
    state.fresh[task, number] = state.measured[c] == 0
    if state.measured[c] > 0:
        state.measured[c] -= 1
    state.free[c] -= 1
    state.cluster[task, number], state.start[task, number] = c, now
    state.made[task] = number + 1
    user = state.owner[task]
    state.in_use[user] += 1
    state.since[user] += now
    end = now + load.runtime_s[task] / load.speed[c]
    n[RUNNING] = push(state.r_keys, state.r_copies, n[RUNNING], end, task * load.most + number)
    if number + 1 < load.most:
        state.ring[n[TAIL]] = task
        n[TAIL] += 1
