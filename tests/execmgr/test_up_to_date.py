"""What is done is not done again: through the command line, over real processes, and at a
service."""

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import waiting
from tests.examples import examples
from tests.portal.test_live import served
from vgrads.execmgr.tasks.provenance import RECORDS, SiblingFiles, reads_of, sibling_files
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.requests import PlanRequest
from vgrads.portal.cli.plans import planning, running
from vgrads.portal.main import main
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store
from vgrads.workflows.task_environment import PLAIN, TaskEnvironment

until = partial(waiting.until, seconds=60.0)
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'
TASKS = [
    {
        "id": "cut",
        "command": "head -2 story.txt > cut.txt; echo cut >> $LOG",
        "inputs": ["story.txt"],
        "outputs": ["cut.txt"],
    },
    {
        "id": "up",
        "parents": ["cut"],
        "command": "sh up.sh > up.txt; echo up >> $LOG",
        "inputs": ["cut.txt"],
        "outputs": ["up.txt"],
    },
    {
        "id": "count",
        "parents": ["cut"],
        "command": "wc -l < cut.txt > n.txt; echo count >> $LOG",
        "inputs": ["cut.txt"],
        "outputs": ["n.txt"],
    },
    {
        "id": "both",
        "parents": ["up", "count"],
        "command": "cat up.txt n.txt > both.txt; echo both >> $LOG",
        "inputs": ["up.txt", "n.txt"],
        "outputs": ["both.txt"],
    },
]


class Bench:
    """A set in a folder of its own, run again and again by the command."""

    def __init__(self, folder, vgrads, tasks=TASKS, **more):
        self.folder, self.vgrads, self.log = folder, vgrads, folder.parent / "log.txt"
        self.tasks, self.more = {task["id"]: dict(task) for task in tasks}, more
        folder.mkdir(exist_ok=True)
        for name, text in (
            ("sites.toml", SITES),
            ("story.txt", "a\nb\nc\n"),
            ("up.sh", ". ./sort.sh; sorted < cut.txt\n"),
            ("sort.sh", "sorted() { sort -r; }\n"),
        ):
            (folder / name).write_text(text)
        self.write()

    def write(self):
        tasks = [{"runtime_s": 1, **task} for task in self.tasks.values()]
        document = {
            "name": "story",
            "deadline": "2m",
            "sites": "sites.toml",
            "env": {"LOG": str(self.log)},
            "workflows": [{"name": "w", "tasks": tasks}],
            **self.more,
        }
        self.file = self.folder / "set.json"
        self.file.write_text(json.dumps(document))

    def run(self, *options):
        """Run it; which tasks ran, and what the command said."""
        self.log.write_text("")
        answer = self.vgrads("run", self.file, "--json", *options)
        assert answer.code == 0, answer.err
        return self.ran(), answer.json

    def ran(self):
        return sorted({*self.log.read_text().split()})  # a plan may have copies

    def plan(self, *options):
        return self.vgrads("plan", self.file, "--json", *options).json


@pytest.fixture
def bench(tmp_path, vgrads):
    return Bench(tmp_path / "set", vgrads)


def results(run):
    folder = Path(os.environ["VGRADS_HOME"]) / "runs" / run / "w-1" / "results"
    return {path.name: path.read_text() for path in folder.iterdir()}


ALL = ["both", "count", "cut", "up"]
STORY = {"cut.txt": "a\nb\n", "up.txt": "b\na\n", "n.txt": "2\n", "both.txt": "b\na\n2\n"}


def test_what_is_done_is_reported_and_not_done_again(bench, vgrads):
    ran, first = bench.run()
    assert ran == ALL
    assert first["done"] == []
    planned = bench.plan()
    assert {(d["workflow"], d["task"], d["run"]) for d in planned["done"]} == {
        ("w-1", task, first["run"]) for task in ALL
    }
    assert planned["placements"] == []
    assert "4 tasks are up to date (done in run-" in vgrads("plan", bench.file).out
    ran, second = bench.run()
    assert ran == []
    assert second["outcome"]["kept"] is True
    assert results(second["run"]) == STORY
    message = vgrads("status", second["run"])
    assert "nothing was left to be done: 4 tasks were done by an earlier run" in message.out
    earlier = vgrads("logs", second["run"], "cut")
    assert earlier.code == 2
    assert f"vgrads logs {first['run']} cut" in earlier.err
    assert vgrads("logs", first["run"], "cut").code == 0
    assert bench.run("--rerun")[0] == ALL
    assert len(bench.plan("--rerun")["placements"]) >= 4


