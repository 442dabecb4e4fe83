"""One plan over real Slurm, real Grid Engine and the EC2-like cloud, with what goes wrong there."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.agents import agents_of, oldest_python
from tests.conftest import ROOT, Answer
from tests.services import slurm
from tests.services.run import KEY, SECRET, cloud_service

pytestmark = pytest.mark.services
until = partial(waiting.until, seconds=90.0)

SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 2
cores_per_node = 8
driver = "slurm"
{access}
[[site.queue]]
name = "batch"
max_walltime = "1h"
max_jobs = 2
stated_probability = 0.95
stated_wait = "5s"
[[site]]
name = "sge"
kind = "batch"
procs = 2
cores_per_node = 8
driver = "gridengine"
{access}
[[site.queue]]
name = "batch.q"
max_walltime = "1h"
max_jobs = 2
stated_probability = 0.95
stated_wait = "5s"
[[site]]
name = "cloud"
kind = "cloud"
procs = 2
node_type = "m3.large"
price_usd_per_hour = 0.1
boot = "5s"
driver = "ec2"
{access}
endpoint = "{endpoint}"
image = "ami-12c6146b"
"""
SET = """
name: e2e
deadline: {deadline}s
fraction: 1
sites: sites.toml
workflows:
  - name: w
    count: {count}
    tasks:
      - {{id: a, runtime_s: 12, command: "echo $VGRADS_SLOT >> {folder}/where; sleep {sleep}; seq 1 50 > a.txt", outputs: [a.txt]}}
      - {{id: b, runtime_s: 12, parents: [a], command: "echo ran >> {folder}/heirs; sleep 1; awk '{{s += $1}} END {{print s}}' a.txt > b.txt", inputs: [a.txt], outputs: [b.txt]}}
"""


@pytest.fixture(autouse=True)
def first_plans(monkeypatch):
    """Plans that use every kind of site, though fewer would do."""
    monkeypatch.setenv("VGRADS_EFFORT", "0")


@pytest.fixture
def cloud(tmp_path):
    (tmp_path / "cloud").mkdir()
    with cloud_service(tmp_path / "cloud", boot_s=1.0, capacity=6) as service:
        yield service


