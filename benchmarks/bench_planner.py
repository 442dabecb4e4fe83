"""Planning: processor time of small, tight and large sets, growth to 100,000 tasks, HEFT against
anrg-saga.

``python benchmarks/bench_planner.py [--largest N] [--cases LEAD tight]``, at the default effort.
anrg-saga takes part where it is installed (or an interpreter that has it is named in
``SAGA_PYTHON``); the line says so where it is not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from vgrads_studies.promises.replication import lead

from vgrads.api.config import embedded_data
from vgrads.api.plans.planning import GridSnapshot, open_grid, plan_set, take_snapshot
from vgrads.api.plans.set_files import load_set
from vgrads.kernel.compile_state import working_time_s
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Catalog, Link, NodeType, Site, load_catalog
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

PEER = Path(__file__).with_name("saga_peer.py")
CYBERSHAKE = Path(__file__).resolve().parents[2] / "shared/traces/workflows/dax/CyberShake_30.xml"


def random_workflow(tasks: int, seed: int, widest: int = 2) -> Workflow:
    """Tasks with up to two parents among the ten before them, and data between them."""
    draws = stream(seed, "bench planner")
    results, files = [], {}
    for n in range(tasks):
        parents = (
            tuple(sorted({f"t{int(p)}" for p in draws.integers(max(0, n - 10), n, 2)})) if n else ()
        )
        files[f"f{n}"] = float(draws.integers(1, 200))
        results.append(
            Task(
                id=f"t{n}",
                runtime_s=float(draws.integers(10, 100)),
                procs=int(draws.integers(1, widest + 1)),
                parents=parents,
                inputs=tuple(f"f{p[1:]}" for p in parents),
                outputs=(f"f{n}",),
            )
        )
    return make_workflow("w", results, files)


def large_set(workflows: int, tasks: int, slots: int, slack: float = 2.5) -> Snapshot:
    """Workflows of ten shapes over slots of 64 processors with room for so many times the work, at
    least within 6,000 s; without slack, 1.6 times the longest critical path, or room for 1.3 times
    the work."""
    shapes = [random_workflow(tasks, seed) for seed in range(10)]
    chosen = tuple(shapes[n % 10].renamed(f"w{n}") for n in range(workflows))
    work = sum(t.runtime_s * t.procs for w in chosen for t in w.tasks.values())
    deadline_s = max(work / (slots * 64) * slack, 6000.0)
    if not slack:
        deadline_s = max(1.3 * work / (slots * 64), 1.6 * max(w.critical_path_s() for w in shapes))
    curve = StartCurve(np.linspace(0, 0.3 * deadline_s, 50), np.linspace(0.3, 0.9, 50))
    offers = tuple(
        Slot(
            id=f"s{n}",
            site=f"x{n // 4}",
            queue="q",
            kind="batch",
            procs=64,
            curve=curve,
            end_s=deadline_s,
            shared=f"x{n // 4}",
            up=0.97,
        )
        for n in range(slots)
    )
    workflow_set = WorkflowSet(
        name="b", workflows=chosen, deadline_s=deadline_s, needed=int(0.8 * workflows)
    )
    return Snapshot(workflow_set=workflow_set, slots=offers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case of the table by its name: prepared without being timed, then planned."""

    name: str
    prepare: Callable[[], Callable[[], Plan]]


def shipped_grid() -> GridSnapshot:
    """Return the shipped sites at the end of their histories."""
    return open_grid(load_catalog(embedded_data() / "sites.toml"))


def equal_set(
    shape: Workflow,
    count: int,
    deadline_s: float,
    needed: int = 0,
    budget_usd: float | None = None,
) -> WorkflowSet:
    """Return so many equal workflows, all needed if not stated otherwise."""
    return WorkflowSet(
        name="equal",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=deadline_s,
        needed=needed or count,
        probability=0.95,
        budget_usd=budget_usd,
    )


def lead_plan(name: str) -> Callable[[], Plan]:
    """Plan a shipped set for offers that are at hand."""
    workflow_set, _ = load_set(embedded_data() / name)
    snapshot = take_snapshot(workflow_set, shipped_grid(), 0)
    return lambda: make_plan(snapshot)


def with_remedies(workflow_set: WorkflowSet, grid: GridSnapshot) -> Callable[[], Plan]:
    """Get offers, plan, and look for remedies."""
    return lambda: plan_set(workflow_set, grid).plan


