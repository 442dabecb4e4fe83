"""The queue of a real Slurm, with arrays, dependencies, holds and a maintenance, in every
interface."""

import shutil
import subprocess
import time

import pytest
from fastapi.testclient import TestClient

from tests.portal.forecasts.listed_site import write_history
from tests.portal.forecasts.test_same_answers import plain
from tests.services.slurm import wait_until_empty
from tests.waiting import until
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

pytestmark = pytest.mark.services
SITES = """
[[site]]
name = "toy"
kind = "batch"
procs = 32
cores_per_node = 8
driver = "slurm"
[[site.queue]]
name = "batch"
history = "batch.txt"
"""


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd="/").stdout.strip()


def sbatch(*options, wrap="exec sleep 600"):
    return run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={wrap}")


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """The file in which the calls of Slurm's commands are counted, from here on."""
    calls, programs = tmp_path / "calls", tmp_path / "bin"
    programs.mkdir()
    calls.touch()
    for name in ("squeue", "sinfo", "scontrol"):
        real = shutil.which(name)
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin")
    return calls


@pytest.fixture
def busy(slurm_site):
    """Jobs that run, an array of which two tasks run, jobs that cannot start, and a maintenance of
    all nodes three hours from now."""
    jobs = [sbatch("--ntasks=24", "--time=10")]
    array = sbatch("--array=1-20%2", "--ntasks=4", "--time=10")
    jobs += [
        array,
        sbatch("--ntasks=16", "--time=10"),
        sbatch(f"--dependency=afterok:{array}", "--time=10"),
        sbatch("--hold", "--time=10"),
        sbatch("--begin=now+5hours", "--time=10"),
    ]
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3 * 3600))
    words = ("starttime=" + begin, "duration=60", "users=root", "flags=maint", "nodes=ALL")
    run("scontrol", "create", "reservation", "reservationname=upgrade", *words)
    until(lambda: run("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i").count("\n") == 2)
    yield
    run("scontrol", "delete", "reservationname=upgrade")
    run("scancel", *jobs)
    wait_until_empty()


def test_every_interface_sees_the_queue_of_slurm_and_asks_it_once(
    busy, counted, store, vgrads, tmp_path
):
    write_history(tmp_path / "batch.txt", 1200)
    (tmp_path / "sites.toml").write_text(SITES)
    assert vgrads("sites", "add", tmp_path / "sites.toml").code == 0
    app = make_app(store, load_catalog(tmp_path / "sites.toml"), Bounds(places=Places(planners=0)))
    job = ("--procs", 8, "--walltime", "10m")
    query = "procs=8&walltime_s=600"
    address = "/v1/sites/toy/queues/batch"
    with TestClient(app, base_url="http://127.0.0.1") as client:
        until(
            lambda: client.get(f"{address}/bound").json()["method"] == "state", "the state", 120.0
        )
        until(lambda: client.get(f"{address}/bound").json()["queue_view"]["source"] == "site")
        command = vgrads("bound", "toy/batch", *job, "--json").json
        view = command["queue_view"]
        assert (view["waiting"], view["running"]) == (
            18 + 1,
            1 + 2,
        )  # tasks; nobody who cannot start
        assert plain(client.get(f"{address}/bound?{query}").json()) == plain(command)
        (row,) = vgrads("where", "--sites", tmp_path / "sites.toml", *job, "--json").json["queues"]
        (rest,) = client.get(f"/v1/where?{query}").json()["queues"]
        assert plain(row) == plain(rest)
        assert row["queue_view"]["waiting"] == view["waiting"]
        page = client.get("/sites/toy/batch?procs=8&hours=0.2", headers={"accept": "text/html"})
        assert "19 jobs wait, 3 run" in page.text
        long_job = vgrads("bound", "toy/batch", "--procs", 8, "--walltime", "4h", "--json").json
        assert long_job["bound_s"] >= 4 * 3600 - 120
        assert "starts after the maintenance of" in long_job["closure"]
        assert client.get(f"{address}/bound?procs=64").status_code == 422
    calls = counted.read_text().splitlines()
    assert sum(line.startswith("squeue") and "--array" in line for line in calls) == 1
    assert sum("show reservation" in line for line in calls) == 1
