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


def work_off(tasks, killers, procs, agents=1, runs_s=1.0, bags=1):
    """Agents work off tasks, of several bags in turn, of which some end their agent; how many
    agents these ended. A new agent comes for each that was ended."""
    core = Core(State(), Rules(), lambda _: None, lambda *_: None)
    places = [(n % bags, n // bags) for n in range(tasks)]
    for bag in range(min(bags, tasks)):
        commands = Listed(["true"] * sum(number == bag for number, _ in places))
        core.add(bag, BagSpec(name="b", commands=commands, estimate_s=runs_s, retries=0), 0.0)
    deadly = {places[n] for n in killers}
    ended, names = [], iter(f"a{n}" for n in range(10_000))

    def run(bag, task, node):
        if (bag, task) in deadly:
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
    around.run(until_s=1e7, over=lambda: all(bag.over for bag in core.state.bags.values()))
    core.state.check()
    status = [core.state.bags[bag].tasks.status[task] for bag, task in places]
    assert [n for n in range(tasks) if status[n] == FAILED] == sorted(killers)
    assert set(status) - {FAILED} <= {DONE}
    return len(ended)


@settings(max_examples=examples(200), deadline=None)
@given(
    tasks=st.integers(1, 60),
    killers=st.sets(st.integers(0, 59), max_size=8),
    procs=st.integers(1, 8),
    agents=st.integers(1, 4),
    runs_s=st.sampled_from([0.001, 1.0, 100.0]),
    bags=st.integers(1, 3),
)
def test_only_tasks_that_end_their_agents_are_given_up(tasks, killers, procs, agents, runs_s, bags):
    killers = {task for task in killers if task < tasks}
    ended = work_off(tasks, killers, procs, agents, runs_s, bags)
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


def test_a_task_that_runs_alone_does_not_wait_for_an_agent_that_is_too_narrow_now():
    core = Core(State(), Rules(), lambda _: None, lambda *_: None)
    core.add(0, BagSpec(name="wide", commands=Listed(["true"]), procs=2, estimate_s=10.0), 0.0)
    # those of an agent never end together, so that it becomes idle only where it gets no more
    around = VirtualAgents(core, lambda bag, task, node: (20.0 if bag == 0 else 10.0 + task % 7, 0))
    for n in range(SUSPECT):
        around.join("deadly", procs=2)
        around.run(until_s=n + 1.0)
        if n == SUSPECT - 1:  # others are busy when it is lost once more
            many = BagSpec(
                name="many", commands=Listed(["true"] * 4000), owner="o", estimate_s=10.0
            )
            core.add(1, many, around.now_s)
            around.join("first", procs=4)
            around.join("second", procs=4)
            around.run(until_s=n + 2.0)
        around.leave("deadly", lost=True)
    assert core.state.bags[0].tasks.losses == {0: SUSPECT}
    around.run(until_s=15.5)  # the first has ended two tasks, and gets no more
    assert not core.state.bags[0].tasks.where
    around.leave("first")
    around.join("first", procs=1)
    around.run(until_s=1e6, over=lambda: core.state.bags[0].tasks.where)
    second = core.state.agents[core.state.by_id["second"]]
    assert list(second.assigned) == [(0, 0)]
    around.run(until_s=1e6, over=lambda: core.state.bags[0].over)
    assert core.state.bags[0].tasks.status[0] == DONE
    assert not core.state.bags[1].over


def explain(core, agent, bag, task):
    return [reason.words for reason in explain_refusal(core, agent, bag, task, 10.0)]
