"""Single measurements of the dispatcher: submission, its journal, and bags through the command."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatch_chaos import kill_agents
from dispatch_load import memory_mib, template

from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import AttemptsEnded, TasksAssigned
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.folder import keep_bag
from vgrads.dispatch.storage.journal import SEGMENT_BYTES, DispatchJournal
from vgrads.exchange.keys import open_keys
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.kernel.clock import WallClock
from vgrads.portal.client import Client

_SITE = """
[[site]]
name = "here"
kind = "local"
procs = {procs}
driver = "local"
"""


def templated_s(tasks: int) -> float:
    """Seconds to hand over a bag of a template, until it is in the journal's group."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manager = DispatchManager(
            DispatcherConfig(folder=folder, secret=open_keys(folder).secret, rules=Rules()),
            WallClock(),
        )
        begin = time.perf_counter()
        bag = keep_bag(folder, 0, template(tasks), folder)
        manager.add(0, bag.bag, bag.files)
        manager.journal.write(manager.journal.take())
        seconds = time.perf_counter() - begin
        manager.close()
    return seconds


def distinct_bytes(tasks: int) -> float:
    """Bytes a pending task of a list of commands."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "commands.txt").open("w") as file:
            file.writelines(f"./simulate --seed {n}\n" for n in range(tasks))
        open_keys(folder)
        manager = DispatchManager(
            DispatcherConfig(folder=folder, secret=b"s", rules=Rules()), WallClock()
        )
        before = memory_mib()
        document = BagDocument.model_validate({"name": "listed", "commands_file": "commands.txt"})
        bag = keep_bag(folder, 0, document, folder)
        manager.add(0, bag.bag, bag.files)
        value = (memory_mib() - before) * 2**20 / tasks
        manager.close()
    return value


@dataclass(frozen=True)
class Appended:
    """``pause_s``: the longest time in which nothing was appended, while segments were closed and
    compacted."""

    rate: float
    bytes_a_task: float
    pause_s: float


def appended(tasks: int, bundle: int = 1000) -> Appended:
    """Tasks given and ended in bundles, through the state and onto the disk, one bundle a write."""
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder, state = Path(name), State()
        journal = DispatchJournal(folder, SEGMENT_BYTES // 4)
        core = Core(state, Rules(), journal.add)
        core.add(0, BagSpec(name="b", commands=Listed(["true"] * tasks)), 0.0)
        core.receive(
            Message(agent="a", incarnation="1", seq=1, hello=Hello(slot="s", procs=bundle)), 0.0
        )
        spent = longest = 0.0
        for first in range(0, tasks, bundle):
            numbers = range(first, min(first + bundle, tasks))
            ends = [
                AttemptEnd(
                    n,
                    0,
                    n * 1e-3,
                    0,
                    1,
                    draw.expovariate(1.0),
                    draw.random(),
                    0.0,
                    draw.random() * 0.01,
                    draw.random(),
                    0.01 * draw.random(),
                )
                for n in numbers
            ]
            begin = time.perf_counter()
            core.note(TasksAssigned(0, 0, numbers))
            journal.write(journal.take())
            core.note(AttemptsEnded(0, ends))
            journal.write(journal.take())
            if journal.full:
                roll = journal.roll(state)
                spent += time.perf_counter() - begin
                longest = max(longest, time.perf_counter() - begin)
                roll.carry_out()  # elsewhere, in another thread
                continue
            spent += time.perf_counter() - begin
            longest = max(longest, time.perf_counter() - begin)
        journal.roll(state).carry_out()
        journal.close()
        retained = sum(path.stat().st_size for path in folder.iterdir())
    return Appended(tasks / spent, retained / tasks, longest)


def by_command(command: str, tasks: int, procs: int = 2, agents: int = 1) -> float:
    """Tasks a second through ``vgrads bags run``: from hand-over to the last end, the start of
    hosts included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules: dict[str, Any] = {
            "most": agents,
            "procs": procs // agents,
            "acquire": "one-at-a-time",
        }
        document = {
            "name": "b",
            "command": command,
            "parameters": {"x": {"range": [tasks]}},
            "hosts": rules,
        }
        (folder / "bag.json").write_text(json.dumps(document))
        (folder / "sites.toml").write_text(_SITE.format(procs=procs))
        environment = {**os.environ, "VGRADS_HOME": str(folder / "home")}
        environment.pop("VGRADS_DB", None)
        words = [
            sys.executable,
            "-m",
            "vgrads",
            "bags",
            "run",
            str(folder / "bag.json"),
            "--sites",
            str(folder / "sites.toml"),
            "--json",
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
        (bag,) = json.loads(done.stdout)["bags"]
        assert bag["done"] == tasks, done.stderr
        status = json.loads(
            (folder / "home" / "dispatchers" / bag["dispatcher"] / "status.json").read_text()
        )
        (stood,) = status["bags"]
        return tasks / float(stood["ended_s"] - stood["came_s"])


def by_service(tasks: int) -> dict[int, float]:
    """Commands a second into an open bag of a service, by how many a request brings."""
    result = {}
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "VGRADS_HOME": name}
        environment.pop("VGRADS_DB", None)
        (Path(name) / "sites.toml").write_text(_SITE.format(procs=2))
        for words in (
            ["sites", "add", str(Path(name) / "sites.toml")],
            ["sites", "open", "here", "local"],
        ):
            subprocess.run(
                [sys.executable, "-m", "vgrads", *words],
                env=environment,
                check=True,
                capture_output=True,
            )
        with (Path(name) / "log").open("wb") as log:
            service = subprocess.Popen(
                [sys.executable, "-m", "vgrads", "serve", "--port", "0"],
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            client = Client(_url(Path(name) / "log"))
            bag = client.submit_bag({"name": "open", "open": True, "runtime_s": 1e4})
            for bundle in (100, 1000, 10_000, 100_000):
                count = min(tasks, 50 * bundle)  # requests are counted, too
                begin = time.perf_counter()
                for first in range(0, count, bundle):
                    client.add_tasks(
                        bag, [f"./simulate --seed {n}" for n in range(first, first + bundle)]
                    )
                result[bundle] = count / (time.perf_counter() - begin)
        finally:
            service.terminate()
            service.wait()
            kill_agents(name)  # a service that ends leaves them at work
    return result


def _url(log: Path) -> str:
    """Where the service listens."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        for word in log.read_text().split():
            if word.startswith("http://"):
                return word.rstrip("/.,")
        time.sleep(0.1)
    raise SystemExit(log.read_text())