@pytest.fixture
def world(tmp_path, slurm_site, gridengine_site, cloud, monkeypatch):
    """Sites and a set in a folder; a function that writes the set."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    access = (
        f'[site.access]\npoll = "0.3s"\nfolder = "{tmp_path}/marks"\ncontact = "127.0.0.1"\n'
        f'python = "{oldest_python()}"'
    )
    (tmp_path / "sites.toml").write_text(SITES.format(access=access, endpoint=cloud.endpoint))

    def put(count, deadline=120, sleep=2):
        path = tmp_path / "set.yaml"
        path.write_text(SET.format(count=count, deadline=deadline, sleep=sleep, folder=tmp_path))
        return path

    yield put
    for command in ("scancel -u root", "qdel -u root"):
        subprocess.run(command.split(), check=False, capture_output=True)


def start(path):
    log = path.with_suffix(".log").open("wb")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "vgrads", "run", path],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def as_run_in_sequence():
    return f"{sum(range(1, 51))}\n"


def check_results(tmp_path, count):
    result = list(tmp_path.glob("home/runs/*/w-*/results/b.txt"))
    assert [path.read_text() for path in result] == [as_run_in_sequence()] * count
    return result


def nothing_is_left(cloud):
    listed = subprocess.run(
        ["squeue", "-h", "-t", "R,PD"], capture_output=True, text=True, check=True
    ).stdout
    listed += subprocess.run(["qstat"], capture_output=True, text=True, check=True).stdout
    return not listed.strip() and cloud.control("")[0] == 0 and not pilots()


def pilots():
    """Agents of this test that still run: a job may be gone and what it began not."""
    return agents_of(Path(os.environ["VGRADS_HOME"]))


def test_a_single_plan_over_three_kinds_of_sites(world, cloud, vgrads_here, tmp_path):
    # tasks elsewhere wait for the cloud up to 20 s: copies that end first cancel those there
    cloud_began = (
        f"for n in $(seq 300); do grep -q ^cloud {tmp_path}/where && break; sleep 0.2; done"
    )
    path, sites = world(count=6, sleep=f"2; {cloud_began}"), tmp_path / "sites.toml"
    text = sites.read_text().replace('boot = "5s"', 'boot = "20s"')
    sites.write_text(text.replace('stated_wait = "5s"', 'stated_wait = "1m"'))
    # only all together are that certain
    answer = vgrads_here("run", path, "-p", "0.995", "--effort", 1, "--json")
    assert answer.code == 0, answer
    document = answer.json
    assert document["outcome"]["in_time"] == 6
    assert {slot["site"] for slot in document["slots"]} == {"slurm", "sge", "cloud"}
    check_results(tmp_path, 6)
    ran_at = {slot.partition("-")[0] for slot in lines(tmp_path / "where")}
    assert "cloud" in ran_at, ran_at  # its agent comes from the manager
    until(lambda: nothing_is_left(cloud), "everything is given back")
    bindings = vgrads_here("sites", "list", tmp_path / "sites.toml", "--json").json["sites"]
    assert sum(site["binding"]["observed"] for site in bindings) >= 2, bindings


def test_a_refused_cloud_and_a_slot_that_is_lost(world, cloud, vgrads_here, tmp_path):
    """The cloud has no room, somebody removes our Slurm job: what was there is planned anew, and
    done."""
    cloud.control("capacity=0")
    manager = start(world(count=3, deadline=180, sleep=6))
    until(lambda: "slurm-batch-1" in lines(tmp_path / "where"), "a task runs at slurm")
    subprocess.run(["scancel", "--quiet", "-u", "root"], check=True)
    assert manager.wait(170) == 0, (tmp_path / "set.log").read_text()
    text = (tmp_path / "set.log").read_text()
    assert "slot slurm-batch-1 failed: cancelled at the site" in text
    assert "planned again" in text or "capacity" in text or "the planner ran" in text
    check_results(tmp_path, 3)
    until(lambda: nothing_is_left(cloud), "everything is given back")


def test_a_node_daemon_is_killed(world, cloud, slurm_site, vgrads_here, tmp_path):
    """Slurm loses the node on which our tasks run; the rest goes elsewhere."""
    manager = start(world(count=4, deadline=240, sleep=4))
    until(lambda: "slurm-batch-1" in lines(tmp_path / "where"), "a task runs at slurm")
    slurm.kill_nodes(slurm_site)
    try:
        assert manager.wait(230) == 0, (tmp_path / "set.log").read_text()
    finally:
        slurm.start_nodes(slurm_site)
    check_results(tmp_path, 4)
    until(lambda: cloud.control("")[0] == 0, "the cloud is given back")


def test_a_killed_manager_finds_its_slots_and_tasks_at_the_sites(
    world, cloud, vgrads_here, tmp_path
):
    manager = start(world(count=4, deadline=240, sleep=8))
    until(lambda: len(lines(tmp_path / "where")) >= 4, "tasks run")
    manager.send_signal(signal.SIGKILL)
    manager.wait()
    (row,) = vgrads_here("status", "--json").json["runs"]
    resumed = vgrads_here("resume", row["run"], "--json")
    assert resumed.code == 0, resumed
    assert resumed.json["outcome"]["in_time"] == 4
    check_results(tmp_path, 4)
    placements = len(resumed.json["placements"])
    ran = len(lines(tmp_path / "where")) + len(lines(tmp_path / "heirs"))
    assert ran <= placements, "no copy began twice"
    until(lambda: nothing_is_left(cloud), "everything is given back")


@pytest.fixture
def vgrads_here(world):
    """The command line as a process of its own: a run brings threads that a test should not
    inherit."""

    def call(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "vgrads", *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


def test_a_task_over_several_nodes_starts_through_the_slots_own_launcher(
    world, vgrads_here, tmp_path
):
    """Sixteen processors are two nodes of Slurm; the command runs on the first and reaches both
    with srun."""
    world(count=1)
    text = (tmp_path / "sites.toml").read_text().replace("procs = 2", "procs = 16", 1)
    (tmp_path / "sites.toml").write_text(text)
    path = tmp_path / "wide.yaml"
    path.write_text(
        "name: wide\ndeadline: 120s\nsites: sites.toml\nworkflows:\n  - name: w\n    tasks:\n"
        "      - {id: a, runtime_s: 10, procs: 16, outputs: [where.txt],\n"
        '         command: "srun --overlap --ntasks=2 --ntasks-per-node=1 printenv '
        'SLURMD_NODENAME | sort > where.txt"}\n'
    )
    answer = vgrads_here("run", path, "--json")
    assert answer.code == 0, answer
    (result,) = tmp_path.glob("home/runs/*/w-1/results/where.txt")
    names = result.read_text().split()
    assert len(names) == len(set(names)) == 2, names
