"""A bag with a deadline over real Slurm, real Grid Engine and the EC2-like cloud: one queue is
slow, and the cloud takes spot nodes back."""

import json
import subprocess
import sys
from functools import partial

import pytest

from tests import waiting
from tests.agents import oldest_python
from tests.conftest import ROOT
from tests.services.run import KEY, SECRET, cloud_service

pytestmark = pytest.mark.services
until = partial(waiting.until, seconds=90.0)

SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 4
cores_per_node = 8
driver = "slurm"
{access}
[[site.queue]]
name = "batch"
max_walltime = "1h"
stated_probability = 0.9
stated_wait = "10m"
[[site]]
name = "sge"
kind = "batch"
procs = 2
cores_per_node = 2
driver = "gridengine"
{access}
[[site.queue]]
name = "batch.q"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
[[site]]
name = "cloud"
kind = "cloud"
procs = 6
cores_per_node = 1
node_type = "m3.large"
price_usd_per_hour = 0.3
spot_price_usd_per_hour = 0.1
boot = "3s"
billing = "1s"
driver = "ec2"
{access}
endpoint = "{endpoint}"
image = "ami-12c6146b"
"""
BAG = """
name: nightly
command: "sleep {seconds}; echo {{x}}"
parameters:
  x: {{range: [{count}]}}
runtime_s: {seconds}
deadline: {deadline}
probability: 0.99
budget_usd: 0.5
hosts: {{most: 6, procs: 1, idle: 3s, longest: 10m}}
"""


@pytest.fixture
def cloud(tmp_path):
    (tmp_path / "cloud").mkdir()
    with cloud_service(tmp_path / "cloud", boot_s=2.0, capacity=12) as service:
        yield service


@pytest.fixture
def world(tmp_path, slurm_site, gridengine_site, cloud, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    access = (
        f'[site.access]\npoll = "0.5s"\nfolder = "{tmp_path}/marks"\ncontact = "127.0.0.1"\n'
        f'python = "{oldest_python()}"'
    )
    (tmp_path / "sites.toml").write_text(SITES.format(access=access, endpoint=cloud.endpoint))
    yield tmp_path
    for command in ("scancel -u root", "qdel -u root"):
        subprocess.run(command.split(), check=False, capture_output=True)


def start(folder):
    command = [sys.executable, "-m", "vgrads", "bags", "run", str(folder / "bag.yaml")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--sites", str(folder / "sites.toml")], cwd=ROOT, stdout=log, stderr=log
        )


def status(folder):
    paths = list((folder / "home" / "dispatchers").glob("*/status.json"))
    return json.loads(paths[0].read_text()) if paths else {"bags": [], "hosts": [], "reasons": []}


def keeps(folder, cloud, count, seconds, deadline_s):
    """Run a bag, take two spot nodes back on the way; return its last status."""
    query = ["sinfo", "-h", "-p", "batch", "-o", "%D"]
    nodes = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    blocking = [
        "sbatch",
        "--exclusive",
        "-N",
        nodes,
        "-p",
        "batch",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 40",
    ]
    subprocess.run(blocking, check=True, capture_output=True, cwd=folder)
    (folder / "bag.yaml").write_text(
        BAG.format(count=count, seconds=seconds, deadline=f"{deadline_s}s")
    )
    run = start(folder)
    try:
        machines = folder / "cloud"
        until(
            lambda: len(list(machines.glob("i-*/console"))) >= 2,
            (folder / "log").read_text,
        )
        for machine in sorted(machines.glob("i-*"))[:2]:
            cloud.control(f"take={machine.name}&notice=12")
        assert run.wait(3.0 * deadline_s) == 0, (folder / "log").read_text()
    finally:
        run.kill()
    return status(folder)


def test_a_deadline_is_kept_although_spot_nodes_are_taken_back(world, cloud):
    last = keeps(world, cloud, 400, 0.5, 80)
    bag = last["bags"][0]
    assert (bag["done"], bag["failed"]) == (400, 0)
    assert bag["ended_s"] - bag["came_s"] <= 80.0
    assert bag["goal"]["promise"] >= 0.99
    assert bag["goal"]["spent_usd"] <= 0.5
    until(lambda: cloud.control("")[0] == 0, "the cloud is given back")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_five_thousand_tasks_keep_a_deadline_of_minutes(world, cloud):
    last = keeps(world, cloud, 5000, 0.5, 660)
    bag = last["bags"][0]
    assert (bag["done"], bag["failed"]) == (5000, 0)
    assert bag["ended_s"] - bag["came_s"] <= 660.0
    assert bag["goal"]["promises"][0][1] >= 0.99
    assert bag["goal"]["spent_usd"] <= 0.5
    until(lambda: cloud.control("")[0] == 0, "the cloud is given back")
