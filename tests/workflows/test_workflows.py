"""Workflows and sets: what is read, what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from vgrads.api.plans.set_files import load_set
from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.formats.wfformat import read_wfformat, write_wfformat
from vgrads.workflows.task import Task


@st.composite
def dags(draw, most=12):
    """Random workflows: every task's parents stand before it."""
    count = draw(st.integers(1, most))
    tasks = []
    for n in range(count):
        parents = draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set()
        tasks.append(
            Task(
                id=f"t{n}",
                runtime_s=draw(st.integers(0, 100)),
                procs=draw(st.integers(1, 4)),
                parents=tuple(f"t{p}" for p in sorted(parents)),
                inputs=tuple(f"f{p}" for p in sorted(parents)),
                outputs=(f"f{n}",),
            )
        )
    return make_workflow(
        "random", tasks, {f"f{n}": float(draw(st.integers(0, 50))) for n in range(count)}
    )


@given(dags())
def test_order_respects_parents_and_round_trip_keeps_everything(workflow):
    position = {task_id: index for index, task_id in enumerate(workflow.order)}
    assert len(position) == len(workflow.tasks)
    for task in workflow.tasks.values():
        assert all(position[parent] < position[task.id] for parent in task.parents)
    replica = read_wfformat(json.loads(json.dumps(write_wfformat(workflow))), "x")
    assert (replica.tasks, replica.file_mib) == (workflow.tasks, workflow.file_mib)


def test_lead_is_the_papers():
    lead = load_workflow(DATA / "lead.json")
    assert lead.critical_path_s(bandwidth_mib_s=10.0) == pytest.approx(5224, abs=1)
    assert lead.width == 16
    assert lead.tasks["wrf"].runtime_s > 75 * 60


def test_cycles_and_wrong_tasks_are_refused():
    a, b = Task(id="a", runtime_s=1, parents=("b",)), Task(id="b", runtime_s=1, parents=("a",))
    with pytest.raises(InputError, match=r"cycle: \w → \w → \w"):
        make_workflow("w", [a, b])
    for bad in (
        [Task(id="a", runtime_s=-1)],
        [Task(id="a", runtime_s=float("inf"))],
        [Task(id="a", runtime_s=1, procs=0)],
        [Task(id="a", runtime_s=1, parents=("z",))],
        [Task(id="a", runtime_s=1), Task(id="a", runtime_s=2)],
        [],
    ):
        with pytest.raises(InputError):
            make_workflow("w", bad)


def test_recorded_workflows_are_read(shared):
    for path in sorted((shared / "workflows" / "wfformat").iterdir()):
        workflow = load_workflow(path)
        assert len(workflow.order) == len(workflow.tasks) > 1
        assert workflow.critical_path_s() > 0


def test_dax_and_older_wfformat(shared, write):
    for path in sorted((shared / "workflows" / "dax").iterdir()):
        workflow = load_workflow(path)
        assert len(workflow.order) == len(workflow.tasks) > 20
        assert workflow.critical_path_s() > 0
        assert sum(workflow.file_mib.values()) > 0


OLD = {
    "name": "old",
    "schemaVersion": "1.3",
    "workflow": {
        "tasks": [
            {
                "name": "a",
                "runtime": 10,
                "cores": 2,
                "files": [{"name": "x", "size": 1048576, "link": "output"}],
            },
            {
                "name": "b",
                "runtime": 5,
                "parents": ["a"],
                "files": [{"name": "x", "size": 1048576, "link": "input"}],
            },
        ]
    },
}

DAX = """<adag xmlns="http://pegasus.isi.edu/schema/DAX" name="small">
<job id="A" name="first" runtime="10"><uses file="x" link="output" size="1048576"/></job>
<job id="B" name="second" runtime="5"><uses file="x" link="input" size="1048576"/></job>
<child ref="B"><parent ref="A"/></child></adag>"""


def test_older_formats_carry_run_times_files_and_order(write):
    for name, text in (("old.json", json.dumps(OLD)), ("small.dax", DAX)):
        workflow = load_workflow(write(name, text))
        first, second = workflow.order
        assert workflow.critical_path_s() == 15
        assert workflow.transfer_mib(first, second) == 1.0


def test_dagman_and_makeflow_take_run_times_from_a_table(write):
    dag = 'Job A a.sub\nJOB B x/b.sub DIR d\nVARS A k="v"\nRETRY B 3\nPARENT A CHILD B\n'
    workflow = load_workflow(write("two.dag", dag), {"A": 10, "b": 7})
    assert {t.id: (t.runtime_s, t.parents) for t in workflow.tasks.values()} == {
        "A": (10, ()),
        "B": (7, ("A",)),
    }
    make = (
        "# comment\nOPT=-x 1\n.MAKEFLOW CATEGORY cut\na.1 a.2: in.txt \\\n  tool\n\tLOCAL "
        "./split ${OPT} in.txt\n"
        "CATEGORY=join\n\nout: a.1 a.2\n\tcat a.1 a.2 > out\n"
    )
    workflow = load_workflow(write("two.mf", make), {"cut": 4, "cat": 9})
    first, second = (workflow.tasks[name] for name in workflow.order)
    assert (first.runtime_s, first.command, first.inputs) == (
        4,
        "./split -x 1 in.txt",
        ("in.txt", "tool"),
    )
    assert (second.runtime_s, second.parents, second.outputs) == (9, (first.id,), ("out",))


