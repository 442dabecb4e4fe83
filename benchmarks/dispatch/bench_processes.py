"""Process tasks a second through ``vgrads bags run``, against Ray, Parsl, Dask and HyperQueue.

    python benchmarks/dispatch/bench_processes.py [--rounds 7] [--tasks 4000] [--busy 4]

Each task is ``true``, on two processors. In each round all are measured one after the other, in an
order that changes; first with nothing else running, then beside processes that compute without end.
A ratio is the median of the ratios of the rounds. Ours counts from the submission to the last end,
with the start of the agent; peers are warm (``dispatch_peers.py``, which says how to name their
interpreters). A load is the system's average over a minute before a measurement, lowest and
highest of the rounds: of the measurement before it as well.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from commands import vgrads_s
from dispatch_peers import SCRIPTS, measured
from dispatch_rows import by_command
from rounds import Measured, busy_processes, children_cpu_s, interleaved, load, median_ratio

OURS, XARGS = "vgrads", "`xargs -P2 -n1`"
_HEAD = """| {title} | rounds | load before | tasks/s | vgrads ÷ it | CPU ms a task |
|---|--:|--:|--:|--:|--:|"""


def _xargs(count: int) -> float:
    began = time.perf_counter()
    numbers = "\n".join(map(str, range(count)))
    subprocess.run(["xargs", "-P2", "-n1", "true"], input=numbers, text=True, check=True)
    return count / (time.perf_counter() - began)


def _rounds(rounds: int, tasks: int) -> dict[str, Measured[float]]:
    programs: dict[str, Callable[[], float | str]] = {
        OURS: partial(by_command, "true", tasks),
        XARGS: partial(_xargs, tasks),
        **{name: partial(measured, name, "process", tasks) for name in SCRIPTS},
    }
    return interleaved(programs, rounds)


def _print_table(title: str, tasks: int, results: dict[str, Measured[float]]) -> None:
    print(_HEAD.format(title=title))
    ours = results[OURS].values
    for name, item in results.items():
        shown = "" if name == OURS else f"{median_ratio(ours, item.values):.2f}"
        cpu = f"{median(item.cpu_s) / tasks * 1e3:.2f}" if name in (OURS, XARGS) else ""
        rate = f"{median(item.values):,.0f}"
        print(f"| {name} | {len(item.values)} | {item.load_range} | {rate} | {shown} | {cpu} |")
    peers = [item.values for name, item in results.items() if name in SCRIPTS]
    if peers:
        best = [max(rates) for rates in zip(*peers, strict=True)]
        ratio = median_ratio(ours, best)
        print(f"| best peer of each round | {len(best)} | | {median(best):,.0f} | {ratio:.2f} | |")
    print(flush=True)


def _single_task(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.yaml").write_text('name: one\ncommand: "true"\n')
        loads, seconds, cpu_s = [], [], []
        vgrads_s(folder, "bags", "run", "one.yaml")  # creates the database
        for _ in range(rounds):
            loads.append(load())
            before_s = children_cpu_s()
            seconds.append(vgrads_s(folder, "bags", "run", "one.yaml"))
            cpu_s.append(children_cpu_s() - before_s)
    print("| `vgrads bags run` of one task | rounds | load before | s | fastest s | CPU s |")
    print("|---|--:|--:|--:|--:|--:|")
    print(
        f"| `true` | {rounds} | {min(loads):.1f}–{max(loads):.1f} | {median(seconds):.2f} "
        f"| {min(seconds):.2f} | {median(cpu_s):.2f} |\n",
        flush=True,
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--busy", type=int, default=4)
    chosen = parser.parse_args()
    _single_task(chosen.rounds)
    results = _rounds(chosen.rounds, chosen.tasks)
    _print_table("nothing else started", chosen.tasks, results)
    with busy_processes(chosen.busy):
        title, tasks = f"beside {chosen.busy} busy processes", max(1, chosen.tasks // 4)
        _print_table(title, tasks, _rounds(chosen.rounds, tasks))


if __name__ == "__main__":
    main()
