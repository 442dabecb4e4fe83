"""Told against true: what plans promise, and how often the core keeps it when it carries them out.

    python -m tests.planner.promise_truth [--plays 2500] [--only NAME ...] [--refusals]

The judge is ``tests/planner/plan_judge.py``, which shares no code with the planner. A case holds
where told and true differ by at most .01 and two standard errors of the judge. Cases whose
workflows lie in ``../shared/traces`` are skipped where that is not there. ``--refusals``: clouds
say at once that they refuse; unless that is told, what never comes stays silent, as promises have
it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from vgrads_studies.promises.quality import random_dag, random_slots

from tests.conftest import SHARED
from tests.planner.plan_judge import judge
from vgrads.api.config import embedded_data
from vgrads.api.plans.planning import GridSnapshot, open_grid, take_snapshot
from vgrads.api.queues.histories import cached_forecast
from vgrads.api.queues.history_files import open_history
from vgrads.kernel.streams import stream
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.predictor import Settings
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

INSTANT_S = 20.3 * 86_400.0  # of the shipped histories: a busy one
MARGIN = 0.01


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question: what is to be planned, how; ``simulations``: as many at most."""

    name: str
    build: Callable[[], Snapshot]
    options: Options = STANDARD
    simulations: int = 2500
    needs: str = ""  # a file of the shared traces


@cache
def shipped(at_s: float | None = INSTANT_S) -> GridSnapshot:
    """The shipped sites as they were at an instant of their histories."""
    return open_grid(load_catalog(embedded_data() / "sites.toml"), at_s)


@cache
def by_past_waits() -> GridSnapshot:
    """The shipped sites at the end of their histories, foretold by past waits alone: as if nobody
    saw the queues."""
    catalog, result = load_catalog(embedded_data() / "sites.toml"), {}
    for site in catalog.sites:
        for queue in site.queues:
            end_s = open_history(queue.history).end_s
            existing = cached_forecast(
                queue.history, queue.log_queue, end_s, Settings(method="qbets")
            )
            result[site.name, queue.name] = existing
    return GridSnapshot(catalog=catalog, logs={}, instants={}, forecasts=result)


def a_set(
    shape: Workflow, count: int, needed: int, deadline_s: float, **more: float
) -> WorkflowSet:
    """Equal workflows, so many of which are needed."""
    workflows = tuple(shape.renamed(f"w{n}") for n in range(count))
    return WorkflowSet(
        name="told",
        workflows=workflows,
        deadline_s=deadline_s,
        needed=needed,
        **{"probability": 0.95, **more},
    )


def on_shipped(workflow_set: WorkflowSet) -> Snapshot:
    return take_snapshot(workflow_set, by_past_waits(), 0)


def on_busy(workflow_set: WorkflowSet) -> Snapshot:
    return take_snapshot(workflow_set, shipped(), 0)


def on_random(workflow_set: WorkflowSet, number: int) -> Snapshot:
    """Two or three queues, a free and a paid cloud, as ``vgrads study quality`` draws them."""
    slots = random_slots(workflow_set.deadline_s, stream(number, "told"))
    return Snapshot(workflow_set=workflow_set, slots=slots, seed=number)


def recorded(path: str) -> Workflow:
    return load_workflow(SHARED / "workflows" / path)


def tightly(shape: Workflow, factor: float) -> float:
    """A deadline as a multiple of the critical path."""
    return factor * max(shape.critical_path_s(10.0), 600.0)


def lead() -> Workflow:
    return load_workflow(embedded_data() / "lead.json")


def blast() -> Snapshot:
    shape = recorded("wfformat/blast-chameleon-small-001.json")
    return on_shipped(a_set(shape, 6, 4, 600.0))


def epigenomics() -> Snapshot:
    return on_shipped(a_set(recorded("dax/Epigenomics_24.xml"), 4, 3, 6_600.0))


def epigenomics_elsewhere() -> Snapshot:
    shape = recorded("dax/Epigenomics_24.xml")
    return on_random(a_set(shape, 4, 3, tightly(shape, 1.4)), 5)


def cybershake() -> Snapshot:
    return on_shipped(a_set(recorded("dax/CyberShake_30.xml"), 6, 5, 900.0))


