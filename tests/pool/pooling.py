"""A pool and its managers, as commands in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from functools import partial

from tests import waiting
from tests.conftest import ROOT
from vgrads.api.pools.ledger import PERIOD_S
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store

until = partial(waiting.until, seconds=90.0)
MANAGER = {
    "id": "bag-1",
    "project": "sweep",
    "period_s": PERIOD_S,
    "waiting": 90,
    "running": 10,
    "procs": 10,
    "by_pool": {"p": 6, "": 4},
    "bags": ["sweep"],
    "contact": "tls://127.0.0.1:1",
    "certificate": "C",
    "slot": "s",
    "key": "secret-key",
    "arrived": 120,
    "capacity": {
        "low": 30.0,
        "value": 40.0,
        "high": 50.0,
        "bottleneck": "up-link",
        "tasks": 50.0,
        "cycle_s": 3.0,
        "execution_s": 2.0,
    },
}
"""What a manager publishes."""
BAG = """
name: {name}
command: >-
  until test {{n}} -lt $(cat {folder}/{name}.allowed); do sleep 0.1; done;
  sleep {s}; echo {{n}} >> {folder}/{name}.ran; echo {{n}}
parameters: {{n: {{range: [{count}]}}}}
sites: [guest]
hosts: {{guests: true}}
"""


def command_of(pid):
    """The words of a process."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read().decode(errors="replace").replace("\0", " ")


class Pooling:
    """What was started, by name. All of it works in ``folder``, with its own home there."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}

    def start(self, name, *arguments):
        """A command; what it says goes to ``folder/NAME.log``."""
        (self.folder / "tmp").mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "vgrads", *map(str, arguments)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "VGRADS_HOME": str(self.folder / "home"),
                    "PYTHONPATH": str(ROOT),
                    "TMPDIR": str(self.folder / "tmp"),
                },
            )
        return self.processes[name]

    def pool(self, text, *options, name="pool"):
        """A pool; its file's text."""
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return self.start(name, "pool", "run", path, *options)

    def bag(self, name, count, *options, s="0.2", allowed):
        """A bag that takes hosts of pools only. ``allowed``: how many of its tasks may run; the
        others wait for :meth:`allow`."""
        path = self.folder / f"{name}.yaml"
        path.write_text(BAG.format(name=name, count=count, folder=self.folder, s=s))
        self.allow(name, allowed)
        return self.start(name, "bags", "run", path, "--contact", "127.0.0.1", *options)

    def allow(self, name, count=10**6):
        """So many tasks of a bag may run: those that begin from now on."""
        draft = self.folder / f"{name}.draft"
        draft.write_text(f"{count}\n")
        draft.replace(self.folder / f"{name}.allowed")

    def output(self, name):
        """What a command has printed so far."""
        return (self.folder / f"{name}.log").read_text()

    def entries(self, kind):
        """The ledger's entries that are not too old, by the name of bag or pool."""
        if not (self.folder / "home" / "vgrads.db").exists():
            return {}
        with Store(f"sqlite:///{self.folder}/home/vgrads.db") as store:
            status = PoolLedger(store.engine).read()
        result = status.managers if kind == "manager" else status.pools
        return {entry.get("project") or entry["name"]: entry for entry in result}

    def leased(self, name):
        """Processors that pools have at a manager."""
        entry = self.entries("manager").get(name, {"by_pool": {}})
        return sum(count for pool, count in entry["by_pool"].items() if pool)

    def ran(self, name):
        """How often each task of a bag ran to its end."""
        path = self.folder / f"{name}.ran"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def workers(self):
        """Processes of agents, of hosts and of workers, that stand in this folder; not those on
        other nodes."""
        results = []
        for entry in os.scandir("/proc"):
            with suppress(OSError):
                command = command_of(entry.name) if entry.name.isdigit() else ""
                # of hosts; of workers, which are tasks of these
                agent = "vgrads-agent" in command or ".pyz" in command
                if agent and os.readlink(f"/proc/{entry.name}/cwd").startswith(str(self.folder)):  # noqa: PTH115
                    results.append(int(entry.name))
        return [pid for pid in results if waiting.runs(pid)]

    def stop(self):
        """End what has not ended."""
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        for pid in self.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def json(self, *arguments):
        """What a command answers as JSON."""
        answer = subprocess.run(
            [sys.executable, "-m", "vgrads", *map(str, arguments), "--json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "VGRADS_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)},
        )
        return json.loads(answer.stdout)
