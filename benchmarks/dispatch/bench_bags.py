"""One simulation of bags on twenty clusters: ours against the same system written plainly with
SimPy.

The same workload (some 60,000 tasks, 60 % load, S-T/FPLT, csp) in both; ends must agree. Then the
growth with ten times the tasks, and the seconds that the paper's 1,200 simulations would take on
two cores.

    python -m pip install simpy; python benchmarks/dispatch/bench_bags.py
"""

from __future__ import annotations

import heapq
import math
import resource
import time
from typing import Any

import numpy as np

from vgrads.workloads.architectures import Algorithm, WorkloadOutcome, simulate
from vgrads.workloads.model import MODELS, Target, draw_bags
from vgrads.workloads.system import System, paper_system
from vgrads.workloads.workload import BagColumns


def workload(days: float) -> tuple[BagColumns, System]:
    """A day or a part of it at 60 % load."""
    system = paper_system()
    target = Target(load=0.6, capacity=system.capacity, clusters=len(system.procs), days=days)
    return draw_bags(MODELS["average"], target, seed=1), system


def plain_simpy(bags: BagColumns, system: System) -> list[float]:
    """Ends of all tasks: a process for the arrivals and one for each task that runs, a heap of what
    waits."""
    import simpy  # noqa: PLC0415  # an alternative that need not be there

    environment = simpy.Environment()
    free, speed = system.procs.tolist(), system.speed.tolist()
    order = sorted(range(len(free)), key=lambda c: -speed[c])
    runtime, waiting, ends = bags.runtime_s.tolist(), [], [0.0] * len(bags.runtime_s)

    def run(task: int, cluster: int) -> Any:
        yield environment.timeout(runtime[task] / speed[cluster])
        ends[task] = environment.now
        free[cluster] += 1
        dispatch()

    def dispatch() -> None:
        while waiting:
            cluster = next((c for c in order if free[c]), None)
            if cluster is None:
                return
            free[cluster] -= 1
            environment.process(run(heapq.heappop(waiting)[1], cluster))

    def arrive() -> Any:
        for bag, at in enumerate(bags.submit_s.tolist()):
            if at > environment.now:
                yield environment.timeout(at - environment.now)
            for task in range(int(bags.first[bag]), int(bags.first[bag + 1])):
                heapq.heappush(waiting, (-runtime[task], task))
            dispatch()

    environment.process(arrive())
    environment.run()
    return ends


def timed(
    bags: BagColumns, system: System, how: Algorithm, repeats: int = 3
) -> tuple[float, WorkloadOutcome]:
    """The best of a few."""
    best, outcome = math.inf, simulate(bags, system, how)
    for _ in range(repeats):
        began = time.perf_counter()
        outcome = simulate(bags, system, how)
        best = min(best, time.perf_counter() - began)
    return best, outcome


def main() -> None:
    bags, system = workload(0.1)
    how = Algorithm()
    ours_s, outcome = timed(bags, system, how)
    count = len(bags.runtime_s)
    print(
        f"{count:,} tasks in {len(bags):,} bags on {system.procs.sum():,} processors: "
        f"{ours_s:.3f} s"
    )
    try:
        began = time.perf_counter()
        ends = plain_simpy(bags, system)
        plain_s = time.perf_counter() - began
        off = float(np.abs(np.array(ends) - outcome.end_s).max())
        print(
            f"plain SimPy: {plain_s:.2f} s, {plain_s / ours_s:.0f} times as long; ends "
            f"differ by {off:.6f} s at most"
        )
    except ImportError:
        print("plain SimPy: left out, simpy is not installed")
    large, _ = workload(1.0)
    large_s, _ = timed(large, system, how, 1)
    exponent = math.log(large_s / ours_s) / math.log(len(large.runtime_s) / count)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(large.runtime_s):,} tasks: {large_s:.2f} s, exponent {exponent:.2f}, peak "
        f"{peak:.0f} MiB"
    )
    print(
        f"1,200 simulations of {len(large.runtime_s):,} tasks on two cores: "
        f"{600 * large_s / 60:.0f} minutes"
    )


if __name__ == "__main__":
    main()
