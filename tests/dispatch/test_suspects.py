"""A task that ends its agents is given up alone: others that were lost with it are not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.assignment import SUSPECT
from vgrads.dispatch.core.fold import MOST_LOSSES
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE, FAILED
from vgrads.dispatch.explanation import explain_refusal
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


def test_why_other_tasks_wait_for_one_that_runs_alone():
    core = Core(State(), Rules(), lambda _: None, lambda *_: None)
    spec = BagSpec(name="b", commands=Listed(["true"] * 3), estimate_s=10.0, retries=0)
    core.add(0, spec, 0.0)
    around = VirtualAgents(core, lambda _, task, node: (10.0, 0))
    for n in range(SUSPECT):  # lost with all that they hold
        around.join(f"a{n}", procs=4)
        around.run(until_s=n + 1.0)
        around.leave(f"a{n}", lost=True)
    around.join("last", procs=4)
    around.run(until_s=10.0)
    bag = core.state.bags[0]
    (alone,) = bag.tasks.where
    last = core.state.agents[bag.tasks.where[alone]]
    # it has the task, and no other
    assert explain(core, last, bag, alone) == ["it has the task"]
    for other in {0, 1, 2} - {alone}:
        lost = "5 agents were lost while running it, or could not run it"
        assert explain(core, last, bag, other) == [
            f"it runs task {alone} of bag b alone: {lost}",
            f"{lost}; so it runs alone and without replicas, and this agent has other tasks",
        ]
    around.join("second", procs=4)
    around.run(until_s=11.0)
    second = core.state.agents[max(core.state.agents)]
    assert explain(core, second, bag, alone)[1:] == [
        f"{lost}; so it runs alone and without replicas, and another agent has it"
    ]


def explain(core, agent, bag, task):
    return [reason.words for reason in explain_refusal(core, agent, bag, task, 10.0)]
