"""The fold of a dispatcher's journal: how each record changes the state.

Nothing else changes it, and a replay of the journal gives the same state (decision 0020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from vgrads.bags.node_history import record_quarantine
from vgrads.dispatch.core.agent_state import AgentState
from vgrads.dispatch.core.bag_state import BagState
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
from vgrads.dispatch.core.fold_tasks import (
    close_if_over,
    end_attempt,
    give,
    give_back,
    keep,
    lose,
    release,
    replica,
    take_late,
)
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
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.state import Effect, Owner, State
from vgrads.dispatch.core.tasks import ENDED, TaskColumns
from vgrads.workflows.generated.lazy import lazy_of


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
        if bag is None or bag.fault:
            raise
        _fail(state, bag.number, state.now_s, reason_of(error))
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
    bag.retried = event.request + 1
    tasks = [task for task in _expand_runs(event.runs) if bag.tasks.status[task] in ENDED]
    if not tasks:
        return
    state.now_s = max(state.now_s, event.at_s)
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
    for bag_number, task in list(agent.assigned):
        bag = state.bags[bag_number]
        release(state, agent, bag, task)
        if bag.tasks.take(task, event.number):
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