def test_real_dagman_and_makeflow(shared):
    result = {}
    for path in sorted(
        [
            *(shared / "workflows" / "dagman").iterdir(),
            *(shared / "workflows" / "makeflow").iterdir(),
        ]
    ):
        workflow = load_workflow(path, {"*": 60.0})
        assert len(workflow.order) == len(workflow.tasks)
        result[path.name] = len(workflow.tasks)
    assert result["shrimp.mf"] == 764
    assert result["job_dagman_node_prio.dag"] > 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DAX.replace('"10"', '"ten"'), "runtime: 'ten' is not a number"),
        (DAX.replace('ref="A"', 'ref="Z"'), "unknown parent 'Z'"),
        (DAX[:-20], "is not valid XML: .*line 4"),
        ('<!DOCTYPE x [<!ENTITY a "b">]>' + DAX, "document type"),
        ("<html></html>", "its root is <html>"),
        ("all: wf", "unknown workflow format"),
        ("x: y\n\tcp y x\nz: x\n", "line 3: the rule has no command"),
        ('{"workflow": 7}', "no field 'workflow'"),
        ('{"workflow": {"specification": {}}}', "not valid WfFormat"),
    ],
)
def test_wrong_workflow_files_are_refused(write, text, message):
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(write("wrong.file", text))
    assert "wrong.file" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "task", "kind"),
    [
        (DAX.replace(' runtime="5"', ""), "B", "second"),
        ("JOB A a.sub\n", "A", "a"),
        ("x: y\n\t./prog y > x\n", "rule1", "./prog"),
        ('{"workflow": {"tasks": [{"name": "split_0001"}]}}', "split_0001", "split"),
    ],
)
def test_a_task_without_run_time_is_left_to_be_predicted_by_its_kind(write, text, task, kind):
    agent_task = load_workflow(write("some.file", text)).tasks[task]
    assert not agent_task.stated
    assert agent_task.kind == kind.removeprefix("./")


def test_a_set_names_its_workflows_apart_and_rounds_the_fraction_up():
    workflow_set, sites = load_set(DATA / "lead-storm.yaml")
    assert (len(workflow_set.workflows), workflow_set.needed, workflow_set.deadline_s) == (
        8,
        6,
        7200,
    )
    assert len({w.name for w in workflow_set.workflows}) == 8
    assert sites.endswith("sites.toml")


SET = """
name: s
deadline: {deadline}
{more}
workflows:
  - name: w
    tasks: [{{id: a, runtime_s: 1}}]
"""


@pytest.mark.parametrize(
    ("deadline", "more", "message"),
    [
        ("2h", "fraction: 5/4", "fraction: .*not in"),
        ("2h", "fraction: .5\nat_least: 1", "not both"),
        ("2h", "at_least: 3", "at_least: is 3, but the set has 1"),
        ("2h", "probability: 1.5", "probability: .*outside"),
        ("2h", "colour: red", "colour: unknown key"),
        ("0s", "", "deadline: must be above 0"),
        ("2001-01-01T00:00:00Z", "", "deadline: .*in the past"),
        ("2001-01-01T00:00:00", "", "time zone"),
        ("soon", "", "deadline: 'soon' is not a duration"),
        ("2h", "budget_usd: -1", "budget_usd"),
    ],
)
def test_wrong_sets_are_refused_with_the_field(write, deadline, more, message):
    path = write("set.yaml", SET.format(deadline=deadline, more=more))
    with pytest.raises(InputError, match=message) as caught:
        load_set(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: [",
        "- a\n- b",
        '{"name": "x"',
        "workflows:\n  - {file: nowhere.json}\nname: x\ndeadline: 2h",
    ],
)
def test_cut_off_and_empty_sets_are_refused(write, text):
    with pytest.raises(InputError, match=r"set\.yaml|nowhere"):
        load_set(write("set.yaml", text))


@pytest.mark.parametrize("field", ["count", "deadline", "budget_usd", "runtime_s"])
def test_true_and_false_are_no_numbers(write, field):
    """YAML reads ``no`` as false, and Pydantic would read that as 0."""
    values = {"count": 1, "deadline": 60, "budget_usd": 5, "runtime_s": 1} | {field: "no"}
    text = (  # of a single task
        f"name: s\ndeadline: {values['deadline']}\nbudget_usd: {values['budget_usd']}\n"
        f"workflows: [{{name: w, count: {values['count']}, tasks: [{{id: a, runtime_s: "
        f"{values['runtime_s']}}}]}}]\n"
    )
    with pytest.raises(InputError) as refused:
        load_set(write("s.yaml", text))
    assert field in str(refused.value)
    assert "must not be false" in str(refused.value)


@pytest.mark.parametrize("number", ["1e400", "-1", "NaN", '"x"', "[]", "1e300"])
@pytest.mark.parametrize("field", ["coreCount", "memoryInBytes", "runtimeInSeconds", "sizeInBytes"])
def test_numbers_of_wfformat_that_cannot_be_are_refused(field, number):
    size = number if field == "sizeInBytes" else 1
    task = f'{{"id": "a", "runtimeInSeconds": 1, "{field}": {number}}}'
    text = (
        '{"name": "x", "workflow": {"specification": {"tasks": [{"name": "a", "id": "a"}],'
        f' "files": [{{"id": "f", "sizeInBytes": {size}}}]}},'
        f' "execution": {{"tasks": [{task}]}}}}}}'
    )
    if (field, number) == ("runtimeInSeconds", "NaN"):
        return  # unstated
    if number == "[]" and field != "runtimeInSeconds":
        return  # nothing stated
    with pytest.raises(InputError):
        read_wfformat(json.loads(text), "x")
