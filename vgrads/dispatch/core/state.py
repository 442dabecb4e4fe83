"""The state of a dispatcher: the fold of its journal (:func:`vgrads.dispatch.core.fold.apply`), in
columns that are changed in place.

This departs from the immutable state of planned runs, for two million tasks (decision 0020).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from vgrads.bags.bag import BagGoal
from vgrads.bags.node_history import NodeHistory
from vgrads.dispatch.core.events import GoalChanged, SlotChanged, list_event_fields
from vgrads.dispatch.core.tasks import ASSIGNED, PENDING, WORDS, TaskColumns
from vgrads.kernel.values import field_values


@dataclass(slots=True)
class Owner:
    """An owner of bags: processor seconds used, divided by weight."""

    had: float = 0.0


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of an end. ``counts``: it decided the task; ``again``: a task waits now that did not
    before; ``elsewhere``: the agents that also have the task."""

    counts: bool
    again: bool = False
    elsewhere: Sequence[int] = ()


@dataclass
class State:
    """Bags by number, agents by number, owners by name, slots by id, node records by site and
    machine."""

    bags: dict[int, BagState] = field(default_factory=dict)
    agents: dict[int, AgentState] = field(default_factory=dict)
    by_id: dict[str, int] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    slots: dict[str, SlotRequest] = field(default_factory=dict)
    records: dict[str, NodeHistory] = field(default_factory=dict)
    now_s: float = 0.0

    def check(self) -> None:
        """Raise AssertionError where redundant values differ."""
        holders: dict[Key, set[int]] = {}
        for agent in self.agents.values():
            procs = sum(self.bags[bag].procs for bag, _ in agent.assigned)
            assert procs == agent.busy_procs, (agent.id, procs, agent.busy_procs)
            for key, attempt in agent.assigned.items():
                tasks = self.bags[key[0]].tasks
                assert agent.number in tasks.agents_of(key[1]), (agent.id, key)
                assert 0 < attempt <= tasks.attempts[key[1]], (agent.id, key, attempt)
                holders.setdefault(key, set()).add(agent.number)
        for bag in self.bags.values():
            tasks = bag.tasks
            counts = [tasks.status.count(kind) for kind in range(len(WORDS))]
            assert counts == tasks.counts, (counts, tasks.counts)
            assert len(tasks.where) == counts[ASSIGNED]
            for task in tasks.where:
                assert tasks.status[task] == ASSIGNED
                agents = tasks.agents_of(task)
                assert len(set(agents)) == len(agents), (bag.number, task, agents)
                assert set(agents) == holders.get((bag.number, task)), (bag.number, task, agents)
            assert set(tasks.replicas) <= set(tasks.where)
            waiting = {i for i in range(tasks.cursor) if tasks.status[i] == PENDING}
            assert waiting == set(tasks.again) | set(tasks.resting), (waiting, set(tasks.again))
            # tasks from the cursor on were never assigned, and PENDING is 0
            assert not any(tasks.status[tasks.cursor :])


_KILLED = frozenset({128 + 9, 128 + 15})
"""How a shell reports that a site or the memory limit killed what it ran."""
_MOST_TASKS = 10_000
_ENOUGH_MACHINES = 2


class FailedExit(NamedTuple):
    """The last exit status of a task, and up to two machines where it failed with it."""

    code: int
    machines: tuple[str, ...]

    @property
    def is_repeated(self) -> bool:
        """Return whether it failed alike on two machines: neither is the cause."""
        return len(self.machines) >= _ENOUGH_MACHINES


