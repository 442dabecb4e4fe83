"""``snakemake --executor vgrads`` over real Slurm and real Grid Engine, and a manager that is
killed meanwhile."""

import os
import signal
import sqlite3
import subprocess
import sys
from functools import partial

import pytest

from tests import waiting
from tests.snakemake.snakemakes import Project, files_in, needed
from tests.snakemake.test_snakemake import CHECKPOINT, SAMPLES, not_served, states
from vgrads.portal.records.heartbeat import process_of

until = partial(waiting.until, seconds=120.0)

pytestmark = pytest.mark.services

SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 4
cores_per_node = 8
driver = "{driver}"
{access}
[[site.queue]]
name = "{queue}"
max_walltime = "1h"
max_jobs = 2
stated_probability = 0.95
stated_wait = "30s"
"""
ACCESS = f'[site.access]\npoll = "1s"\ncontact = "127.0.0.1"\npython = "{sys.executable}"\n'
WAITING_SNAKEFILE = """
rule all:
    input: "z"
rule x:
    output: "x"
    shell: "touch began; while test ! -e go; do sleep 0.1; done; echo x >> ran; echo 1 > {output}"
rule z:
    input: "x"
    output: "z"
    shell: "cat {input} > {output}"
"""


@pytest.fixture(autouse=True)
def _snakemake():
    needed()


def on(driver, queue, tmp_path, text):
    sites = SITES.format(driver=driver, queue=queue, access=ACCESS)
    return Project(tmp_path / "project", text, tmp_path / "home", sites=sites)


def test_over_slurm_and_through_a_killed_manager(slurm_site, tmp_path):
    mine = on("slurm", "batch", tmp_path, WAITING_SNAKEFILE)
    process = mine.begin("--vgrads-deadline", "30m")
    until((mine.folder / "began").exists, lambda: mine.output)
    manager = manager_of(mine)
    os.kill(manager, signal.SIGKILL)
    until(lambda: manager_of(mine) not in (None, manager))
    (mine.folder / "go").touch()
    assert process.wait(180) == 0, mine.output
    assert (mine.folder / "ran").read_text() == "x\n"
    assert states(mine) == ["kept"]
    until(lambda: not_served(mine))


def test_over_grid_engine(gridengine_site, tmp_path):
    mine = on("gridengine", "batch.q", tmp_path, CHECKPOINT)
    code, out = mine.run("--vgrads-deadline", "30m")
    assert code == 0, out
    assert files_in(mine.folder) == mine.local(tmp_path / "plain")


def test_shapes_over_slurm(slurm_site, tmp_path):
    mine = on("slurm", "batch", tmp_path, SAMPLES)
    code, out = mine.run("--vgrads-deadline", "30m")
    assert code == 0, out
    assert files_in(mine.folder) == mine.local(tmp_path / "plain")
    left = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True).stdout
    assert "RUNNING" not in left


def manager_of(project):
    """The process that holds the lease of a project's run; None while nobody does."""
    with sqlite3.connect(project.home / "vgrads.db") as database:
        rows = database.execute("SELECT owner FROM run_lease").fetchall()
    return int(process_of(rows[0][0])) if rows and rows[0][0] else None
