"""Quality of plans: planning policies compared on random and recorded workflow sets.

Each instance is a set (random DAGs, or recorded workflows given as files), slots of queues, free
clouds and one paid cloud drawn at random, and a deadline from tight to loose. Every policy plans
it; every plan is evaluated in the same scenarios, which no planner has seen.

- ``paper``: the four phases by the paper's rule of probability
- ``no-replication``, ``heft``: as in ``vgrads plan --policy``
- ``vgrads``: ours
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task
from vgrads_studies.picture import diagrams, picture_file
from vgrads_studies.promises.replication import lead
from vgrads_studies.report import StudyParser, markdown_table

POLICIES = {
    "paper": Options(probability="paper"),
    "no-replication": Options(policy="no-replication"),
    "heft": Options(policy="heft"),
    "vgrads": Options(),
}
TIGHTNESS = (1.15, 1.4, 2.0, 3.0)
"""Deadlines, as multiples of the longest critical path."""
_JUDGES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanScore:
    """One plan: evaluated probability, cost, seconds of planning."""

    instance: int
    tightness: float
    recorded: bool
    policy: str
    probability: float
    cost_usd: float
    seconds: float


def random_dag(draws: np.random.Generator) -> Workflow:
    """Draw 5 to 25 tasks in layers, some wide, with data between them."""
    tasks: list[Task] = []
    files: dict[str, float] = {}
    count = int(draws.integers(5, 26))
    for n in range(count):
        most = min(n, 3)
        parents = (
            tuple(
                sorted(
                    {
                        f"t{int(draws.integers(max(0, n - 6), n))}"
                        for _ in range(int(draws.integers(0, most + 1)))
                    }
                )
            )
            if n
            else ()
        )
        files[f"f{n}"] = float(draws.exponential(100.0))
        task = Task(
            id=f"t{n}",
            runtime_s=float(draws.lognormal(6.0, 1.0)),
            procs=int(draws.choice([1, 1, 2, 4, 8])),
            parents=parents,
            inputs=tuple(f"f{p[1:]}" for p in parents),
            outputs=(f"f{n}",),
        )
        tasks.append(task)
    return make_workflow("random", tasks, files)


def random_slots(deadline_s: float, draws: np.random.Generator) -> tuple[Slot, ...]:
    """Draw two or three queues with equal slots, a free cloud, a paid one; none wider than 32
    processors."""
    slots: list[Slot] = []
    for q in range(int(draws.integers(2, 4))):
        scale = float(draws.uniform(0.05, 0.6)) * deadline_s
        times = np.linspace(0.0, deadline_s, 200)
        curve = StartCurve(times, float(draws.uniform(0.7, 0.98)) * (1 - np.exp(-times / scale)))
        procs, up = int(draws.choice([8, 16, 32])), float(draws.uniform(0.85, 1.0))
        slots += [
            Slot(
                id=f"q{q}-{n}",
                site=f"site{q}",
                queue="q",
                kind="batch",
                procs=procs,
                curve=curve,
                end_s=deadline_s,
                shared=f"site{q}/q",
                up=up,
            )
            for n in range(int(draws.integers(1, 4)))
        ]
    for name, price in (("free", 0.0), ("paid", 0.68)):
        boot = make_certain_curve(float(draws.uniform(60, 600)), float(draws.uniform(0.9, 0.99)))
        slots += [
            Slot(
                id=f"{name}-{n}",
                site=name,
                queue="",
                kind="cloud",
                procs=8,
                curve=boot,
                end_s=deadline_s,
                shared=f"{name}-{n}",
                up=float(draws.uniform(0.9, 0.99)),
                price_usd_per_hour=price,
            )
            for n in range(3)
        ]
    return tuple(slots)


def instance(number: int, recorded: Sequence[Workflow]) -> tuple[Snapshot, float, bool]:
    """Draw a set with its slots; every second one recorded, where there are any."""
    draws = stream(number, "quality")
    real = bool(recorded) and number % 2 == 1
    shape = recorded[int(draws.integers(len(recorded)))] if real else random_dag(draws)
    count = int(draws.integers(1, 7))
    tightness = TIGHTNESS[number // 2 % len(TIGHTNESS)]
    deadline_s = tightness * max(shape.critical_path_s(10.0), 600.0)
    workflow_set = WorkflowSet(
        name=f"instance {number}",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=deadline_s,
        needed=int(draws.integers(1, count + 1)),
        probability=0.95,
    )
    return (
        Snapshot(workflow_set=workflow_set, slots=random_slots(deadline_s, draws), seed=number),
        tightness,
        real,
    )


def judge(plan: Plan, snapshot: Snapshot) -> float:
    """Return P(the minimum is done) in scenarios that the planner has not seen."""
    if not plan.placements:
        return 0.0
    fresh = replace(snapshot, seed=snapshot.seed + 1_000_003, scenarios=_JUDGES)
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    return rollout(fresh, plan.placements, submits_s, plan.spare_workflows).promise(plan.needed)


def _scores(job: tuple[int, tuple[Workflow, ...]]) -> list[PlanScore]:
    number, recorded = job
    snapshot, tightness, real = instance(number, recorded)
    results = []
    for name, options in POLICIES.items():
        plan = make_plan(snapshot, options)
        plan.check(snapshot)
        score = PlanScore(
            instance=number,
            tightness=tightness,
            recorded=real,
            policy=name,
            probability=judge(plan, snapshot),
            cost_usd=plan.cost_usd,
            seconds=sum(plan.seconds.values()),
        )
        results.append(score)
    return results


def study(count: int, recorded: Sequence[Workflow]) -> list[PlanScore]:
    """Run all instances, on all cores, with a progress bar."""
    jobs = [(number, tuple(recorded)) for number in range(count)]
    with process_pool() as pool:
        done = pool.map(_scores, jobs, chunksize=4)
        bars = track(done, "planning", total=count, console=Console(stderr=True))
        return [score for scores in bars for score in scores]


def table(scores: Sequence[PlanScore]) -> str:
    """Return means by tightness and policy, and how often ours was below."""
    ours = {s.instance: s for s in scores if s.policy == "vgrads"}
    head = (
        *("deadline / critical path", "policy", "instances", "mean probability", "≥ .95"),
        "ours lower by > 2 s.e. (and below .95)",
        *("ours higher by > 2 s.e.", "mean cost (USD)", "mean seconds"),
    )
    cells = []
    for tightness in TIGHTNESS:
        for policy in POLICIES:
            rows = [s for s in scores if (s.tightness, s.policy) == (tightness, policy)]
            if not rows:
                continue
            gaps = [_gap(ours[s.instance].probability, s.probability) for s in rows]
            short = [
                g < -2 and ours[s.instance].probability < 0.95
                for g, s in zip(gaps, rows, strict=True)
            ]
            cells.append(
                (
                    f"{tightness}",
                    policy,
                    f"{len(rows)}",
                    f"{np.mean([s.probability for s in rows]):.3f}",
                    f"{np.mean([s.probability >= 0.95 for s in rows]):.0%}",
                    f"{sum(g < -2 for g in gaps)} ({sum(short)})",
                    f"{sum(g > 2 for g in gaps)}",
                    f"{np.mean([s.cost_usd for s in rows]):.2f}",
                    f"{np.mean([s.seconds for s in rows]):.3f}",
                )
            )
    return markdown_table(head, cells)


def _gap(value: float, other: float) -> float:
    """Return the difference in standard errors of one evaluated probability; the scenarios are
    common."""
    middle = (value + other) / 2
    return float((value - other) / np.sqrt(max(middle * (1 - middle), 1e-4) / _JUDGES))


def draw(scores: Sequence[PlanScore], path: Path) -> None:
    """Draw evaluated probability and cost by tightness, a line per policy; the requested
    probability is dotted."""
    with diagrams(path, 2, (10, 3.6)) as axes:
        for policy in POLICIES:
            groups = [
                [s for s in scores if (s.policy, s.tightness) == (policy, t)] for t in TIGHTNESS
            ]
            for axis, field in zip(axes, ("probability", "cost_usd"), strict=True):
                means = [
                    np.mean([getattr(s, field) for s in group] or [np.nan]) for group in groups
                ]
                axis.plot(
                    TIGHTNESS,
                    means,
                    "o-",
                    label=policy,
                    linewidth=2.4 if policy == "vgrads" else 1.2,
                )
        axes[0].axhline(0.95, color="#999", linestyle=":", linewidth=1)
        axes[0].set(
            xlabel="deadline / critical path", ylabel="mean probability, judged", ylim=(0, 1.02)
        )
        axes[1].set(xlabel="deadline / critical path", ylabel="mean cost (USD)")
        axes[0].legend(frameon=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = StudyParser("quality", __doc__)
    parser.add_argument("workflows", nargs="*", type=Path, help="recorded workflows; default: LEAD")
    parser.add_argument("--count", type=int, default=240, help="instances")
    parser.add_argument("--picture", type=picture_file, help="file for the diagrams (SVG)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    chosen = parser.parse_args(arguments)
    recorded = [load_workflow(path) for path in chosen.workflows] or [lead()]
    scores = study(chosen.count, recorded)
    if chosen.picture:
        draw(scores, chosen.picture)
    rows = [asdict(score) for score in scores]
    sys.stdout.write((json.dumps({"rows": rows}) if chosen.json else table(scores)) + "\n")


if __name__ == "__main__":
    main()