class FailedExits:
    """The failed exits of a bag's tasks that did not succeed since, the newest last; of so many
    tasks at most."""

    __slots__ = ("_by_task",)

    def __init__(self, by_task: Mapping[int, FailedExit] | None = None) -> None:
        self._by_task = dict(by_task or {})

    def record(self, task: int, code: int, machine: str) -> None:
        """Record the end of an attempt; no effect unless its command itself failed."""
        if code <= 0 or code in _KILLED:
            return
        # taken out and put back, so that the newest exit is the last
        before = self._by_task.pop(task, None)
        # another exit code is another failure, so its machines are counted anew
        machines = before.machines if before is not None and before.code == code else ()
        if machine not in machines:
            machines = (*machines, machine)[:_ENOUGH_MACHINES]
        if len(self._by_task) < _MOST_TASKS:
            self._by_task[task] = FailedExit(code, machines)

    def forget(self, tasks: Iterable[int]) -> None:
        """Forget tasks that succeeded, or are done again."""
        for task in tasks if self._by_task else ():
            self._by_task.pop(task, None)

    def exonerate(self, task: int, machine: str) -> None:
        """Forget what a task did on a machine that fails every task."""
        exit_ = self._by_task.get(task)
        if exit_ is None or machine not in exit_.machines:
            return
        others = tuple(other for other in exit_.machines if other != machine)
        if others:
            self._by_task[task] = FailedExit(exit_.code, others)
        else:
            del self._by_task[task]

    def __iter__(self) -> Iterator[tuple[int, FailedExit]]:
        return iter(self._by_task.items())

    def __len__(self) -> int:
        return len(self._by_task)

    def as_json(self) -> list[list[object]]:
        """Return the storage format."""
        return [[task, e.code, list(e.machines)] for task, e in self._by_task.items()]


def decode_exits(stored: Sequence[Sequence[object]]) -> FailedExits:
    """Decode stored exits."""
    rows = {task: FailedExit(code, tuple(machines)) for task, code, machines in stored}  # type: ignore[arg-type]
    return FailedExits(rows)  # type: ignore[arg-type]


MOST_ATTEMPTS = 60_000
"""Attempts of a task after which it fails for good: the counter has two bytes."""


@dataclass(slots=True)
class BagState:
    """State of a bag. ``open``: tasks may be added; ``why_closed``: where its user did not close
    it; ``fault``: the exception that failed it; ``retried``: applied requests to retry tasks;
    ``reused``: tasks whose results existed before;
    ``typical_s``: estimated run time of a task; ``tail``: its tail has begun, where that is
    latched; ``right`` and ``wrong``: attempts that succeeded and failed, aged; ``shortest_s``: run
    time of the quickest task; ``exits``: how tasks fail by their own command; ``goal_changes``:
    the requests to change its goal that were applied or refused, in their order."""

    number: int
    name: str
    owner: str
    weight: float
    procs: int
    retries: int
    tasks: TaskColumns
    sites: tuple[str, ...] = ()
    failover: tuple[str, ...] = ()
    open: bool = False
    cancelled: str = ""
    fault: str = ""
    why_closed: str = ""
    retried: int = 0
    reused: int = 0
    typical_s: float | None = None
    stated_s: float | None = None
    had: float = 0.0
    came_s: float = 0.0
    first_s: float | None = None
    ended_s: float | None = None
    ran_s: float = 0.0
    tried_again: int = 0
    copied: int = 0
    tail: bool = False
    right: float = 0.0
    wrong: float = 0.0
    shortest_s: float | None = None
    exits: FailedExits = field(default_factory=FailedExits)
    goal_changes: list[GoalChanged] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Return True when no task is left, and none can be added."""
        return not self.open and self.tasks.over

    @property
    def last_change(self) -> GoalChanged | None:
        """Return the last change of its goal that was not refused."""
        return next((c for c in reversed(self.goal_changes) if c.after is not None), None)

    @property
    def changed_goal(self) -> BagGoal | None:
        """Return the goal after all changes; None where it is that of the document."""
        change = self.last_change
        return None if change is None or change.after is None else BagGoal(**change.after)

    def fits(self, agent: AgentState) -> bool:
        """Return True for an agent that is wide enough and at one of its sites."""
        return self.procs <= agent.procs and (not self.sites or agent.site in self.sites)

    def may_replicate(self, task: int) -> bool:
        """Return True for a running task that may be assigned to one more agent."""
        tasks = self.tasks
        return (
            task in tasks.where
            and tasks.failures.get(task, 0) <= self.retries
            and tasks.attempts[task] <= MOST_ATTEMPTS
        )

    def in_flight(self, now_s: float) -> float:
        """Return the processor seconds in progress at agents, divided by weight. Until the first
        task has ended, each counts for as long as the first has run: otherwise an owner of long
        tasks would get all agents until then."""
        first_s = now_s if self.first_s is None else self.first_s
        each_s = self.typical_s or max(1.0, now_s - first_s)
        return len(self.tasks.where) * each_s * self.procs / self.weight


Key = tuple[int, int]
"""A task: its bag's number and its own."""


