"""Bags within workflow sets: in pieces, planned and run with workflows, with one promise."""

import json
import os
import subprocess

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.api.config import embedded_data
from vgrads.api.plans.set_bags import make_bag_workflow
from vgrads.api.plans.set_files import load_set
from vgrads.kernel.errors import InputError
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.sets import WorkflowDocument

SWEEP = {
    "command": "echo $(({x} * {x})) > out-{x}",
    "parameters": {"x": {"range": [1, 251]}},
    "outputs": ["out-{x}"],
    "runtime_s": 0.02,
}
SET = {
    "name": "mixed",
    "deadline": "10m",
    "workflows": [
        {"kind": "bag", "name": "sweep", "bag": SWEEP},
        {
            "name": "small",
            "tasks": [
                {"id": "a", "runtime_s": 0.1, "command": "echo 1 > a.txt", "outputs": ["a.txt"]},
                {"id": "b", "runtime_s": 0.1, "command": "cat a.txt", "inputs": ["a.txt"]},
            ],
        },
    ],
}


def pieces(tasks=7, **fields):
    bag = {"commands": [f"echo {n}" for n in range(tasks)], "runtime_s": 1.0} | fields
    return make_bag_workflow(WorkflowDocument(kind="bag", name="b", bag=bag), None)


def run_all(workflow, folder, **environment):
    """Run the commands of all pieces in one folder; return their exit codes."""
    return [
        subprocess.run(
            ["/bin/sh", "-c", task.command],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            check=False,
        ).returncode
        for task in workflow.tasks.values()
    ]


@given(
    count=st.integers(1, 450),
    each_s=st.sampled_from([0.01, 3.0, 700.0, 40_000.0]),
    text=st.text("ab '\"$`\\;&\n#{}", max_size=300),
    procs=st.integers(1, 8),
)
@settings(max_examples=examples(60))
def test_each_task_is_in_one_piece_and_all_work_is_planned(count, each_s, text, procs):
    commands = [f"true {text} {n}" for n in range(count)]
    workflow = pieces(commands=commands, runtime_s=each_s, procs=procs)
    assert sum(task.runtime_s for task in workflow.tasks.values()) == pytest.approx(count * each_s)
    assert {task.procs for task in workflow.tasks.values()} == {procs}
    assert not any(task.parents for task in workflow.tasks.values())
    bounds = []
    for name, task in workflow.tasks.items():
        first, *last = (int(word) for word in name.split("-")[1:])
        bounds.append((first, last[0] if last else first))
        assert task.runtime_s == pytest.approx(each_s * (bounds[-1][1] - first + 1))
    assert [first for first, _ in bounds] == [0, *(last + 1 for _, last in bounds[:-1])]
    assert bounds[-1][1] == count - 1


@given(values=st.lists(st.text("ab '\"$`\\;&\n#*", min_size=1, max_size=9), min_size=101))
@settings(max_examples=examples(10), deadline=None)
def test_pieces_run_each_command_as_it_is(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    values = [value.strip() or "x" for value in values]
    bag = {
        "command": "printf %s {x} > out-{task}",
        "parameters": {"x": values},
        "outputs": ["out-{task}"],
        "runtime_s": 0.01,
    }
    workflow = make_bag_workflow(WorkflowDocument(kind="bag", name="b", bag=bag), None)
    assert set(run_all(workflow, folder)) == {0}
    assert [(folder / f"out-{n}").read_text() for n in range(len(values))] == values
    outputs = [name for task in workflow.tasks.values() for name in task.outputs]
    assert sorted(outputs) == sorted(f"out-{n}" for n in range(len(values)))


def test_a_task_that_fails_is_repeated_alone_and_the_others_run(tmp_path):
    commands = [f"echo {n} >> ran; exit $(({n} == 3))" for n in range(200)]
    workflow = pieces(commands=commands, runtime_s=0.01, retries=2)
    codes = run_all(workflow, tmp_path)
    ran = (tmp_path / "ran").read_text().split()
    assert codes.count(1) == 1
    assert sum(codes) == 1
    assert [ran.count(str(n)) for n in range(200)] == [1, 1, 1, 3] + [1] * 196


def test_tasks_of_a_piece_do_not_see_its_script(tmp_path):
    command = 'echo "$failed$tries$1$2" >> seen; type run >> seen 2>&1 && exit 1; cd /; exit 0'
    workflow = pieces(commands=[f"{command} # {n}" for n in range(101)], runtime_s=0.01)
    assert set(run_all(workflow, tmp_path)) == {0}
    lines = (tmp_path / "seen").read_text().splitlines()
    assert lines[::2] == [""] * 101
    assert all("not found" in line for line in lines[1::2])


def test_commands_that_are_too_long_for_one_piece_are_divided(tmp_path):
    commands = [f"echo {n} >> ran; : {'x' * 90_000}" for n in range(202)]
    workflow = pieces(commands=commands)
    assert len(workflow.tasks) == 202
    assert set(run_all(workflow, tmp_path)) == {0}
    assert (tmp_path / "ran").read_text().split() == [str(n) for n in range(202)]


def test_variables_and_a_single_task(tmp_path):
    workflow = pieces(1, env={"A": "1"}, retries=4)
    (task,) = workflow.tasks.values()
    assert (task.id, task.command) == ("task-0", "echo 0")
    assert task.environment.env == (("A", "1"),)
    assert task.environment.errors[0].retries == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"runtime_s": None}, r"runtime_s: is not given: a plan needs the run time"),
        (
            {"limit": 5},
            r"limit: is not possible .* \(write 'timeout 60 COMMAND'",
        ),
        ({"fraction": 0.5, "deadline": "1h"}, r"fraction: is not possible"),
        ({"commands": []}, r"has no tasks"),
        ({"comand": "x"}, r"bag: comand: unknown key; did you mean 'command'"),
        ({"commands": None, "commands_file": "x"}, r"bag: commands_file: names a file"),
        ({"commands": None, "command": "{x}", "table": "x"}, r"bag: table: names a file"),
        (
            {"commands": None, "command": "{x}", "parameters": {"x": {"lines": "/etc/passwd"}}},
            r"bag: x: names a file",
        ),
    ],
)
def test_what_a_set_cannot_do_is_refused(fields, words):
    with pytest.raises(InputError, match=words):
        pieces(**fields)


