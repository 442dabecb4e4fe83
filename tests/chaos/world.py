"""One real run with its managers, as many as there may be at once, and what can be done to them."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from tests.conftest import ROOT
from tests.leftovers import opened_by
from tests.waiting import until
from vgrads.agent.processes import kill, marked
from vgrads.execmgr.tasks.folder import run_token
from vgrads.portal.records.heartbeat import LEASE_S

GOES_ON = ("running", "interrupted")
PARTS = 4
"""Files of each task: of one copy, or of the other."""
PARENTS = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
HERE = '[[site]]\nname = "{}"\nkind = "local"\nprocs = {}\ndriver = "local"\nslot_up = 0.6\n'
"""A site of processes that is said to fail often: two of them get two copies of a task."""
_ROUNDS = 12
_DELETED = re.compile(r"/vgrads\.db(-wal|-shm)? \(deleted\)$")


def task(name, parents, sleep_s, first=""):
    """A task that notes its beginning, writes some files, slowly, and reads what its parents
    wrote; ``first``: commands before that."""
    outputs = [f"{name}.{n}" for n in range(PARTS)]
    inputs = [f"{parent}.{n}" for parent in parents for n in range(PARTS)]
    # without a pipe, whose parts may be killed unnoticed
    read = (
        f"cat {' '.join(sorted(inputs))} >read && x=$(cksum <read) && x=${{x%% *}} || exit 1"
        if inputs
        else "x=0"
    )
    steps = "; ".join(
        f"echo {name} $x $$ > {output} || exit 1; sleep {sleep_s / PARTS:.3f}" for output in outputs
    )
    # what all files of a copy share is the number of its shell
    return {
        "id": name,
        "runtime_s": 3,
        "parents": parents,
        "inputs": inputs,
        "outputs": outputs,
        "command": f"{first}{read}; {steps}; sleep 30 & exit 0",
    }


def write_set(folder, draws, reads="", copies=""):
    """A set whose tasks begin with the commands ``reads``; the first also with ``copies``, which
    write two files, of which its heirs read one."""
    tasks = [
        task(name, parents, draws.uniform(0.1, 0.6), reads if parents else reads + copies)
        for name, parents in PARENTS.items()
    ]
    if copies:
        tasks[0]["outputs"] += ["own.db", "same.db"]
        tasks[1]["inputs"] += ["own.db"]
    path = folder / "set.json"
    workflows = [{"name": "w", "count": 2, "tasks": tasks}]
    path.write_text(
        json.dumps(
            {"name": "chaos", "deadline": "10m", "workflows": workflows, "sites": "sites.toml"}
        )
    )
    return path


def has_begun(manager):
    """Whether Python has started the program: an interrupt before that is Python's to report. It
    loads the module for SQLite after that."""
    try:
        maps = Path(f"/proc/{manager.pid}/maps").read_text()
    except OSError:
        return False
    return "_sqlite3" in maps


class World:
    """A run among its surroundings (:mod:`tests.chaos.surroundings`), each of which brings faults
    of its own.

    ``reads``, ``copies``: what tasks do first with files of vgrads itself.
    """

    RECORD = "run"

    def __init__(self, folder, draws, surroundings=()):
        self.folder, self.draws, self.surroundings = folder, draws, surroundings
        self.home = folder / "home"
        self.environment = {**os.environ, "VGRADS_HOME": str(self.home), "PYTHONFAULTHANDLER": "1"}
        self.managers, self.stopped, self._last_state = [], [], None
        self.log, self.reads, self.copies = folder / "managers.log", "", ""
        self._most_events = 0

    def start(self):
        """The first manager, and its run."""
        self.prepare(HERE.format("here", 2) + HERE.format("there", 2))
        self.begin("run", write_set(self.folder, self.draws, self.reads, self.copies))
        until(lambda: self.home.is_dir() and self.run() is not None, "the run", 180)

    def prepare(self, sites):
        """Enter the surroundings, and write down their sites, or these where they have none."""
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.environment["TMPDIR"] = str(self.temporary)
        for surrounding in self.surroundings:
            surrounding.enter(self)
            self.environment |= surrounding.environment
        stated = "".join(surrounding.sites for surrounding in self.surroundings)
        (self.folder / "sites.toml").write_text(stated or sites)

    def begin(self, *words):
        self.managers.append(self.launch([sys.executable, "-m", "vgrads", *map(str, words)]))

    def launch(self, command):
        """Start a manager; what it prints is in the log."""
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def ask(self, query):
        """Rows of the database, which must exist: to open one that does not would begin it."""
        file = f"file:{self.home / 'vgrads.db'}?mode=rw"
        with closing(sqlite3.connect(file, uri=True, timeout=30)) as database:
            return database.execute(query).fetchall()

    def run(self):
        """Its name and state, as far as the database can be read: a reader needs room on the disk
        too."""
        with suppress(sqlite3.OperationalError):
            rows = self.ask(f"SELECT id, state FROM {self.RECORD}")
            self._last_state = next(iter(rows), None)
            self._most_events = max(self._most_events, self._events())
        until(lambda: not self.misled(), "managers without deleted files of the database", 10)
        return self._last_state

    def misled(self):
        """Managers that go on with files of the database that another process has deleted, as it
        may where they have lost their locks; the last that closes it deletes some itself."""
        return [m.pid for m in self.live() if any(map(_DELETED.search, opened_by(m.pid)))]

    def _events(self):
        return self.ask("SELECT count(*) FROM run_event")[0][0]

    def check_own_files(self):
        """The database is whole, and lacks nothing that was once read in it; no manager ended by a
        fault of its own."""
        assert self.ask("PRAGMA integrity_check") == [("ok",)]
        assert self._events() >= self._most_events
        assert not [path.read_text() for path in self.temporary.glob("vgrads-fault-*")]
        log = self.log.read_text(errors="replace")
        assert "Traceback" not in log, log[-3000:]

    @property
    def is_over(self):
        """True where nothing is left to do."""
        return self.run()[1] not in GOES_ON

    def age_lease(self):
        with closing(sqlite3.connect(self.home / "vgrads.db", timeout=3)) as database:
            database.execute("UPDATE run_lease SET beat_s = beat_s - ?", (LEASE_S + 1,))
            database.commit()

    @property
    def run_folder(self):
        return self.home / "runs" / self.run()[0]

    def ours(self):
        token = run_token(self.run_folder.resolve())
        return marked(lambda mark: mark.startswith(token))

    @property
    def faults(self):
        """What may be done to the managers and tasks of any run, and what its surroundings can
        do."""
        anywhere = [
            self.kill_manager,
            self.stop_manager,
            self.continue_manager,
            self.double,
            self.interrupt,
            self.kill_task,
            self.kill_task,
        ]
        return anywhere + [
            fault for surrounding in self.surroundings for fault in surrounding.faults
        ]

    def live(self):
        return [m for m in self.managers if m.poll() is None and m not in self.stopped]

    def kill_manager(self):
        for manager in self.live()[:1]:
            manager.kill()
            manager.wait()
            self.resume()

    def resume(self):
        self.begin("resume", self.run()[0])

    def stop_manager(self):
        for manager in self.live()[:1]:
            manager.send_signal(signal.SIGSTOP)
            try:
                self.age_lease()
            except sqlite3.OperationalError:
                # stopped in the middle of a write: the database is its own; or its disk is full
                manager.send_signal(signal.SIGCONT)
                return
            self.stopped.append(manager)
            self.resume()

    def continue_manager(self):
        if self.stopped:
            self.stopped.pop().send_signal(signal.SIGCONT)

    def double(self):
        for _ in range(2):
            self.resume()

    def interrupt(self):
        for manager in self.live()[:1]:
            until(lambda m=manager: m.poll() is not None or has_begun(m), "the start of Python", 60)
            manager.send_signal(signal.SIGINT)
            self.resume()

    def kill_task(self):
        processes = sorted(self.ours())  # once: a process may end in between
        for pid in self.draws.sample(processes, k=min(1, len(processes))):
            kill(pid)

    def end(self):
        """Continue what is stopped, resume what is not at its end; every run must come to one."""
        for surrounding in self.surroundings:
            surrounding.ease()
        for _ in range(_ROUNDS):
            while self.stopped:
                self.continue_manager()
            for manager in self.managers:
                with suppress(subprocess.TimeoutExpired):
                    manager.wait(60)
                if manager.poll() is None:
                    manager.send_signal(signal.SIGABRT)  # it says where it hangs
                    manager.wait()
                    raise AssertionError("a manager does not end")
            if self.is_over:
                return
            self.resume()
        raise AssertionError(f"the run does not end: {self.run()}")

    def leave(self):
        """Nothing of the world outlives it, however its test ended."""
        for manager in self.managers:
            if manager.poll() is None:
                manager.kill()
                manager.wait()
        for pid in self.ours() if self._last_state else ():
            kill(pid)
        for surrounding in reversed(self.surroundings):
            surrounding.leave()
