"""The fold of a dispatcher's journal: how each record changes the state.

Nothing else changes it, and a replay of the journal gives the same state (decision 0020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from vgrads.bags.node_history import (
    NodeHistory,
    is_quick,
    record_failure,
    record_quarantine,
    record_success,
)
from vgrads.dispatch.core.events import (
    AgentJoined,
    AgentLeft,
    AgentQuarantined,
    BagAdded,
    BagCancelled,
    BagClosed,
    BagFailed,
    GoalChanged,
    ResultsRestored,
    SlotChanged,
    TailBegun,
    TasksAdded,
    TasksDropped,
    TasksRetried,
)
from vgrads.dispatch.core.faults import reason_of
from vgrads.dispatch.core.records import (
    AttemptsEnded,
    Record,
    TasksAssigned,
    TasksExpired,
    TasksReplicated,
    TasksRetained,
    TasksReturned,
    find_bag_number,
)
from vgrads.dispatch.core.state import (
    MOST_ATTEMPTS,
    AgentState,
    BagState,
    Effect,
    Owner,
    SlotRequest,
    State,
)
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, ENDED, FAILED, PENDING, TaskColumns
from vgrads.exchange.values import COULD_NOT, AttemptEnd
from vgrads.workflows.generated.lazy import lazy_of

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
    # the end of a replica, or one that was reported again: another end has decided the task
    if tasks.status[task] in ENDED:
        return Effect(counts=False)
    # also the late success of an evicted attempt: the work is done, whoever has the task now
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
    # this list costs time, and for most ends no other agent has the task
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
    # a node that may fail every task says nothing about the bag or the task
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
        # only where no other agent has it too: its replica goes on
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


def apply(state: State, record: Record) -> list[Effect]:
    """Apply a record to the state; return the effect of each end.

    An exception fails the bag that the record is about, now and at each replay.
    """
    try:
        if isinstance(record, AttemptsEnded):
            return [end_attempt(state, record.bag, end) for end in record.ends]
        _FOLDS[type(record)](state, record)
        return []
    except Exception as error:
        bag = state.bags.get(find_bag_number(record))
        # an error that no bag causes, or a second one of a bag that has
        # a command that has succeeded once is not one that always fails
        # failed, is not contained here
        if bag is None or bag.fault:
            raise
        _fail(state, bag.number, state.now_s, reason_of(error))
        # one for each end: the caller pairs ends and effects
        return [Effect(counts=False)] * len(
            record.ends if isinstance(record, AttemptsEnded) else ()
        )


def _return_tasks(state: State, record: TasksReturned) -> None:
    give_back(state, state.agents[record.agent], record.bag, record.tasks)


def _add_bag(state: State, event: BagAdded) -> None:
    tasks = TaskColumns(event.count, lazy_of(event.order) if event.order else None)
    bag = BagState(
        number=event.number,
        tasks=tasks,
        came_s=event.at_s,
        name=event.name,
        owner=event.owner,
        weight=event.weight,
        procs=event.procs,
        retries=event.retries,
        sites=event.sites,
        failover=event.failover,
        stated_s=event.stated_s,
        open=event.open,
    )
    state.now_s = max(state.now_s, event.at_s)
    bag.typical_s = bag.stated_s
    _share_fairly(state, bag)
    state.bags[bag.number] = bag
    close_if_over(bag, event.at_s)


def _share_fairly(state: State, bag: BagState) -> None:
    """Let a bag that begins share with those that are active: absent owners accumulate no
    credit."""
    active = [b for b in state.bags.values() if not b.over and b is not bag]
    owner = state.owners.setdefault(bag.owner, Owner())
    others = [state.owners[b.owner].had for b in active if b.owner != bag.owner]
    if not any(b.owner == bag.owner for b in active):
        owner.had = max(owner.had, min(others, default=0.0))
    bag.had = max(bag.had, min((b.had for b in active if b.owner == bag.owner), default=0.0))


def _retry_tasks(state: State, event: TasksRetried) -> None:
    bag = state.bags[event.number]
    # also without tasks to retry: otherwise the request would be applied again and again
    bag.retried = event.request + 1
    tasks = [task for task in _expand_runs(event.runs) if bag.tasks.status[task] in ENDED]
    if not tasks:
        return
    state.now_s = max(state.now_s, event.at_s)
    # it had no part while others worked: without this it would get all processors first
    if bag.over:
        _share_fairly(state, bag)
    bag.cancelled = bag.fault = ""
    bag.ended_s, bag.tail = None, False
    bag.tasks.retry(tasks)
    bag.exits.forget(tasks)
    close_if_over(bag, event.at_s)


def _restore_results(state: State, event: ResultsRestored) -> None:
    bag = state.bags[event.number]
    tasks = [task for task in _expand_runs(event.runs) if bag.tasks.status[task] not in ENDED]
    for task in tasks:
        for agent in map(state.agents.__getitem__, bag.tasks.agents_of(task)):
            release(state, agent, bag, task)
    bag.tasks.had(tasks)
    bag.exits.forget(tasks)
    bag.reused += len(tasks)
    close_if_over(bag, event.at_s)


def _expand_runs(runs: Sequence[Sequence[int]]) -> Iterator[int]:
    return (task for first, last in runs for task in range(first, last + 1))


def _add_tasks(state: State, event: TasksAdded) -> None:
    state.bags[event.number].tasks.add_tasks(event.count)


def _close_bag(state: State, event: BagClosed) -> None:
    bag = state.bags[event.number]
    bag.open, bag.why_closed = False, event.reason
    close_if_over(bag, event.at_s)


def _drop_tasks(state: State, event: TasksDropped) -> None:
    state.bags[event.number].tasks.drop_waiting(event.tasks)
    close_if_over(state.bags[event.number], event.at_s)


def _change_goal(state: State, event: GoalChanged) -> None:
    """Apply a request once, whoever records it again."""
    bag = state.bags[event.number]
    state.now_s = max(state.now_s, event.at_s)
    if event.request == len(bag.goal_changes):
        bag.goal_changes.append(event)


def _cancel_bag(state: State, event: BagCancelled) -> None:
    state.bags[event.number].cancelled = event.reason or "cancelled"
    _drop(state, event.number, event.at_s)


def _fail_bag(state: State, event: BagFailed) -> None:
    _fail(state, event.number, event.at_s, event.reason)


def _fail(state: State, number: int, at_s: float, reason: str) -> None:
    state.bags[number].fault = reason
    _drop(state, number, at_s)


def _drop(state: State, number: int, at_s: float) -> None:
    """Drop all tasks of a bag that are not terminal."""
    bag = state.bags[number]
    bag.open = False
    for agent in (h for h in state.agents.values() if h.assigned):
        # a list, since release deletes from it
        for key in [k for k in agent.assigned if k[0] == number]:
            release(state, agent, bag, key[1])
    bag.tasks.drop()
    close_if_over(bag, at_s)


def _begin_tail(state: State, event: TailBegun) -> None:
    state.bags[event.number].tail = True


def _add_agent(state: State, event: AgentJoined) -> None:
    state.now_s = max(state.now_s, event.at_s)
    agent = state.agents.get(event.number)
    fields = asdict(event)
    at_s = fields.pop("at_s")
    if agent is None:
        agent = AgentState(idle_since_s=at_s, joined_s=at_s, **fields)
        state.agents[event.number], state.by_id[event.id] = agent, event.number
    if agent.incarnation and agent.incarnation != event.incarnation:
        # a late message of the process that it replaced is recognised by it, and told to stop
        agent.past_incarnations.add(agent.incarnation)
    for name, value in fields.items():
        setattr(agent, name, value)
    agent.here, agent.leaving, agent.joined_s = True, "", at_s
    if not agent.assigned:
        agent.idle_since_s = at_s


def _remove_agent(state: State, event: AgentLeft) -> None:
    """Remove an agent; its tasks wait again."""
    agent = state.agents[event.number]
    state.now_s = max(state.now_s, event.at_s)
    # a copy: release deletes from it
    for bag_number, task in list(agent.assigned):
        bag = state.bags[bag_number]
        release(state, agent, bag, task)
        if bag.tasks.take(task, event.number):
            # a node that left as announced is no sign against its tasks
            lose(bag, task, event.at_s, event.lost)
    agent.here = False
    agent.lost += event.lost


def _quarantine_agent(state: State, event: AgentQuarantined) -> None:
    """Exonerate the tasks that failed on a quarantined machine: those attempts count as if the
    agent had been lost."""
    machine = state.agents[event.number].machine
    state.now_s = max(state.now_s, event.at_s)
    for bag, task in state.records[machine].quick_failures:
        tasks = state.bags[bag].tasks
        if tasks.failures.get(task) and tasks.status[task] not in ENDED:
            tasks.failures[task] -= 1
            tasks.losses[task] = tasks.losses.get(task, 0) + 1
            state.bags[bag].exits.exonerate(task, machine)
    state.records[machine] = record_quarantine(state.records[machine], event.at_s)


def _change_slot(state: State, event: SlotChanged) -> None:
    before = state.slots.get(event.id) or SlotRequest(id=event.id)
    state.slots[event.id] = before.changed(event)


_FOLDS: dict[type, Callable[[State, Any], None]] = {
    TasksAssigned: give,
    TasksReturned: _return_tasks,
    TasksRetained: keep,
    TasksReplicated: replica,
    TasksExpired: take_late,
    BagAdded: _add_bag,
    TasksAdded: _add_tasks,
    ResultsRestored: _restore_results,
    BagClosed: _close_bag,
    TasksDropped: _drop_tasks,
    TasksRetried: _retry_tasks,
    GoalChanged: _change_goal,
    BagCancelled: _cancel_bag,
    BagFailed: _fail_bag,
    TailBegun: _begin_tail,
    AgentJoined: _add_agent,
    AgentLeft: _remove_agent,
    AgentQuarantined: _quarantine_agent,
    SlotChanged: _change_slot,
}
