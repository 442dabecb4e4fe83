"""A task that ends its agents is given up alone: others that were lost with it are not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.fold import MOST_LOSSES
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE, FAILED
from vgrads.dispatch.fleet.virtual import VirtualAgents


def work_off(tasks, killers, procs, agents=1, runs_s=1.0):
    """Agents work a bag off in which some tasks end their agent; how many agents these ended.
    A new agent comes for each that was ended."""
    core = Core(State(), Rules(), lambda _: None, lambda *_: None)
    commands = Listed(["true"] * tasks)
    core.add(0, BagSpec(name="b", commands=commands, estimate_s=runs_s, retries=0), 0.0)
    ended, names = [], iter(f"a{n}" for n in range(10_000))

    def run(_, task, node):
        if task in killers:
            around.at(around.now_s + 0.1 * runs_s, lambda: end(node))
        return runs_s, 0

    def end(node):
        if around.agents[node].here:
            ended.append(node)
            around.leave(node, lost=True)
            around.join(next(names), procs=procs)

    around = VirtualAgents(core, run)
    for _ in range(agents):
        around.join(next(names), procs=procs)
    around.run(until_s=1e7, over=lambda: core.state.bags[0].over)
    core.state.check()
    status = core.state.bags[0].tasks.status
    assert [n for n in range(tasks) if status[n] == FAILED] == sorted(killers)
    assert {status[n] for n in range(tasks)} - {FAILED} <= {DONE}
    return len(ended)


@settings(max_examples=examples(200), deadline=None)
@given(
    tasks=st.integers(1, 60),
    killers=st.sets(st.integers(0, 59), max_size=8),
    procs=st.integers(1, 8),
    agents=st.integers(1, 4),
    runs_s=st.sampled_from([0.001, 1.0, 100.0]),
)
def test_only_tasks_that_end_their_agents_are_given_up(tasks, killers, procs, agents, runs_s):
    killers = {task for task in killers if task < tasks}
    ended = work_off(tasks, killers, procs, agents, runs_s)
    assert ended <= MOST_LOSSES * len(killers)
    assert bool(ended) == bool(killers)


@pytest.mark.parametrize("procs", [1, 2, 8])
def test_eight_of_forty_tasks_end_their_agents(procs):
    assert 0 < work_off(40, set(range(4, 40, 5)), procs) <= 8 * MOST_LOSSES
