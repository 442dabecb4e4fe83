"""The state of a dispatcher: the fold of its journal (:func:`vgrads.dispatch.core.fold.apply`), in
columns that are changed in place.

This departs from the immutable state of planned runs, for two million tasks (decision 0020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vgrads.bags.node_history import NodeHistory
from vgrads.dispatch.core.agent_state import AgentState, Key
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.tasks import ASSIGNED, PENDING, WORDS


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
            assert not any(tasks.status[tasks.cursor :])
