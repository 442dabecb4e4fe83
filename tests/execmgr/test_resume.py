"""Runs and bags that are interrupted, killed, resumed, cancelled: from the command line, in real
time."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.conftest import DATA, ROOT
from tests.waiting import runs
from vgrads.execmgr.tasks.provenance import RECORDS
from vgrads.portal.records.store import Store


def local_set(write, tmp_path, workflows, deadline="60s"):
    write("local.toml", (DATA / "local" / "local.toml").read_text())
    return write(
        "set.yaml", f"name: s\ndeadline: {deadline}\nsites: local.toml\nworkflows:\n{workflows}"
    )


def start_run(path, tmp_path):
    return subprocess.Popen(
        [sys.executable, "-m", "vgrads", "run", path],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
    )


CHAIN = """\
  - name: w
    count: 2
    tasks:
      - {{id: a, runtime_s: 3, command: "echo a >> {0}/ran; echo x > {0}/pipe; sleep 2; echo one > a.txt", outputs: [a.txt]}}
      - {{id: b, runtime_s: 1, parents: [a], command: "echo b >> {0}/ran; cat a.txt a.txt > b.txt", inputs: [a.txt], outputs: [b.txt]}}
"""


def test_a_killed_manager_is_followed_by_another_that_finds_what_runs(vgrads, write, tmp_path):
    """kill −9 while tasks run: they are found again, nothing runs twice, results are as if nothing
    had been."""
    os.mkfifo(tmp_path / "pipe")
    manager = start_run(local_set(write, tmp_path, CHAIN.format(tmp_path)), tmp_path)
    # a task writes when it has begun; kept open, for a pipe that is opened anew may lose the second
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    begun = 0
    while begun < 2:
        begun += os.read(pipe, 1) == b"x"
    os.close(pipe)
    manager.kill()
    manager.wait()
    (row,) = vgrads("status", "--json").json["runs"]
    assert row["state"] == "running"
    resumed = vgrads("resume", row["run"], "--json")
    assert resumed.code == 0, resumed
    assert resumed.json["outcome"]["in_time"] == 2
    assert sorted((tmp_path / "ran").read_text().split()) == ["a", "a", "b", "b"]
    results = list((tmp_path / "home" / "runs" / row["run"]).glob("w-*/results/b.txt"))
    assert [path.read_text() for path in results] == ["one\none\n"] * 2
    again = vgrads("resume", row["run"])
    assert (again.code, "has ended: kept" in again.err) == (2, True)


@pytest.mark.parametrize(("keep", "left"), [("results", {"a.txt", "b.txt"}), ("final", {"b.txt"})])
def test_files_that_are_needed_no_more_are_removed_on_request(keep, left, vgrads, write, tmp_path):
    tasks = (
        "  - name: w\n    tasks:\n      - {id: a, runtime_s: 1, command: 'echo 1 > a.txt', "
        "outputs: [a.txt]}\n"
        "      - {id: b, runtime_s: 1, parents: [a], command: 'cat a.txt > b.txt', inputs: "
        "[a.txt], outputs: [b.txt]}\n"
    )
    out = tmp_path / "out"
    assert vgrads("run", local_set(write, tmp_path, tasks), "--out", out, "--keep", keep).code == 0
    printed = {"stdout.txt", "stderr.txt"}  # of every attempt, for `vgrads logs`
    assert {path.name for path in out.rglob("*") if path.is_file()} == left | printed | {RECORDS}
    assert vgrads("run", local_set(write, tmp_path, tasks), "--keep", "some").code == 2


def test_a_second_manager_is_refused_and_a_run_can_be_cancelled(vgrads, write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    task = f"{{id: a, runtime_s: 50, command: 'echo $$ > {tmp_path}/pipe; exec sleep 50'}}"
    manager = start_run(local_set(write, tmp_path, f"  - {{name: w, tasks: [{task}]}}\n"), tmp_path)
    child = int((tmp_path / "pipe").read_text())
    (row,) = vgrads("status", "--json").json["runs"]
    second = vgrads("resume", row["run"])
    assert (second.code, "is managed by" in second.err) == (2, True)
    requested = vgrads("cancel", row["run"], "--json")
    assert (requested.code, requested.json["message"]) == (0, "its manager was asked to stop")
    assert manager.wait(30) == 5
    assert vgrads("status", row["run"], "--json").json["runs"][0]["state"] == "cancelled"
    assert not runs(child)
    assert vgrads("cancel", row["run"]).code == 2
    assert vgrads("resume", "run-nobody").code == 2


def test_a_run_whose_manager_is_dead_is_cancelled_from_here(vgrads, write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    task = f"{{id: a, runtime_s: 50, command: 'echo $$ > {tmp_path}/pipe; exec sleep 50'}}"
    manager = start_run(local_set(write, tmp_path, f"  - {{name: w, tasks: [{task}]}}\n"), tmp_path)
    child = int((tmp_path / "pipe").read_text())
    manager.kill()
    manager.wait()
    assert runs(child)
    (row,) = vgrads("status", "--json").json["runs"]
    cancelled = vgrads("cancel", row["run"])
    assert cancelled.code == 0, cancelled
    assert not runs(child)
    assert vgrads("status", row["run"], "--json").json["runs"][0]["state"] == "cancelled"


@pytest.mark.more
def test_a_simulated_run_is_played_again(vgrads, write):
    assert vgrads("run", DATA / "lead.yaml", "--as-stated", "--seed", "1", "--json").code == 0
    with Store() as store:
        (row,) = store.list_runs()
        before = store.events(row.id)
        store.set_run_state(row.id, "interrupted")
    assert vgrads("resume", row.id, "--json").code == 0
    with Store() as store:
        assert store.events(row.id) == before


def test_an_interrupted_run_leaves_no_process_behind(write, tmp_path):
    write("local.toml", (DATA / "local" / "local.toml").read_text())
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    task = f"{{id: a, runtime_s: 50, command: 'echo $$ > {fifo}; exec sleep 50'}}"
    path = write(
        "set.yaml",
        (
            "name: s\ndeadline: 60s\nsites: local.toml\nworkflows:\n  - {name: w, tasks: "
            f"[{task}]}}\n"
        ),
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "run", path],
        cwd=ROOT,
        env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child = int(fifo.read_text())  # opens when the task writes
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert (run.returncode, errors.decode().splitlines()[-1]) == (130, "vgrads: interrupted")
    assert not runs(child)


KILL = """\
import os, signal, sys
from sqlalchemy import Engine, event
from vgrads.portal.main import main
table, left, inserted = sys.argv[1], int(sys.argv[2]), []

