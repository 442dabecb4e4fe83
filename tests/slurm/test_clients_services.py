"""Slurm's commands of vgrads in front of real batch systems, whose pilots run the jobs."""

import shutil
import subprocess
import sys
from functools import partial

import pytest

from tests import waiting
from tests.conftest import ROOT
from tests.services.gridengine import ENVIRONMENT
from tests.slurm.client_programs import Clients, needed
from tests.slurm.installed import installed
from tests.slurm.test_clients import check_psij, ends
from vgrads.api.slurm.records import FIRST_ID

until = partial(waiting.until, seconds=120.0)

pytestmark = pytest.mark.services
LONG = pytest.mark.long
"""Over pilots one program is enough each time: what each calls and reads is tested on this machine
(test_clients.py), and the pilots by the jobs below."""

SITES = """
[[site]]
name = "{name}"
kind = "batch"
procs = {procs}
cores_per_node = {cores}
driver = "{driver}"
[site.access]
poll = "1s"
contact = "127.0.0.1"
python = "{python}"
[[site.queue]]
name = "{queue}"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
"""
REAL = {name: shutil.which(name) for name in ("sbatch", "squeue", "sacct", "scontrol")}


def installed_over(folder, name, driver, queue, procs, cores):
    """Installed commands whose jobs run in pilots of a batch system."""
    sites = folder / "sites.toml"
    folder.mkdir()
    values = {"name": name, "driver": driver, "queue": queue, "procs": procs, "cores": cores}
    sites.write_text(SITES.format(**values, python=sys.executable))
    return installed(folder, sites=sites, environment={"PYTHONPATH": str(ROOT)})


@pytest.fixture
def jobs_before(slurm_site):
    """Ids of the real Slurm's jobs from before the service, whose first job may open a pilot."""
    return {number for (number,) in real_jobs("JobIDRaw")}


@pytest.fixture
def slurm(jobs_before, tmp_path):
    with installed_over(tmp_path / "vgrads", "cluster", "slurm", "batch", 16, 8) as slurm:
        slurm.wait(slurm.submit("--wrap=true"))  # starts the service, with this environment
        yield slurm
    subprocess.run(["scancel", "-u", "root"], check=False, capture_output=True)