@pytest.mark.more
@pytest.mark.parametrize(
    ("change", "again"),
    [
        (
            lambda b: b.tasks["count"].update(command=b.tasks["count"]["command"] + "; true"),
            ["both", "count"],
        ),
        (lambda b: (b.folder / "story.txt").write_text("x\ny\n"), ALL),
        (
            lambda b: (b.folder / "up.sh").write_text(". ./sort.sh; sorted < cut.txt # better\n"),
            ["both", "up"],
        ),
        (lambda b: (b.folder / "sort.sh").write_text("sorted() { sort; }\n"), ["both", "up"]),
        (lambda b: b.tasks["up"].update(env={"LC_ALL": "C"}), ["both", "up"]),
        (lambda b: b.tasks["up"].update(setup=["set -e"]), ["both", "up"]),
        (
            lambda b: b.tasks["cut"].update(
                outputs=["cut.txt"], procs=2, memory_mib=100, runtime_s=7
            ),
            [],
        ),
        (lambda b: b.tasks["cut"].update(errors=[{"exit": [3], "retries": 2}]), []),
        (lambda b: (b.folder / "other.txt").write_text("new"), []),
        (lambda b: os.utime(b.folder / "story.txt"), []),
        (lambda b: b.more.update(deadline="3m", probability=0.5), []),
    ],
    ids=[
        "command",
        "input",
        "script",
        "script-of-a-script",
        "env",
        "setup",
        "resources",
        "retries",
        "beside",
        "touched",
        "deadline",
    ],
)
def test_what_changed_and_what_follows_from_it_is_done_again(bench, change, again):
    bench.run()
    change(bench)
    bench.write()
    ran, message = bench.run()
    assert ran == again
    assert {item["task"] for item in message["done"]} == set(ALL) - set(again)
    assert bench.run()[0] == []
    stored = results(message["run"])
    fresh = bench.run("--rerun")[1]
    assert stored == results(fresh["run"])


def test_an_output_that_is_gone_or_was_changed_is_created_again(bench):
    _, message = bench.run()
    folder = Path(os.environ["VGRADS_HOME"]) / "runs" / message["run"] / "w-1" / "results"
    (folder / "n.txt").unlink()
    assert bench.run()[0] == []  # nothing that is left to do reads it
    *_, newest = sorted(folder.parent.parent.parent.glob("*/w-1/results"), key=os.path.getmtime)
    (newest / "both.txt").unlink()
    assert bench.run()[0] == []  # an older run has it still
    for created in folder.parent.parent.parent.glob("*/w-1/results"):
        (created / "both.txt").unlink(missing_ok=True)
    ran, again = bench.run()
    assert ran == ["both", "count"]
    created = folder.parent.parent.parent / again["run"] / "w-1" / "results" / "both.txt"
    created.chmod(0o600)
    created.write_text("spoilt")
    assert bench.run()[0] == ["both"]


def test_intermediate_results_that_were_not_stored_are_not_created_for_nothing(bench):
    bench.run("--keep", "final")
    assert bench.run("--keep", "final")[0] == []
    (bench.folder / "sort.sh").write_text("sorted() { sort; }\n")
    assert bench.run("--keep", "final")[0] == ALL  # what is done again reads what is gone


def test_a_folder_that_is_used_again_holds_nothing_old(bench, tmp_path):
    out = tmp_path / "a b\"c'"
    bench.run("--out", out)
    created = out / "w-1" / "results"
    assert (created / "both.txt").read_text() == STORY["both.txt"]
    (bench.folder / "story.txt").write_text("x\ny\nz\n")
    assert bench.run("--out", out)[0] == ALL
    assert (created / "both.txt").read_text() == "y\nx\n2\n"
    assert bench.run("--out", out)[0] == []
    assert (created / "both.txt").read_text() == "y\nx\n2\n"
    assert bench.run("--out", out, "--rerun")[0] == ALL
    bench.tasks["both"]["command"] = "false"
    bench.write()
    assert bench.vgrads("run", bench.file, "--out", out).code == 1
    assert not (created / "both.txt").exists()  # what failed has not left what it made last time
    assert (created / "up.txt").exists()
    other = tmp_path / "other"
    bench.vgrads("run", bench.file, "--out", other)
    assert (other / "w-1" / "results" / "n.txt").read_text() == "2\n"


