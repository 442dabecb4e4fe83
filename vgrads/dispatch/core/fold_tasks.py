"""How records about tasks change the dispatcher's state: assigned, ended, returned, replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgrads.bags.node_history import NodeHistory, is_quick, record_failure, record_success
from vgrads.dispatch.core.agent_state import AgentState
from vgrads.dispatch.core.bag_state import MOST_ATTEMPTS, BagState
from vgrads.dispatch.core.records import TasksAssigned, TasksExpired, TasksReplicated, TasksRetained
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, ENDED, FAILED, PENDING
from vgrads.exchange.values import COULD_NOT, AttemptEnd

MOST_LOSSES = 10
"""Agents that may be lost with one task before it is given up: the task may cause the losses."""
_UNKNOWN = NodeHistory()
_KEEP = 1.0 - 1.0 / 400.0  # decay of earlier results per new one, right and wrong
_FRESH = 0.05  # weight of the newest run time in the typical one
_DECIDED, _FREED = Effect(counts=True), Effect(counts=True, again=True)


def give(state: State, record: TasksAssigned) -> None:
    agent, bag = state.agents[record.agent], state.bags[record.bag]
    bag.tasks.give(record.tasks, record.agent)
    if bag.first_s is None:
        bag.first_s = state.now_s
    attempts, assigned, number = bag.tasks.attempts, agent.assigned, record.bag
    for task in record.tasks:
        assigned[number, task] = attempts[task]
    agent.busy_procs += bag.procs * len(record.tasks)


def end_attempt(state: State, number: int, end: AttemptEnd) -> Effect:
    bag, agent = state.bags[number], state.agents[end.agent]
    tasks, task = bag.tasks, end.task
    state.now_s = max(state.now_s, end.at_s)
    had = agent.assigned.get((number, task)) == end.attempt
    if had:
        release(state, agent, bag, task)
    if tasks.status[task] in ENDED:
        return Effect(counts=False)
    if end.code == 0:
        return _apply_success(state, bag, agent, end, had)
    if not had:
        return Effect(counts=False)  # an evicted attempt; others are running, or will
    _apply_fault(state, bag, agent, end)
    if not tasks.take(task, agent.number):
        return Effect(counts=False)  # other agents still have it: their results decide
    if end.code == COULD_NOT:  # missing input, full disk, leaving node: not its fault
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


def _apply_success(
    state: State, bag: BagState, agent: AgentState, end: AttemptEnd, had: bool
) -> Effect:
    tasks, effect = bag.tasks, _DECIDED
    if not had or end.task in tasks.replicas:
        key = (bag.number, end.task)
        others = [n for n in tasks.agents_of(end.task) if key in state.agents[n].assigned]
        effect = Effect(counts=True, elsewhere=others)
    if tasks.end(end.task, DONE):
        effect = replace(effect, again=True) if effect.elsewhere else _FREED
    agent.done += 1
    if agent.machine:
        turnaround_s = end.waited_s + end.fetched_s + end.ran_s + end.sent_s
        record = state.records.get(agent.machine, _UNKNOWN)
        state.records[agent.machine] = record_success(record, end.at_s, turnaround_s)
    bag.right = bag.right * _KEEP + 1.0
    bag.wrong *= _KEEP
    _learn(state, bag, end)
    return effect


def _apply_fault(state: State, bag: BagState, agent: AgentState, end: AttemptEnd) -> None:
    """Apply a failed attempt to the records of task, bag and node."""
    if end.code != COULD_NOT:
        agent.failed += 1
        tries = bag.tasks.failures.get(end.task, 0) + 1
        bag.tasks.failures[end.task] = tries
        bag.exits.record(end.task, end.code, agent.machine or agent.id)
        _charge(state, bag, end.ran_s)
    record = state.records.get(agent.machine, _UNKNOWN)
    if record.credible:
        bag.wrong = bag.wrong * _KEEP + 1.0
        bag.right *= _KEEP
        bag.tasks.blamed[end.task] = bag.tasks.blamed.get(end.task, 0) + 1
    if agent.machine:
        quick_failure = (bag.number, end.task) if is_quick(end.ran_s, bag.typical_s) else None
        state.records[agent.machine] = record_failure(record, end.at_s, quick_failure, end.ran_s)


def _learn(state: State, bag: BagState, end: AttemptEnd) -> None:
    _charge(state, bag, end.ran_s)
    bag.ran_s += end.ran_s
    bag.shortest_s = end.ran_s if bag.shortest_s is None else min(bag.shortest_s, end.ran_s)
    bag.exits.forget((end.task,))
    weight = weigh_last_run(bag.tasks.counts[DONE], bag.tasks.counts[ASSIGNED])
    before = bag.typical_s if bag.typical_s is not None else end.ran_s
    bag.typical_s = before + weight * (end.ran_s - before)
    close_if_over(bag, end.at_s)


def weigh_last_run(ended: int, running: int) -> float:
    """Return how much the run time of the last ended task counts: as one of all, but at least a
    twentieth once twice as many have ended as run. The first ones, which began together, end in the
    order of their run times, and all of them must count alike."""
    return 1.0 / ended if ended < 2 * running else max(1.0 / ended, _FRESH)


def _charge(state: State, bag: BagState, ran_s: float) -> None:
    spent = ran_s * bag.procs / bag.weight
    bag.had += spent
    state.owners[bag.owner].had += spent


def close_if_over(bag: BagState, at_s: float) -> None:
    if bag.over and bag.ended_s is None:
        bag.ended_s = at_s


def release(state: State, agent: AgentState, bag: BagState, task: int) -> None:
    del agent.assigned[bag.number, task]
    agent.busy_procs -= bag.procs
    agent.recalled.discard((bag.number, task))
    if not agent.assigned:
        agent.idle_since_s = state.now_s


def give_back(state: State, agent: AgentState, number: int, tasks: Iterable[int]) -> None:
    bag = state.bags[number]
    for task in tasks:
        if (number, task) in agent.assigned:
            release(state, agent, bag, task)
        if agent.number in bag.tasks.agents_of(task) and bag.tasks.take(task, agent.number):
            if bag.tasks.attempts[task] > MOST_ATTEMPTS:
                bag.tasks.end(task, FAILED)
                close_if_over(bag, state.now_s)
            else:
                bag.tasks.give_back(task)


def replica(state: State, record: TasksReplicated) -> None:
    agent, bag = state.agents[record.agent], state.bags[record.bag]
    for task in record.tasks:
        bag.tasks.replica(task, agent.number)
        agent.assigned[record.bag, task] = bag.tasks.attempts[task]
        agent.busy_procs += bag.procs
        bag.copied += 1


def take_late(state: State, record: TasksExpired) -> None:
    """Apply expired deadlines: a failure of the node, not of the task."""
    agent = state.agents[record.agent]
    if agent.machine:
        agent_record = state.records.get(agent.machine, _UNKNOWN)
        state.records[agent.machine] = record_failure(agent_record, state.now_s, None, 0.0)
    agent.failed += len(record.tasks)
    give_back(state, agent, record.bag, record.tasks)


def keep(state: State, record: TasksRetained) -> None:
    agent, bag = state.agents[record.agent], state.bags[record.bag]
    for task in record.tasks:
        attempt = bag.tasks.attempts[task]
        if bag.tasks.status[task] == PENDING and attempt:
            bag.tasks.give([task], agent.number)
            # not a new attempt
            agent.assigned[record.bag, task] = bag.tasks.attempts[task] = attempt
            agent.busy_procs += bag.procs


def lose(bag: BagState, task: int, at_s: float, lost: bool, rests: bool = False) -> None:
    tasks = bag.tasks
    if lost:
        tasks.losses[task] = tasks.losses.get(task, 0) + 1
    if tasks.losses.get(task, 0) >= MOST_LOSSES or tasks.attempts[task] > MOST_ATTEMPTS:
        tasks.end(task, FAILED)
        close_if_over(bag, at_s)
    else:
        tasks.give_back(task, at_s if rests else None)