def half_a_day(name: str) -> Callable[[], Snapshot]:
    """One recorded workflow on the shipped sites, as ``vgrads plan`` asks for it."""
    return lambda: on_busy(a_set(recorded(f"wfformat/{name}.json"), 1, 1, 43_200.0))


def montage(tiles: int) -> Workflow:
    """As the generated Montage are: projections, their overlaps, one model, backgrounds, one
    mosaic; 4.8 tasks a tile."""
    draws, tasks = stream(tiles, "montage"), []

    def add(name: str, mean_s: float, parents: tuple[str, ...] = ()) -> str:
        runtime_s = float(mean_s * draws.uniform(0.95, 1.05))
        tasks.append(Task(id=name, runtime_s=runtime_s, parents=parents))
        return name

    planes = [add(f"project{n}", 13.6) for n in range(tiles)]
    pairs = [(n, (n + gap) % tiles) for gap in (1, 2, 3) for n in range(tiles)][: int(2.8 * tiles)]
    overlaps = [add(f"diff{a}-{b}", 10.6, (planes[a], planes[b])) for a, b in pairs]
    model = add("model", 89.0, (add("concat", 53.0, tuple(overlaps)),))
    flat = [add(f"background{n}", 10.7, (planes[n], model)) for n in range(tiles)]
    mosaic = add("add", 99.5, (add("table", 66.0, tuple(flat)),))
    add("jpeg", 2.5, (add("shrink", 22.0, (mosaic,)),))
    return make_workflow("montage", tasks)


def gates(width: int, stages: int) -> Workflow:
    """Stages of parallel tasks; what joins and forks them takes no time."""
    draws, tasks, before = stream(width, "gates"), [], ()
    for stage in range(stages):
        tasks.append(Task(id=f"a{stage}-fork", runtime_s=0.0, parents=before))
        inner = [f"b{stage}-{n}" for n in range(width)]
        tasks += [
            Task(id=name, runtime_s=float(draws.integers(100, 900)), parents=(f"a{stage}-fork",))
            for name in inner
        ]
        tasks.append(Task(id=f"0{stage}-join", runtime_s=0.0, parents=tuple(inner)))
        before = (f"0{stage}-join",)
    return make_workflow("gates", tasks)


def queues(deadline_s: float, number: int, task_failure: float = 0.0) -> tuple[Slot, ...]:
    """Three queues whose slots come one after the other; late, or lost."""
    draws, result = stream(number, "told queues"), []
    times = np.linspace(0.0, deadline_s, 100)
    for q in range(3):
        scale = float(draws.uniform(0.1, 0.5)) * deadline_s
        for n in range(3):
            curve = StartCurve(times, 0.95 * (1 - np.exp(-times / scale / (1 + 0.3 * n))))
            result.append(
                Slot(
                    id=f"q{q}-{n}",
                    site=f"site{q}",
                    queue="q",
                    kind="batch",
                    procs=16,
                    curve=curve,
                    end_s=deadline_s,
                    shared=f"site{q}/q",
                    up=0.85,
                    task_failure=task_failure,
                )
            )
    return tuple(result)


def late_and_lost() -> Snapshot:
    workflow_set = a_set(lead(), 5, 3, 9_000.0)
    return Snapshot(workflow_set=workflow_set, slots=queues(9_000.0, 1), seed=1)


def twins() -> Snapshot:
    """Short chains in slots that come two times of three: nothing but copies helps."""
    tasks = [
        Task(id=f"t{n}", runtime_s=400.0, parents=(f"t{n - 1}",) if n else ()) for n in range(4)
    ]
    slots = tuple(
        Slot(
            id=f"c{n}",
            site=f"c{n}",
            queue="",
            kind="cloud",
            procs=2,
            curve=make_certain_curve(100.0 * n, 0.66),
            end_s=4_000.0,
            shared=f"c{n}",
            up=0.9,
        )
        for n in range(5)
    )
    return Snapshot(workflow_set=a_set(make_workflow("chain", tasks), 2, 2, 4_000.0), slots=slots)


def spread() -> Snapshot:
    shape = random_dag(stream(8, "told"))
    return on_random(a_set(shape, 3, 2, tightly(shape, 4.0), runtime_spread=0.25), 8)


def failing() -> Snapshot:
    shape = random_dag(stream(9, "told"))
    deadline_s = tightly(shape, 2.0)
    return Snapshot(workflow_set=a_set(shape, 3, 2, deadline_s), slots=queues(deadline_s, 9, 0.04))


