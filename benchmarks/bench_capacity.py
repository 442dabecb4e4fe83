"""How many workers a manager can feed, as it publishes it, against what it is seen to feed, over a
slow link.

    python benchmarks/bench_capacity.py [--only NAME ...] [--seconds 16] [--json]

A real manager, real agents with several processors each, tasks that sleep and read (or write) a
file of their own. All connections share one link: a proxy with a token bucket each way. For each
link the number of workers is swept. The knee is where throughput stops growing: flat throughput ×
the seconds of one task that has the link to itself. It is held against the capacity that the
manager put into the ledger at each number of workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.api.bags.ad_hoc_agents import write_invitation
from vgrads.api.bags.execution import BagWork, ControlRequests
from vgrads.api.pools.adverts import Advertiser
from vgrads.api.pools.ledger import LedgerEntries
from vgrads.dispatch.document import load_bag
from vgrads.dispatch.storage.folder import keep_bag
from vgrads.exchange.values import AttemptEnd
from vgrads.vgrid.catalog import Catalog

_PIECE = 8 * 2**10
_BURST_S = 0.008
_PROCS = 16  # of an agent, at most
_TASK_S = 1.5
_WITHIN = 0.15


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link and its load: MB/s each way, KB that a task reads and writes, and the workers that are
    tried."""

    mb_s: float
    in_kb: int
    out_kb: int
    workers: tuple[int, ...]
    hinders: str


LINKS = {
    "slow": Link(mb_s=1.0, in_kb=200, out_kb=0, workers=(1, 4, 8, 12, 24), hinders="up-link"),
    "middle": Link(mb_s=2.0, in_kb=200, out_kb=0, workers=(1, 8, 14, 24, 48), hinders="up-link"),
    "fast": Link(mb_s=4.0, in_kb=200, out_kb=0, workers=(1, 16, 28, 48, 80), hinders="up-link"),
    "results": Link(
        mb_s=2.0, in_kb=20, out_kb=200, workers=(1, 8, 14, 24, 48), hinders="down-link"
    ),
}


class Bucket:
    """What one direction lets through: ``rate`` bytes a second, in the order in which they come."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free_s = rate, 0.0

    async def take(self, count: int) -> None:
        """Wait until so many bytes have gone."""
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(self._free_s, now_s - _BURST_S) + count / self._rate
        await asyncio.sleep(self._free_s - now_s)


class Proxy:
    """A slow link in user space, on a thread of its own. ``to``: the manager's port."""

    def __init__(self, mb_s: float) -> None:
        self.to = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _PIECE)
        self.port = int(self._socket.getsockname()[1])
        self._rate, self._loop = mb_s * 1e6, asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._up, self._down = Bucket(self._rate), Bucket(self._rate)
        self._loop.run_until_complete(
            asyncio.start_server(self._serve, sock=self._socket, limit=_PIECE)
        )
        self._loop.run_forever()

    async def _serve(self, far: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _PIECE)
        plain.setblocking(False)
        await self._loop.sock_connect(plain, ("127.0.0.1", self.to))
        near, there = await asyncio.open_connection(sock=plain, limit=_PIECE)
        await asyncio.gather(self._carry(near, back, self._up), self._carry(far, there, self._down))

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, bucket: Bucket
    ) -> None:
        with suppress(OSError):
            while piece := await source.read(_PIECE):
                await bucket.take(len(piece))
                target.write(piece)
                await target.drain()
        target.close()


