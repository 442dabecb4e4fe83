"""The invariants of a dispatcher's state: what is kept twice must be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgrads.dispatch.core.hosts import Key
from vgrads.dispatch.core.tasks import GIVEN, PENDING, WORDS

if TYPE_CHECKING:
    from vgrads.dispatch.core.state import State


def check(state: State) -> None:
    """AssertionError where an invariant does not hold."""
    held: dict[Key, set[int]] = {}
    for host in state.hosts.values():
        procs = sum(state.bags[bag].procs for bag, _ in host.held)
        assert procs == host.busy_procs, (host.id, procs, host.busy_procs)
        for key, attempt in host.held.items():
            tasks = state.bags[key[0]].tasks
            assert host.number in tasks.hosts_of(key[1]), (host.id, key)
            assert 0 < attempt <= tasks.attempts[key[1]], (host.id, key, attempt)
            held.setdefault(key, set()).add(host.number)
    for bag in state.bags.values():
        tasks = bag.tasks
        counts = [tasks.status.count(kind) for kind in range(len(WORDS))]
        assert counts == tasks.counts, (counts, tasks.counts)
        assert len(tasks.where) == counts[GIVEN]
        for task in tasks.where:
            assert tasks.status[task] == GIVEN
            hosts = tasks.hosts_of(task)
            assert len(set(hosts)) == len(hosts), (bag.number, task, hosts)
            assert set(hosts) == held.get((bag.number, task)), (bag.number, task, hosts)
        assert set(tasks.copies) <= set(tasks.where)
        waiting = {i for i in range(tasks.cursor) if tasks.status[i] == PENDING}
        assert waiting == set(tasks.again) | set(tasks.resting), (waiting, set(tasks.again))
        assert not any(tasks.status[tasks.cursor :])
