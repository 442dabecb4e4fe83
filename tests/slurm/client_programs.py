"""Programs that call Slurm's commands, unmodified: where they are, and workflows for them."""

import json
import os
from pathlib import Path

from tests.conftest import ROOT
from tests.services.fixtures import there

BIN = Path(os.environ.get("VGRADS_SLURM_CLIENTS") or ROOT / ".venv" / "slurm-clients" / "bin")
PROGRAMS = Path(__file__).parent / "clients"


def needed():
    """Skip where the programs are not installed; where services are required, fail."""
    absent = not (BIN / "parsl-perf").exists() and not (BIN / "snakemake").exists()
    there(f"{BIN} is missing: make .venv/slurm-clients/ready" if absent else "")


class Clients:
    """The programs, as a user calls them whose PATH begins with vgrads' commands of Slurm."""

    def __init__(self, slurm, timeout_s=300.0):
        self.slurm, self.home, self.timeout_s = slurm, slurm.folder / "home", timeout_s
        self.home.mkdir()
        path = f"{slurm.commands}:{BIN}:{slurm.environment['PATH']}"
        names = ("TMPDIR", "LANG", "LC_ALL", "TZ", "SLURM_CONF")
        around = {name: os.environ[name] for name in names if name in os.environ}
        self.environment = {**around, "HOME": str(self.home), "USER": "root", "PATH": path}

    def run(self, folder, *words, **more):
        """Run a program to its end in a new folder; return what it prints."""
        place = self.slurm.folder / folder
        place.mkdir()
        environment = {**self.environment, **more}
        return self.slurm.run(*words, cwd=place, env=environment, timeout=self.timeout_s)

    def json(self, program, folder, *words):
        """Run one of the programs beside this file; return the JSON that it prints last."""
        words = (BIN / "python", PROGRAMS / program, *words)
        return json.loads(self.run(folder, *words).splitlines()[-1])

    def parsl(self, count):
        return self.json("parsl_apps.py", "parsl", self.slurm.folder / "parsl", count)

    def psij(self, count):
        return self.json("psij_jobs.py", "psij", self.slurm.folder / "psij", count)

    def aiida(self):
        return self.json("aiida_parser.py", "aiida")

    def toil(self, count, sleep_s=0.0):
        """Run Toil's workflow; return the last word that it prints."""
        store = f"file:{self.slurm.folder / 'store'}"
        program = (BIN / "python", PROGRAMS / "toil_sum.py", store, "--count", count)
        program += ("--sleep", sleep_s)
        batch = ("--batchSystem", "slurm", "--slurmPartition", "vgrads", "--statePollingWait", "1")
        out = self.run("toil", *program, *batch, "--disableCaching", TOIL_HISTORY="0")
        return next(line for line in out.splitlines() if line.startswith("RESULT")).split()[1]

    def snakemake(self, count, sleep_s=0.0, jobs=10):
        """Run Snakemake's workflow; return what its last step has written. ``jobs``: how many it
        submits at a time."""
        program = (BIN / "snakemake", "-s", PROGRAMS / "steps.smk", "--executor", "slurm")
        resources = ("slurm_partition=vgrads", "slurm_account=vgrads", "mem_mb=600", "runtime=5")
        looks = (
            "--slurm-init-seconds-before-status-checks=1",
            "--seconds-between-status-checks=1",
        )
        options = (
            "-j",
            jobs,
            "--config",
            f"count={count}",
            f"sleep={sleep_s}",
            "--default-resources",
            *resources,
        )
        self.run("snakemake", *program, *looks, *options)
        return (self.slurm.folder / "snakemake" / "total").read_text()