class Book:
    """A ledger that keeps what is said."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def publish_manager(self, name: str, entry: Mapping[str, Any]) -> LedgerEntries:  # noqa: ARG002
        self.entries.append(dict(entry))
        return LedgerEntries()

    def publish_pool(self, name: str, entry: Mapping[str, Any]) -> None: ...

    def read(self) -> LedgerEntries:
        return LedgerEntries()

    def withdraw(self, kind: str, name: str) -> None: ...


@dataclass
class Watching(Advertiser):
    """Keeps the ends as well."""

    ends: list[AttemptEnd] = field(default_factory=list)

    def on_end(self, bag: int, end: AttemptEnd) -> None:
        self.ends.append(end)
        super().on_end(bag, end)


@dataclass(frozen=True, kw_only=True)
class ObservedCapacity:
    """One number of workers on a link: tasks/s once all were there, mean seconds of a task at its
    worker with its transfers, and the capacity that stood in the ledger."""

    workers: int
    tasks_s: float
    task_s: float
    capacity: dict[str, Any]


def _bag(folder: Path, link: Link, tasks: int) -> None:
    source = folder / "source"
    (source / "in").mkdir(parents=True)
    for n in range(tasks):
        (source / "in" / f"{n}.dat").write_bytes(
            f"{n:020}".encode() + os.urandom(link.in_kb * 1000 - 20)
        )
    command, more = f"sleep {_TASK_S}", ""
    if link.out_kb:
        command += f"; head -c {link.out_kb * 1000} /dev/zero > out.{{task}}"
        more = 'outputs: ["out.{task}"]\n'
    path = source / "bag.yaml"
    path.write_text(
        f"name: load\ncommand: '{command}'\nparameters: {{n: {{range: [{tasks}]}}}}\n"
        f'inputs: ["in/{{task}}.dat"]\n{more}sites: [guest]\nhosts: {{guests: true}}\n'
    )
    keep_bag(folder / "work", 0, load_bag(path)[0], source)


def observe(link: Link, workers: int, seconds: float) -> ObservedCapacity:
    """Let so many work on a link for a while."""
    size_mb = max(link.in_kb, link.out_kb) / 1000
    expected = min(workers / _TASK_S, link.mb_s / size_mb)
    ramp_s = 3.0 + 2 * workers * size_mb / link.mb_s
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _bag(folder, link, int(expected * (ramp_s + seconds) * 1.2) + 3 * workers)
        proxy, execution = Proxy(link.mb_s), Book()
        watching = Watching(execution, "load", "load")
        work = BagWork(
            folder / "work",
            Catalog(sites=(), links={}),
            "load",
            ControlRequests,
            extension=watching,
        )
        manager = threading.Thread(target=work.carry_out)
        manager.start()
        agents: list[subprocess.Popen[bytes]] = []
        try:
            while watching._where is None:
                time.sleep(0.05)
            proxy.to = watching._where.port
            script = folder / "join.sh"
            text = write_invitation(folder / "work", "load", "load", "127.0.0.1")
            script.write_text(text.replace(f":{proxy.to}", f":{proxy.port}"))
            for first in range(0, workers, _PROCS):
                agents.append(_agent(script, first, min(_PROCS, workers - first)))
            time.sleep(ramp_s)
            begin = len(watching.ends)
            time.sleep(seconds)
            ends = watching.ends[begin:]
            capacity = next(e["capacity"] for e in reversed(execution.entries) if e["capacity"])
        finally:
            work.end()
            for agent in agents:
                with suppress(ProcessLookupError):
                    os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
            manager.join(90.0)
            proxy.close()
    at = [end.at_s for end in ends]
    each = [end.ran_s + end.fetched_s + end.sent_s for end in ends]
    return ObservedCapacity(
        workers=workers,
        tasks_s=float(np.polyfit(at, np.arange(len(at)), 1)[0]),
        task_s=sum(each) / len(each),
        capacity=capacity,
    )


def _agent(script: Path, number: int, procs: int) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("VGRADS_", "PYTHON"))}
    environment |= {"VGRADS_HOST_NAME": f"w{number}", "VGRADS_HOST_PROCS": str(procs)}
    return subprocess.Popen(["sh", str(script)], env=environment, cwd="/", start_new_session=True)


def swept(name: str, seconds: float) -> dict[str, Any]:
    """One link: all numbers of workers, the knee, and how far what was published is from it."""
    link = LINKS[name]
    rows = [observe(link, workers, seconds) for workers in link.workers]
    flat = max(rows[-2].tasks_s, rows[-1].tasks_s)  # well beyond the knee
    alone_s = rows[0].task_s
    knee = flat * alone_s
    off = [row.capacity["value"] / knee - 1.0 for row in rows]
    return {
        "link": name,
        **asdict(link),
        "flat_tasks_s": flat,
        "alone_s": alone_s,
        "knee": knee,
        "rows": [asdict(row) | {"off": item} for row, item in zip(rows, off, strict=True)],
        "good": all(abs(row) <= _WITHIN for row in off)
        and all(r.capacity["bottleneck"] == link.hinders for r in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=LINKS, default=list(LINKS))
    parser.add_argument("--seconds", type=float, default=16.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    results = []
    if not chosen.json:
        print(
            "| link, MB/s | workers | tasks/s | knee | capacity published (90 %) | off | "
            "hindered by | |\n|---|--:|--:|--:|--:|--:|---|---|"
        )
    for name in chosen.only:
        payload = swept(name, chosen.seconds)
        results.append(payload)
        for row in () if chosen.json else payload["rows"]:
            capacity = row["capacity"]
            good = abs(row["off"]) <= _WITHIN and capacity["bottleneck"] == payload["hinders"]
            print(
                f"| {name}, {payload['mb_s']:g} | {row['workers']} | {row['tasks_s']:.2f} | "
                f"{payload['knee']:.1f} | "
                f"{capacity['value']:.1f} ({capacity['low']:.1f}–{capacity['high']:.1f}) | "
                f"{row['off']:+.0%} | "
                f"{capacity['bottleneck']} | {'' if good else 'missed'} |",
                flush=True,
            )
    if chosen.json:
        print(json.dumps(results, indent=1))
    sys.exit(0 if all(item["good"] for item in results) else 1)


if __name__ == "__main__":
    main()
