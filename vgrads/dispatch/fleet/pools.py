"""Agents leased from pools: how many each pool has here, and which ones are returned when it has
decided on fewer.

A pool never takes an agent away. It reports how many it has decided on; the manager releases the
others when their running tasks have ended (Yu 2013, section 4.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from vgrads.dispatch.core.state import AgentState
from vgrads.dispatch.core.step import Core
from vgrads.exchange.messages import HEARTBEAT_S
from vgrads.kernel.units import format_count

POOL = "pool"
"""The attribute in which an agent reports its pool."""
_SILENT_S = 2.2 * HEARTBEAT_S
OWN = ""
"""In place of a pool's name: agents that the manager requested itself, and ad-hoc agents."""


def find_pool(agent: AgentState) -> str:
    """Return the pool from which an agent is leased."""
    return str(agent.attributes.get(POOL, OWN))


def list_staying(core: Core, now_s: float) -> list[AgentState]:
    """Return the agents that are connected and stay; an agent that has missed two heartbeats is not
    counted."""
    agents, last_s = core.state.agents.values(), core.last_heartbeat_s
    return [
        h
        for h in agents
        if h.here and not h.leaving and now_s - last_s.get(h.number, now_s) < _SILENT_S
    ]


def count_leased(agents: Iterable[AgentState]) -> Counter[str]:
    """Return the processors of each pool among these agents."""
    counts: Counter[str] = Counter()
    for agent in agents:
        counts[find_pool(agent)] += agent.procs
    return counts


def find_excess(
    agents: Iterable[AgentState], decided: Mapping[str, int]
) -> list[tuple[AgentState, str]]:
    """Return the staying agents to release, and why; ``decided``: processors by pool. Those with
    the least work go first, the newest of them: the caches of the others stay. A pool that has
    reported nothing keeps its agents here."""
    leasing = [agent_state for agent_state in agents if find_pool(agent_state) in decided]
    there, results = count_leased(leasing), list[tuple[AgentState, str]]()
    for agent_state in sorted(
        leasing, key=lambda agent: (len(agent.assigned), -agent.joined_s, agent.number)
    ):
        pool = find_pool(agent_state)
        if there[pool] - agent_state.procs >= decided[pool]:
            why = (
                f"{pool} has decided on {format_count(decided[pool], 'processor')} here, but "
                f"has {there[pool]}"
            )
            there[pool] -= agent_state.procs
            results.append((agent_state, why))
    return results
