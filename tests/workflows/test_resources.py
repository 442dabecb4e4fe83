"""Units of what machines have beside processors: never more in use than there are, refused where
nobody has enough."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.test_planner import make_set
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.planner.placement.widths import widen
from vgrads.vgrid.catalog import build_catalog
from vgrads.vgrid.documents import SitesDocument
from vgrads.vgrid.slot import Slot, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task


def catalog(*sites):
    document = validate(SitesDocument, {"site": list(sites)}, "sites")
    return build_catalog(document, Path(), "sites")


def machine(name, procs, cores, **units):
    return {
        "name": name,
        "kind": "dedicated",
        "procs": procs,
        "cores_per_node": cores,
        "resources": units,
    }


def task(name, procs=1, **units):
    return Task(id=name, runtime_s=10.0, procs=procs, resources=tuple(sorted(units.items())))


def in_use(plan, snapshot, name):
    """Slot → the most units that the plan has in use there at once."""
    steps = {}
    for p in plan.placements:
        units = dict(snapshot.task(p.task_key).resources).get(name, 0)
        steps.setdefault(p.slot, []).extend([(p.start_s, 1, units), (p.end_s, 0, -units)])
    result = {}
    for slot, changes in steps.items():
        now = most = 0
        for _, _, change in sorted(changes):
            now += change
            most = max(most, now)
        result[slot] = most
    return result


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(2, 8), st.integers(1, 4)), min_size=1, max_size=2
    ),
)
def test_no_plan_uses_more_units_at_once_than_a_slot_has(requested, nodes):
    sites = catalog(
        *(
            machine(f"m{n}", count * cores, cores, gpu=units)
            for n, (count, cores, units) in enumerate(nodes)
        )
    )
    flows = [
        make_workflow(f"w{n}", [task("t", procs, **({"gpu": units} if units else {}))])
        for n, (procs, units) in enumerate(requested)
    ]
    planned = plan_set(make_set(flows), open_grid(sites))
    planned.plan.check(planned.snapshot)
    for slot, most in in_use(planned.plan, planned.snapshot, "gpu").items():
        assert most <= dict(planned.snapshot.slot_by_id[slot].resources)["gpu"]


def test_a_task_takes_up_its_share_and_is_passed_its_request():
    flow = make_workflow("w", [task("one", gpu=1), task("wide", 12, gpu=1), task("none")])
    workflow_set = widen(make_set([flow]), catalog(machine("m", 32, 16, gpu=4)))
    tasks = workflow_set.workflows[0].tasks
    assert [(tasks[i].procs, tasks[i].threads) for i in ("one", "wide", "none")] == [
        (4, 1),
        (12, 12),
        (1, 0),
    ]
    assert widen(workflow_set, catalog(machine("m", 32, 16, gpu=4))) == workflow_set
    plain = make_set([make_workflow("w", [task("none")])])
    assert widen(plain, catalog(machine("m", 32, 16, gpu=4))) is plain


def test_a_slot_of_another_make_holds_no_task_whose_width_is_not_its_share_there():
    def slot(units):
        return Slot(
            id="a",
            site="a",
            queue="",
            kind="cloud",
            procs=16,
            curve=make_certain_curve(0.0),
            end_s=9.0,
            shared="a",
            resources=(("gpu", units),),
        )

    planned = task("t", 4, gpu=1)
    assert slot(4).holds(planned.needs)
    assert not slot(1).holds(planned.needs)  # four of them would fit beside each other
    assert not slot(4).holds(task("t", 4, licence=1).needs)


SET = """
name: s
deadline: 1h
workflows:
  - name: w
    count: 4
    tasks: [{{id: t, runtime_s: 1, procs: 1, resources: {{gpu: {gpu}}}, outputs: [n], command: "{command}"}}]
"""
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\nresources = {gpu = 2}\n'


def test_what_no_slot_has_is_refused_with_the_most_that_there_is(vgrads, write):
    answer = vgrads(
        "run",
        write("set.yaml", SET.format(gpu=3, command="true")),
        "--sites",
        write("sites.toml", SITES),
    )
    assert answer.code == 3
    assert "task 't' needs 3 of gpu, the slot with most of it has 2" in answer.out + answer.err


def test_a_run_never_has_more_at_once(vgrads, write, tmp_path):
    folder = tmp_path / "now"
    folder.mkdir()
    command = (
        f"touch {folder}/$VGRADS_WORKFLOW; ls {folder} | wc -l >n; sleep 0.5; rm "
        f"{folder}/$VGRADS_WORKFLOW; echo $VGRADS_PROCS >>n"
    )
    answer = vgrads(
        "run",
        write("set.yaml", SET.format(gpu=1, command=command)),
        "--sites",
        write("sites.toml", SITES),
        "--out",
        tmp_path / "out",
    )
    assert answer.code == 0, answer.err
    message = [path.read_text().split() for path in (tmp_path / "out").glob("*/results/n")]
    assert [procs for _, procs in message] == ["1"] * 4
    assert max(int(count) for count, _ in message) == 2


@pytest.mark.parametrize("units", [{"gpu": 0}, {"a b": 1}, {"gpu": -1}])
def test_units_of_sites_are_checked(units):
    with pytest.raises(InputError, match="resources"):
        catalog(machine("m", 4, 4, **units))
