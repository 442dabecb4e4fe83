"""Planning: LEAD, growth to 100,000 tasks, joint probabilities, HEFT against anrg-saga.

``python benchmarks/bench_planner.py [--largest N] [--effort S]``; with ``--effort 0`` the growth is
that of the first plan, without a search. anrg-saga takes part where it is installed (or
an interpreter that has it is named in ``SAGA_PYTHON``); the line says so where it is not.
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
from pathlib import Path

import numpy as np

from vgrads.api.config import embedded_data
from vgrads.api.plans.planning import open_grid, take_snapshot
from vgrads.api.plans.set_files import load_set
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options, make_plan
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.heft import place_heft
from vgrads.planner.plan import Placement
from vgrads.planner.promise.probability import Scenarios, WorkflowOutcome
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Link, load_catalog
from vgrads.vgrid.slot import Slot, StartCurve, certain_from
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

PEER = Path(__file__).with_name("saga_peer.py")


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


def large_set(workflows: int, tasks: int, slots: int) -> Snapshot:
    """Workflows of ten shapes over slots of 64 processors with room for about two and a half times
    the work."""
    shapes = [random_workflow(tasks, seed) for seed in range(10)]
    chosen = tuple(shapes[n % 10].renamed(f"w{n}") for n in range(workflows))
    work = sum(t.runtime_s * t.procs for w in chosen for t in w.tasks.values())
    deadline_s = max(work / (slots * 64) * 2.5, 6000.0)
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


def bench_lead() -> None:
    grid = open_grid(load_catalog(embedded_data() / "sites.toml"))
    for name in ("lead.yaml", "lead-storm.yaml"):
        workflow_set, _ = load_set(embedded_data() / name)
        snapshot = take_snapshot(workflow_set, grid, 0)
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            plan = make_plan(snapshot)
            seconds.append(time.perf_counter() - begin)
        print(f"{name}: {len(plan.placements)} copies planned in {min(seconds) * 1e3:.0f} ms")


def bench_growth(largest: int, options: Options) -> None:
    sizes, seconds = [], []
    make_plan(large_set(60, 100, 100), options)  # until all that is compiled is loaded
    for workflows in (125, 250, 500, 1000):
        if workflows * 100 > largest:
            break
        snapshot = large_set(workflows, 100, 100)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        plan = make_plan(snapshot, options)
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


def bench_joint(tasks: int = 10_000, scenarios: int = 10_000) -> None:
    """Joint probability of a plan of 100 workflows over 100 slots, from nothing."""
    shape = random_workflow(100, 1, widest=1)
    names = [shape.renamed(f"w{n}") for n in range(tasks // 100)]
    slots = tuple(
        Slot(
            id=f"s{n}",
            site=f"x{n}",
            queue="",
            kind="batch",
            procs=8,
            curve=certain_from(0, 0.9),
            end_s=1e6,
            shared=f"s{n}",
            up=0.98,
        )
        for n in range(100)
    )
    workflow_set = WorkflowSet(name="j", workflows=tuple(names), deadline_s=1e6, needed=1)
    snapshot = Snapshot(workflow_set=workflow_set, slots=slots, scenarios=scenarios)
    placed = {
        w.name: {
            t: [
                Placement(
                    workflow=w.name,
                    task=t,
                    replica=0,
                    slot=f"s{n % 100}",
                    start_s=200.0 * k,
                    end_s=200.0 * k + 100,
                    procs=1,
                )
            ]
            for k, t in enumerate(w.order)
        }
        for n, w in enumerate(names)
    }
    begin = time.perf_counter()
    fates = Scenarios(snapshot)
    counts = np.zeros(scenarios, dtype=np.int16)
    for workflow in names:
        outcome = WorkflowOutcome(workflow, fates)
        counts += fates.unpack(outcome.recompute(placed[workflow.name], list(workflow.tasks)))
    print(
        f"joint probability of {tasks:,} tasks in {scenarios:,} scenarios: "
        f"{time.perf_counter() - begin:.2f} s "
        f"(expected {counts.mean():.1f} workflows done)"
    )


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
            curve=certain_from(0.0),
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
        draft = Draft(Snapshot(workflow_set=workflow_set, slots=slots, links=links, scenarios=64))
        place_heft(draft, fresh.name, slots)
        return time.perf_counter() - begin, max(p.end_s for p in draft.placements)

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=100_000, help="tasks of the largest set")
    parser.add_argument(
        "--effort", type=float, default=Options().effort_s, help="effort of the search in seconds"
    )
    chosen = parser.parse_args()
    gc.set_threshold(100_000)  # as the command does
    bench_lead()
    bench_joint()
    bench_heft()
    print(f"growth, effort {chosen.effort:g} s")
    bench_growth(chosen.largest, Options(effort_s=chosen.effort))


if __name__ == "__main__":
    main()
