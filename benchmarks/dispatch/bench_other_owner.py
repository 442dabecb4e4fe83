"""How long one owner's requests take while another owner loads the service as much as it may.

    python benchmarks/dispatch/bench_other_owner.py [--seconds 15]

Ann opens 100 event streams, sends bodies of 20 MB to two routes, submits bags whose tasks run on
this machine, and lists what she has, all at once and as fast as she is answered. Bob reads his own
set and /healthz. Beside it, in the same run: Bob alone. Service, tasks and clients share this
machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from vgrads.exchange.port import draw_server_ports, read_client_ports
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

ROOT = Path(__file__).parent.parent.parent
SITE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n'
STREAMS, STREAMS_LOAD = 100, "streams"
SET = {
    "name": "small",
    "deadline": "1h",
    "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 60}]}],
}
BAG = {"name": "load", "command": "true {n}", "parameters": {"n": {"range": [0, 200]}}}
LARGE = b'{"name": "' + b"x" * 20_000_000 + b'"}'
Request = tuple[str, str, bytes]


def post(path: str, body: object) -> Request:
    """A request that sends a document."""
    return "POST", path, json.dumps(body).encode()


LOADS: dict[str, tuple[int, list[Request]]] = {
    "large bodies": (4, [("POST", "/v1/joint-submissions/j", LARGE), ("POST", "/v1/bags", LARGE)]),
    "sets and bags": (4, [post("/v1/workflow-sets", SET), post("/v1/bags", BAG)]),
    "lists": (8, [("GET", "/v1/workflow-sets", b""), ("GET", "/v1/bags", b"")]),
}
"""Clients at once, and their requests in turn."""


class Caller:
    """A user's connection that is kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, request: Request) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        method, path, body = request
        self._connection.request(method, path, body, self._head)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def again(self) -> None:
        """Connect anew."""
        self._connection.close()
        self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)


def load(name: str, port: int, token: str, seconds: float) -> None:
    """One process: clients that ask as fast as they are answered."""
    end_s = time.monotonic() + seconds
    count, requests = LOADS[name]

    def client() -> None:
        caller = Caller(port, token)
        while time.monotonic() < end_s:
            for request in requests:
                try:
                    caller.ask(request)
                except (OSError, http.client.HTTPException):
                    caller.again()

    _at_once([client] * count)


def listen(set_id: str, port: int, token: str, seconds: float) -> None:
    """One process: event streams that stay open."""
    end_s, opened = time.monotonic() + seconds, []
    for _ in range(STREAMS):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds + 60)
        with suppress(OSError):
            path = f"/v1/workflow-sets/{set_id}/events"
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        opened.append(connection)
    time.sleep(max(0.0, end_s - time.monotonic()))
    for connection in opened:
        connection.close()


def _at_once(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(caller: Caller, request: Request, seconds: float) -> np.ndarray:
    """Return the seconds of each answer, twenty times a second."""
    end_s, result = time.monotonic() + seconds, []
    while time.monotonic() < end_s:
        begun_s = time.perf_counter()
        status, _ = caller.ask(request)
        assert status == 200, status
        result.append(time.perf_counter() - begun_s)
        time.sleep(max(0.0, 0.05 - result[-1]))
    return np.array(result)


def main() -> None:
    """Bob alone, then beside Ann."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--only", choices=[*LOADS, STREAMS_LOAD], help="this load alone")
    options = parser.parse_args()
    chosen = [options.only] if options.only else [*LOADS, STREAMS_LOAD]
    (port,) = draw_server_ports(1, read_client_ports())
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        tokens = _prepare(home)
        environment = {**os.environ, "VGRADS_HOME": folder}
        command = [sys.executable, "-m", "vgrads", "serve", "--port", str(port)]
        with (home / "log").open("wb") as log:
            service = subprocess.Popen(
                [*command, "--sites", str(home / "sites.toml")],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            _report(port, tokens, options.seconds, chosen)
        finally:
            service.terminate()
            service.wait()


def _prepare(home: Path) -> dict[str, str]:
    (home / "sites.toml").write_text(SITE)
    os.environ["VGRADS_HOME"] = str(home)
    with Store() as store:
        access = AccessControl(store.engine)
        access.grant("here", "ann")
        return {user: access.create(user, ["submit"], 3600.0)[0] for user in ("ann", "bob")}


def _report(port: int, tokens: dict[str, str], seconds: float, chosen: list[str]) -> None:
    _await(port)
    time.sleep(20)  # it learns from its histories first
    ids = {}
    for user, token in tokens.items():
        status, body = Caller(port, token).ask(post("/v1/workflow-sets", SET))
        assert status == 201, body
        ids[user] = json.loads(body)["id"]
    bob = Caller(port, tokens["bob"])
    requests = {
        "/healthz": ("GET", "/healthz", b""),
        "a set of his own": ("GET", f"/v1/workflow-sets/{ids['bob']}", b""),
        "his list": ("GET", "/v1/workflow-sets", b""),
    }
    alone = {name: measure(bob, request, seconds) for name, request in requests.items()}
    span_s = len(requests) * seconds + 6
    spawn = multiprocessing.get_context("spawn")
    ann = tokens["ann"]
    loading = [
        spawn.Process(target=listen, args=(ids["ann"], port, ann, span_s))
        if name == STREAMS_LOAD
        else spawn.Process(target=load, args=(name, port, ann, span_s))
        for name in chosen
    ]
    for process in loading:
        process.start()
    time.sleep(4)
    loaded = {name: measure(bob, request, seconds) for name, request in requests.items()}
    for process in loading:
        process.join()
    print("| Bob reads | p50 alone | p50 beside | p99 alone | p99 beside (ms) | ratio of the p99 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in requests:
        before, after = (np.percentile(r[name], [50, 99]) * 1000 for r in (alone, loaded))
        figures = " | ".join(f"{v:.1f}" for v in (before[0], after[0], before[1], after[1]))
        print(f"| {name} | {figures} | {after[1] / before[1]:.1f} |")


def _await(port: int) -> None:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the service does not come up")


if __name__ == "__main__":
    main()
