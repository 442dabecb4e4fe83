"""The service under load: 200 clients poll charts and bounds while sets are planned and run, beside
a plain endpoint.

Everything on the loopback address: ``vgrads serve`` with two planners, a plain FastAPI application
that gives the same bytes from memory, and the clients, all on this machine's processors. Each
client asks once a second (with the ETag that it has, as pages do), so waits show how long an answer
takes, not how many fit. Then the same without pauses from 8 clients, for the most that can be
answered. Last, listeners that break off every few events: whether any event is lost.

    python benchmarks/bench_portal.py [--clients 200] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.kernel.errors import VgradsError
from vgrads.portal.client import Client

PLAIN = """
import sys, uvicorn
from fastapi import FastAPI, Response
app, body = FastAPI(), open(sys.argv[2], "rb").read()
@app.get("/same")
def same(): return Response(body, media_type="application/json")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""
STORM = {
    "name": "storm",
    "deadline": "2h",
    "at_least": 6,
    "workflows": [{"file": "lead.json", "count": 8}],
}


class Connection:
    """One HTTP/1.1 connection that is kept open: as little as a load needs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tags: dict[str, str] = {}

    async def open(self) -> None:
        self._in, self._out = await asyncio.open_connection("127.0.0.1", self._port)

    async def get(self, path: str) -> int:
        """The status of the answer, whose body is read."""
        tag = f"If-None-Match: {self._tags[path]}\r\n" if path in self._tags else ""
        self._out.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{tag}\r\n".encode())
        head = (await self._in.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        fields = {name.lower(): value for name, value in fields.items()}
        if "etag" in fields:
            self._tags[path] = fields["etag"]
        await self._in.readexactly(int(fields.get("content-length", 0)))
        return int(head[0].split()[1])


async def poll(
    port: int, paths: list[str], seconds: float, pause_s: float, phase: float
) -> list[float]:
    """Ask in turn for these paths; seconds that each answer took."""
    connection, took = Connection(port), []
    await connection.open()
    await asyncio.sleep(phase * pause_s)
    end = time.perf_counter() + seconds
    number = 0
    while (began := time.perf_counter()) < end:
        status = await connection.get(paths[number % len(paths)])
        assert status in (200, 304), status
        took.append(time.perf_counter() - began)
        number += 1
        await asyncio.sleep(max(0.0, pause_s - took[-1]))
    return took


async def load(
    port: int, paths: list[str], clients: int, seconds: float, pause_s: float
) -> np.ndarray:
    """What all clients saw."""
    result = await asyncio.gather(
        *(poll(port, paths, seconds, pause_s, i / clients) for i in range(clients))
    )
    return 1000 * np.array([value for many in result for value in many])


def describe(name: str, ms: np.ndarray, seconds: float) -> str:
    p50, p99 = np.percentile(ms, [50, 99])
    return f"| {name} | {len(ms) / seconds:.0f} | {p50:.1f} | {p99:.1f} | {ms.max():.0f} |"


def start(command: list[str], port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            Client(f"http://127.0.0.1:{port}", timeout_s=2)._ask("GET", "/healthz")
            break
        except VgradsError as error:
            if not error.transient:  # it answers, though not to this
                break
            time.sleep(0.1)
    return process


def keep_planning(client: Client, stop: threading.Event, counts: dict[str, int]) -> None:
    """Hand sets over and run them, one after the other, all the time."""
    while not stop.is_set():
        set_id = client.submit(STORM)
        counts["planned"] += 1
        client.wait(client.run(set_id))
        counts["run"] += 1


def lost_events(client: Client) -> tuple[int, int]:
    """Events of a run, and how many of them a listener missed or saw twice that breaks off after
    every third."""
    run = client.run(client.submit(STORM), speed=1200)
    observed: list[str] = []
    while not observed or not observed[-1].endswith(":end"):
        for number, event in enumerate(client.events(run, after=observed[-1] if observed else "")):
            observed.append(event["id"])
            if number == 2 or event["event"] == "end":
                break
    whole = [event["id"] for event in client.events(run)]
    return len(whole), len(set(whole) ^ set(observed)) + len(observed) - len(set(observed))


def measure(clients: int, seconds: float, home: Path) -> list[str]:
    environment = {
        **os.environ,
        "VGRADS_HOME": str(home),
        "VGRADS_RATE": "",
        "VGRADS_DB": f"sqlite:///{home}/v.db",
    }
    port, plain_port = 18_123, 18_124
    service = start(
        [sys.executable, "-m", "vgrads", "serve", "--port", str(port)], port, environment
    )
    client = Client(f"http://127.0.0.1:{port}")
    set_id = client.submit(STORM)
    chart = home / "chart.json"
    chart.write_text(json.dumps(client.gantt(set_id)))
    (home / "plain.py").write_text(PLAIN)
    plain = start(
        [sys.executable, str(home / "plain.py"), str(plain_port), str(chart)],
        plain_port,
        environment,
    )
    gantt = f"/v1/workflow-sets/{set_id}/gantt"
    bound = "/v1/sites/mercury/queues/default/bound?procs=16&walltime_s=3600"
    rows = [
        (
            f"Chart: {chart.stat().st_size / 1024:.0f} KiB. {os.cpu_count()} processors for "
            "everything."
        ),
        "",
        "| what | answers/s | p50 ms | p99 ms | longest ms |",
        "|---|--:|--:|--:|--:|",
    ]
    try:
        run = asyncio.run
        rows.append(
            describe(
                f"plain, {clients} clients, 1 a second",
                run(load(plain_port, ["/same"], clients, seconds, 1.0)),
                seconds,
            )
        )
        rows.append(
            describe(
                "vgrads at rest, the same",
                run(load(port, [gantt, bound], clients, seconds, 1.0)),
                seconds,
            )
        )
        stop, counts = threading.Event(), {"planned": 0, "run": 0}
        worker = threading.Thread(target=keep_planning, args=(client, stop, counts), daemon=True)
        worker.start()
        rows.append(
            describe(
                "vgrads while sets are planned and run",
                run(load(port, [gantt, bound], clients, seconds, 1.0)),
                seconds,
            )
        )
        stop.set()
        worker.join(60)
        rows.append(
            describe(
                "plain, 8 clients without pause", run(load(plain_port, ["/same"], 8, 5, 0.0)), 5
            )
        )
        rows.append(
            describe("vgrads, chart (304), the same", run(load(port, [gantt], 8, 5, 0.0)), 5)
        )
        rows.append(describe("vgrads, bound, the same", run(load(port, [bound], 8, 5, 0.0)), 5))
        events, lost = lost_events(client)
        rows += [
            "",
            (
                f"Meanwhile {counts['planned']} sets were planned and {counts['run']} run to "
                "their end."
            ),
            (
                f"A listener that broke off after every third of {events} events missed or "
                f"doubled {lost}."
            ),
        ]
    finally:
        for process in (service, plain):
            process.terminate()
            process.wait(30)
    return rows


def main(arguments: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(measure(options.clients, options.seconds, Path(folder))))


if __name__ == "__main__":
    main()
