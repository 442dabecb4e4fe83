"""Whatever is done to its dispatchers, agents and tasks, a bag ends, with every result once, no
task run twice at once, and nothing left behind.

The faults and surroundings of planned runs (:mod:`tests.chaos.test_chaos`), with the same
variables.
"""

import json
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.agents import agents_of
from tests.chaos.test_chaos import SEEDS, chosen, note, pause, surroundings
from tests.chaos.world import HERE, World
from tests.conftest import ROOT
from tests.waiting import until
from vgrads.agent.processes import kill, variable_of
from vgrads.portal.records.reading.bags import ENDED

__all__ = ["surroundings"]  # a fixture
pytestmark = pytest.mark.more

TASKS = 60
BAG = """
name: chaos
command: >-
  cd {folder}; exec 9>>locks/{{n}}; flock -n 9; [ $? != 1 ] || echo {{n}} >>twice; cd "$OLDPWD";
  {reads} sleep {seconds:.2f}; echo {{n}} $(({{n}} * {{n}})); echo {{n}} >r{{n}}; sleep 30 & exit 0
parameters: {{n: {{range: [0, {tasks}]}}}}
inputs: [{inputs}]
outputs: ["r{{n}}"]
retries: 50
env: {{CHAOS_WORLD: "{folder}"}}
"""


class BagWorld(World):
    """A bag with its dispatchers, of which one works at a time."""

    RECORD = "bag"

    def start(self):
        """The first dispatcher, and its bag."""
        self.prepare(HERE.format("here", 2) + HERE.format("there", 2))
        (self.folder / "locks").mkdir()
        path, seconds = self.folder / "bag.yaml", self.draws.uniform(0.05, 0.4)
        inputs = "copy.db" if self.copies else ""
        path.write_text(
            BAG.format(
                folder=self.folder,
                seconds=seconds,
                tasks=TASKS,
                reads=self.reads + self.copies,
                inputs=inputs,
            )
        )
        self.begin("bags", "run", path, "--sites", self.folder / "sites.toml")
        until(lambda: self.home.is_dir() and self.run() is not None, "the bag", 180)

    def resume(self):
        self.begin("bags", "resume", self.run()[0], "--sites", self.folder / "sites.toml")

    def age_lease(self):
        """A stopped dispatcher keeps its lock: none works beside it."""

    def ours(self):
        """Processes of tasks."""
        names = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return [pid for pid in names if variable_of(pid, "CHAOS_WORLD") == str(self.folder)]

    def kill_agent(self):
        """An agent, or its guardian."""
        agents = sorted(agents_of(self.home))
        for pid in self.draws.sample(agents, k=min(1, len(agents))):
            kill(pid)

    def stop_agent(self):
        """For a moment: shorter than it takes to be lost."""
        agents = sorted(agents_of(self.home))
        for pid in self.draws.sample(agents, k=min(1, len(agents))):
            kill(pid, signal.SIGSTOP)
            pause(self.draws.uniform(0.1, 2.0))
            kill(pid, signal.SIGCONT)

    @property
    def faults(self):
        return [*super().faults, self.kill_agent, self.kill_agent, self.stop_agent]

    @property
    def is_over(self):
        return self.run()[1] in ENDED


def ends_of(world):
    """Every end of a task, as the command says it."""
    command = [sys.executable, "-m", "vgrads", "bags", "logs", world.run()[0], "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=world.environment, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(world):
    """No result lost, mixed or there twice; no task run twice at once; no process, job or file
    left; the database whole."""
    world.check_own_files()
    assert world.run()[1] == "done", world.log.read_text(errors="replace")[-3000:]
    good = [end for end in ends_of(world) if end["code"] == 0]
    assert Counter(end["task"] for end in good) == dict.fromkeys(range(TASKS), 1)
    for end in good:
        assert end["out"] == f"{end['task']} {end['task'] ** 2}\n"
    results = {path.name: path.read_text() for path in world.folder.rglob("r[0-9]*")}
    assert results == {f"r{n}": f"{n}\n" for n in range(TASKS)}
    assert not (world.folder / "twice").exists(), (world.folder / "twice").read_text()
    for surrounding in world.surroundings:
        until(lambda item=surrounding: not item.left(), "the end of what runs at the site", 60)
    until(lambda: not world.ours() and not agents_of(world.home), "the end of all processes", 60)
    until(lambda: not left_files(world), lambda: f"left: {left_files(world)}", 30)


def left_files(world):
    """Folders and files of agents; marks of released slots stay for ten minutes."""
    names = [path.name for path in world.temporary.iterdir()]
    return [n for n in names if n.startswith("vgrads-") and not re.search(r"\.given-back$", n)]


@pytest.mark.parametrize("seed", [chosen(seed) for seed in SEEDS])
def test_no_fault_loses_mixes_or_doubles_anything(seed, surroundings, tmp_path):
    draws = random.Random(f"bag {seed}")
    simulated = []
    world = BagWorld(tmp_path, draws, surroundings)
    try:
        world.start()
        for _ in range(draws.randint(1, 5 + 2 * len(surroundings))):
            pause(draws.uniform(0.0, 1.5))
            if world.is_over:
                break
            fault = draws.choice(world.faults)
            simulated.append(fault.__qualname__)
            fault()
        world.end()
        check(world)
        note(seed, world.run()[1], simulated)
    except BaseException as error:
        note(seed, f"failed: {error}"[:300], simulated)
        raise
    finally:
        world.leave()
        for pid in agents_of(world.home):
            kill(pid)
