"""The invariants of a dispatcher's state: redundant values must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgrads.dispatch.core.agent_state import Key
from vgrads.dispatch.core.tasks import ASSIGNED, PENDING, WORDS

if TYPE_CHECKING:
    from vgrads.dispatch.core.state import State


def check(state: State) -> None:
    """Raise AssertionError where an invariant does not hold."""
    holders: dict[Key, set[int]] = {}
    for agent in state.agents.values():
        procs = sum(state.bags[bag].procs for bag, _ in agent.assigned)
        assert procs == agent.busy_procs, (agent.id, procs, agent.busy_procs)
        for key, attempt in agent.assigned.items():
            tasks = state.bags[key[0]].tasks
            assert agent.number in tasks.agents_of(key[1]), (agent.id, key)
            assert 0 < attempt <= tasks.attempts[key[1]], (agent.id, key, attempt)
            holders.setdefault(key, set()).add(agent.number)
    for bag in state.bags.values():
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
