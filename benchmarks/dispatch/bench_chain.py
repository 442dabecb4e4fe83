"""Seconds for calls that wait for each other, against Dask and Ray.

    python benchmarks/dispatch/bench_chain.py [--rounds 5] [--calls 200] [--busy 4]

Each call adds one to the result of the call before it, which it gets as a future. First with
nothing else running, then beside processes that compute without end. In each round all programs are
measured one after the other, in an order that changes; each has two processors, and is warm
(``dispatch_peers.py``, which says how to name the interpreters of peers). A ratio is the median of
the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from dispatch_peers import run_script
from rounds import Measured, busy_processes, interleaved, median_ratio

OURS = "`vgrads.Executor()`"
_ROOT = Path(__file__).parents[2]
_CHAIN = """
def add_one(number): return number + 1
def chain(submit, result, count):
    result(submit(0))
    begin, future = time.perf_counter(), 0
    for _ in range(count):
        future = submit(future)
    assert result(future) == count
    print(time.perf_counter() - begin)
"""
SCRIPTS = {
    OURS: """
import vgrads
if __name__ == "__main__":
    with vgrads.Executor(max_workers=2) as executor:
        chain(lambda n: executor.submit(add_one, n), lambda f: f.result(), int(sys.argv[1]))
""",
    "Dask": """
from distributed import Client
if __name__ == "__main__":
    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    submit = lambda n: client.submit(add_one, n, pure=False)
    chain(submit, lambda f: f.result(), int(sys.argv[1]))
""",
    "Ray": """
import ray
if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    chain(ray.remote(add_one).remote, ray.get, int(sys.argv[1]))
""",
}


def _measure(name: str, calls: int, home: str) -> float | str:
    python = os.environ.get("RAY_PYTHON", "") if name == "Ray" else sys.executable
    if not python:
        return "RAY_PYTHON names no interpreter that has it"
    environment = {**os.environ, "VGRADS_HOME": home, "PYTHONPATH": str(_ROOT)}
    result = run_script(python, _CHAIN + SCRIPTS[name], [str(calls)], environment)
    return result if isinstance(result, str) else result[0]


def _print(title: str, results: dict[str, Measured[float]]) -> None:
    print(f"| {title} | rounds | load before | s | fastest, slowest | vgrads ÷ it |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, item in results.items():
        ratio = f"{median_ratio(results[OURS].values, item.values):.2f}" if name != OURS else ""
        ends = f"{min(item.values):.2f}, {max(item.values):.2f}"
        row = [name, str(len(item.values)), item.load_range, f"{median(item.values):.2f}", ends]
        print(f"| {' | '.join([*row, ratio])} |")
    print(flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--busy", type=int, default=4)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        programs: dict[str, Callable[[], float | str]] = {
            name: partial(_measure, name, chosen.calls, home) for name in SCRIPTS
        }
        _print("nothing else started", interleaved(programs, chosen.rounds))
        with busy_processes(chosen.busy):
            title = f"beside {chosen.busy} busy processes"
            _print(title, interleaved(programs, chosen.rounds))


if __name__ == "__main__":
    main()