@dataclass(slots=True)
class AgentState:
    """State of an agent. ``assigned``: task → attempt; ``incarnation``: the agent's process,
    distinguished from others of the node; ``machine``: unchanged by a restart, in another slot, or
    on a disk that was wiped."""

    number: int
    id: str
    slot: str
    node: int
    procs: int
    memory_mib: float
    name: str
    site: str = ""
    machine: str = ""
    incarnation: str = ""
    seq: int = 0
    here: bool = True
    assigned: dict[Key, int] = field(default_factory=dict)
    busy_procs: int = 0
    joined_s: float = 0.0
    idle_since_s: float = 0.0
    ends_s: float = float("inf")
    leaving: str = ""
    cached: set[str] = field(default_factory=set)
    past_incarnations: set[str] = field(default_factory=set)
    sent_bags: set[int] = field(default_factory=set)
    gives_back: bool = False
    recalled: set[Key] = field(default_factory=set)
    to_cancel: list[tuple[int, int, int]] = field(default_factory=list)
    to_evict: list[tuple[int, int, int]] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    lost: int = 0
    revoked: bool = False
    assigned_s: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)


def name_source(site: str, market: str) -> str:
    """Return the name of a source of nodes."""
    return f"{site} {market}" if market else site


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """A request for nodes at a site, and its state.

    ``agents``: how many were requested, at ``requested_s``; ``state``: of the site's job
    (:class:`vgrads.drivers.api.SlotState`); ``joined``: an agent has joined; ``closing``: why it is
    being released; ``revoked``: its key is no longer accepted; ``market``: empty, or that of spot
    nodes; ``length_s``: for how long it was requested, if less than its source permits. One without
    a ``site`` was not requested here: it belongs to an agent that joined by invitation.
    """

    id: str
    site: str = ""
    agents: int = 0
    requested_s: float = 0.0
    state: int = 0
    reason: str = ""
    ready_s: float | None = None
    closing: str = ""
    joined: bool = False
    ended: bool = False
    revoked: bool = False
    market: str = ""
    ended_s: float | None = None
    length_s: float | None = None

    @property
    def source(self) -> str:
        """Return the name of its source of nodes: the site, and for spot nodes the market."""
        return name_source(self.site, self.market)

    @property
    def occupied(self) -> bool:
        """Return True while the site may hold resources for it."""
        return bool(self.site) and not self.ended

    @property
    def open(self) -> bool:
        """Return True while it is held and will be kept."""
        return self.occupied and not self.closing

    def changed(self, event: SlotChanged) -> SlotRequest:
        """Return the slot after an event."""
        return replace(self, **list_event_fields(event))

    def as_json(self) -> dict[str, Any]:
        """Encode it for a snapshot."""
        blank = SlotRequest(id=self.id)
        empty = field_values(blank)
        return {name: value for name, value in field_values(self).items() if value != empty[name]}


def decode_slot(id: str, stored: Mapping[str, Any]) -> SlotRequest:
    """Decode a slot of a snapshot."""
    return SlotRequest(**{**stored, "id": id})
