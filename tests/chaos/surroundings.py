"""What a run may be surrounded by: a clock that jumps, a disk that fills, a Slurm whose parts
die."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.chaos.world import HERE
from tests.conftest import ROOT
from tests.services import slurm
from tests.waiting import until
from vgrads.execmgr.tasks.processes import kill, name_of, parent_of, variable_of

DISK = "12m"
_BLOCK = 4096


class Surroundings:
    """Nothing in particular: what the others change."""

    sites = ""

    def __init__(self):
        self.environment, self.faults = {}, []

    def enter(self, world):
        """The world is about to begin."""

    def ease(self):
        """No more faults: whatever was broken works again, and the run may come to its end."""

    def leave(self):
        """The world has ended."""

    def left(self):
        """What is left of the run here; empty where nothing is."""
        return []


@cache
def faketime():
    """The library that tells processes a wrong time; empty where it is not installed."""
    if not shutil.which("faketime"):
        return ""
    command = ["faketime", "-m", "-f", "+0s", "printenv", "LD_PRELOAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


_SLEEP = """import select, time
time.sleep = lambda seconds: select.select((), (), (), seconds) and None
"""
"""libfaketime (0.9.10) reads the monotonic instant at which ``time.sleep`` ends as one of the
calendar: EINVAL."""


class Clock(Surroundings):
    """The calendar of the managers and their tasks; as on a real machine, only the monotonic clock
    is never set."""

    JUMPS = ("+0", "+1h", "-30m", "+26h", "-3d")

    @staticmethod
    def missing():
        return "" if faketime() else "faketime is not installed (tests/services/install.sh)"

    def enter(self, world):
        self._draws, self._file = world.draws, world.folder / "clock"
        self.jump()
        modules = world.folder / "modules"
        modules.mkdir()
        (modules / "sitecustomize.py").write_text(_SLEEP)
        self.environment = {
            "PYTHONPATH": f"{modules}:{ROOT}",
            "LD_PRELOAD": faketime(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        self.faults = [self.jump, self.jump]

    def jump(self):
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{self._draws.choice(self.JUMPS)}\n")
        draft.replace(self._file)  # nobody reads half of it


def mount(place):
    """A file system of its own in a folder; false where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "vgrads-chaos", place]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def unmount(place):
    subprocess.run(["umount", "-l", place], check=True)


@cache
def may_mount():
    with tempfile.TemporaryDirectory() as place:
        allowed = mount(place)
        if allowed:
            unmount(place)
    return allowed


class Disk(Surroundings):
    """A real file system of a few megabytes under the home, or only under what runs write; a
    ballast fills it."""

    @staticmethod
    def missing():
        return "" if may_mount() else "no right to mount a file system"

    def __init__(self):
        super().__init__()
        self._place = None

    def enter(self, world):
        self._draws = world.draws
        place = world.draws.choice([world.home, world.home / "runs"])
        for folder in (world.home, place):
            folder.mkdir(mode=0o700, exist_ok=True)
        assert mount(place)
        self._place, self._ballast = place, place / "ballast"
        self.faults = [self.fill, self.fill, self.ease]

    def fill(self):
        """To the last byte, or nearly: what fails first is drawn."""
        spare = self._draws.choice([0, 0, 1, 4, 20, 80])
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * _BLOCK)
        with self._ballast.open("r+b") as file:
            file.truncate(max(0, self._ballast.stat().st_size - spare * _BLOCK))

    def ease(self):
        self._ballast.unlink(missing_ok=True)

    def leave(self):
        if self._place is not None:
            unmount(self._place)


SLURM_SITE = """
[[site]]
name = "slurm"
kind = "batch"
procs = 4
cores_per_node = 8
driver = "slurm"
[site.access]
poll = "1s"
timeout = "15s"
folder = "{folder}/marks"
contact = "127.0.0.1"
python = "{python}"
[[site.queue]]
name = "batch"
max_walltime = "1h"
max_jobs = 3
stated_probability = 0.6
stated_wait = "2s"
"""
_COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")


class SlurmSite(Surroundings):
    """A site of real Slurm: its controller dies and comes back, its jobs and what keeps them are
    killed."""

    missing = staticmethod(slurm.missing)

    def __init__(self, service):
        super().__init__()
        self._service = service

    def enter(self, world):
        self._draws, self._home = world.draws, str(world.home)
        here = world.draws.choice(["", HERE.format("here", 1)])
        self.sites = here + SLURM_SITE.format(folder=world.folder, python=sys.executable)
        self.environment = {
            "PATH": f"{_own_clock(world.folder / 'bin')}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self.faults = [
            self.kill_controller,
            self.start_controller,
            self.cancel_job,
            self.kill_keeper,
            self.kill_pilot,
        ]

    def _controller_runs(self):
        return self._service.daemons["slurmctld"].poll() is None

    def kill_controller(self):
        if self._controller_runs():
            slurm.kill_controller(self._service)

    def start_controller(self):
        if not self._controller_runs():
            slurm.start_controller(self._service)

    def cancel_job(self):
        for job in self._one_of(_jobs()):
            _said("scancel", "--quiet", job)

    def kill_keeper(self):
        """What Slurm leaves with a job on its node, and by which it knows that it runs."""
        for keeper in self._one_of(sorted({k for p in self.pilots() if (k := _keeper_of(p))})):
            kill(keeper)

    def kill_pilot(self):
        for pilot in self._one_of(sorted(self.pilots())):
            kill(pilot)

    def _one_of(self, found):
        return [self._draws.choice(found)] if found else []

    def pilots(self):
        """Pilots and workers of this run: a job may be gone and what it began not."""
        found = []
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                pid = int(line.parent.name)
                if b"vgrads.execmgr.pilot" in line.read_bytes() and self._is_ours(pid):
                    found.append(pid)
        return found

    def _is_ours(self, pid):
        return variable_of(pid, "VGRADS_RUN").startswith(self._home)

    def ease(self):
        self.start_controller()
        until(lambda: _said("squeue", "-h", "-o", "x%i", failed="?") != "?", "the controller", 60)

    def left(self):
        return [*_jobs(), *self.pilots()]

    def leave(self):
        self.start_controller()
        _said("scancel", "--quiet", "-u", "root")
        for pid in self.pilots():
            kill(pid)


def _own_clock(folder):
    """Slurm's commands stand for its login node, which has a clock of its own: not the one that
    jumps."""
    folder.mkdir()
    for name in _COMMANDS:
        command = folder / name
        command.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {shutil.which(name)} "$@"\n')
        command.chmod(0o755)
    return folder


def _jobs():
    """Slots that Slurm holds, or "?" where it does not say; a job of whoever kills controllers is
    no slot."""
    lines = _said("squeue", "-h", "-t", "R,PD,CG", "-o", "%i %j", failed="? vg-").splitlines()
    return [
        job for job, _, name in (line.partition(" ") for line in lines) if name.startswith("vg-")
    ]


def _said(*command, failed=""):
    done = subprocess.run(["timeout", "20", *command], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else failed


def _keeper_of(pid):
    """The ``slurmstepd`` above a process, None where there is none."""
    while pid and pid != 1:
        if name_of(pid).startswith("slurmstepd"):
            return pid
        pid = parent_of(pid)
    return None