def large() -> Snapshot:
    """Forty times a hundred tasks over queues that are late or lost."""
    shape = montage(20)
    return Snapshot(workflow_set=a_set(shape, 40, 30, 3_600.0), slots=queues(3_600.0, 4))


CASES = (
    Case(
        name="BLAST 4 of 6, no copies",
        build=blast,
        options=Options(policy="no-replication"),
        needs="wfformat/blast-chameleon-small-001.json",
    ),
    Case(name="Epigenomics 3 of 4", build=epigenomics, needs="dax/Epigenomics_24.xml"),
    Case(
        name="LEAD 4 of 8, 5,600 s",
        build=lambda: on_shipped(a_set(lead(), 8, 4, 5_600.0, probability=0.9, budget_usd=40.0)),
    ),
    Case(name="CyberShake 5 of 6", build=cybershake, needs="dax/CyberShake_30.xml"),
    Case(
        name="Epigenomics 3 of 4, other sites",
        build=epigenomics_elsewhere,
        needs="dax/Epigenomics_24.xml",
    ),
    Case(
        name="LEAD 4 of 8, a busy instant",
        build=lambda: on_busy(a_set(lead(), 8, 4, 5_600.0, probability=0.9, budget_usd=40.0)),
    ),
    Case(
        name="sarek, 12 h",
        build=half_a_day("sarek-dirt02-001"),
        needs="wfformat/sarek-dirt02-001.json",
    ),
    Case(
        name="rnaseq, 12 h",
        build=half_a_day("rnaseq-dirt02-001"),
        needs="wfformat/rnaseq-dirt02-001.json",
    ),
    Case(
        name="gates of no length, 2 of 3",
        build=lambda: on_random(a_set(gates(6, 4), 3, 2, 6_000.0), 6),
    ),
    Case(
        name="Montage of 2,000, 3 of 3",
        build=lambda: on_busy(a_set(montage(416), 3, 3, 3_600.0, probability=0.9, budget_usd=40.0)),
        simulations=100,
    ),
    Case(name="40 of 100 tasks, 30 needed", build=large, simulations=200),
    Case(name="LEAD 3 of 5, late and lost", build=late_and_lost),
    Case(name="twins, 2 of 2", build=twins),
    Case(name="run times spread, 2 of 3", build=spread),
    Case(name="tasks fail, 2 of 3", build=failing),
)


def promise_holds(case: Case, simulations: int, refusals: bool) -> tuple[str, bool]:
    """A row of the table, and whether the promise holds."""
    snapshot = case.build()
    begun = time.perf_counter()
    plan = make_plan(snapshot, case.options)
    planned = time.perf_counter()
    result = judge(snapshot, plan, min(simulations, case.simulations), message=refusals)
    judged = time.perf_counter()
    message = plan.promise.probability
    gap = message - result.probability
    holds = abs(gap) <= MARGIN + 2 * result.standard_error
    row = (
        f"| {case.name} | {len(plan.placements)} | {message:.3f} | {result.probability:.3f} ± "
        f"{result.standard_error:.3f} | "
        f"{gap:+.3f} | {'yes' if holds else 'NO'} | {plan.cost_usd:.2f} | {result.usd:.2f} "
        f"| {result.hours:.0f} | "
        f"{planned - begun:.2f} | {judged - planned:.0f} |"
    )
    return row, holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plays", type=int, default=2500, help="of each case, at most")
    parser.add_argument("--only", nargs="*", default=(), help="cases whose names hold one of these")
    parser.add_argument(
        "--refusals", action="store_true", help="clouds say at once that they refuse"
    )
    chosen = parser.parse_args()
    sys.stdout.write(
        "| case | copies | told | true | gap | holds | planned $ | paid $ | hours | "
        "planning s | judging s |\n"
        "| --- | --: | --: | --: | --: | --- | --: | --: | --: | --: | --: |\n"
    )
    missed = 0
    for case in CASES:
        if chosen.only and not any(word.lower() in case.name.lower() for word in chosen.only):
            continue
        if case.needs and not Path(SHARED / "workflows" / case.needs).exists():
            sys.stdout.write(f"| {case.name} | skipped: needs ../shared/traces |\n")
            continue
        row, holds = promise_holds(case, chosen.plays, chosen.refusals)
        missed += not holds
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
