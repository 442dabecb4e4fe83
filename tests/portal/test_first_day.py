"""The first day at a real cluster: nothing is known yet, names are mistyped, tasks fail, hands
press Ctrl-C."""

import json
import signal
import subprocess
import sys
from functools import partial

import pytest

from tests import waiting
from tests.conftest import ROOT
from tests.services import slurm

pytestmark = pytest.mark.services
until = partial(waiting.until, seconds=60.0)

SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 32
cores_per_node = 8
driver = "slurm"
access = {{folder = "{folder}/marks", python = "{python}", contact = "127.0.0.1", poll = "1s"}}
[[site.queue]]
name = "{queue}"
max_walltime = "1h"
{stated}
"""
STATED = 'stated_probability = 0.95\nstated_wait = "1m"'
SET = (
    "name: s\ndeadline: 20m\nsites: sites.toml\nworkflows:\n  - {{name: w, count: 2, tasks: "
    "[{{id: a, runtime_s: 5, command: '{command}'}}]}}\n"
)


@pytest.fixture
def cluster(slurm_site, tmp_path, monkeypatch):
    """Write a site and a set; returns the set's path."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def put(command="sleep 1", queue="batch", stated=STATED, python=sys.executable):
        text = SITES.format(folder=tmp_path, python=python, queue=queue, stated=stated)
        (tmp_path / "sites.toml").write_text(text)
        path = tmp_path / "set.yaml"
        path.write_text(SET.format(command=command))
        return path

    yield put
    subprocess.run(["scancel", "-u", "root"], check=False)


def jobs_ever():
    """Ids of all jobs that this Slurm remembers: how often something was submitted."""
    out = subprocess.run(
        ["squeue", "-ht", "all", "-o", "%i"], check=True, capture_output=True, text=True
    )
    return set(out.stdout.split())


def test_an_idle_site_without_history_makes_a_first_promise_and_the_run_keeps_it(vgrads, cluster):
    path = cluster(stated="")
    planned = vgrads("plan", path, "--json")
    assert planned.code == 0, planned.err
    assert "vgrads sites collect cluster" in planned.err
    (slot,) = planned.json["slots"]
    assert slot["basis"] == "the site's own estimate"
    assert 0.5 < planned.json["promise"]["probability"] < 0.99
    assert vgrads("run", path, "--json").json["outcome"]["kept"]


def test_a_mistyped_partition_without_history_is_reported_when_planning(vgrads, cluster):
    answer = vgrads("plan", cluster(queue="bathc", stated=""))
    assert answer.code == 3
    assert "invalid partition" in answer.err.lower()
    assert "vgrads sites check" in answer.err


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"queue": "bathc"}, "partition"),
        ({"python": "/usr/bin/no-python"}, "set access.python to an interpreter"),
    ],
)
def test_what_is_written_down_wrong_is_reported_once_and_not_learned(vgrads, cluster, wrong, words):
    vgrads("sites", "reset", "cluster")
    before = jobs_ever()
    answer = vgrads("run", cluster(**wrong))
    assert answer.code == 1
    assert words in answer.out
    assert answer.out.count("planned again") == 0
    assert len(jobs_ever() - before) <= 1
    shown = vgrads(
        "sites", "show", "cluster", "--sites", cluster().with_name("sites.toml"), "--json"
    ).json
    assert [row["observed"]["requested"] for row in shown["learned"]] == [0]


def test_a_pilot_that_never_reports_is_a_fault_of_the_entry(cluster, vgrads, monkeypatch):
    """Nobody answers under the address that slots are told: as with a firewall."""
    monkeypatch.setattr("vgrads.api.wiring._PATIENCE_S", 4.0)
    path = cluster()
    sites = path.with_name("sites.toml")
    sites.write_text(sites.read_text().replace("127.0.0.1", "192.0.2.1"))
    answer = vgrads("run", path)
    assert answer.code == 1
    assert "access.contact" in answer.out
    slurm.wait_until_empty()


def test_a_task_that_fails_by_itself_is_tried_twice_and_named_at_the_end(vgrads, cluster):
    command = "echo begin; echo cannot open model.nc >&2; exit 3"
    answer = vgrads("run", cluster(command))
    assert answer.code == 1
    assert "w-1/a: exit code 3: cannot open model.nc" in answer.out
    assert "planned again" not in answer.out
    (row,) = vgrads("status", "--json").json["runs"]
    whole = vgrads("status", row["run"], "--json").json["runs"][0]
    assert [(t["workflow"], t["exit"]) for t in whole["troubles"]] == [("w-1", 3)]
    logs = vgrads("logs", row["run"], "w-1/a", "--json").json["attempts"]
    assert [(a["attempt"], a["state"], a["exit"], a["stdout"], a["stderr"]) for a in logs] == [
        (n, "failed", 3, "begin\n", "cannot open model.nc\n") for n in (0, 1)
    ]
    assert all(a["site"] == "cluster" and a["seconds"] < 60 for a in logs)
    shown = vgrads("logs", row["run"], "a")
    assert (shown.code, shown.out.count("cannot open model.nc\n") >= 4) == (0, True)
    missing = vgrads("logs", row["run"], "b")
    assert (missing.code, "w-1/a, w-2/a" in missing.err) == (2, True)


@pytest.fixture
def manager(vgrads, cluster, tmp_path):
    """A run of tasks of a minute, which prints to the file ``log``."""
    vgrads("status")  # the home is there
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "vgrads", "run", cluster("sleep 60")]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


def test_ctrl_c_says_what_is_reserved_and_a_second_gives_it_back(vgrads, manager, tmp_path):
    log = tmp_path / "log"
    until(lambda: "is ready" in log.read_text(), "a slot")
    manager.send_signal(signal.SIGINT)
    until(
        lambda: "press Ctrl-C again" in log.read_text(),
        lambda: "what is held " + log.read_text()[-3000:],
    )
    until(lambda: waiting.state_of(manager.pid) == "S", "that it waits for a second one")
    manager.send_signal(signal.SIGSTOP)  # it does so for 5 s
    assert "8 processors at cluster, ready (job " in log.read_text(), log.read_text()[-3000:]
    (row,) = vgrads("status", "--json").json["runs"]
    assert (row["state"], row["manager"]) == ("interrupted", "gone")
    assert f"vgrads resume {row['run']}" in vgrads("status").out
    manager.send_signal(signal.SIGINT)
    manager.send_signal(signal.SIGCONT)
    assert manager.wait(60) == 130, log.read_text()
    assert vgrads("status", "--json").json["runs"][0]["state"] == "cancelled"
    slurm.wait_until_empty()


def test_sites_of_a_file_have_what_was_collected_of_the_site_of_that_name(
    vgrads, cluster, tmp_path
):
    path = cluster(stated="")
    batch = "sbatch --parsable --wait --output=/dev/null --array=1-60%30 --time=1 --wrap=true"
    subprocess.run(batch.split(), check=True, capture_output=True)
    assert vgrads("sites", "add", tmp_path / "sites.toml").code == 0
    result = {}

    def collected():
        result.update(vgrads("sites", "collect", "cluster", "--json").json)
        return result["queues"][0]["jobs"] >= 60

    until(collected, "accounting of sixty jobs")
    (row,) = vgrads("sites", "list", tmp_path / "sites.toml", "--json").json["sites"]
    assert row["queues"][0]["history"]["jobs"] == result["queues"][0]["jobs"]
    planned = vgrads("plan", path, "--json")
    assert "has no history" not in planned.err
    assert [slot["basis"] for slot in planned.json["slots"]] == [None]
    assert json.loads(planned.out)["feasible"]
