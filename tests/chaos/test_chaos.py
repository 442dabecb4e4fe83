"""Whatever is done to its managers and tasks, a run ends, with every result whole, once, and nothing left behind.

Each seed draws its own faults. Every test run plays a few; ``VGRADS_CHAOS=300 python -m pytest tests/chaos`` as many
as you like, ``VGRADS_CHAOS_FROM`` from another seed on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from execmgr.processes import kill, marked, run_token
from portal.records.lease import LEASE_S
from tests.conftest import ROOT
from tests.waiting import until

FIRST = int(os.environ.get("VGRADS_CHAOS_FROM", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("VGRADS_CHAOS", "5")))
SITES = "".join(
    f'[[site]]\nname = "{name}"\nkind = "local"\nprocs = 2\ndriver = "local"\nslot_up = 0.6\n' for name in ("here", "there")
)  # fmt: skip
GOES_ON = ("running", "interrupted")
PARTS = 4
"""Files of each task: of one copy, or of the other."""


def task(name, parents, sleep_s):
    """A task that notes its beginning, writes some files, slowly, and reads what its parents wrote."""
    outputs = [f"{name}.{n}" for n in range(PARTS)]
    inputs = [f"{parent}.{n}" for parent in parents for n in range(PARTS)]
    read = f"cat {' '.join(sorted(inputs))} | cksum | cut -d' ' -f1" if inputs else "echo 0"
    steps = "; ".join(
        f"echo {name} $x $$ > {output}; sleep {sleep_s / PARTS:.3f}" for output in outputs
    )
    # what all files of a copy share is the number of its shell
    return {
        "id": name, "runtime_s": 3, "parents": parents, "inputs": inputs, "outputs": outputs,
        "command": f"x=$({read}); {steps}; sleep 30 & exit 0",
    }  # fmt: skip


def write_set(folder, draws):
    tasks = [
        task("a", [], draws.uniform(0.1, 0.6)), task("b", ["a"], draws.uniform(0.1, 0.6)),
        task("c", ["a"], draws.uniform(0.1, 0.6)), task("d", ["b", "c"], draws.uniform(0.1, 0.4)),
    ]  # fmt: skip
    (folder / "sites.toml").write_text(SITES)
    path = folder / "set.json"
    workflows = [{"name": "w", "count": 2, "tasks": tasks}]
    path.write_text(
        json.dumps(
            {"name": "chaos", "deadline": "10m", "workflows": workflows, "sites": "sites.toml"}
        )
    )
    return path


class World:
    """One run with its managers, as many as there may be at once."""

    def __init__(self, folder, draws):
        self.folder, self.draws = folder, draws
        self.home = folder / "home"
        self.environment = {**os.environ, "VGRADS_HOME": str(self.home)}
        self.managers, self.stopped = [], []
        self.begin("run", write_set(folder, draws))
        until(lambda: self.home.is_dir() and self.run() is not None, "the run", 60)

    def begin(self, *words):
        with (self.folder / "managers.log").open("ab") as log:
            command = [sys.executable, "-m", "portal", *map(str, words)]
            self.managers.append(
                subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
            )

    def ask(self, query):
        with closing(sqlite3.connect(self.home / "vgrads.db", timeout=30)) as database:
            return database.execute(query).fetchall()

    def run(self):
        with suppress(sqlite3.OperationalError):
            for name, state in self.ask("SELECT id, state FROM run"):
                return name, state
        return None

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

    # faults

    def live(self):
        return [m for m in self.managers if m.poll() is None and m not in self.stopped]

    def kill_manager(self):
        for manager in self.live()[:1]:
            manager.kill()
            manager.wait()
            self.begin("resume", self.run()[0])

    def stop_manager(self):
        for manager in self.live()[:1]:
            manager.send_signal(signal.SIGSTOP)
            try:
                self.age_lease()
            except (
                sqlite3.OperationalError
            ):  # stopped in the middle of a write: the database is its own
                manager.send_signal(signal.SIGCONT)
                return
            self.stopped.append(manager)
            self.begin("resume", self.run()[0])

    def continue_manager(self):
        if self.stopped:
            self.stopped.pop().send_signal(signal.SIGCONT)

    def double(self):
        for _ in range(2):
            self.begin("resume", self.run()[0])

    def interrupt(self):
        for manager in self.live()[:1]:
            manager.send_signal(signal.SIGINT)
            self.begin("resume", self.run()[0])

    def kill_task(self):
        for pid in self.draws.sample(sorted(self.ours()), k=min(1, len(self.ours()))):
            kill(pid)

    def end(self):
        """Continue what is stopped, resume what is not at its end; every run must come to one."""
        for _ in range(12):
            while self.stopped:
                self.continue_manager()
            for manager in self.managers:
                with suppress(subprocess.TimeoutExpired):
                    manager.wait(60)
                assert manager.poll() is not None, "a manager does not end"
            if self.run()[1] not in GOES_ON:
                return
            self.begin("resume", self.run()[0])
        raise AssertionError(f"the run does not end: {self.run()}")


def events(world):
    return [
        json.loads(body) for (body,) in world.ask("SELECT body FROM run_event ORDER BY position")
    ]


def check(world):
    """No result lost, mixed or committed twice; no process left."""
    log = (world.folder / "managers.log").read_text()
    assert "Traceback" not in log, log[-3000:]
    done = Counter()
    for event in events(world):
        if event["kind"] == "copy" and event["ok"] and event["committed"]:
            done[tuple(event["key"][:2])] += 1
    assert set(done.values()) <= {1}, done  # committed once
    for workflow, name in done:
        results = world.run_folder / workflow / "results"
        contents = [(results / f"{name}.{n}").read_text() for n in range(PARTS)]  # not lost
        assert len(set(contents)) == 1, contents  # of one copy
        assert contents[0].startswith(f"{name} ")
    if world.run()[1] == "kept":
        assert len(done) == 8
    assert not world.ours()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_fault_loses_mixes_or_doubles_anything(seed, tmp_path):
    draws = random.Random(seed)
    world = World(tmp_path, draws)
    faults = [
        world.kill_manager, world.stop_manager, world.continue_manager, world.double, world.interrupt, world.kill_task,
        world.kill_task,
    ]  # fmt: skip
    try:
        for _ in range(draws.randint(1, 5)):
            pause(draws.uniform(0.0, 1.5))
            if world.run()[1] not in GOES_ON:
                break
            draws.choice(faults)()
        world.end()
        check(world)
    finally:
        for manager in world.managers:
            if manager.poll() is None:
                manager.kill()
                manager.wait()


def pause(seconds):
    """Faults come at any moment: this is the moment."""
    end_s = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end_s, "time", seconds + 5)


def test_the_check_itself_sees_what_is_wrong(tmp_path):
    """A result that is lost, and one of two copies, are seen."""
    world = World(tmp_path, random.Random(1))
    world.end()
    check(world)
    victim = next(Path(world.run_folder).glob("*/results/a.1"))
    text = victim.read_text()
    victim.unlink()
    victim.write_text(text + "of another copy\n")
    with pytest.raises(AssertionError):
        check(world)
    victim.unlink()
    with pytest.raises(FileNotFoundError):
        check(world)
