"""Agents that get no task or one probe task: black holes, and new agents."""

from __future__ import annotations

from vgrads.bags.node_history import (
    QUARANTINE_AT,
    NodeHistory,
    estimate_black_hole_odds,
    estimate_probability_healthy,
)
from vgrads.dispatch.core.agent_state import AgentState
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.events import AgentQuarantined

FIRST_TASKS = 3
"""Tasks for an agent without results: black holes are detected after this many."""
SHOWS_S = 2.0
"""Seconds without a failure after which an agent gets the rest."""


class BlackHoles:
    """Withholds work from nodes that fail all tasks."""

    def __init__(self, dispatch_index: DispatchIndex) -> None:
        self._dispatch_index = dispatch_index
        self._now_s = 0.0

    def most(self, agent: AgentState, now_s: float) -> int:
        """Return the maximum number of tasks for an agent now."""
        self._now_s = now_s
        record = self._dispatch_index.record(agent)
        if len(record.quick_failures) > 2 and self.odds(agent, record) > QUARANTINE_AT:
            return self._bar(agent, record, now_s)
        if record.done == 0.0 and not agent.done and now_s - agent.joined_s < SHOWS_S:
            self._dispatch_index.look_again(agent, agent.joined_s + SHOWS_S)
            return FIRST_TASKS
        return 1 << 30

    def _bar(self, agent: AgentState, record: NodeHistory, now_s: float) -> int:
        if now_s < record.quarantined_until_s:
            self._dispatch_index.look_again(agent, record.quarantined_until_s)
            return 0
        if record.pauses and record.at_s <= record.quarantined_until_s:
            return 1  # its quarantine is over: one probe task
        if not self._spared(agent):
            return 1 << 30
        self._dispatch_index.note(AgentQuarantined(number=agent.number, at_s=now_s))
        self._dispatch_index.look_again(
            agent, self._dispatch_index.record(agent).quarantined_until_s
        )
        return 0

    def _spared(self, agent: AgentState) -> bool:
        """Return True where at least as many processors are left: not all nodes are black holes."""
        state = self._dispatch_index.state
        machines = {m for m, r in state.records.items() if r.quarantined_until_s > state.now_s} | {
            agent.machine
        }
        quarantined = sum(
            h.procs for h in state.agents.values() if h.here and h.machine in machines
        )
        return 2 * quarantined <= self._dispatch_index.places

    def odds(self, agent: AgentState, record: NodeHistory) -> float:
        """Return the log odds that a node is a black hole (:mod:`vgrads.bags.node_history`)."""
        longer_s = 2 * record.longest_s
        survivors = {
            n: self._survivors(agent, n, longer_s) for n in {n for n, _ in record.quick_failures}
        }
        return estimate_black_hole_odds(
            [self._chance(record, n, task, survivors[n]) for n, task in record.quick_failures]
        )

    def _chance(self, record: NodeHistory, number: int, task: int, survivors: int) -> float:
        bag = self._dispatch_index.state.bags[number]
        own = (
            sum(quick_failure[0] == number for quick_failure in record.quick_failures)
            if record.done
            else 0
        )
        elsewhere = bag.right + survivors
        others = bag.tasks.blamed.get(task, 0) - (1 if record.done else 0)
        return estimate_probability_healthy(
            elsewhere, max(0.0, bag.wrong - min(2, own)), max(0, others)
        )

    def _survivors(self, agent: AgentState, number: int, longer_s: float) -> int:
        """Return other agents that have had tasks of the same bag for longer than they took to fail
        here."""
        now_s, state = self._now_s, self._dispatch_index.state
        tasks = state.bags[number].tasks
        numbers = set(tasks.where.values()).union(*tasks.replicas.values())
        return sum(
            other.machine != agent.machine
            and now_s - other.assigned_s > longer_s
            and not self._dispatch_index.record(other).quick_failures
            for other in map(state.agents.__getitem__, numbers)
            if other.here
        )
