"""The fold of a dispatcher's journal: how each record changes the state.

Nothing else changes it, and a journal read again gives the same state (decision 0020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vgrads.bags.record import barred
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.events import (
    AgentJoined,
    AgentLeft,
    AgentQuarantined,
    BagAdded,
    BagCancelled,
    BagClosed,
    BagFailed,
    BagGrown,
    ResultsRestored,
    SlotChanged,
    TailBegun,
    TasksDropped,
)
from vgrads.dispatch.core.faults import reason_of
from vgrads.dispatch.core.fold_tasks import (
    close_if_over,
    copy,
    end_attempt,
    give,
    give_back,
    keep,
    lose,
    release,
    take_late,
)
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import Back, Copied, Ended, Given, Kept, Late, Record, bag_of
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.state import Effect, Owner, State
from vgrads.dispatch.core.tasks import ENDED, Tasks
from vgrads.workflows.generated.lazy import lazy_of


def apply(state: State, record: Record) -> list[Effect]:
    """Change the state by a record; for ends, what each came to.

    An exception fails the bag that the record is about, now and whenever the journal is read
    again.
    """
    try:
        if isinstance(record, Ended):
            return [end_attempt(state, record.bag, end) for end in record.ends]
        _FOLDS[type(record)](state, record)
        return []
    except Exception as error:
        bag = state.bags.get(bag_of(record))
        if bag is None or bag.fault:
            raise
        _fail(state, bag.number, state.now_s, reason_of(error))
        return [Effect(counts=False)] * len(record.ends if isinstance(record, Ended) else ())


def _returned(state: State, record: Back) -> None:
    give_back(state, state.hosts[record.host], record.bag, record.tasks)


def _bag_added(state: State, event: BagAdded) -> None:
    tasks = Tasks(event.count, lazy_of(event.order) if event.order else None)
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
    active = [b for b in state.bags.values() if not b.over]
    owner = state.owners.setdefault(bag.owner, Owner())
    others = [state.owners[b.owner].had for b in active if b.owner != bag.owner]
    if not any(b.owner == bag.owner for b in active):  # nobody saves up by staying away
        owner.had = max(owner.had, min(others, default=0.0))
    bag.had = min((b.had for b in active if b.owner == bag.owner), default=0.0)
    bag.typical_s = bag.stated_s
    state.bags[bag.number] = bag
    close_if_over(bag, event.at_s)


def _results_restored(state: State, event: ResultsRestored) -> None:
    bag = state.bags[event.number]
    restored = (t for first, last in event.runs for t in range(first, last + 1))
    tasks = [t for t in restored if bag.tasks.status[t] not in ENDED]
    for task in tasks:
        for host in map(state.hosts.__getitem__, bag.tasks.hosts_of(task)):
            release(state, host, bag, task)
    bag.tasks.had(tasks)
    close_if_over(bag, event.at_s)


def _bag_grown(state: State, event: BagGrown) -> None:
    state.bags[event.number].tasks.grow(event.count)


def _bag_closed(state: State, event: BagClosed) -> None:
    state.bags[event.number].open = False
    close_if_over(state.bags[event.number], event.at_s)


def _tasks_dropped(state: State, event: TasksDropped) -> None:
    state.bags[event.number].tasks.drop_waiting(event.tasks)
    close_if_over(state.bags[event.number], event.at_s)


def _bag_cancelled(state: State, event: BagCancelled) -> None:
    state.bags[event.number].cancelled = event.reason or "cancelled"
    _drop(state, event.number, event.at_s)


def _bag_failed(state: State, event: BagFailed) -> None:
    _fail(state, event.number, event.at_s, event.reason)


def _fail(state: State, number: int, at_s: float, reason: str) -> None:
    state.bags[number].fault = reason
    _drop(state, number, at_s)


def _drop(state: State, number: int, at_s: float) -> None:
    """Drop what has not ended of a bag."""
    bag = state.bags[number]
    bag.open = False
    for host in (h for h in state.hosts.values() if h.held):
        for key in [k for k in host.held if k[0] == number]:
            release(state, host, bag, key[1])
    bag.tasks.drop()
    close_if_over(bag, at_s)


def _tail_begun(state: State, event: TailBegun) -> None:
    state.bags[event.number].tail = True


def _agent_joined(state: State, event: AgentJoined) -> None:
    state.now_s = max(state.now_s, event.at_s)
    host = state.hosts.get(event.number)
    stated = asdict(event)
    at_s = stated.pop("at_s")
    if host is None:
        host = Host(idle_since_s=at_s, joined_s=at_s, **stated)
        state.hosts[event.number], state.by_id[event.id] = host, event.number
    if host.life and host.life != event.life:
        host.past_lives.add(host.life)
    for name, value in stated.items():
        setattr(host, name, value)
    host.here, host.leaving, host.joined_s = True, "", at_s
    if not host.held:
        host.idle_since_s = at_s


def _agent_left(state: State, event: AgentLeft) -> None:
    """An agent is gone; what it held waits again."""
    host = state.hosts[event.number]
    state.now_s = max(state.now_s, event.at_s)
    for bag_number, task in list(host.held):
        bag = state.bags[bag_number]
        release(state, host, bag, task)
        if bag.tasks.take(task, event.number):
            lose(bag, task, event.at_s, event.lost)
    host.here = False
    host.lost += event.lost


def _agent_quarantined(state: State, event: AgentQuarantined) -> None:
    """What a machine failed on is not to blame: those attempts count as if the agent had been
    lost."""
    machine = state.hosts[event.number].machine
    state.now_s = max(state.now_s, event.at_s)
    for bag, task in state.records[machine].blows:
        tasks = state.bags[bag].tasks
        if tasks.failures.get(task) and tasks.status[task] not in ENDED:
            tasks.failures[task] -= 1
            tasks.losses[task] = tasks.losses.get(task, 0) + 1
    state.records[machine] = barred(state.records[machine], event.at_s)


def _slot_changed(state: State, event: SlotChanged) -> None:
    before = state.slots.get(event.id) or SlotRequest(id=event.id)
    state.slots[event.id] = before.changed(event)


_FOLDS: dict[type, Callable[[State, Any], None]] = {
    Given: give,
    Back: _returned,
    Kept: keep,
    Copied: copy,
    Late: take_late,
    BagAdded: _bag_added,
    BagGrown: _bag_grown,
    ResultsRestored: _results_restored,
    BagClosed: _bag_closed,
    TasksDropped: _tasks_dropped,
    BagCancelled: _bag_cancelled,
    BagFailed: _bag_failed,
    TailBegun: _tail_begun,
    AgentJoined: _agent_joined,
    AgentLeft: _agent_left,
    AgentQuarantined: _agent_quarantined,
    SlotChanged: _slot_changed,
}
