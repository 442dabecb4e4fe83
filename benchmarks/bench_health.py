"""How long /healthz takes while strangers without a token are at the door.

    python benchmarks/bench_health.py [--seconds 15]

Eight clients of each kind at once, all without a token: bodies of 25 MB, YAML whose aliases stand
for billions of values, wrong tokens, methods that nobody knows. Beside it, in the same run: the
same service with nobody there. All of it (service, clients, the one who measures) shares this
machine.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from vgrads.exchange.port import draw_server_ports, read_client_ports

ROOT = Path(__file__).parent.parent
CLIENTS = 8
BODY = b'{"name": "' + b"x" * 25_000_000 + b'"}'
FLOOD = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"b%d: &b%d [%s]\n" % (n, n, b",".join([b"*b%d" % (n - 1) if n else b"*a"] * 9))
    for n in range(9)
)


def huge(connection: http.client.HTTPConnection, _: int) -> None:
    """A body that nobody asked for."""
    connection.request("POST", "/v1/workflow-sets", BODY, {"Content-Type": "application/json"})


def flood(connection: http.client.HTTPConnection, _: int) -> None:
    """A few lines that stand for billions of values."""
    connection.request("POST", "/v1/workflow-sets", FLOOD, {"Content-Type": "application/yaml"})


def wrong(connection: http.client.HTTPConnection, number: int) -> None:
    """A token that is none, another one each time."""
    connection.request("GET", "/v1/workflow-sets", headers={"Authorization": f"Bearer vg_{number}"})


def odd(connection: http.client.HTTPConnection, number: int) -> None:
    """A method that nobody knows."""
    connection.request(f"BREW{number}", "/")


KINDS = (huge, flood, wrong, odd)


def press(kind: int, port: int, seconds: float) -> None:
    """One process: eight clients of a kind, asking as fast as they are answered."""
    end_s = time.monotonic() + seconds

    def client(first: int) -> None:
        number = first * 10**6
        while time.monotonic() < end_s:
            number += 1
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with suppress(OSError, http.client.HTTPException):
                KINDS[kind](connection, number)
                connection.getresponse().read()
            connection.close()

    threads = [threading.Thread(target=client, args=(n + 1,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def healthz(port: int, seconds: float) -> np.ndarray:
    """Seconds of each answer, fifty times a second, over a connection that stays."""
    end_s, result = time.monotonic() + seconds, []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while time.monotonic() < end_s:
        begun_s = time.perf_counter()
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        result.append(time.perf_counter() - begun_s)
        time.sleep(max(0.0, 0.02 - result[-1]))
    return np.array(result)


def main() -> None:
    """Quiet, then under siege."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15.0)
    seconds = parser.parse_args().seconds
    (port,) = draw_server_ports(1, read_client_ports())
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "VGRADS_HOME": home, "VGRADS_TOKENS": "required"}
        command = [sys.executable, "-m", "vgrads", "serve", "--port", str(port)]
        with (Path(home) / "log").open("wb") as log:
            service = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            _await(port)
            time.sleep(20)  # it learns from its histories first
            quiet = healthz(port, seconds)
            pressing = [
                multiprocessing.get_context("spawn").Process(
                    target=press, args=(n, port, seconds + 4)
                )
                for n in range(len(KINDS))
            ]
            for process in pressing:
                process.start()
            time.sleep(3)
            besieged = healthz(port, seconds)
            for process in pressing:
                process.join()
        finally:
            service.terminate()
            service.wait()
    print("| /healthz | answers | p50 (ms) | p99 (ms) | most (ms) |\n|---|--:|--:|--:|--:|")
    for name, result in (
        ("nobody there", quiet),
        (f"{CLIENTS} × {len(KINDS)} strangers", besieged),
    ):
        p50, p99 = np.percentile(result, [50, 99]) * 1000
        print(f"| {name} | {len(result)} | {p50:.1f} | {p99:.1f} | {result.max() * 1000:.1f} |")
    print(f"\nratio of the p99: {np.percentile(besieged, 99) / np.percentile(quiet, 99):.1f}")


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
