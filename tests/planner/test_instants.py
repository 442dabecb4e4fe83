"""Tasks that last no time: their order is that of what they need, whatever they are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.brief import make_plan
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.planner.make import Options
from vgrads.planner.plan import order_replicas
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

LINKS = {}
NAMES = st.permutations(["a", "b", "c", "d", "e", "f"])
LENGTHS = st.lists(st.sampled_from([0.0, 0.0, 30.0]), min_size=6, max_size=6)


def chain_of(names, lengths):
    tasks = [
        Task(id=name, runtime_s=length, parents=(names[n - 1],) if n else ())
        for n, (name, length) in enumerate(zip(names, lengths, strict=True))
    ]
    return make_workflow("w", tasks)


@pytest.mark.more
@given(NAMES, LENGTHS)
def test_a_child_stands_behind_its_parents_and_the_promise_is_what_the_phases_compute(
    names, lengths
):
    slots = tuple(
        Slot(
            id=name,
            site=name,
            queue="",
            kind="dedicated",
            procs=2,
            curve=make_certain_curve(0.0),
            end_s=3600.0,
            shared=name,
        )
        for name in ("s", "t")
    )
    workflow_set = WorkflowSet(
        name="x", workflows=(chain_of(names, lengths),), deadline_s=3600.0, needed=1
    )
    snapshot = Snapshot(workflow_set=workflow_set, slots=slots, links=LINKS, seed=0)
    plan = make_plan(snapshot, Options(effort=0.1))
    plan.check(snapshot)
    assert plan.promise.probability == 1.0
    placed = [p.task for p in order_replicas(plan.placements, snapshot)]
    firsts = [task for n, task in enumerate(placed) if task not in placed[:n]]
    assert firsts == list(names)
    for order in make_execution(plan, snapshot).order.values():
        ranks = [names.index(task) for _, task, _ in order]
        assert ranks == sorted(ranks)


def test_a_set_with_instants_is_promised_and_run(vgrads, write):
    tasks = "".join(
        f"      - {{id: {name}, runtime_s: {length}, parents: [{parent}]}}\n"
        for name, length, parent in (
            ("z", 60, ""),
            ("y", 0, "z"),
            ("x", 0, "y"),
            ("b", 0, "x"),
            ("a", 30, "b"),
        )
    )
    path = write(
        "set.yaml",
        f"name: s\ndeadline: 2h\nworkflows:\n  - name: w\n    count: 2\n    tasks:\n{tasks}",
    )
    assert vgrads("plan", path, "--json").json["promise"]["probability"] > 0.9
    assert vgrads("run", path, "--json").json["outcome"]["in_time"] == 2
