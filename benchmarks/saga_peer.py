"""HEFT of anrg-saga on a problem read from stdin; prints seconds and the makespan as JSON.

The problem: ``{"tasks": {id: seconds}, "edges": [[parent, child, mib]], "speeds": [...],
"bandwidth_mib_s": x}``. Needs ``pip install anrg-saga``.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import combinations_with_replacement

from saga import Network, TaskGraph
from saga.schedulers import HeftScheduler


def main() -> None:
    problem = json.load(sys.stdin)
    nodes = [(f"n{i}", speed) for i, speed in enumerate(problem["speeds"])]
    names = [name for name, _ in nodes]
    edges = [
        (a, b, float("inf") if a == b else problem["bandwidth_mib_s"])
        for a, b in combinations_with_replacement(names, 2)
    ]
    graph = TaskGraph.create(
        tasks=list(problem["tasks"].items()), dependencies=[tuple(e) for e in problem["edges"]]
    )
    network = Network.create(nodes=nodes, edges=edges)
    begin = time.perf_counter()
    schedule = HeftScheduler().schedule(network, graph)
    print(json.dumps({"seconds": time.perf_counter() - begin, "makespan": schedule.makespan}))


if __name__ == "__main__":
    main()
