"""Peers of the dispatcher, each in an interpreter of its own: tasks a second, of nothing and of a
process.

PARSL_PYTHON, RAY_PYTHON and HYPERQUEUE_PYTHON name interpreters that have them; Dask runs from this
environment. Dask, Parsl and Ray call a function that does nothing, or one that begins ``true`` and
waits for it. HyperQueue's wheel has no tasks of nothing (its workers that only pretend are built
from source): processes alone, whose output goes nowhere, as tasks of a job. Submission counts, with
every one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_TASKS = """
import subprocess, sys, time
def nothing(n): return 0
def process(n):
    import subprocess
    return subprocess.run(["true"]).returncode
def seconds(go, numbers):
    begin = time.perf_counter()
    assert not any(go(numbers))
    return time.perf_counter() - begin
def measure(count, go):
    go(range(-20, 0))
    if sys.argv[3] == "rate":
        print(count / seconds(go, range(count)))
        return
    times = sorted(seconds(go, [n]) for n in range(count))
    print(times[count // 2] * 1e3, times[count * 99 // 100] * 1e3)
"""
SCRIPTS = {
    "Dask": """
from distributed import Client
if __name__ == "__main__":
    what, count = globals()[sys.argv[1]], int(sys.argv[2])
    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    measure(count, lambda numbers: client.gather(client.map(what, numbers, pure=False)))
""",
    "Parsl HTEX": """
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
if __name__ == "__main__":
    what, count = parsl.python_app(globals()[sys.argv[1]]), int(sys.argv[2])
    here = LocalProvider(max_blocks=1, init_blocks=1)
    executor = HighThroughputExecutor(max_workers_per_node=2, address="127.0.0.1", provider=here)
    with parsl.load(Config(executors=[executor], run_dir="runs")):
        measure(count, lambda numbers: [f.result() for f in [what(n) for n in numbers]])
""",
    "Ray": """
import ray
if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    what, count = ray.remote(globals()[sys.argv[1]]), int(sys.argv[2])
    measure(count, lambda numbers: ray.get([what.remote(n) for n in numbers]))
""",
    "HyperQueue": """
import contextlib
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig
if __name__ == "__main__":
    if sys.argv[1] == "nothing":
        sys.exit("its wheel has no tasks of nothing")
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=2))
        client = cluster.client()
        def go(numbers):
            job = Job()
            for _ in numbers:
                job.program(["true"], stdout=None, stderr=None)
            client.wait_for_jobs([client.submit(job)])
            return []
        measure(int(sys.argv[2]), go)
""",
}


def measured(name: str, what: str, count: int) -> float | str:
    """Tasks a second of a peer, ``nothing`` or ``process``; why not, where it is not there."""
    result = run_peer(name, what, count, "rate")
    return result if isinstance(result, str) else result[0]


def latencies_ms(name: str, what: str, count: int) -> list[float] | str:
    """Milliseconds from submission to result, of one task at a time: median and 99th percentile;
    why not, where it is not there."""
    return run_peer(name, what, count, "latency")


def run_peer(name: str, what: str, count: int, measure: str) -> list[float] | str:
    """Run the script of a peer; return what it measured, or why it could not."""
    variable = name.split(maxsplit=1)[0].upper() + "_PYTHON"
    python = sys.executable if name == "Dask" else os.environ.get(variable, "")
    if not python:
        return f"{variable} names no interpreter that has it"
    environment = os.environ | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    return run_script(python, SCRIPTS[name], [what, str(count), measure], environment)


def run_script(
    python: str, script: str, words: Sequence[str], environment: Mapping[str, str]
) -> list[float] | str:
    """Run a script that calls ``measure``, in a folder of its own; return the numbers of its last
    line, or the last line of its errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peer.py"
        path.write_text(_TASKS + script)
        done = subprocess.run(
            [python, str(path), *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=environment,
        )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["?"])[-1][:100]
    return [float(word) for word in done.stdout.strip().splitlines()[-1].split()]


def all_measured(what: str, count: int) -> dict[str, float]:
    """Those that could be measured; what could not is said."""
    result = {}
    for name in SCRIPTS:
        rate = measured(name, what, count)
        if isinstance(rate, str):
            print(f"{name}, {what}: not measured: {rate}", flush=True)
        else:
            result[name] = rate
    return result