def four_slots() -> Callable[[], Plan]:
    """38 tasks over four sites that offer a slot each, with too short a deadline."""
    sites = tuple(
        Site(
            name=f"site{n}",
            kind="cloud",
            procs=4,
            nodes=(NodeType(cores=4, price_usd_per_hour=0.0),),
            boot_s=120.0,
            slot_acquire=0.75,
        )
        for n in range(4)
    )
    grid = GridSnapshot(catalog=Catalog(sites=sites, links={}), logs={}, instants={}, forecasts={})
    shape = random_workflow(19, 3)
    workflow_set = equal_set(shape, 2, 1.15 * shape.critical_path_s(10.0) + 120.0)
    return with_remedies(workflow_set, grid)


def wide_slot() -> Callable[[], Plan]:
    """1,000 recorded workflows in one wide slot, with room for half as much again."""
    shape = load_workflow(CYBERSHAKE)
    work_s = 1000 * sum(t.runtime_s * t.procs for t in shape.tasks.values())
    deadline_s = max(1.5 * work_s / 1024, 3.0 * shape.critical_path_s(10.0))
    slot = Slot(
        id="wide",
        site="wide",
        queue="q",
        kind="batch",
        procs=1024,
        curve=StartCurve(np.linspace(0, 0.2 * deadline_s, 50), np.linspace(0.3, 0.95, 50)),
        end_s=deadline_s,
        shared="wide",
    )
    snapshot = Snapshot(workflow_set=equal_set(shape, 1000, deadline_s, 800), slots=(slot,))
    return lambda: make_plan(snapshot)


def large_plan(slots: int, slack: float) -> Callable[[], Plan]:
    """1,000 workflows of 100 tasks."""
    snapshot = large_set(1000, 100, slots, slack)
    return lambda: make_plan(snapshot)


CASES = (
    Case(name="LEAD on the shipped sites", prepare=lambda: lead_plan("lead.yaml")),
    Case(name="LEAD storm on the shipped sites", prepare=lambda: lead_plan("lead-storm.yaml")),
    Case(
        name="LEAD storm, offers included",
        prepare=lambda: with_remedies(
            load_set(embedded_data() / "lead-storm.yaml")[0], shipped_grid()
        ),
    ),
    Case(
        name="4 × LEAD (24 tasks), tight, with remedies",
        prepare=lambda: with_remedies(equal_set(lead(), 4, 5_100.0), shipped_grid()),
    ),
    Case(
        name="16 × LEAD (96 tasks), tight, with remedies",
        prepare=lambda: with_remedies(equal_set(lead(), 16, 5_600.0, 12), shipped_grid()),
    ),
    Case(name="38 tasks in 4 slots, with remedies", prepare=four_slots),
    Case(
        name="20 × CyberShake_30 within 600 s for $1, with remedies",
        prepare=lambda: with_remedies(
            equal_set(load_workflow(CYBERSHAKE), 20, 600.0, budget_usd=1.0), shipped_grid()
        ),
    ),
    Case(
        name="20 × CyberShake_30 within 1,200 s",
        prepare=lambda: with_remedies(
            equal_set(load_workflow(CYBERSHAKE), 20, 1_200.0), shipped_grid()
        ),
    ),
    Case(name="1,000 × 100 tasks in 100 slots, loose", prepare=lambda: large_plan(100, 2.5)),
    Case(name="1,000 × 100 tasks in 100 slots, tight", prepare=lambda: large_plan(100, 0.0)),
    Case(name="1,000 × 100 tasks in 85 slots, tight", prepare=lambda: large_plan(85, 0.0)),
    Case(name="1,000 × CyberShake_30 in one slot", prepare=wide_slot),
)


def bench_cases(names: Sequence[str]) -> None:
    """Print the processor time of each case, the first of its kind in this process: without
    loading and compiling functions."""
    make_plan(large_set(60, 100, 100))  # until all that is compiled is loaded
    print("| case | CPU s | placements | promise | of requested | USD | remedies |")
    print("| --- |" + " --: |" * 6)
    for case in CASES:
        if names and not any(name in case.name for name in names):
            continue
        work = case.prepare()
        begin_s = working_time_s()
        plan = work()
        cpu_s = working_time_s() - begin_s
        print(
            f"| {case.name} | {cpu_s:.2f} | {len(plan.placements):,} | "
            f"{plan.promise.probability:.3f} | {plan.requested_probability} | "
            f"{plan.expected_usd:.2f} | {len(plan.relaxations)} |",
            flush=True,
        )


