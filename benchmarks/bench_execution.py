"""Execution: process tasks a second through the whole manager, against Dask, Parsl and Ray used
directly.

    python benchmarks/bench_execution.py [--tasks 2000] [--virtual 100000]

Each task is ``/bin/true`` through a shell. *The whole manager* plans, journals every event to
SQLite (durably), keeps order, links inputs, commits outputs; every task has a folder and four
files, the peers touch none. So both are measured twice: on the disk of the temporary folder, and in
memory (/dev/shm). Dask runs as a peer from this environment; Parsl (high-throughput executor) and
Ray from the interpreters that PARSL_PYTHON and RAY_PYTHON name, skipped with a word where there are
none. The last lines are a large set in virtual time, and memory.
"""

from __future__ import annotations

import argparse
import os
import queue
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vgrads.api.plans.execution import RunOptions, run_plan
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.drivers.simulated import SimulatedCloud, SiteBehaviour
from vgrads.execmgr.core.book import make_book
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.processes import ProcessEngine
from vgrads.execmgr.engines.simulated import SimulatedEngine
from vgrads.execmgr.runner import Runner, Surroundings
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.kernel.clock import SimClock, WallClock
from vgrads.planner.make import make_plan
from vgrads.planner.snapshot import Snapshot
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.simulator.cloud import CloudRegion
from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.vgrid.slot import Slot, certain_from
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

WORKERS = 8
PEERS = {
    "Dask": """
import subprocess, sys, time
from distributed import Client
def task(_): return subprocess.run(["/bin/sh", "-c", "true"]).returncode
if __name__ == "__main__":
    count, workers = map(int, sys.argv[1:])
    client = Client(n_workers=2, threads_per_worker=workers // 2, dashboard_address=None)
    client.gather(client.map(task, range(-20, 0), pure=False))
    begin = time.perf_counter()
    client.gather(client.map(task, range(count), pure=False))
    print(count / (time.perf_counter() - begin))
""",
    "Parsl": """
import sys, time, parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
@parsl.python_app
def task(_):
    import subprocess
    return subprocess.run(["/bin/sh", "-c", "true"]).returncode
if __name__ == "__main__":
    count, workers = map(int, sys.argv[1:])
    executor = HighThroughputExecutor(
        max_workers_per_node=workers, address="127.0.0.1",
        provider=LocalProvider(max_blocks=1, init_blocks=1),
    )
    with parsl.load(Config(executors=[executor], run_dir="/tmp/parsl-bench")):
        [f.result() for f in [task(n) for n in range(20)]]
        begin = time.perf_counter()
        [f.result() for f in [task(n) for n in range(count)]]
        print(count / (time.perf_counter() - begin))
""",
    "Ray": """
import subprocess, sys, time, ray
if __name__ == "__main__":
    count, workers = map(int, sys.argv[1:])
    ray.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR")
    @ray.remote
    def task(_): return subprocess.run(["/bin/sh", "-c", "true"]).returncode
    ray.get([task.remote(n) for n in range(20)])
    begin = time.perf_counter()
    ray.get([task.remote(n) for n in range(count)])
    print(count / (time.perf_counter() - begin))
""",
}


def peers(count: int) -> dict[str, float]:
    """Tasks a second of each peer that is installed."""
    found = {}
    for name, script in PEERS.items():
        python = sys.executable if name == "Dask" else os.environ.get(f"{name.upper()}_PYTHON", "")
        if not python:
            print(f"{name:18} not measured: {name.upper()}_PYTHON names no interpreter that has it")
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "peer.py"
            path.write_text(script)
            done = subprocess.run(
                [python, str(path), str(count), str(WORKERS)],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                env=os.environ | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"},
            )
        if done.returncode:
            print(f"{name:18} not measured: {done.stderr.strip().splitlines()[-1][:100]}")
            continue
        found[name] = float(done.stdout.strip().splitlines()[-1])
    return found


def engine_alone(count: int, place: str | None = None) -> float:
    """The process engine by itself, with scratch folders and commits."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        (Path(folder) / "set").mkdir()
        engine = ProcessEngine(
            WallClock(), TaskFolder(Path(folder) / "run", Path(folder) / "set"), queue.SimpleQueue()
        )
        orders = [
            TaskOrder(
                key=("w", f"t{n}", 0), site="here", slot="s", procs=1, command="true", runtime_s=1.0
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
        return count / (time.perf_counter() - begin)


def whole_manager(count: int, place: str | None = None) -> float:
    """From plan to outcome, with a durable journal."""
    tasks = [Task(id=f"t{n}", runtime_s=1.0, command="true") for n in range(count)]
    with tempfile.TemporaryDirectory(dir=place) as folder:
        (Path(folder) / "set").mkdir()
        wanted = WorkflowSet(
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
        planned = plan_set(wanted, open_grid(Catalog(sites=(site,), links={})))
        assert planned.plan.feasible, planned.plan.lacking
        with Store(f"sqlite:///{folder}/bench.db") as store:
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


def virtual(count: int) -> None:
    """A set of trees of a hundred tasks over twenty slots, in virtual time."""
    tree = make_workflow(
        "w",
        [
            Task(id=f"t{n}", runtime_s=10.0 + n % 7, parents=(f"t{(n - 1) // 2}",) if n else ())
            for n in range(100)
        ],
    )
    workflows = tuple(tree.renamed(f"w{n}") for n in range(count // 100))
    slots = tuple(
        Slot(
            id=f"s{n}",
            site=f"s{n}",
            queue="",
            kind="cloud",
            procs=64,
            curve=certain_from(1.0),
            end_s=1e5,
            shared=f"s{n}",
        )
        for n in range(20)
    )
    wanted = WorkflowSet(name="virtual", workflows=workflows, deadline_s=1e5, needed=len(workflows))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    snapshot = Snapshot(wanted=wanted, slots=slots, scenarios=256)
    book = make_book(make_plan(snapshot), snapshot)
    clock = SimClock()
    drivers = {slot.site: SimulatedCloud(CloudRegion(64), clock, SiteBehaviour()) for slot in slots}
    around = Surroundings(
        drivers=drivers, engine=SimulatedEngine(clock), clock=clock, journal=MemoryJournal()
    )
    begin = time.perf_counter()
    state = Runner("r", book, around).run()
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"virtual time       {len(state.done):7d} tasks in {seconds:.1f} s, "
        f"{(after - before) * 1024 / len(state.done):.0f} bytes a task for plan, book, "
        "state and journal"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--virtual", type=int, default=100_000)
    options = parser.parse_args()
    virtual(options.virtual)
    found = peers(options.tasks)
    for name, rate in found.items():
        print(f"{name:18} {rate:7.0f} tasks/s")
    best = max(found.values(), default=float("nan"))
    places = (
        {"on disk": None, "in memory": "/dev/shm"}
        if Path("/dev/shm").is_dir()
        else {"on disk": None}
    )
    for where, place in places.items():
        for name, measure in (
            ("process engine", engine_alone),
            ("the whole manager", whole_manager),
        ):
            rate = measure(options.tasks, place)
            print(f"{name + ', ' + where:28} {rate:7.0f} tasks/s, {rate / best:.2f}x the best peer")


if __name__ == "__main__":
    main()
