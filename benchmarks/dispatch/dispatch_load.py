"""A dispatcher's manager in this process, hosts that run nothing in another one: what an exchange
costs.

Each measurement wants a process of its own (:func:`alone`): memory of one is not another's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.folder import StoredBag, keep_bag
from vgrads.exchange.keys import derive_key, open_keys
from vgrads.kernel.clock import WallClock

AGENTS = Path(__file__).with_name("noop_hosts.py")
SINGLE = Rules(in_hand_s=0.0)
"""A host of one processor has one task and one more that was fetched before."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is measured. ``single``: every end is a message of its own; ``seconds``: how long hosts
    take for a task; ``behind``: further tasks, which still wait when the measurement ends."""

    tasks: int
    agents: int
    tls: bool = True
    single: bool = False
    seconds: float = 0.0
    behind: int = 0


@dataclass(kw_only=True)
class StageResult:
    """How it went. ``ends``: in each second; memory in MiB; ``first_s``: from the first task given
    to the last end."""

    seconds: float = 0.0
    exchanges: int = 0
    ends: list[int] = field(default_factory=list)
    before_mib: float = 0.0
    queued_mib: float = 0.0
    peak_mib: float = 0.0
    journal_bytes: int = 0


def alone(what: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(what, *arguments).result()


def memory_mib(which: str = "VmRSS") -> float:
    """What this process has in memory, or (VmHWM) had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(which)) / 1024.0


def template(tasks: int, **more: Any) -> BagDocument:
    """A bag of this many tasks."""
    count = {"x": {"range": [tasks]}}
    return BagDocument.model_validate(
        {"name": "noop", "command": "true {x}", "parameters": count, **more}
    )


def keys_file(folder: Path, secret: bytes, agents: int) -> Path:
    """A slot and its key for each host."""
    path = folder / "keys"
    path.write_text("".join(f"s{n} {derive_key(secret, f's{n}')}\n" for n in range(agents)))
    return path


def served(load: Load) -> StageResult:
    """Hosts work a bag off."""
    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(_served(load, Path(name)))


async def _served(load: Load, folder: Path) -> StageResult:
    keys = open_keys(folder)
    rules = SINGLE if load.single else Rules()
    manager = DispatchManager(
        DispatcherConfig(folder=folder, secret=keys.secret, rules=rules), WallClock()
    )
    ran = StageResult(before_mib=memory_mib())
    retained: StoredBag = keep_bag(folder, 0, template(load.tasks + load.behind), folder)
    manager.add(0, retained.bag, retained.files)
    ran.queued_mib = memory_mib()
    port = await manager.port.listen("127.0.0.1", 0, keys.context() if load.tls else None)
    work = asyncio.ensure_future(manager.work())
    contact = f"{'tls' if load.tls else 'tcp'}://127.0.0.1:{port}"
    words = [contact, str(keys_file(folder, keys.secret, load.agents)), f"--seconds={load.seconds}"]
    agents = subprocess.Popen(
        [sys.executable, str(AGENTS), *words, *(["--single"] if load.single else [])]
    )
    bag = manager.state.bags[0]
    try:
        while not bag.tasks.counts[DONE]:  # hosts come up
            await asyncio.sleep(0.005)
        begin, before, second = time.perf_counter(), bag.tasks.counts[DONE], 1
        while bag.tasks.counts[DONE] < load.tasks:
            await asyncio.sleep(0.005)
            if time.perf_counter() - begin >= second:
                second += 1
                ran.ends.append(bag.tasks.counts[DONE] - before - sum(ran.ends))
        ran.seconds = time.perf_counter() - begin
    finally:
        agents.terminate()
        agents.wait()
    ran.exchanges, ran.peak_mib = manager.port.exchanges, memory_mib("VmHWM")
    await manager.stop()
    await work
    manager.journal.roll(manager.state).carry_out()
    manager.close()
    ran.journal_bytes = sum(path.stat().st_size for path in (folder / "journal").iterdir())
    return ran