def test_two_runs_do_not_share_a_folder_at_once(bench, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    folder_fd = os.open(out, os.O_RDONLY)
    fcntl.flock(folder_fd, fcntl.LOCK_EX)
    answer = bench.vgrads("run", bench.file, "--out", out)
    os.close(folder_fd)
    assert answer.code == 2
    assert bench.vgrads("run", bench.file, "--out", bench.file).code == 2  # no folder
    assert bench.vgrads("run", bench.file, "--out", out).code == 0
    assert "another run uses it" in answer.err


def test_what_failed_and_what_was_not_reached_is_tried_again(bench):
    flag = bench.folder.parent / "flag"
    bench.tasks["up"]["command"] = f"test -e {flag} && " + bench.tasks["up"]["command"]
    bench.write()
    answer = bench.vgrads("run", bench.file)
    assert answer.code == 1
    assert {"cut", "count"} <= set(bench.ran())
    flag.touch()
    assert bench.run()[0] == ["both", "up"]


def test_what_cannot_be_reported_is_done_again(bench):
    bench.tasks["cut"]["command"] += " ; date >> $LOG.dates"
    bench.tasks["mail"] = {"id": "mail", "parents": ["both"], "command": "echo mail >> $LOG"}
    bench.tasks["late"] = {
        "id": "late",
        "parents": ["mail"],
        "command": "echo late >> $LOG; touch l",
        "outputs": ["l"],
    }
    bench.write()
    bench.run()
    assert bench.run()[0] == ["late", "mail"]  # what makes no file, and what waits for such


def test_several_workflows_need_what_is_left(tmp_path, vgrads):
    bench = Bench(tmp_path / "set", vgrads)
    item = {"name": "w", "tasks": [{"runtime_s": 1, **task} for task in TASKS]}
    two = {
        "name": "v",
        "tasks": [
            {"id": "a", "runtime_s": 1, "command": "echo a > a; echo a >> $LOG", "outputs": ["a"]}
        ],
    }
    bench.more = {"workflows": [item], "at_least": 1}
    bench.write()
    bench.run()
    bench.more = {"workflows": [item, two], "at_least": 2}
    bench.write()
    ran, message = bench.run()
    assert (ran, message["needed"], message["outcome"]["in_time"]) == (["a"], 1, 1)
    bench.more["at_least"] = 1
    (bench.folder / "story.txt").write_text("x\ny\n")
    bench.write()
    assert "Promised 1 of 1 workflow (1 more was done before)" in vgrads("run", bench.file).out


def test_a_set_of_another_folder_or_name_is_another(bench, tmp_path, vgrads):
    bench.run()
    shutil.copytree(bench.folder, tmp_path / "copy")
    replica = Bench(tmp_path / "copy", vgrads)
    assert replica.run()[0] == ALL
    bench.more["name"] = "tale"
    bench.write()
    assert bench.run()[0] == ALL


def test_records_that_are_damaged_cost_no_more_than_running_again(bench):
    _, message = bench.run()
    records = Path(os.environ["VGRADS_HOME"]) / "runs" / message["run"] / RECORDS
    lines = records.read_text().split("\n")
    records.write_bytes(
        "\n".join([*lines[:2], lines[2][:40], '{"key": 1}', "[]", *lines[3:]]).encode()
        + b"\n\xff\x00"
    )
    ran, _ = bench.run()
    assert ran
    assert set(ran) < set(ALL)


def test_a_file_that_changed_while_its_task_ran_is_not_believed(bench, tmp_path):
    shared = tmp_path / "shared"
    shared.write_text("one\n")
    bench.tasks["cut"]["command"] = (
        f"cat {shared} > cut.txt; echo two | tee -a {shared}; echo cut >> $LOG"
    )
    bench.write()
    bench.run()
    assert "cut" in bench.run()[0]


@pytest.mark.more
def test_a_killed_manager_leaves_what_was_done(bench, tmp_path):
    bench.tasks["both"]["command"] = "sleep 60"
    bench.write()
    out = tmp_path / "out"
    command = [sys.executable, "-m", "vgrads", "run", str(bench.file), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    until(
        lambda: sum(p.read_text().count('"key"') for p in tmp_path.glob(f"out/{RECORDS}")) == 3,
        "three records",
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (row,) = bench.vgrads("status", "--json").json["runs"]
    refused = bench.vgrads("run", bench.file, "--out", out)
    assert (refused.code, f"vgrads resume {row['run']}" in refused.err) == (2, True)
    assert bench.vgrads("cancel", row["run"]).code == 0
    bench.tasks["both"]["command"] = TASKS[3]["command"]
    bench.write()
    assert bench.run()[0] == ["both"]


names = st.sampled_from(["story.txt", "up.sh", "sort.sh"])
edits = st.one_of(
    st.tuples(st.just("file"), names, st.integers(0, 1)),
    st.tuples(st.just("command"), st.sampled_from(ALL), st.integers(0, 2)),
    st.tuples(st.just("gone"), st.sampled_from(sorted(STORY)), st.just(0)),
    st.tuples(st.just("keep"), st.sampled_from(["all", "final"]), st.just(0)),
)
VERSIONS = {
    "story.txt": ["a\nb\nc\n", "q\nr\n"],
    "up.sh": [". ./sort.sh; sorted < cut.txt\n", ". ./sort.sh; sorted < cut.txt | tac\n"],
    "sort.sh": ["sorted() { sort -r; }\n", "sorted() { sort; }\n"],
}


def command_of(task, version):
    return next(t for t in TASKS if t["id"] == task)["command"] + "; true" * version


@settings(max_examples=examples(6))
@given(st.lists(st.lists(edits, max_size=2), min_size=2, max_size=4))
def test_results_are_always_those_of_running_everything(rounds):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGRADS_HOME", f"{folder}/home")
        bench, out = Bench(Path(folder) / "set", None), Path(folder) / "out"
        for number, changes in enumerate(rounds):
            keep = "all"
            for what, name, version in changes:
                if what == "file":
                    (bench.folder / name).write_text(VERSIONS[name][version])
                elif what == "command":
                    bench.tasks[name]["command"] = command_of(name, version)
                elif what == "keep":
                    keep = name
                elif number:
                    (out / "w-1" / "results" / name).unlink(missing_ok=True)
            bench.write()
            bench.log.touch()
            silent = io.StringIO()
            with (
                pytest.raises(SystemExit) as stop,
                redirect_stdout(silent),
                redirect_stderr(silent),
            ):
                main(["run", str(bench.file), "--out", str(out), "--keep", keep])
            assert not stop.value.code
            final = (out / "w-1" / "results" / "both.txt").read_text()
            expected = subprocess.run(
                "head -2 story.txt > cut.txt; sh up.sh; wc -l < cut.txt; rm cut.txt",
                shell=True,
                cwd=bench.folder,
                capture_output=True,
                text=True,
                check=True,
            )
            assert final == expected.stdout


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("python prep.py > o", {"prep.py", "helper.py", "data.csv"}),
        ("cat *.csv > o", {"data.csv", 'my "data.csv'}),
        ("awk '{print $1 * $2}' < /dev/null > o", set()),
        ("./prep.py --of=data.csv", {"prep.py", "helper.py", "data.csv"}),
        ("cat 'data.csv'|tr a b", {"data.csv"}),
        ("cat 'my \"data.csv'", {'my "data.csv', "data.csv"}),
        ('cat my\\ \\"data.csv | sort', {'my "data.csv', "data.csv"}),
        ("sh all.sh", {"all.sh", "data.csv", 'my "data.csv'}),
        ("echo helper", {"helper.py"}),
        ("true " + "/" + "x" * 300, set()),
        ("true 2>/dev/null >data.csv", set()),
    ],
)
def test_files_count_that_the_command_names_or_that_those_name(tmp_path, command, read):
    for name, text in (
        ("prep.py", "import helper\nopen('data.csv')"),
        ("helper.py", ""),
        ("data.csv", ""),
        ('my "data.csv', ""),
        ("all.sh", "for i in *.csv; do expr 2 * 3; done"),
        ("o", ""),
    ):
        (tmp_path / name).write_text(text)

    class Task:
        inputs, outputs, fetches, sends = (), ("o",), (), ()

    Task.command = command
    files = SiblingFiles(sibling_files(tmp_path))
    assert set(reads_of(Task(), PLAIN, files)) == read
    Task.command = "python $SCRIPT"
    by_variable = reads_of(Task(), TaskEnvironment(env=(("SCRIPT", "prep.py"),)), files)
    assert set(by_variable) == {"prep.py", "helper.py", "data.csv"}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("")
    Task.command = "cat x"
    there = reads_of(Task(), TaskEnvironment(workdir=str(tmp_path / "in")), files)
    assert list(there.values()) == [tmp_path / "in" / "x"]


def test_a_service_runs_what_is_left_of_a_set_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    sites, log, flag = tmp_path / "sites.toml", tmp_path / "log", tmp_path / "flag"
    sites.write_text(SITES)
    tasks = [
        {
            "id": "a",
            "runtime_s": 1,
            "command": f"echo a > a.txt; echo a >> {log}",
            "outputs": ["a.txt"],
        },
        {
            "id": "b",
            "runtime_s": 1,
            "parents": ["a"],
            "inputs": ["a.txt"],
            "command": f"test -e {flag} && cat a.txt > b.txt && echo b >> {log}",
            "outputs": ["b.txt"],
        },
    ]
    document = {"name": "two", "deadline": "2m", "workflows": [{"name": "w", "tasks": tasks}]}
    with Store(f"sqlite:///{tmp_path / 'test.db'}") as store:
        AccessControl(store.engine).grant("here", "local")
        with served(store, sites) as client:
            set_id = client.submit(document)

            def ran(**how):
                log.write_text("")
                run = client.run(set_id, **how)
                return client.wait(run), {*log.read_text().split()}, run.run_id

            state, tasks, first = ran()
            assert (state, tasks) == ("broken", {"a"})
            flag.touch()
            assert ran()[:2] == ("kept", {"b"})
            assert client.plan(set_id)["done"] == [{"workflow": "w-1", "task": "a", "run": first}]
            chart = client.gantt(set_id)
            assert {p["task"] for p in chart["placements"]} == {"b"}
            assert [d["task"] for d in chart["done"]] == ["a"]
            page = urllib.request.urlopen(f"{client._url}/sets/{set_id}/status").read().decode()
            assert "1 more by an earlier run" in page
            assert ran()[:2] == ("kept", set())
            page = urllib.request.urlopen(f"{client._url}/sets/{set_id}").read().decode()
            assert "Nothing to run:</strong> all 2 tasks" in page
            assert f"done before, in {first}" in page
            assert ran(rerun=True)[:2] == ("kept", {"a", "b"})


def test_a_file_by_an_absolute_name_counts_unless_the_task_wrote_it(bench, tmp_path):
    settings_file, created = tmp_path / "settings", tmp_path / "made"
    settings_file.write_text("1")
    bench.tasks["up"]["command"] += f"; cat {settings_file}; touch {created}"
    bench.write()
    bench.run()
    assert bench.run()[0] == []
    settings_file.write_text("2")
    assert bench.run()[0] == ["both", "up"]


def test_what_vanishes_between_plan_and_run_is_reported(bench):
    _, message = bench.run()
    bench.tasks["both"]["command"] += "; true"
    bench.write()
    planned = planning.plan_file(PlanRequest(set_file=bench.file))
    assert len(planned.plan.done) == 3
    shutil.rmtree(Path(os.environ["VGRADS_HOME"]) / "runs" / message["run"])
    how = running.RunChoices(speed=None, seed=0, gantt=None, folder=None, as_json=True)
    with pytest.raises(InputError, match=r"'up.txt' of an earlier run no longer exists"):
        running.run_here(planned, how)
    assert bench.run()[0] == ALL


def test_folders_as_inputs_and_outputs(tmp_path, vgrads):
    tasks = [
        {
            "id": "make",
            "command": (
                "mkdir -p tree/deep; cp data/x tree/deep/x; ln -s deep/x tree/link; echo make "
                ">> $LOG"
            ),
            "inputs": ["data"],
            "outputs": ["tree"],
        },
        {
            "id": "use",
            "parents": ["make"],
            "command": "cat tree/link > out; echo use >> $LOG",
            "inputs": ["tree"],
            "outputs": ["out"],
        },
    ]
    bench = Bench(tmp_path / "set", vgrads, tasks)
    (bench.folder / "data").mkdir()
    (bench.folder / "data" / "x").write_text("one\n")
    os.utime(bench.folder / "data" / "x", ns=(1, 1))
    bench.run()
    assert bench.run()[0] == []
    (bench.folder / "data" / "x").write_text("two\n")
    os.utime(bench.folder / "data" / "x", ns=(1, 1))  # as long, and as old
    ran, message = bench.run()
    assert ran == ["make", "use"]
    assert results_of(message["run"]) == "two\n"
    assert bench.run()[0] == []


def results_of(run):
    folder = Path(os.environ["VGRADS_HOME"]) / "runs" / run / "w-1" / "results"
    assert (folder / "tree" / "link").is_symlink()
    return (folder / "out").read_text()
