"""The dispatcher is killed while hosts work, and comes back: what it takes to read its journal, and
how hosts return."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dispatch_load import template

from vgrads.dispatch.storage.folder import keep_bag
from vgrads.dispatch.storage.journal import read_ends
from vgrads.exchange.keys import open_keys

_HERE = Path(__file__).parent


class Script:
    """A script of this folder at work; what it told last, and all that it told."""

    def __init__(self, name: str, *words: Any) -> None:
        command = [sys.executable, str(_HERE / name), *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.messages: list[dict[str, Any]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.messages.append(json.loads(line))

    def until(self, done: Callable[[dict[str, Any]], object], seconds: float) -> dict[str, Any]:
        """What it told when this was so."""
        end_s, observed = time.monotonic() + seconds, 0
        while time.monotonic() < end_s:
            for item in self.messages[observed:]:
                observed += 1
                if done(item):
                    return item
            if self.process.poll() is not None and observed == len(self.messages):
                break
            time.sleep(0.02)
        last = self.messages[-1] if self.messages else "nothing"
        raise SystemExit(f"did not come about; told last: {last}")

    def kill(self) -> None:
        """As kill -9."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, kw_only=True)
class Returned:
    """``read_s``: until the port was open; ``back_s``: from then until all hosts were; hosts that
    came in a second at most."""

    read_s: float
    back_s: float
    most_a_second: float
    before: int
    ended_themselves: int
    twice: int = 0
    doubled: int = 0
    done: int = 0


def storm(agents: int, away_s: float) -> Returned:
    """Half of the hosts have a long task, the others wait for one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        open_keys(folder)
        keep_bag(folder, 0, template(agents // 2, runtime_s=1e5), folder)
        server = Script("dispatch_server.py", folder)
        server.until(bool, 60)
        talking = Script("protocol_agents.py", folder, agents, 1e5)
        try:
            server.until(lambda payload: payload["connected"] == agents, 120)
            server.kill()
            time.sleep(away_s)
            return _back(folder, agents, server, talking)
        finally:
            talking.kill()
            server.kill()


def _back(folder: Path, agents: int, before: Script, talking: Script) -> Returned:
    existing = before.messages[-1]["done"]
    server = Script("dispatch_server.py", folder)
    try:
        first = server.until(bool, 120)
        back = server.until(lambda payload: payload["connected"] == agents or payload["over"], 180)
        requested = np.array(
            [(first["at"] - 0.2, 0)] + [(t["at"], t["connected"]) for t in server.messages]
        )
        rates = [
            (b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(requested, requested[5:], strict=False)
        ]
        return Returned(
            read_s=first["read_s"],
            back_s=back["at"] - first["at"],
            most_a_second=max(rates, default=0.0),
            before=first["before"] - existing,
            ended_themselves=talking.messages[-1]["ended"],
        )
    finally:
        before.process = server.process


def restart(tasks: int, agents: int = 64) -> Returned:
    """Killed at 45 % (of 2 M tasks: just before a segment of the journal is full); at the end, ends
    are counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        open_keys(folder)
        keep_bag(folder, 0, template(tasks), folder)
        server = Script("dispatch_server.py", folder)
        server.until(bool, 60)
        talking = Script("protocol_agents.py", folder, agents, 0.0)
        try:
            server.until(lambda payload: payload["done"] >= 0.45 * tasks, 300)
            server.kill()
            returned = _back(folder, agents, server, talking)
            server.process.wait()
            good = [ends["task"][ends["code"] == 0] for ends in read_ends(folder / "journal", 0)]
            counts = np.bincount(np.concatenate(good), minlength=tasks)
            time.sleep(1.0)  # hosts tell once more
            return Returned(
                **{
                    **vars(returned),
                    "twice": talking.messages[-1]["twice"],
                    "doubled": int((counts > 1).sum()),
                    "done": int((counts > 0).sum()),
                }
            )
        finally:
            talking.kill()
            server.kill()
