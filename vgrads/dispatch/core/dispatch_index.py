"""Shared state of the dispatcher's parts: the state, its journal records, and the agents to be
checked next."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from vgrads.bags.bag import BagSpec
from vgrads.bags.node_history import NodeHistory
from vgrads.dispatch.core.events import AgentLeft, BagCancelled, BagFailed
from vgrads.dispatch.core.faults import BagFault
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import (
    Record,
    TasksAssigned,
    TasksReplicated,
    TasksRetained,
    find_bag_number,
)
from vgrads.dispatch.core.state import AgentState, BagState, Effect, State
from vgrads.dispatch.core.tasks import PENDING

_NEW = NodeHistory()
_GIVES = frozenset({TasksAssigned, TasksRetained, TasksReplicated})
AttemptKey = tuple[int, int, int]
"""Agent, bag, task."""


T = TypeVar("T")


class DispatchIndex:
    """``report``: stores each record before it takes effect.

    ``waiting``: agents with a pending long poll for work; ``urgent``: agents with a pending
    message; ``serving``: bags that are not terminal; ``places``: processors of the agents that are
    connected and stay; ``tails``: bags whose tail has begun; ``replicas``: of each bag the tasks
    that get one more agent, and their urgency; ``ready``: bags with waiting tasks; ``arrived``:
    bags whose tasks have become assignable since the last scan of agents; ``load`` and ``shares``:
    processor seconds used and in progress of each bag and each owner, by weight; ``counting``: bags
    whose policies read the number of remaining jobs; ``due``: deadlines of bags whose goal is not
    reached; ``faults``: exceptions that failed bags, to be logged.
    """

    def __init__(self, state: State, rules: Rules, report: Callable[[Record], None]) -> None:
        self.state, self.rules, self._report = state, rules, report
        self.bags: dict[int, BagSpec] = {}
        self.digests: dict[int, Callable[[int], Sequence[str]]] = {}
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.urgent: dict[int, None] = {}
        self.fresh = True  # tasks have been queued since the last scan of agents
        self.places = 0
        self.changed: dict[int, None] = {}  # bags that were added, removed or changed
        self.arrived: set[int] = set()
        self.ready: set[int] = set()
        self.load: dict[int, float] = {}
        self.shares: dict[str, float] = {}
        self.counting, self.due = set[int](), dict[int, float]()
        self._in_flight: dict[int, float] = {}
        self._flight: dict[str, float] = {}
        self._serves: set[int] = set()
        self.tails: set[int] = set()
        self.replicas: dict[int, OrderedDict[int, None]] = {}
        self.assigned_s: dict[AttemptKey, float] = {}  # start time, of bags with a dispatch policy
        # and estimated start of execution, of bags that learn
        self.begun_s: dict[AttemptKey, float] = {}
        self.serving: list[BagState] = []
        self._staying: dict[int, int] = {}
        self._later: list[tuple[float, int]] = []
        self.faults: list[BagFault] = []
        self.refresh()

    def note(self, record: Record) -> list[Effect]:
        """Write a record and apply it."""
        self._report(record)
        # before the record is applied: an agent that has left has no tasks afterwards
        touched = _list_touched_bags(record, self.state)
        effects = apply(self.state, record)
        gives = type(record) in _GIVES
        # ends that let no task wait bring no work for waiting agents,
        # which need not be scanned then
        if not gives and not self.fresh:
            self.fresh = not effects or any([effect.again for effect in effects])
        for number in touched:
            self._follow(number)
            if not gives and number in self.counting:
                self.change(number)
        return effects

    def call_off(self, number: int, bag: int, task: int) -> None:
        """Cancel a task at an agent."""
        agent = self.state.agents[number]
        agent.to_cancel.append((bag, task, agent.assigned.get((bag, task), 0)))
        self.urgent[number] = None

    def drop(self, event: BagCancelled | BagFailed) -> None:
        """Drop all tasks of a bag that are not terminal, and notify agents."""
        bag = self.state.bags[event.number]
        # before the event, which leaves no task assigned
        for task in bag.tasks.where:
            for agent in bag.tasks.agents_of(task):
                self.call_off(agent, event.number, task)
        if not bag.over:
            self.note(event)
        self.refresh()

    def fail(self, fault: BagFault, at_s: float) -> bool:
        """Fail a bag that cannot be served; return False where it was terminal before, so that
        nothing changes."""
        self.faults.append(fault)
        if self.state.bags[fault.bag].over:
            return False
        self.drop(BagFailed(number=fault.bag, at_s=at_s, reason=fault.reason))
        return True

    def guarded(self, work: Callable[[], T], at_s: float) -> T:
        """Return the result of ``work``; a bag that raises an exception is failed, and the work
        repeated without it."""
        while True:
            try:
                return work()
            except BagFault as fault:
                if not self.fail(fault, at_s):
                    raise

    def change(self, number: int) -> None:
        """Mark a bag as changed: agents that it did not fit may be offered it again."""
        self.changed[number] = None
        self.arrived.add(number)
        self.fresh = True

    def _follow(self, number: int) -> None:
        """Update the waiting and assigned work of a bag."""
        bag = self.state.bags[number]
        if not bag.tasks.counts[PENDING]:
            self.ready.discard(number)
            if number in self._serves and bag.over:
                self._serves.discard(number)
                self.serving = [other for other in self.serving if other is not bag]
                self.replicas.pop(number, None)
                self.changed[number] = None
        elif number not in self.ready:
            self.ready.add(number)
            self.arrived.add(number)
        if len(self.serving) < 2:
            return  # no other bags to share with
        in_flight, owner = bag.in_flight(self.state.now_s), bag.owner
        flight = self._flight.get(owner, 0.0) + in_flight - self._in_flight.get(number, 0.0)
        self._in_flight[number], self._flight[owner] = in_flight, flight
        self.load[number] = bag.had + in_flight
        self.shares[owner] = self.state.owners[owner].had + flight

    def refresh(self) -> None:
        """Recompute the bags that are not terminal, and their work in progress: after a rare
        change."""
        self.serving = [b for b in self.state.bags.values() if not b.over]
        before, self._serves = self._serves, {bag.number for bag in self.serving}
        self.changed.update(dict.fromkeys(before - self._serves))
        self.replicas = {n: tasks for n, tasks in self.replicas.items() if n in self._serves}
        self.ready = {bag.number for bag in self.serving if bag.tasks.counts[PENDING]}
        self._weigh()

    def _weigh(self) -> None:
        """Compute the used and pending usage of bags and owners."""
        now_s = self.state.now_s
        self._in_flight = {bag.number: bag.in_flight(now_s) for bag in self.serving}
        self.load = {bag.number: bag.had + bag.in_flight(now_s) for bag in self.serving}
        self._flight = {}
        for bag in self.serving:
            self._flight[bag.owner] = self._flight.get(bag.owner, 0.0) + bag.in_flight(now_s)
        owners = self.state.owners
        self.shares = {
            bag.owner: owners[bag.owner].had + self._flight[bag.owner] for bag in self.serving
        }

    def take_on(self, number: int) -> None:
        """Add a bag."""
        bag = self.state.bags[number]
        if not bag.over and number not in self._serves:
            self._serves.add(number)
            self.serving = [*self.serving, bag]
            # the usage of a single bag is not updated, since there is nothing to share
            if len(self.serving) == 2:
                self._weigh()
        self._follow(number)
        self.change(number)

    def count_in(self, agent: AgentState) -> None:
        """Add or remove an agent's processors."""
        self.places -= self._staying.pop(agent.number, 0)
        if agent.here and not agent.leaving:
            self._staying[agent.number] = agent.procs
            self.places += agent.procs

    @property
    def agents(self) -> int:
        """Return the number of agents that are connected and stay."""
        return len(self._staying)

    def has_agent(self, sites: Collection[str], procs: int) -> bool:
        """Return True where an agent at one of these sites stays that has this many processors, on
        a machine that has not been quarantined since its last success."""
        agents = (self.state.agents[number] for number in self._staying)
        return any(
            agent.site in sites and agent.procs >= procs and not self.record(agent).pauses
            for agent in agents
        )

    def record(self, agent: AgentState) -> NodeHistory:
        """Return the history of an agent's machine."""
        return self.state.records.get(agent.machine, _NEW)

    def work_for(self, bag: BagState) -> bool:
        """Return True where a bag has tasks to assign."""
        return bag.number in self.ready or bool(self.replicas.get(bag.number))

    @property
    def work(self) -> bool:
        """Return True where any bag has tasks to assign."""
        return bool(self.ready) or any(self.replicas.values())

    def look_again(self, agent: AgentState, at_s: float) -> None:
        """Schedule a check of a waiting agent at an instant."""
        heapq.heappush(self._later, (at_s, agent.number))

    def awake(self, now_s: float) -> list[int]:
        """Return the agents whose instant has passed."""
        results = []
        while self._later and self._later[0][0] <= now_s:
            results.append(heapq.heappop(self._later)[1])
        return results

    @property
    def next_s(self) -> float:
        """Return the next scheduled check; ``inf`` if none."""
        return self._later[0][0] if self._later else float("inf")


def _list_touched_bags(record: Record, state: State) -> Collection[int]:
    """Return the bags that a record changes."""
    if isinstance(record, AgentLeft):
        return {bag for bag, _ in state.agents[record.number].assigned}
    number = find_bag_number(record)
    return () if number < 0 else (number,)
