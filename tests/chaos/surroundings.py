"""What a run may be surrounded by: a clock that jumps, a disk that fills, tasks that read the files
of vgrads itself, terminals that are closed, a batch system whose parts die."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from contextlib import suppress
from functools import cache

from tests.agents import agents_of
from tests.chaos.world import HERE
from tests.conftest import ROOT
from tests.services import gridengine, slurm
from tests.terminal.pseudo_terminal import open_terminal
from tests.waiting import until
from vgrads.agent.processes import kill, name_of, parent_of

DISK = "12m"
_BLOCK = 4096


class RunnerSetup:
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


class Clock(RunnerSetup):
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
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        self.faults = [self.jump] * 3

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


class Disk(RunnerSetup):
    """A real file system of a few megabytes under the home, or only under what runs write, and at
    times under what managers print; a ballast fills it."""

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
        if world.draws.random() < 0.5:
            world.log = place / "managers.log"
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


class OwnFiles(RunnerSetup):
    """Tasks that name the database of their own managers, links to it and copies, and read all
    files of the home: a manager that closed a file of the database would lose its locks."""

    @staticmethod
    def missing():
        return ""

    def enter(self, world):
        command = [sys.executable, "-m", "vgrads", "status"]  # begins the database
        subprocess.run(command, cwd=ROOT, env=world.environment, check=True, capture_output=True)
        self._home, database = world.home, world.home / "vgrads.db"
        shutil.copy(database, world.folder / "copy.db")  # an input
        self.copy()
        links = [world.home / "linked.db", world.folder / "beside.db"]
        for link in links:
            with suppress(OSError):  # another file system
                os.link(database, link)
        names = [database, f"{database}-wal", f"{database}-shm", world.home / "backup.db", *links]
        world.reads = (
            f"cat {' '.join(map(str, names))} 2>/dev/null | cksum >seen; "
            f"find {world.home} -type f | xargs cat >/dev/null 2>&1; "
        )
        world.copies = (
            f"cp {database} own.db || exit 1; ln -f {database} same.db || cp own.db same.db; "
        )
        self.faults = [self.copy, self.copy]

    def copy(self):
        """A backup as people make it, of a database that is in use."""
        files = ["vgrads.db", "backup.db"]
        subprocess.run(["cp", *files], cwd=self._home, capture_output=True, check=False)


class Terminal(RunnerSetup):
    """Each manager has a terminal of its own, which may be closed: it gets SIGHUP where it is that
    of its session, and can print no more in any case."""

    @staticmethod
    def missing():
        return ""

    def enter(self, world):
        self._world, self._screens = world, {}
        world.launch = self._launch
        self.faults = [self.hang_up, self.hang_up]

    def _launch(self, command):
        reader, writer = open_terminal(80)
        session = self._world.draws.choice([["setsid", "--ctty"], []])
        try:
            with self._world.log.open("ab") as log:
                screen = subprocess.Popen(["cat"], stdin=reader, stdout=log, stderr=log)
            manager = subprocess.Popen(
                [*session, *command],
                cwd=ROOT,
                env=self._world.environment,
                stdin=writer,
                stdout=writer,
                stderr=writer,
            )
        finally:
            os.close(reader)
            os.close(writer)
        self._screens[manager] = screen
        return manager

    def hang_up(self):
        """Only the process that shows it has the other end."""
        for manager in self._world.live()[:1]:
            self._close(self._screens[manager])
            self._world.resume()

    def _close(self, screen):
        screen.kill()
        screen.wait()

    def leave(self):
        for screen in self._screens.values():
            self._close(screen)


BATCH_SITE = """
[[site]]
name = "{driver}"
kind = "batch"
procs = 4
cores_per_node = 8
driver = "{driver}"
[site.access]
poll = "1s"
timeout = "15s"
folder = "{folder}/marks"
contact = "127.0.0.1"
python = "{python}"
[[site.queue]]
name = "{queue}"
max_walltime = "1h"
max_jobs = 3
stated_probability = 0.6
stated_wait = "2s"
"""


class BatchSite(RunnerSetup):
    """A real batch system: its controller dies and comes back, its jobs and what keeps them are
    killed."""

    driver = queue = keeper = ""
    commands: tuple[str, ...] = ()

    def __init__(self, service):
        super().__init__()
        self._service = service

    def enter(self, world):
        self._draws, self._home = world.draws, world.home
        here = world.draws.choice(["", HERE.format("here", 1)])
        site = {"driver": self.driver, "queue": self.queue, "python": sys.executable}
        self.sites = here + BATCH_SITE.format(folder=world.folder, **site)
        own = _own_clock(world.folder / "bin", self.commands)
        self.environment = {"PATH": f"{own}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.faults = [
            self.kill_controller,
            self.start_controller,
            self.cancel_job,
            self.kill_keeper,
            self.kill_pilot,
        ]

    def cancel_job(self):
        for job in self._pick(self._jobs()):
            self._cancel(job)

    def kill_keeper(self):
        """What the system leaves with a job on its node, and by which it knows that it runs."""
        keepers = {k for p in self.pilots() if (k := _ancestor(p, self.keeper))}
        for keeper in self._pick(sorted(keepers)):
            kill(keeper)

    def kill_pilot(self):
        for pilot in self._pick(sorted(self.pilots())):
            kill(pilot)

    def _pick(self, result):
        return [self._draws.choice(result)] if result else []

    def pilots(self):
        """Agents of this run, and their guardians: a job may be gone and what it began not."""
        return agents_of(self._home)

    def ease(self):
        self.start_controller()
        until(lambda: self._jobs() != ["?"], "the controller", 60)

    def left(self):
        return [*self._jobs(), *self.pilots()]

    def leave(self):
        self.start_controller()
        for job in self._jobs():
            self._cancel(job)
        for pid in self.pilots():
            kill(pid)


class SlurmSite(BatchSite):
    missing = staticmethod(slurm.missing)
    driver, queue, keeper = "slurm", "batch", "slurmstepd"
    commands = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")

    def _controller_runs(self):
        return self._service.daemons["slurmctld"].poll() is None

    def kill_controller(self):
        if self._controller_runs():
            slurm.kill_controller(self._service)

    def start_controller(self):
        if not self._controller_runs():
            slurm.start_controller(self._service)

    def _cancel(self, job):
        _output_of("scancel", "--quiet", job)

    def _jobs(self):
        """Slots that Slurm holds, or "?" where it does not say; a job of whoever kills controllers
        is no slot."""
        lines = _output_of("squeue", "-h", "-t", "R,PD,CG", "-o", "%i %j", failed="? vg-")
        pairs = (line.partition(" ") for line in lines.splitlines())
        return [job for job, _, name in pairs if name.startswith("vg-")]


class GridEngineSite(BatchSite):
    missing = staticmethod(gridengine.missing)
    driver, queue, keeper = "gridengine", "batch.q", "sge_shepherd"
    commands = ("qsub", "qstat", "qacct", "qdel", "qconf", "qhost")

    def kill_controller(self):
        gridengine.kill_controller()

    def start_controller(self):
        gridengine.start_controller()

    def _cancel(self, job):
        _output_of("qdel", job)

    def _jobs(self):
        """Slots that Grid Engine holds, or "?" where it does not say."""
        text = _output_of("qstat", "-xml", failed="")
        if not text:
            return ["?"]
        jobs = ET.fromstring(text).iter("job_list")
        pairs = ((job.findtext("JB_job_number"), job.findtext("JB_name", "")) for job in jobs)
        return [number for number, name in pairs if name.startswith("vg-")]


def _own_clock(folder, commands):
    """Commands of the batch system stand for its login node, which has a clock of its own: not the
    one that jumps."""
    folder.mkdir()
    for name in commands:
        command = folder / name
        command.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {shutil.which(name)} "$@"\n')
        command.chmod(0o755)
    return folder


def _output_of(*command, failed=""):
    done = subprocess.run(["timeout", "20", *command], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else failed


def _ancestor(pid, name):
    """The process above this one whose name begins so, None where there is none."""
    while pid and pid != 1:
        if name_of(pid).startswith(name):
            return pid
        pid = parent_of(pid)
    return None
