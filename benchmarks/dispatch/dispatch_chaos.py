"""A bag through ``vgrads bags run`` while an agent is killed each second and the dispatcher every
thirty.

Everything is real: the command, its local site, agents, tasks that are processes. Only processes
with this benchmark's own folder in their environment are killed. At the end each task has exactly
one end that decides it.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vgrads.agent.processes import variable_of

_SITES = """
[[site]]
name = "here"
kind = "local"
procs = 8
driver = "local"
"""
_BAG = """
name: chaos
command: "sleep {seconds}; echo {{x}}"
parameters: {{x: {{range: [{tasks}]}}}}
hosts: {{most: 4, procs: 2, acquire: one-at-a-time, idle: 1h, longest: 12h}}
"""


@dataclass
class Chaos:
    """How it went. ``ends``: task → ends that decided it."""

    tasks: int
    seconds: float = 0.0
    agents_killed: int = 0
    managers_killed: int = 0
    attempts: int = 0
    ends: Counter[int] = field(default_factory=Counter)

    @property
    def once(self) -> int:
        """Tasks that were committed exactly once, and well."""
        return sum(1 for task in range(self.tasks) if self.ends[task] == 1)


def agents_of(home: str) -> list[int]:
    """The agents of dispatchers of this home. Not their tasks: these know their number."""
    results = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            agent = words[1:4] == [b"-I", b"-X", b"vgrads-agent"]
            mine = variable_of(pid, "VGRADS_HOME") == home
            if agent and mine and not variable_of(pid, "VGRADS_TASK"):
                results.append(pid)
    return results


def kill_agents(home: str) -> None:
    """None of them is left."""
    for pid in agents_of(home):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Run:
    """The command, begun and begun again."""

    def __init__(self, folder: Path, tasks: int, seconds: float) -> None:
        self.folder = folder
        (folder / "bag.yaml").write_text(_BAG.format(tasks=tasks, seconds=seconds))
        (folder / "sites.toml").write_text(_SITES)
        self.environment = {**os.environ, "VGRADS_HOME": str(folder / "home")}
        self.environment.pop("VGRADS_DB", None)
        self.process = self.begin("run", folder / "bag.yaml")
        self.bag = ""

    def begin(self, *words: object) -> subprocess.Popen[bytes]:
        """One command of ``vgrads bags``."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "vgrads",
                    "bags",
                    *map(str, words),
                    "--sites",
                    str(self.folder / "sites.toml"),
                ],
                stdout=log,
                stderr=log,
                env=self.environment,
            )

    def output(self) -> str:
        """What the commands printed."""
        return (self.folder / "log").read_text()

    def again(self) -> None:
        """Kill the dispatcher, and let another one go on."""
        self.bag = self.bag or re.search(r"bag-[0-9a-f]{10}", self.output())[0]  # type: ignore[index]
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = self.begin("resume", self.bag)

    def ends(self) -> list[dict[str, object]]:
        """All that the bag tells of its attempts."""
        self.bag = self.bag or re.search(r"bag-[0-9a-f]{10}", self.output())[0]  # type: ignore[index]
        words = [sys.executable, "-m", "vgrads", "bags", "logs", self.bag, "--json"]
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env=self.environment
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def chaos(tasks: int, seconds: float, agent_s: float = 1.0, manager_s: float = 30.0) -> Chaos:
    """Until the bag is over; ``agent_s``, ``manager_s``: between kills (0: none)."""
    draw, result = random.Random(1), Chaos(tasks)
    with tempfile.TemporaryDirectory() as name:
        run = Run(Path(name), tasks, seconds)
        begin = time.monotonic()
        agent_at = begin + 3.0 + agent_s
        manager_at = begin + manager_s
        while run.process.poll() is None:
            now = time.monotonic()
            if agent_s and now >= agent_at:
                agent_at += agent_s
                agents = agents_of(run.environment["VGRADS_HOME"])
                if agents:
                    with suppress(ProcessLookupError):
                        os.kill(draw.choice(agents), signal.SIGKILL)
                        result.agents_killed += 1
            if manager_s and now >= manager_at:
                manager_at += manager_s
                run.again()
                result.managers_killed += 1
            time.sleep(0.05)
        result.seconds = time.monotonic() - begin
        if run.process.returncode and "is over: done" not in run.output():  # killed at the very end
            print(run.output()[-2000:], file=sys.stderr)
        ends = run.ends()
        result.attempts = len(ends)
        result.ends = Counter(
            int(str(end["task"])) for end in ends if end["final"] and end["code"] == 0
        )
        kill_agents(run.environment["VGRADS_HOME"])
    return result
