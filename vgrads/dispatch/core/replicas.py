"""Periodic work: tasks past their deadline are evicted, and running tasks in a bag's tail get
replicas."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import chain, islice

from vgrads.bags.bag import BagSpec
from vgrads.bags.replicate import Pace, RunningAttempt, TimeLeft, stragglers
from vgrads.bags.tail import is_in_tail
from vgrads.dispatch.core.bag_selection import BagSelection
from vgrads.dispatch.core.dispatch_index import AttemptKey, DispatchIndex
from vgrads.dispatch.core.events import TailBegun
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.records import TasksExpired
from vgrads.dispatch.core.state import AgentState, BagState
from vgrads.dispatch.core.tasks import ASSIGNED, ENDED
from vgrads.exchange.values import Triple

CYCLE_S = 1.0
"""Minimum interval of checks of tails and replicas, in seconds,"""
_OF_A_TASK = 1 / 25
"""otherwise this fraction of a task's run time: a check costs in proportion to the running tasks,
and its decision lasts for a task."""
_ENDS = 10_000  # newest run times of a bag that are kept
_COMMON = Pace()
_SAMPLE = 256
"""Running tasks of a bag that are evaluated by its dispatch policy in a cycle,"""
_SAMPLES = 4096
"""and those of all bags."""


class Replication:
    """The replication cycle (GridBot, Algorithm 2)."""

    def __init__(self, dispatch_index: DispatchIndex, bag_selection: BagSelection) -> None:
        self._dispatch_index, self._bag_selection = dispatch_index, bag_selection
        self._next_look_s = float("-inf")
        self._history: dict[int, deque[tuple[float, bool]]] = {}
        self._paces: dict[int, Pace] = {}
        self._measured: set[int] = set()

    def record_run_time(self, number: int, agent: int, ran_s: float) -> None:
        """Record a successful attempt at a task of a bag that learns."""
        pace = self._paces.get(agent, _COMMON)
        # divided by the pace of its node: times of slow and fast nodes become comparable
        self._see(number, ran_s / pace.value, ended=True)
        typical_s = self._dispatch_index.state.bags[number].typical_s or ran_s
        if typical_s > 0:
            self._paces[agent] = pace.after(ran_s / typical_s)

    def _see(self, number: int, seconds: float, ended: bool) -> None:
        self._history.setdefault(number, deque(maxlen=_ENDS)).append((seconds, ended))

    def update(
        self, agent: AgentState, running: Iterable[tuple[Triple, float]], now_s: float
    ) -> None:
        """Record the run times of running tasks that an agent reports."""
        for (bag, task, attempt), age_s in running:
            if self.learns(bag) and agent.assigned.get((bag, task)) == attempt:
                self._dispatch_index.begun_s[agent.number, bag, task] = now_s - age_s

    @property
    def next_s(self) -> float:
        """Return when something is due; ``inf`` if never."""
        due = self._bag_selection.due
        first_s = due[0][0] if due else float("inf")
        if any(
            bag.tasks.where and self._watched(bag.number) for bag in self._dispatch_index.serving
        ):
            return min(first_s, self._next_look_s)
        return first_s

    def _cycle_s(self) -> float:
        watched = (bag for bag in self._dispatch_index.serving if self._watched(bag.number))
        shortest_s = min((bag.typical_s or 0.0 for bag in watched), default=0.0)
        return max(CYCLE_S, shortest_s * _OF_A_TASK)

    def _watched(self, number: int) -> bool:
        rules = self._dispatch_index.bags.get(number)
        return rules is not None and (rules.learns or rules.policy is not None)

    def look(self, now_s: float) -> None:
        """Do the due work."""
        # outside the cycle, since deadlines are exact instants
        self._take_back(now_s)
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self._cycle_s()
        self._follow(now_s)
        dispatch_index = self._dispatch_index
        for bag in dispatch_index.serving:
            rules = dispatch_index.bags.get(bag.number)
            if rules is None or not (rules.policy or rules.learns):
                continue
            with serving(bag.number):
                self._look_at(bag, rules, now_s)

    def _look_at(self, bag: BagState, rules: BagSpec, now_s: float) -> None:
        if bag.number not in self._measured:
            self._measured.add(bag.number)
            self._take_up(bag, now_s)
        tail = has_tail_begun(self._dispatch_index, bag, rules)
        self._report_tail(bag, rules, tail)
        if tail and bag.tasks.where:
            self._want(bag, self._chosen(bag, rules, now_s))
        else:
            self._dispatch_index.replicas.pop(bag.number, None)

    def _take_up(self, bag: BagState, now_s: float) -> None:
        """Restart the timers of assigned tasks after a restart: their start times are unknown."""
        for task in bag.tasks.where:
            for agent in (self._dispatch_index.state.agents[n] for n in bag.tasks.agents_of(task)):
                if (agent.number, bag.number, task) not in self._dispatch_index.assigned_s:
                    attempt = agent.assigned[bag.number, task]
                    self._bag_selection.taken_up(agent, bag, task, attempt, now_s)

    def _report_tail(self, bag: BagState, rules: BagSpec, tail: bool) -> None:
        if tail == (bag.number in self._dispatch_index.tails):
            return
        (self._dispatch_index.tails.add if tail else self._dispatch_index.tails.discard)(bag.number)
        self._dispatch_index.change(bag.number)
        if tail and rules.tail_latched and not bag.tail:
            self._dispatch_index.note(TailBegun(number=bag.number))

    def _want(self, bag: BagState, tasks: Iterable[int]) -> None:
        before = self._dispatch_index.replicas.get(bag.number, ())
        fresh = OrderedDict.fromkeys(filter(bag.may_replicate, tasks))
        # only new candidates are a reason to scan waiting agents
        if any(task not in before for task in fresh):
            self._dispatch_index.fresh = True
            self._dispatch_index.arrived.add(bag.number)
        self._dispatch_index.replicas[bag.number] = fresh

    def _chosen(self, bag: BagState, rules: BagSpec, now_s: float) -> list[int]:
        """Return the running tasks to replicate."""
        if rules.learns:
            running = [self._attempt(bag, task, now_s) for task in bag.tasks.where]
            waiting = (self._dispatch_index.state.agents[n] for n in self._dispatch_index.waiting)
            spare = sum((agent.procs - agent.busy_procs) // bag.procs for agent in waiting)
            history = self._history.get(bag.number, ())
            ended = [seconds for seconds, over in history if over]
            abandoned = [seconds for seconds, over in history if not over]
            left = self._time_left(bag.number, rules, now_s)
            return stragglers(ended, abandoned, running, spare, left)
        # an equal share of the sample for each bag in its tail, but at least one task
        return self._bag_selection.to_replica(
            bag, now_s, min(_SAMPLE, _SAMPLES // len(self._dispatch_index.tails) + 1)
        )

    def _time_left(self, number: int, rules: BagSpec, now_s: float) -> TimeLeft | None:
        due_s = self._dispatch_index.due.get(number)
        # after the deadline no replica can keep it: then run times alone decide
        if due_s is None or rules.goal is None or due_s <= now_s:
            return None
        return TimeLeft(due_s - now_s, rules.goal.probability)

    def _attempt(self, bag: BagState, task: int, now_s: float) -> RunningAttempt:
        agents = [self._dispatch_index.state.agents[n] for n in bag.tasks.agents_of(task)]
        begun = [
            self._dispatch_index.begun_s.get((agent.number, bag.number, task), now_s)
            for agent in agents
        ]
        error_rate = min(self._dispatch_index.record(agent).error_rate for agent in agents)
        newest = max(range(len(agents)), key=begun.__getitem__)
        pace = self._paces.get(agents[newest].number, _COMMON)
        return RunningAttempt(task, now_s - begun[newest], error_rate, len(agents), pace.value)

    def _follow(self, now_s: float) -> None:
        """Update the start times of tasks: an agent starts them in the order of assignment, as many
        as it has processors."""
        dispatch_index = self._dispatch_index
        learning = {bag.number for bag in dispatch_index.serving if self.learns(bag.number)}
        # built anew, since what is missing afterwards are the attempts that ended or were taken
        # away
        before, dispatch_index.begun_s = dispatch_index.begun_s, {}
        if learning:
            agents = {
                number for n in learning for number in _list_agents(dispatch_index.state.bags[n])
            }
            for number in agents:
                agent = dispatch_index.state.agents[number]
                for bag, task in islice(agent.assigned, agent.procs):
                    if bag in learning:
                        key = (number, bag, task)
                        dispatch_index.begun_s[key] = before.get(key, now_s)
        self._abandon(before, now_s)
        # an end does not remove its own entry: all that are left over are removed here, once per
        # cycle
        if dispatch_index.assigned_s:
            state = dispatch_index.state
            dispatch_index.assigned_s = {
                k: at_s
                for k, at_s in dispatch_index.assigned_s.items()
                if k[1:] in state.agents[k[0]].assigned
            }

    def _abandon(self, before: dict[AttemptKey, float], now_s: float) -> None:
        """Record attempts that were removed before their tasks ended as censored: they would have
        taken longer."""
        for key in before.keys() - self._dispatch_index.begun_s.keys():
            agent, number, task = key
            bag = self._dispatch_index.state.bags[number]
            if not bag.over and bag.tasks.status[task] not in ENDED:
                pace = self._paces.get(agent, _COMMON)
                self._see(number, (now_s - before[key]) / pace.value, ended=False)

    def learns(self, number: int) -> bool:
        """Return True where late tasks of a bag are replicated by learned run times."""
        rules = self._dispatch_index.bags.get(number)
        return rules is not None and rules.learns

    # tasks past their deadline

    def _take_back(self, now_s: float) -> None:
        due = self._bag_selection.due
        while due and due[0][0] <= now_s:
            _, number, bag, task, attempt = heapq.heappop(due)
            agent = self._dispatch_index.state.agents[number]
            # attempts that ended or were evicted have left their deadline in the heap
            if agent.assigned.get((bag, task)) == attempt:
                self._dispatch_index.note(TasksExpired(number, bag, [task]))
                agent.to_cancel.append((bag, task, attempt))
                self._dispatch_index.urgent[number] = None


def has_tail_begun(dispatch_index: DispatchIndex, bag: BagState, rules: BagSpec) -> bool:
    """Return True where the tail of a bag has begun; an open bag has none yet."""
    before = bag.tail or bag.number in dispatch_index.tails
    places = dispatch_index.places // bag.procs
    pending = bag.tasks.left - bag.tasks.counts[ASSIGNED]
    return not bag.open and is_in_tail(
        pending, rules.tail_below, places, before, rules.tail_latched
    )


def _list_agents(bag: BagState) -> set[int]:
    """Return the agents that have any of its tasks."""
    return set(bag.tasks.where.values()).union(chain.from_iterable(bag.tasks.replicas.values()))
