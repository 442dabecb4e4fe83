"""How records about tasks change the state of a dispatcher: given, ended, returned, replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgrads.bags.record import HostRecord, failed, is_quick, succeeded
from vgrads.dispatch.core.bag_state import MOST_ATTEMPTS, BagState
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import COULD_NOT, Copied, End, Given, Kept, Late
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.tasks import DONE, ENDED, FAILED, PENDING

MOST_LOSSES = 10
"""Hosts that may be lost over one task before it is given up: it may be what ends them."""
_UNKNOWN = HostRecord()
_KEEP = 1.0 - 1.0 / 400.0  # what an end leaves of those before it, of right and wrong ones
_FRESH = 0.05  # the weight of the newest run time in what is typical
_DECIDED, _FREED = Effect(counts=True), Effect(counts=True, again=True)


def give(state: State, record: Given) -> None:
    host, bag = state.hosts[record.host], state.bags[record.bag]
    bag.tasks.give(record.tasks, record.host)
    if bag.first_s is None:
        bag.first_s = state.now_s
    attempts, held, number = bag.tasks.attempts, host.held, record.bag
    for task in record.tasks:
        held[number, task] = attempts[task]
    host.busy_procs += bag.procs * len(record.tasks)


def end_attempt(state: State, number: int, end: End) -> Effect:
    bag, host = state.bags[number], state.hosts[end.host]
    tasks, task = bag.tasks, end.task
    state.now_s = max(state.now_s, end.at_s)
    had = host.held.get((number, task)) == end.attempt
    if had:
        release(state, host, bag, task)
    if tasks.status[task] in ENDED:
        return Effect(counts=False)
    if end.code == 0:
        return _done(state, bag, host, end, had)
    if not had:
        return Effect(counts=False)  # this attempt was given up; others are under way, or to be
    _fault(state, bag, host, end)
    if not tasks.take(task, host.number):
        return Effect(counts=False)  # others have it still: what they make of it decides
    if end.code == COULD_NOT:  # no such input, a full disk, the host goes: not the task's doing
        lose(bag, task, end.at_s, lost=True, rests=True)
        failed_now = tasks.status[task] == FAILED
        return Effect(counts=failed_now, again=not failed_now)
    if tasks.failures[task] <= bag.retries and tasks.losses.get(task, 0) < MOST_LOSSES:
        tasks.give_back(task, end.at_s)
        bag.tried_again += 1
        return Effect(counts=False, again=True)
    tasks.end(task, FAILED)
    close_if_over(bag, end.at_s)
    return Effect(counts=True)


def _done(state: State, bag: BagState, host: Host, end: End, had: bool) -> Effect:
    tasks, effect = bag.tasks, _DECIDED
    if not had or end.task in tasks.copies:
        key = (bag.number, end.task)
        others = [n for n in tasks.hosts_of(end.task) if key in state.hosts[n].held]
        effect = Effect(counts=True, elsewhere=others)
    if tasks.end(end.task, DONE):
        effect = replace(effect, again=True) if effect.elsewhere else _FREED
    host.done += 1
    if host.machine:
        turnaround_s = end.waited_s + end.fetched_s + end.ran_s + end.sent_s
        known = state.records.get(host.machine, _UNKNOWN)
        state.records[host.machine] = succeeded(known, end.at_s, turnaround_s)
    bag.right = bag.right * _KEEP + 1.0
    bag.wrong *= _KEEP
    _learn(state, bag, end)
    return effect


def _fault(state: State, bag: BagState, host: Host, end: End) -> None:
    """An attempt went wrong: what that says of task, bag and host."""
    if end.code != COULD_NOT:
        host.failed += 1
        tries = bag.tasks.failures.get(end.task, 0) + 1
        bag.tasks.failures[end.task] = tries
        _charge(state, bag, end.ran_s)
    known = state.records.get(host.machine, _UNKNOWN)
    if known.credible:
        bag.wrong = bag.wrong * _KEEP + 1.0
        bag.right *= _KEEP
        bag.tasks.blamed[end.task] = bag.tasks.blamed.get(end.task, 0) + 1
    if host.machine:
        blow = (bag.number, end.task) if is_quick(end.ran_s, bag.typical_s) else None
        state.records[host.machine] = failed(known, end.at_s, blow, end.ran_s)


def _learn(state: State, bag: BagState, end: End) -> None:
    _charge(state, bag, end.ran_s)
    bag.ran_s += end.ran_s
    weight = max(_FRESH, 1.0 / bag.tasks.counts[DONE])
    before = bag.typical_s if bag.typical_s is not None else end.ran_s
    bag.typical_s = before + weight * (end.ran_s - before)
    close_if_over(bag, end.at_s)


def _charge(state: State, bag: BagState, ran_s: float) -> None:
    spent = ran_s * bag.procs / bag.weight
    bag.had += spent
    state.owners[bag.owner].had += spent


def close_if_over(bag: BagState, at_s: float) -> None:
    if bag.over and bag.ended_s is None:
        bag.ended_s = at_s


def release(state: State, host: Host, bag: BagState, task: int) -> None:
    del host.held[bag.number, task]
    host.busy_procs -= bag.procs
    host.recalled.discard((bag.number, task))
    if not host.held:
        host.idle_since_s = state.now_s


def give_back(state: State, host: Host, number: int, tasks: Iterable[int]) -> None:
    bag = state.bags[number]
    for task in tasks:
        if (number, task) in host.held:
            release(state, host, bag, task)
        if host.number in bag.tasks.hosts_of(task) and bag.tasks.take(task, host.number):
            if bag.tasks.attempts[task] > MOST_ATTEMPTS:
                bag.tasks.end(task, FAILED)
                close_if_over(bag, state.now_s)
            else:
                bag.tasks.give_back(task)


def copy(state: State, record: Copied) -> None:
    host, bag = state.hosts[record.host], state.bags[record.bag]
    for task in record.tasks:
        bag.tasks.copy(task, host.number)
        host.held[record.bag, task] = bag.tasks.attempts[task]
        host.busy_procs += bag.procs
        bag.copied += 1


def take_late(state: State, record: Late) -> None:
    """Their time was over: the host counts as having failed, the task does not."""
    host = state.hosts[record.host]
    if host.machine:
        known = state.records.get(host.machine, _UNKNOWN)
        state.records[host.machine] = failed(known, state.now_s, None, 0.0)
    host.failed += len(record.tasks)
    give_back(state, host, record.bag, record.tasks)


def keep(state: State, record: Kept) -> None:
    host, bag = state.hosts[record.host], state.bags[record.bag]
    for task in record.tasks:
        attempt = bag.tasks.attempts[task]
        if bag.tasks.status[task] == PENDING and attempt:
            bag.tasks.give([task], host.number)
            host.held[record.bag, task] = bag.tasks.attempts[task] = attempt  # no new one
            host.busy_procs += bag.procs


def lose(bag: BagState, task: int, at_s: float, lost: bool, rests: bool = False) -> None:
    tasks = bag.tasks
    if lost:
        tasks.losses[task] = tasks.losses.get(task, 0) + 1
    if tasks.losses.get(task, 0) >= MOST_LOSSES or tasks.attempts[task] > MOST_ATTEMPTS:
        tasks.end(task, FAILED)
        close_if_over(bag, at_s)
    else:
        tasks.give_back(task, at_s if rests else None)