@event.listens_for(Engine, "before_cursor_execute")
def look(connection, cursor, statement, *rest):
    if statement.startswith(f"INSERT INTO {table} "):
        inserted.append(statement)

@event.listens_for(Engine, "commit")
def count(connection):
    global left
    left -= bool(inserted)
    if inserted and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

main(sys.argv[3:])
"""
"""Kills its process at the given commit, counted from the first one of a row in a table: nothing of
it is written."""
WORKFLOW_ENTRY = (
    "  - {name: w, tasks: [{id: a, runtime_s: 1, command: 'echo x > a.txt', outputs: [a.txt]}]}\n"
)


def killed(table, commit, tmp_path, *arguments):
    """Run a command that is killed (kill -9) at a commit."""
    command = [sys.executable, "-c", KILL, table, commit, *arguments]
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        cwd=ROOT,
        env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done


def each_from_the_same_home(tmp_path):
    """Yield what is to be done with what was left, each time as it was left."""
    home, left = tmp_path / "home", tmp_path / "left"
    shutil.copytree(home, left, ignore=shutil.ignore_patterns("socket"))  # of the killed dispatcher
    for act in ("resume", "cancel"):
        shutil.rmtree(home)
        shutil.copytree(left, home)
        yield act


@pytest.mark.more
@pytest.mark.parametrize("commit", [1, 2, 3, 4])
def test_a_run_that_is_killed_before_its_first_event(commit, vgrads, write, tmp_path):
    """Either there is no such run, or it can be resumed and cancelled."""
    killed("run", commit, tmp_path, "run", local_set(write, tmp_path, WORKFLOW_ENTRY))
    rows = vgrads("status", "--json").json["runs"]
    assert len(rows) == (commit > 1)
    ends = {"resume": "kept", "cancel": "cancelled"}
    for act in each_from_the_same_home(tmp_path) if rows else ():
        assert vgrads(act, rows[0]["run"]).code == 0
        (after,) = vgrads("status", "--json").json["runs"]
        assert after["state"] == ends.pop(act)
        assert vgrads("status", rows[0]["run"]).code == 0
    assert not ends or not rows


def test_a_run_that_was_killed_before_it_brought_earlier_results_brings_them_when_resumed(
    vgrads, write, tmp_path
):
    tasks = (
        "  - name: w\n    tasks:\n      - {{id: a, runtime_s: 1, command: 'echo 1 > a.txt; "
        "echo a >> {0}/ran', outputs: [a.txt]}}\n"
        "      - {{id: b, runtime_s: 1, parents: [a], command: 'cat a.txt {1}> b.txt', "
        "inputs: [a.txt], outputs: [b.txt]}}\n"
    )
    assert vgrads("run", local_set(write, tmp_path, tasks.format(tmp_path, ""))).code == 0
    path = local_set(write, tmp_path, tasks.format(tmp_path, "a.txt "))
    killed("run", 2, tmp_path, "run", path)
    row = vgrads("status", "--json").json["runs"][0]
    assert vgrads("resume", row["run"]).code == 0
    assert (tmp_path / "ran").read_text() == "a\n"  # the first run did it
    (result,) = (tmp_path / "home" / "runs" / row["run"]).glob("w-*/results/b.txt")
    assert result.read_text() == "1\n1\n"


def test_a_run_of_which_an_earlier_version_wrote_down_nothing_but_its_row_is_cancelled(
    vgrads, write, tmp_path
):
    """Its manager was killed before it wrote down what the run begins with."""
    assert vgrads("run", local_set(write, tmp_path, WORKFLOW_ENTRY)).code == 0
    with Store() as store:
        run_id = store.add_run(store.list_runs()[0].set_id)
    assert f"'vgrads cancel {run_id}' ends it" in vgrads("status", run_id).out
    refused = vgrads("resume", run_id)
    assert (refused.code, f"vgrads cancel {run_id} ends it" in refused.err) == (2, True)
    assert vgrads("cancel", run_id, "--json").json["message"] == "it had not begun"
    assert vgrads("status", run_id, "--json").json["runs"][0]["state"] == "cancelled"


def test_a_set_that_cannot_be_run_leaves_no_run(vgrads, write, tmp_path):
    path = local_set(write, tmp_path, "  - {name: w, tasks: [{id: a, runtime_s: 1}]}\n")
    refused = vgrads("run", path)
    assert (refused.code, "has no command to run" in refused.err) == (2, True)
    assert vgrads("status", "--json").json["runs"] == []


@pytest.mark.more
@pytest.mark.parametrize("commit", [1, 2])
def test_a_bag_that_is_killed_before_its_first_event(commit, vgrads, write, tmp_path):
    path = write("bag.yaml", "name: b\ncommand: 'echo {x}'\nparameters: {x: [1, 2]}\n")
    killed("bag", commit, tmp_path, "bags", "run", path)
    rows = vgrads("bags", "status", "--json").json["bags"]
    assert len(rows) == (commit > 1)
    for act in each_from_the_same_home(tmp_path) if rows else ():
        assert vgrads("bags", act, rows[0]["id"]).code == 0
