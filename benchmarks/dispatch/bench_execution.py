"""Planned runs: process tasks a second through the whole manager, against Dask, Parsl, Ray and
HyperQueue, in interleaved rounds.

    python benchmarks/dispatch/bench_execution.py [--tasks 2000] [--rounds 5]

Each task is ``true``; ours runs it through a shell. *The whole manager* plans, journals every event
to SQLite (durably), keeps order, links inputs, commits outputs; every task has a folder and four
files, the peers touch none (``dispatch_peers.py``). On some disks creating a file costs as much as
a process: so it is measured also with the tasks' folders in /dev/shm, the journal on disk. The
engines alone show what the manager adds.
"""

from __future__ import annotations

import argparse
import math
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from dispatch_peers import all_measured

from vgrads.api.plans.execution import run_plan
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.drivers.api import SlotSpec
from vgrads.drivers.local import LocalDriver
from vgrads.exchange.agent_file import write_agent_command
from vgrads.execmgr.engines.agents import AgentEngine
from vgrads.execmgr.engines.base import Engine
from vgrads.execmgr.engines.processes import ProcessEngine
from vgrads.execmgr.tasks.folder import AWAY, TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import WallClock
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

WORKERS = 8


def _tasks_per_second(engine: Engine, count: int, slot: str = "s") -> float:
    """Keep as many tasks running as there are workers."""
    orders = [
        TaskOrder(
            key=("w", f"t{n}", 0), site="here", slot=slot, procs=1, command="true", runtime_s=1.0
        )
        for n in range(count)
    ]
    begin, done, next_up = time.perf_counter(), 0, 0
    while done < count:
        room = WORKERS - (next_up - done)
        engine.start(orders[next_up : next_up + room])
        next_up = min(count, next_up + room)
        engine.wait(1.0)
        done += len(engine.poll())
        engine.stored()
    return count / (time.perf_counter() - begin)


def engine_alone(count: int, place: str | None = None) -> float:
    """The process engine by itself, with scratch folders and commits."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        (Path(folder) / "set").mkdir()
        files = TaskFolder(Path(folder) / "run", Path(folder) / "set")
        return _tasks_per_second(ProcessEngine(WallClock(), files, queue.Queue()), count)


def agents_alone(count: int, place: str | None = None) -> float:
    """The engine of slots elsewhere with an agent on this machine, over TLS; prints how long the
    first task took from the start of the slot."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        (Path(folder) / "set").mkdir()
        files = TaskFolder(Path(folder) / "run", Path(folder) / "set", AWAY)
        clock, driver = WallClock(), LocalDriver(WORKERS, WallClock())
        engine = AgentEngine("bench", clock, files)
        name = f"bench.{os.getpid()}"
        environment = engine.environment("127.0.0.1")
        begin = time.perf_counter()
        driver.submit(
            SlotSpec(
                id=name,
                name="s",
                site="here",
                queue="",
                procs=WORKERS,
                duration_s=3600.0,
                environment={**environment, **engine.key_for(f"{os.getpid()}", name)},
                pilot=write_agent_command(sys.executable),
            )
        )
        first = TaskOrder(
            key=("w", "first", 0),
            site="here",
            slot=f"{os.getpid()}",
            procs=1,
            command="true",
            runtime_s=1.0,
        )
        engine.start([first])
        while not engine.poll():
            engine.wait(1.0)
        seconds = time.perf_counter() - begin
        print(f"agent engine       first task ended {seconds:.2f} s after the slot")
        try:
            return _tasks_per_second(engine, count, first.slot)
        finally:
            engine.close()
            driver.close()


def whole_manager(count: int, place: str | None = None) -> float:
    """From plan to outcome, with a durable journal on disk; ``place``: of the tasks' folders."""
    tasks = [Task(id=f"t{n}", runtime_s=1.0, command="true") for n in range(count)]
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir=place) as folder:
        (Path(folder) / "set").mkdir()
        workflow_set = WorkflowSet(
            name="bench",
            workflows=(make_workflow("w", tasks),),
            deadline_s=3600.0 + count,
            needed=1,
            directory=str(Path(folder) / "set"),
        )
        site = Site(
            name="here",
            kind="local",
            procs=WORKERS,
            driver="local",
            nodes=(NodeType(cores=WORKERS),),
        )
        planned = plan_set(workflow_set, open_grid(Catalog(sites=(site,), links={})))
        assert planned.plan.feasible, planned.plan.lacking
        with Store(f"sqlite:///{disk}/bench.db") as store:
            set_id = store.add_set("bench", {}, {"slots": []}, {})
            run_id = store.add_run(set_id)
            record = RunRecord(store.engine, run_id)
            record.lease.take()
            begin = time.perf_counter()
            outcome = run_plan(
                planned, RunOptions(run_id=run_id, folder=Path(folder) / "run"), record
            )
            seconds = time.perf_counter() - begin
        assert outcome.kept
    return count / seconds


def measures() -> dict[str, Callable[[int], float]]:
    """What is measured of ours, by name: tasks a second of a number of tasks."""
    result: dict[str, Callable[[int], float]] = {
        "the whole manager": whole_manager,
        "process engine": engine_alone,
        "agent engine": agents_alone,
    }
    if Path("/dev/shm").is_dir():
        result["the whole manager, tasks' folders in memory"] = partial(
            whole_manager, place="/dev/shm"
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    before, ours = os.getloadavg()[0], measures()
    rates: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        peers = all_measured("process", options.tasks)
        mine = {name: measure(options.tasks) for name, measure in ours.items()}
        for name, rate in {**peers, **mine}.items():
            rates.setdefault(name, []).append(rate)
            ratios.setdefault(name, []).append(rate / max(peers.values(), default=math.nan))
    print(f"load before: {before:.2f}; rounds: {options.rounds}; tasks: {options.tasks:,}\n")
    print("| | tasks/s, median | ÷ the best peer of the round | least to most |\n|---|--:|--:|--:|")
    for name, of_name in ratios.items():
        low, middle, high = min(of_name), median(of_name), max(of_name)
        print(f"| {name} | {median(rates[name]):,.0f} | {middle:.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