def test_a_set_with_a_bag_is_planned_and_run(vgrads, write):
    write("sweep.json", json.dumps({"name": "squares", "deadline": "1h"} | SWEEP))
    file = {"kind": "bag", "file": "sweep.json"}
    path = write("set.yaml", json.dumps(SET | {"workflows": [file, SET["workflows"][1]]}))
    planned = vgrads("plan", path, "--sites", "here", "--json")
    names = {p["workflow"] for p in planned.json["placements"]}
    assert names == {"squares-1", "small-1"}
    assert planned.json["promise"]["probability"] > 0.9
    assert "a bag of 250 tasks, planned as 100 pieces" in planned.err
    assert "of the bag's deadline those of the set apply" in planned.err
    ran = vgrads("run", path, "--sites", "here")
    assert "2 were done in time" in ran.out
    results = next(path.parent.rglob("squares-1/results"))
    assert [int((results / f"out-{x}").read_text()) for x in (1, 250)] == [1, 62_500]
    assert len(list(results.iterdir())) == 250


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "bag", "file": "no.yaml"}, "no.yaml"),
        ({"kind": "bag", "name": "b"}, "give either 'file' or 'bag'"),
        ({"name": "b", "bag": SWEEP}, "'bag' needs 'kind: bag'"),
        ({"kind": "bag", "file": "b.yaml", "runtimes": {"a": 1}}, "'runtimes' is not a field of"),
        ({"kind": "bag", "bag": SWEEP}, "an inline workflow needs a 'name'"),
        ({"kind": "bagg", "file": "b.yaml"}, "workflows.0.kind"),
    ],
)
def test_wrong_entries(entry, words, write):
    path = write("set.yaml", json.dumps(SET | {"workflows": [entry]}))
    with pytest.raises(InputError, match=words):
        load_set(path)


def test_services_accept_bags_in_sets(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    catalog = load_catalog(embedded_data() / "sites.toml")
    with TestClient(make_app(store, catalog)) as client:
        answer = client.post("/v1/workflow-sets", json=SET)
        assert answer.status_code == 201, answer.text
        plan = client.get(f"{answer.headers['Location']}/plan").json()
        assert {p["workflow"] for p in plan["placements"]} == {"sweep-1", "small-1"}
        reading = SWEEP | {"parameters": {"x": {"lines": "/etc/passwd"}}}
        entry = {"kind": "bag", "name": "b", "bag": reading}
        refused = client.post("/v1/workflow-sets", json=SET | {"workflows": [entry]})
        assert refused.status_code == 422
        assert "names a file" in refused.text
        entry = {"kind": "bag", "file": "lead.json"}
        refused = client.post("/v1/workflow-sets", json=SET | {"workflows": [entry]})
        assert refused.status_code == 422
    store.close()
