"""AccaSim, an independent simulator of batch systems, on a log: ``accasim_peer.py LOG.swf PROCS
POLICY``.

Prints seconds of simulation and the start of every job as JSON. Policies: ``fifo`` and ``easy`` are
AccaSim's own; ``textbook`` is EASY as Lifka describes it, written as a dispatcher of AccaSim, for
its own keeps the head's first reservation even where jobs end early. Needs ``pip install accasim``.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("Mapping", "MutableMapping", "Iterable", "Callable", "Sequence"):
    setattr(collections, _name, getattr(collections.abc, _name))  # AccaSim 1.1 looks for them here

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import (  # noqa: E402
    EASYBackfilling,
    FirstInFirstOut,
    SchedulerBase,
)
from accasim.base.simulator_class import Simulator  # noqa: E402


class Textbook(SchedulerBase):  # type: ignore[misc]
    """EASY with the head's reservation reckoned anew at every event."""

    name = "TEXTBOOK"

    def __init__(self, procs: int) -> None:
        super().__init__(0, None)
        self.procs, self.nodes = procs, FirstFit()
        self.bound = False

    def get_id(self) -> str:
        return self.name

    def scheduling_method(self, now: float, jobs: Any, existing: Any) -> Any:
        if not self.bound:
            self.nodes.set_resource_manager(self.resource_manager)
            self.bound = True
        running = self.resource_manager.current_allocations
        ends = [
            (existing[i].start_time + existing[i].expected_duration, len(nodes))
            for i, nodes in running.items()
        ]
        free = self.procs - sum(width for _, width in ends)
        chosen, rest = _choose(list(jobs), free, ends, now)
        self.nodes.set_resources(self.resource_manager.current_availability)
        placed = self.nodes.allocating_method(chosen, now, skip=False) if chosen else []
        return list(placed) + [(None, job.id, []) for job in rest], []


def _choose(jobs: list[Any], free: int, ends: list[Any], now: float) -> tuple[list[Any], list[Any]]:
    chosen: list[Any] = []
    while jobs and jobs[0].requested_nodes <= free:
        job = jobs.pop(0)
        free -= job.requested_nodes
        ends.append((now + job.expected_duration, job.requested_nodes))
        chosen.append(job)
    if not jobs:
        return chosen, []
    have, shadow = free, math.inf
    for end, width in sorted(ends):
        if end > shadow:
            break
        have += width
        if have >= jobs[0].requested_nodes:
            shadow = end
    spare, rest = have - jobs[0].requested_nodes, [jobs[0]]
    for job in jobs[1:]:
        width, harmless = job.requested_nodes, now + job.expected_duration <= shadow
        if width <= free and (harmless or width <= spare):
            free -= width
            spare -= 0 if harmless else width
            chosen.append(job)
        else:
            rest.append(job)
    return chosen, rest


def main(log: str, procs: int, policy: str) -> None:
    dispatcher = {
        "fifo": lambda: FirstInFirstOut(FirstFit()),
        "easy": lambda: EASYBackfilling(FirstFit()),
        "textbook": lambda: Textbook(procs),
    }[policy]()
    file = Path(log).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        nodes = {
            "groups": {"g": {"core": 1}},
            "resources": {"g": procs},
            "start_time": 0,
            "system_name": "peer",
            "equivalence": {"processor": {"core": 1}},
        }
        Path("nodes.json").write_text(json.dumps(nodes))
        simulator = Simulator(
            str(file),
            "nodes.json",
            dispatcher,
            scheduling_output=True,
            statistics_output=False,
            show_statistics=False,
            RESULTS_FOLDER_NAME=f"{folder}/out",
            SCHEDULE_OUTPUT={
                "format": "{job_id} {start_time}",
                "attributes": {"job_id": ("id", "str"), "start_time": ("start_time", "int")},
            },
        )
        begin = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            written = simulator.start_simulation()
        seconds = time.perf_counter() - begin
        lines = Path(written["sched-"]).read_text().split()
    starts = {job: float(at) for job, at in zip(lines[::2], lines[1::2], strict=True)}
    print(json.dumps({"seconds": seconds, "starts": starts}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
