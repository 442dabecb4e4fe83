"""Pilot runs that the plan starts: chosen, run in a folder of their own, learned from."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.test_planner import make_set
from vgrads.api.plans.pilot_choice import UncertainKind, choose_pilots
from vgrads.api.plans.pilot_set import choose_pilot_tasks, make_pilot_set
from vgrads.api.plans.pilots import choose_pilots_to_start
from vgrads.api.plans.planning import GridSnapshot, plan_set
from vgrads.planner.make import STANDARD
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import TaskEnvironment

QUICK = replace(STANDARD, effort=0.0)
BRIEFLY = ("--effort", "0.05")
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "{}"\n'
SET = """
name: counts
deadline: 4m
sites: sites.toml
workflows:
- name: sample
  count: 20
  tasks:
  - {id: align, kind: ALIGN, command: "cat in.txt > a.txt", inputs: [in.txt], outputs: [a.txt]}
  - {id: bad, kind: BAD, command: "exit 3"}
  - {id: count, kind: COUNT, parents: [align], inputs: [a.txt], command: "wc a.txt"}
"""


@pytest.fixture
def set_file(write):
    write("sites.toml", SITES.format("local"))
    write("in.txt", "of the user\n")
    return write("set.yaml", SET)


@pytest.mark.more  # runs tasks for minutes
def test_pilots_are_run_learned_from_and_the_promise_is_stated_twice(vgrads, write, set_file):
    ran = vgrads("plan", set_file, *BRIEFLY, "--run-pilots", "--json")
    assert ran.code == 0, ran.err
    pilots = {pilot["kind"]: pilot for pilot in ran.json["pilots"]}
    assert {kind: pilot["state"] for kind, pilot in pilots.items()} == {
        "ALIGN": "done",
        "BAD": "failed",
        "COUNT": "not started",
    }
    assert "reads 'a.txt', which does not exist yet" in pilots["COUNT"]["reason"]
    sources = {entry["kind"]: entry["source"] for entry in ran.json["run_times"]}
    assert sources == {"ALIGN": "learned", "BAD": "guess", "COUNT": "guess"}
    before = ran.json["promise_before"]["probability"]
    assert ran.json["promise"]["probability"] > before
    run = vgrads("status", "--json").json["runs"][0]
    assert run["name"] == "pilots of counts"
    folder = set_file.parent
    assert sorted(path.name for path in folder.iterdir() if path.suffix) == [
        "in.txt",
        "set.yaml",
        "sites.toml",
    ]
    assert (folder / "in.txt").read_text() == "of the user\n"
    text = vgrads("plan", set_file, *BRIEFLY, "--run-pilots").out
    assert "exit code 3" in text
    assert "Promise before the pilot runs: " in text
    assert vgrads("plan", set_file, "--run-pilots", "--as-stated").code == 2


@pytest.mark.more
def test_at_simulated_sites_no_pilot_is_started(vgrads, write, set_file):
    write("sites.toml", SITES.format("simulated"))
    ran = vgrads("plan", set_file, *BRIEFLY, "--run-pilots", "--json")
    reasons = {pilot["kind"]: pilot["reason"] for pilot in ran.json["pilots"]}
    assert "all sites are simulated" in reasons["ALIGN"]
    assert {pilot["state"] for pilot in ran.json["pilots"]} == {"not started"}
    assert vgrads("status", "--json").json["runs"] == []


def planned_of(write, *tasks, **more):
    catalog = load_catalog(write("here.toml", SITES.format("local")))
    uncertain = RuntimeSpread(own=0.1, kind=0.8)
    tasks = [replace(task, spread=uncertain) for task in tasks]
    workflow_set = make_set(
        [make_workflow("w", tasks)], deadline_s=4000.0, directory=str(catalog_folder(write)), **more
    )
    grid = GridSnapshot(catalog=catalog, logs={}, instants={}, forecasts={})
    return plan_set(workflow_set, grid, options=QUICK)


def catalog_folder(write):
    return write("there.txt", "x").parent


def of_kind(kind, n, seconds, **more):
    return Task(id=f"{kind}{n}", runtime_s=seconds, kind=kind, command="true", **more)


def test_the_pilot_tasks_are_run_for_a_twentieth_of_the_work(write):
    tasks = [of_kind("long", n, 100.0 + n) for n in range(3)]
    tasks += [of_kind("short", n, 10.0 + n) for n in range(20)]
    planned = planned_of(write, *tasks)
    (chosen,), (left,) = choose_pilots_to_start(planned, options=QUICK)
    assert (chosen["kind"], chosen["task"], chosen["pilot_s"]) == ("short", "short0", 10.0)
    assert left["kind"] == "long"
    assert "of the set's work; all pilots together may take 5%" in left["reason"]
    trial = make_pilot_set(planned, [chosen])
    assert trial.name != planned.workflow_set.name
    assert [list(w.tasks) for w in trial.workflows] == [["short0"]]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ""),
        ({"inputs": ("there.txt",)}, ""),
        ({"inputs": ("missing.txt",)}, "reads 'missing.txt'"),
        ({"command": ""}, "no command"),
        ({"sends": (RemoteFile(name="a", url="file:///a"),)}, "sends its outputs"),
        ({"environment": TaskEnvironment(workdir="/data")}, "a folder of its own choice"),
        ({"parents": ("p0",)}, "follows p0"),
        ({"parents": ("p0",), "inputs": ("there.txt",)}, ""),
    ],
)
def test_only_tasks_that_run_alone_and_change_nothing_are_started(write, more, reason):
    task = replace(of_kind("k", 0, 5.0), **more)
    task_of_kind = choose_pilot_tasks(planned_of(write, of_kind("p", 0, 5.0), task))["k"]
    assert reason in task_of_kind.reason
    assert (task_of_kind.key is None) == bool(reason)


def test_tasks_that_wait_for_their_release_are_not_started(write):
    task_of_kind = choose_pilot_tasks(planned_of(write, of_kind("k", 0, 5.0), released=True))["k"]
    assert task_of_kind.key is None


def kind(name, tasks=100, work_s=1000.0, shared=1.0, pilot_s=1.0):
    spread = {"shared": shared, "own": 0.1, "extrapolated": 0.0}
    return UncertainKind(kind=name, tasks=tasks, work_s=work_s, pilot_s=pilot_s, **spread)


@given(
    st.lists(
        st.tuples(st.floats(1.0, 1e5), st.floats(0.01, 3.0), st.floats(0.1, 1e4)),
        min_size=1,
        max_size=30,
    )
)
def test_pilots_never_take_more_than_a_twentieth_of_the_work(numbers):
    every = {
        str(n): kind(str(n), work_s=w, shared=s, pilot_s=p) for n, (w, s, p) in enumerate(numbers)
    }
    chosen = choose_pilots(every.values(), every)
    assert sum(k.pilot_s for k in chosen) <= 0.05 * sum(k.work_s for k in every.values()) + 1e-6
    assert len({k.kind for k in chosen}) == len(chosen) <= 16


def test_no_more_pilots_are_chosen_than_make_the_interval_narrow():
    every = {name: kind(name, work_s=w) for name, w in (("a", 5000.0), ("b", 50.0), ("c", 40.0))}
    assert [k.kind for k in choose_pilots(every.values(), every)] == ["a"]
    alike = {str(n): kind(str(n)) for n in range(10)}
    assert len(choose_pilots(alike.values(), alike)) > 5
