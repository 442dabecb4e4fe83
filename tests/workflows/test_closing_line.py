"""Every reader ends with one line on what it read, in plans, conversions and their JSON."""

import json

import pytest

from vgrads.workflows.formats.load import load_workflow

TWO = {
    "wf.json": json.dumps(
        {
            "workflow": {
                "specification": {"tasks": [{"id": "a"}, {"id": "b", "parents": ["a"]}]},
                "execution": {"tasks": []},
            }
        }
    ),
    "two.dax": '<adag><job id="a" name="x"/><job id="b" name="y"/><child ref="b">'
    '<parent ref="a"/></child></adag>',
    "two.yml": "x-pegasus: {}\njobs: [{id: a, name: x}, {id: b, name: y}]\n"
    "jobDependencies: [{id: a, children: [b]}]\n",
    "two.dag": "JOB a a.sub\nJOB b a.sub\nPARENT a CHILD b\n",
    "two.mf": "x:\n\ttouch x\ny: x\n\tcp x y\n",
    "two.jx": '{"rules": [{"command": "touch x", "outputs": ["x"]},'
    ' {"command": "cp x y", "inputs": ["x"], "outputs": ["y"]}]}',
}


@pytest.mark.parametrize("name", TWO)
def test_a_reader_says_how_many_tasks_and_edges_it_read(write, name):
    assert load_workflow(write(name, TWO[name])).notes[-1].startswith("2 tasks, 1 edge")


def test_plans_and_conversions_say_what_was_read(vgrads, write, tmp_path):
    text = f"{TWO['two.dag']}SCRIPT PRE a x\nRETRY a 2\n"
    dag, out = write('my "project" ü/two.dag', text), tmp_path / "out.json"
    line = "2 tasks, 1 edge, 1 retry; 1 script is not run; 1 submit file is missing"
    lost = "WfFormat has no field for: retries and environment (1 task)"
    assert vgrads("convert", dag, out, "--json").json == {
        "written": str(out),
        "notes": [line, lost],
    }
    answer = vgrads("convert", dag, out)
    assert (f"note: {line}" in answer.err, answer.out.startswith("wrote")) == (True, True)
    some = write(
        "set.yaml",
        f"""name: s
deadline: 4h
workflows:
  - {{file: '{dag}', runtimes: {{"*": 60}}, count: 2}}
""",
    )
    answer = vgrads("plan", some, "--json")
    assert answer.json["notes"] == [f"two-1: {line}"]
    assert f"note: two-1: {line}" in answer.err.replace("\n", " ")


def test_a_plan_says_how_many_run_times_were_guessed(vgrads, write):
    file = write("some.dag", TWO["two.dag"] + "JOB c c.sub\nJOB d d.sub\n")
    head = "name: s\ndeadline: 4h\nworkflows:\n"
    every = f"  - {{file: '{file}', runtimes: {{'*': 60}}, count: 3}}\n"
    some = f"  - {{file: '{file}', runtimes: {{a: 60}}}}\n"
    notes = vgrads("plan", write("set.yaml", head + every + some), "--json").json["notes"]
    assert notes[-1] == (
        "no stated run time is used for 2 of 16 tasks: the promise rests on wide guesses (2)"
    )
    stated = vgrads("plan", write("all.yaml", head + every), "--json").json["notes"]
    assert len(stated) == 1  # what was read
