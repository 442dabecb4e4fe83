"""Tasks written inline belong together by the files that they read and write."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.kernel.errors import InputError
from vgrads.workflows.by_files import add_makers
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import SetDocument, build_set
from vgrads.workflows.task import Task

SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n'


def inline(*tasks):
    entry = {"name": "w", "tasks": [{"runtime_s": 1.0, **task} for task in tasks]}
    document = SetDocument.model_validate({"name": "s", "deadline": "1h", "workflows": [entry]})
    (workflow,) = build_set(document, lambda *_: pytest.fail("a file"), "s.yaml").workflows
    return workflow


def test_whoever_makes_a_file_runs_before_whoever_reads_it(tmp_path, vgrads):
    """As written by somebody who knows make: no parents at all, and the last task first."""
    tasks = [
        {
            "id": "join",
            "command": "cat up.txt n.txt > both.txt",
            "inputs": ["up.txt", "n.txt"],
            "outputs": ["both.txt"],
        },
        {
            "id": "up",
            "command": "tr a-z A-Z < raw.txt > up.txt",
            "inputs": ["raw.txt"],
            "outputs": ["up.txt"],
        },
        {
            "id": "count",
            "command": "wc -l < raw.txt > n.txt",
            "inputs": ["raw.txt"],
            "outputs": ["n.txt"],
        },
        {"id": "raw", "command": "printf 'a\\nb\\n' > raw.txt", "outputs": ["raw.txt"]},
    ]
    (tmp_path / "sites.toml").write_text(SITES)
    document = {
        "name": "s",
        "deadline": "2m",
        "sites": "sites.toml",
        "workflows": [{"name": "w", "tasks": [{"runtime_s": 1, **task} for task in tasks]}],
    }
    (tmp_path / "set.json").write_text(json.dumps(document))
    answer = vgrads("run", tmp_path / "set.json", "--out", tmp_path / "out", "--json")
    assert answer.code == 0, answer.err
    created = Path(tmp_path / "out/w-1/results/both.txt").read_text().split()
    assert created == ["A", "B", "2"]


def test_what_is_written_elsewhere_is_waited_for_too():
    workflow = inline(
        {"id": "a", "outputs": [{"name": "x", "url": "s3://b/x"}]}, {"id": "b", "inputs": ["x"]}
    )
    assert workflow.tasks["b"].parents == ("a",)


def test_parents_that_are_written_stay_first_and_are_not_named_twice():
    workflow = inline(
        {"id": "a", "outputs": ["x"]},
        {"id": "c"},
        {"id": "b", "parents": ["c", "a"], "inputs": ["x", "of-the-user"]},
    )
    assert workflow.tasks["b"].parents == ("c", "a")
    with pytest.raises(InputError, match="names a parent twice"):
        inline({"id": "a", "outputs": ["x"]}, {"id": "b", "parents": ["a", "a"], "inputs": ["x"]})


def test_who_updates_a_file_needs_a_parent_and_reads_what_that_says():
    chain = [
        {"id": "a", "outputs": ["x"]},
        {"id": "b", "parents": ["a"], "inputs": ["x"], "outputs": ["x"]},
    ]
    workflow = inline(*chain, {"id": "c", "parents": ["b"], "inputs": ["x"]})
    assert [workflow.tasks[i].parents for i in "abc"] == [(), ("a",), ("b",)]


@pytest.mark.parametrize(
    "between", [[], [{"id": "m", "command": "date >x", "outputs": ["x"], "parents": ["a"]}]]
)
def test_two_that_write_a_single_file_are_refused(between):
    write = {"command": "date >x", "outputs": ["x"]}
    tasks = [{"id": "a", **write}, *between, {"id": "b", **write}]
    with pytest.raises(InputError, match=r"both write 'x'.*make one a parent") as refused:
        inline(*tasks)
    assert "s.yaml: workflows.0: task '" in str(refused.value)


def test_recorded_tasks_of_a_single_output_are_as_they_were():
    """They write nothing; Montage has such, and is read again from the database and from what it
    was converted to."""
    workflow = inline(
        {"id": "a", "outputs": ["x"]}, {"id": "b", "outputs": ["x"]}, {"id": "c", "inputs": ["x"]}
    )
    assert not any(task.parents for task in workflow.tasks.values())


def test_files_that_go_round_are_refused():
    with pytest.raises(InputError, match="cycle: "):
        inline(
            {"id": "a", "inputs": ["y"], "outputs": ["x"]},
            {"id": "b", "inputs": ["x"], "outputs": ["y"]},
        )


@given(st.permutations(range(6)), st.lists(st.sets(st.integers(0, 5)), min_size=6, max_size=6))
def test_every_reader_comes_after_the_maker(order, reads):
    """In whatever order tasks are written, and whichever earlier ones they read."""
    tasks = [
        Task(
            id=str(i),
            runtime_s=1.0,
            inputs=tuple(f"f{r}" for r in sorted(reads[i]) if r < i),
            outputs=(f"f{i}",),
        )
        for i in order
    ]
    workflow = make_workflow("w", add_makers(tasks))
    place = {task_id: at for at, task_id in enumerate(workflow.order)}
    for i in range(6):
        assert {int(p) for p in workflow.tasks[str(i)].parents} == {r for r in reads[i] if r < i}
        assert all(place[str(r)] < place[str(i)] for r in reads[i] if r < i)


def test_where_no_command_ran_that_is_reported_and_how_to_run_them(tmp_path, vgrads, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = {"id": "a", "runtime_s": 1, "command": "echo hi > a.txt", "outputs": ["a.txt"]}
    document = {"name": "s", "deadline": "2m", "workflows": [{"name": "w", "tasks": [task]}]}
    Path("set.json").write_text(json.dumps(document))
    text = " ".join(vgrads("run", "set.json").out.split())
    assert "all sites are simulated. '--sites here' runs the commands on this machine" in text
    ran = vgrads("run", "set.json", "--sites", "here", "--out", "out")
    assert (ran.code, Path("out/w-1/results/a.txt").read_text()) == (0, "hi\n"), ran.err
    assert "simulated" not in ran.out
    Path("here").mkdir()
    planned = vgrads("plan", "set.json", "--sites", "here", "--rerun", "--json").json
    assert {slot["site"] for slot in planned["slots"]} == {"local"}
    assert vgrads("plan", "set.json", "--sites", "there").code == 2


def test_an_input_that_nobody_makes_is_reported_with_the_plan(tmp_path, vgrads):
    """Hours before the task that reads it begins."""
    tasks = [
        {
            "id": "a",
            "runtime_s": 1,
            "command": "cp raw.txt a.txt",
            "inputs": ["raw.txt"],
            "outputs": ["a.txt"],
        },
        {"id": "b", "runtime_s": 1, "command": "cat a.tx 'a b\"c'", "inputs": ["a.tx", 'a b"c']},
    ]
    document = {
        "name": "s",
        "deadline": "2m",
        "workflows": [{"name": "w", "count": 2, "tasks": tasks}],
    }
    file = tmp_path / "set.json"
    file.write_text(json.dumps(document))
    (tmp_path / "raw.txt").touch()
    answer = vgrads("plan", file, "--sites", "here", "--json")
    message = (
        "w-1/b reads 'a.tx', which no task writes and which is missing in the folder of the set, "
        "as are 1 more inputs: the task will fail"
    )
    assert answer.json["notes"] == [message]
    assert message in " ".join(answer.err.split())
    assert (
        vgrads("plan", file, "--json").json["notes"] == []
    )  # where nothing is run, nothing is read
    (tmp_path / "a.tx").touch()
    (tmp_path / 'a b"c').touch()
    assert vgrads("plan", file, "--sites", "here", "--json").json["notes"] == []