def bench_growth(largest: int) -> None:
    sizes, seconds = [], []
    make_plan(large_set(60, 100, 100))  # until all that is compiled is loaded
    for workflows in (125, 250, 500, 1000):
        if workflows * 100 > largest:
            break
        snapshot = large_set(workflows, 100, 100)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        plan = make_plan(snapshot)
        seconds.append(time.perf_counter() - begin)
        cpu_s = time.process_time() - cpu_begin
        sizes.append(workflows * 100)
        plan.check(snapshot)
        print(
            f"  {workflows} workflows of 100 tasks over 100 slots: {seconds[-1]:.1f} s "
            f"(CPU {cpu_s:.1f} s), "
            f"{len(plan.placements):,} copies, "
            f"promise {plan.promise.probability:.3f}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if len(sizes) > 1:
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        print(f"  growth exponent in tasks {exponent:.2f}; peak memory {peak:.0f} MiB")


def bench_heft() -> None:
    """The same DAGs on ten machines of different speeds, by both: nothing known of the workflow,
    but numba's code loaded (which takes half a second, once a process)."""
    bandwidth = 50.0
    speeds = [1.0 + 0.1 * n for n in range(10)]
    slots = tuple(
        Slot(
            id=f"n{n}",
            site=f"n{n}",
            queue="",
            kind="dedicated",
            procs=1,
            curve=make_certain_curve(0.0),
            end_s=1e9,
            shared=f"n{n}",
            speed=s,
        )
        for n, s in enumerate(speeds)
    )
    links = {
        frozenset((a.site, b.site)): Link(bandwidth_mib_s=bandwidth, latency_s=0.0)
        for a in slots
        for b in slots
        if a is not b
    }

    def ours(workflow: Workflow) -> tuple[float, float]:
        fresh = Workflow(name="h", tasks=workflow.tasks, file_mib=workflow.file_mib)
        workflow_set = WorkflowSet(name="h", workflows=(fresh,), deadline_s=1e9, needed=1)
        begin = time.perf_counter()
        snapshot = Snapshot(workflow_set=workflow_set, slots=slots, links=links, scenarios=64)
        plan = make_plan(snapshot, Options(policy="heft"))
        return time.perf_counter() - begin, max(p.end_s for p in plan.placements)

    for _ in range(10):
        ours(random_workflow(1000, 0, widest=1))  # until all that is compiled is loaded
    for tasks in (100, 300, 1000):
        workflow = random_workflow(tasks, tasks, widest=1)
        ours_s, makespan = min(ours(workflow) for _ in range(5))
        peer = saga(workflow, speeds, bandwidth)
        if peer is None:
            print(f"HEFT, {tasks} tasks: {ours_s * 1e3:.1f} ms, makespan {makespan:.1f} s")
            continue
        print(
            f"HEFT, {tasks} tasks: {ours_s * 1e3:.1f} ms, anrg-saga "
            f"{peer['seconds'] * 1e3:.0f} ms ({peer['seconds'] / ours_s:.0f}×); "
            f"makespan {makespan:.1f} s against {peer['makespan']:.1f} s "
            f"({makespan / peer['makespan'] - 1:+.2%})"
        )


def saga(workflow: Workflow, speeds: list[float], bandwidth: float) -> dict[str, float] | None:
    """anrg-saga's answer; None where it is not installed."""
    problem = {
        "tasks": {t.id: t.runtime_s for t in workflow.tasks.values()},
        "speeds": speeds,
        "bandwidth_mib_s": bandwidth,
        "edges": [
            [p, t.id, workflow.transfer_mib(p, t.id)]
            for t in workflow.tasks.values()
            for p in t.parents
        ],
    }
    python = os.environ.get("SAGA_PYTHON", sys.executable)
    done = subprocess.run(
        [python, str(PEER)], input=json.dumps(problem), capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"  anrg-saga takes no part: {done.stderr.strip().splitlines()[-1]}")
        return None
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--largest", type=int, default=100_000, help="tasks of the largest set")
    parser.add_argument(
        "--cases", nargs="*", help="only the table, of cases with these words in their names"
    )
    chosen = parser.parse_args()
    gc.set_threshold(100_000)  # as the command does
    bench_cases(chosen.cases or ())
    if chosen.cases is None:
        bench_heft()
        print("growth")
        bench_growth(chosen.largest)


if __name__ == "__main__":
    main()
