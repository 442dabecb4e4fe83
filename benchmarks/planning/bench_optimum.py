"""Our plans against exact enumeration, on tiny sets.

``python -m benchmarks.planning.bench_optimum --count 200``. Enumerated: every assignment of every
task to some of the slots (replicas), in every slot in two orders of the tasks, each as early as it
can. The best in a few scenarios are judged with ours in many, which no planner has seen. Required:
ours at most .01 below on average, .05 at worst.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import chain, combinations, product

import numpy as np

from benchmarks.planning.bench_rivals import judge
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Placement
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.search.retime import retimed
from vgrads.planner.search.trials import Placements, renumbered, slot_uses
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_BRIEF, _JUDGED = 256, 12  # scenarios of the enumeration; assignments judged in many
_MOST_ASSIGNMENTS = 2_500
_REQUESTED = 0.999


def tiny_snapshot(number: int) -> Snapshot:
    """Draw one to three workflows of at most six tasks together, two or three narrow slots."""
    draws = stream(number, "tiny sets")
    slots_count = int(draws.integers(2, 4))
    most = 4 if slots_count == 3 else 6
    workflows, left = [], int(draws.integers(2, most + 1))
    while left > 0:
        size = int(draws.integers(1, left + 1))
        left -= size
        tasks = []
        for n in range(size):
            parents = tuple(f"t{m}" for m in range(n) if draws.random() < 0.5)
            runtime_s = float(draws.uniform(100, 900))
            tasks.append(
                Task(
                    id=f"t{n}",
                    runtime_s=runtime_s,
                    procs=int(draws.integers(1, 3)),
                    parents=parents,
                )
            )
        workflows.append(make_workflow(f"w{len(workflows)}", tasks, {}))
    longest = max(w.critical_path_s(1.0) for w in workflows)
    deadline_s = float(draws.choice([1.1, 1.5, 2.5])) * longest
    slots = []
    for n in range(slots_count):
        times = np.linspace(0.0, deadline_s, 40)
        best, scale = float(draws.uniform(0.5, 0.95)), float(draws.uniform(0.05, 0.6)) * deadline_s
        slots.append(
            Slot(
                id=f"s{n}",
                site=f"x{n}",
                queue="q",
                kind="batch",
                procs=int(draws.integers(2, 4)),
                curve=StartCurve(times, best * (1 - np.exp(-times / scale))),
                end_s=deadline_s,
                shared=f"x{n}",
                up=float(draws.uniform(0.9, 1.0)),
            )
        )
    workflow_set = WorkflowSet(
        name="tiny",
        workflows=tuple(workflows),
        deadline_s=deadline_s,
        needed=int(draws.integers(1, len(workflows) + 1)),
        probability=_REQUESTED,
    )
    return Snapshot(workflow_set=workflow_set, slots=tuple(slots), seed=number)


def assignments(snapshot: Snapshot) -> Iterator[Placements]:
    """Return the placements of every assignment, in two orders."""
    slots = snapshot.slots
    some = list(chain.from_iterable(combinations(slots, k) for k in range(1, len(slots) + 1)))
    tasks = [(w, t) for w in snapshot.workflow_set.workflows for t in w.order]
    for chosen in product(some, repeat=len(tasks)):
        for turn in (1, -1) if len(snapshot.workflow_set.workflows) > 1 else (1,):
            names = [w.name for w in snapshot.workflow_set.workflows][::turn]
            rows = [
                Placement(
                    workflow=w.name,
                    task=task_id,
                    replica=0,
                    slot=slot.id,
                    start_s=1e-3 * names.index(w.name) + 1e-6 * w.order.index(task_id),
                    end_s=0.0,
                    procs=w.tasks[task_id].procs,
                )
                for (w, task_id), where in zip(tasks, chosen, strict=True)
                for slot in where
            ]
            placements = retimed(snapshot, renumbered(rows))
            if placements is not None:
                yield placements


def gap(job: tuple[int, float]) -> tuple[int, float, float] | None:
    """Return the best enumerated probability and ours; None for sets that are not enumerated."""
    number, effort_s = job
    snapshot = tiny_snapshot(number)
    tasks = snapshot.workflow_set.task_count
    if (2 ** len(snapshot.slots) - 1) ** tasks > _MOST_ASSIGNMENTS:
        return None
    brief = replace(snapshot, seed=number + 17)
    results = []
    for placements in assignments(snapshot):
        submits_s = {u.slot.id: u.submit_s for u in slot_uses(snapshot, placements)}
        simulated = rollout(brief, placements, submits_s, scenarios=_BRIEF)
        results.append((simulated.promise(snapshot.workflow_set.needed), placements))
    results.sort(key=lambda r: -r[0])
    best = 0.0
    for _, placements in results[:_JUDGED]:
        uses = slot_uses(snapshot, placements)
        best = max(best, judge(snapshot, placements, uses, 2**30)[0])
    plan = make_plan(snapshot, Options(effort_s=effort_s))
    ours = judge(snapshot, plan.placements, plan.uses, plan.spare_workflows)[0]
    return number, best, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--effort", type=float, default=Options().effort_s)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    gaps: list[float] = []
    with ProcessPoolExecutor(chosen.processes) as pool:
        jobs = ((n, chosen.effort) for n in range(4 * chosen.count))
        for result in pool.map(gap, jobs):
            if result is None:
                continue
            number, best, ours = result
            gaps.append(min(best, _REQUESTED) - min(ours, _REQUESTED))
            if gaps[-1] > 0.02:
                print(f"  {number}: enumerated {best:.3f}, ours {ours:.3f}", flush=True)
            if len(gaps) == chosen.count:
                pool.shutdown(cancel_futures=True)
                break
    print(
        f"{len(gaps)} sets: below the best of all assignments by {np.mean(gaps):.4f} on average, "
        f"{max(gaps):.3f} at worst"
    )


if __name__ == "__main__":
    main()
