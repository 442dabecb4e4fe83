"""Hosts are taken away and come to their ends while tasks run: none is killed, none is begun that
cannot end."""

import random

import pytest

from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.virtual import VirtualAgents

DELAY_S = 0.001


def scale_in(seed, agents=12, tasks=150):
    """One random interleaving: hosts with an end come, and are dismissed at random instants; how
    many were."""
    draws = random.Random(seed)
    runs_s = draws.choice((0.05, 1.0, 7.0, 60.0))
    ends: list[tuple[int, float]] = []
    core = Core(State(), Rules(), lambda _: None, lambda _, end, __: ends.append((end.agent, end)))
    core.add(
        0,
        BagSpec(name="drained", commands=Listed(["true"] * tasks), estimate_s=runs_s, retries=0),
        0.0,
    )
    around = VirtualAgents(core, lambda *_: (runs_s * draws.uniform(0.5, 1.0), 0), DELAY_S)
    dismissed = 0

    def come(name, ends_s=float("inf")):
        around.join(name, procs=draws.randint(1, 4), ends_s=ends_s)

    def go(name):
        nonlocal dismissed
        agent = core.state.agents.get(core.state.by_id.get(name, -1))
        if agent is not None and agent.here and not core.state.bags[0].over:
            core.disconnect(agent, "released")
            around.push()
            dismissed += 1

    for number in range(agents):
        at_s = draws.uniform(0, 5 * runs_s)
        name = f"h{number}"
        ends_s = at_s + draws.uniform(0.5, 20) * runs_s
        around.at(at_s, lambda name=name, ends_s=ends_s: come(name, ends_s))
        around.at(at_s + draws.uniform(0, 15) * runs_s, lambda name=name: go(name))
    around.at(30 * runs_s, lambda: come("last"))
    around.run(over=lambda: core.state.bags[0].over)
    core.state.check()
    bag = core.state.bags[0]
    assert bag.tasks.counts[2] == tasks
    assert not bag.tasks.losses
    assert not bag.tasks.failures
    assert len(ends) == tasks  # no task ran twice: none was killed
    for number, end in ends:
        assert end.at_s <= core.state.agents[number].ends_s + 2 * DELAY_S
    return dismissed


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_killed_by_hosts_that_go(part):
    dismissed = sum(scale_in(seed) for seed in range(100 * part, 100 * part + 100))
    assert dismissed >= 400