def real_jobs(*fields):
    """Jobs of the real Slurm."""
    words = [REAL["sacct"], "-X", "-n", "-P", "-S", "now-1hour", "-o", ",".join(fields)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return [tuple(line.split("|")) for line in done.stdout.splitlines()]


def started_since(before):
    """Jobs of the real Slurm that have started since then: id → name."""
    return {
        number: name
        for number, name, start in real_jobs("JobIDRaw", "JobName", "Start")
        if number not in before and start.startswith("20")
    }


def variables(path):
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


def test_jobs_run_in_pilots_of_the_real_slurm_and_see_nothing_of_it(slurm, jobs_before):
    jobs = [slurm.submit("--wrap=sleep 1; env >env-$SLURM_JOB_ID") for _ in range(20)]
    assert slurm.wait(*jobs) == ["COMPLETED"] * 20
    until(lambda: started_since(jobs_before), "the accounting")
    pilots = started_since(jobs_before)
    assert 0 < len(pilots) < 20
    assert "wrap" not in pilots.values()
    assert all(int(pilot) < FIRST_ID <= int(jobs[0]) for pilot in pilots)
    for job in jobs:
        inside = variables(slurm.work / f"env-{job}")
        assert inside["SLURM_JOB_ID"] == inside["SLURM_JOBID"] == job
        assert inside["SLURM_JOB_PARTITION"] == "vgrads"
        assert (inside["SLURM_JOB_NAME"], inside["SLURM_CLUSTER_NAME"]) == ("wrap", "vgrads")
        assert not {"SLURM_TOPOLOGY_ADDR", "SLURM_TASK_PID"} & set(inside)
        assert inside["SLURM_CONF"] == slurm.environment["SLURM_CONF"]  # of the submitter
    listed = slurm.run("squeue", "-h", "-t", "all", "-o", "%A %T", "-j", jobs[0])
    assert listed == f"{jobs[0]} COMPLETED\n"


def test_other_partitions_and_their_jobs_are_those_of_the_real_slurm(slurm):
    ours = slurm.submit("-p", "vgrads", "--wrap=sleep 600")
    real = slurm.submit("-p", "debug", "--wrap=sleep 600", "-J", "outer")
    assert int(real) < FIRST_ID <= int(ours)
    shown = partial(slurm.run, "squeue", "-h", "-o", "%t %r", "-j")
    until(lambda: shown(ours).split()[:1] == ["R"], partial(shown, ours))
    assert shown(real).split()[0] in ("PD", "R")  # its partition may be full of our pilots
    for job in (real, ours):
        assert f"JobId={job} " in slurm.run("scontrol", "show", "job", job)
    fields = ("JobID", "JobName", "Partition")
    until(lambda: (real, "outer", "debug") in real_jobs(*fields), "the accounting")
    both = slurm.run("squeue", "-h", "-o", "%A", "-j", f"{real},{ours}").split()
    assert both == [ours, real]
    listed = {line.split()[0] for line in slurm.run("squeue").splitlines()}
    assert {real, ours} <= listed
    slurm.run("scancel", real)
    until(lambda: slurm.states(real) == ["CANCELLED by 0"], lambda: str(slurm.states(real)))
    assert slurm.states(ours) == ["RUNNING"]
    slurm.run("scancel", ours)
    assert slurm.wait(ours) == ["CANCELLED by 0"]
    refused = slurm.attempt("sbatch", "-p", "nowhere", "--wrap=true")
    assert refused.returncode == 1
    assert "invalid partition specified: nowhere" in refused.stderr


@LONG
def test_psij_over_pilots_of_the_real_slurm(slurm):
    needed()
    check_psij(slurm, Clients(slurm).psij(5), 5)


@LONG
def test_parsl_over_pilots_of_the_real_slurm(slurm):
    needed()
    result = Clients(slurm).parsl(6)
    assert result["squares"] == [n * n for n in range(6)]
    assert all(int(job) >= FIRST_ID for job in result["jobs"])


@LONG
def test_toil_over_pilots_of_the_real_slurm(slurm):
    needed()
    assert Clients(slurm).toil(4) == "14"
    assert ends(slurm) == ["COMPLETED"] * 6


def test_snakemake_over_pilots_of_the_real_slurm(slurm):
    needed()
    assert Clients(slurm).snakemake(4) == "0\n1\n2\n3\n"
    assert ends(slurm) == ["COMPLETED"] * 5
    jobs = (slurm.folder / "snakemake" / "jobs").read_text().split()
    assert len({*jobs}) == 4
    assert all(int(job) >= FIRST_ID for job in jobs)


@pytest.mark.parametrize("service", ["first", "second"])  # whose slots have names of their own
def test_jobs_run_in_pilots_of_grid_engine(service, gridengine_site, tmp_path):
    def running():
        words = ["qstat", "-s", "r", "-u", "*"]
        return subprocess.run(words, check=False, capture_output=True, text=True).stdout

    with installed_over(tmp_path / "vgrads", "sge", "gridengine", "batch.q", 4, 2) as slurm:
        jobs = [slurm.submit("--wrap=until test -e go; do sleep .1; done; env") for _ in range(4)]
        until(lambda: "RUNNING" in slurm.states(*jobs), lambda: str(slurm.left()))
        assert "batch.q" in running()
        (slurm.work / "go").touch()
        assert slurm.wait(*jobs) == ["COMPLETED"] * 4
        inside = variables(slurm.work / f"slurm-{jobs[0]}.out")
        assert not {"JOB_ID", "QUEUE", "SGE_TASK_ID"} & set(inside)
        assert inside.get("SGE_ROOT") == ENVIRONMENT["SGE_ROOT"]
