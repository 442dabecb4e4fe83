"""Effect of replicas: the fault-tolerance exploration of SC'09 §4.3, Figures 8 and 9.

A Gantt chart is filled at random with slots; LEAD is mapped onto it; then the success probability
of one of its tasks, drawn at random, is raised by an increment, by replicas in other slots within
its window. Counted: the number of slots that takes (the replication factor), and how often it is
possible (the success rate).

As in the paper: acquisition probability fixed, up probability ± 0.1 around its base, increments of
.1 to .5, capped where they would exceed 1. The paper does not state how many slots a chart has and
how wide they are, nor whether a task counts with its parents: with ``--rule paper`` it does, by
products and minima, with ``--rule alone`` only its own replicas count, jointly. Here 6 to 12 slots
of 8, 16 or 32 processors that open within half an hour and last 1½ to 3 hours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.streams import stream
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.mapping import place_workflow
from vgrads.planner.placement.replicate import Measure, alone, by_paper, raise_task
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, make_certain_curve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task
from vgrads_studies.picture import diagrams, picture_file
from vgrads_studies.report import StudyParser, markdown_table

LEVELS = (0.4, 0.6, 0.7, 0.8)
INCREMENTS = (0.1, 0.2, 0.3, 0.4, 0.5)
RULES: dict[str, Measure] = {"paper": by_paper, "alone": alone}
_DEADLINE_S = 3 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCell:
    """All trials of one combination. ``factors``: added slots of the trials that succeeded."""

    acquire: float
    up: float
    increment: float
    trials: int
    factors: tuple[int, ...]

    @property
    def success_rate(self) -> float:
        """Return the share of trials in which the task reached the desired probability."""
        return len(self.factors) / self.trials


def random_chart(acquire: float, up: float, draws: np.random.Generator) -> tuple[Slot, ...]:
    """Draw slots of random width, start and length; each a site of its own."""
    results = []
    for n in range(int(draws.integers(6, 13))):
        start_s = float(draws.uniform(0, 1800))
        lifetimes_s = float(np.clip(up + draws.uniform(-0.1, 0.1), 0.0, 1.0))
        slot = Slot(
            id=f"slot-{n}",
            site=f"site-{n}",
            queue="",
            kind="reservation",
            procs=int(draws.choice([8, 16, 32])),
            curve=make_certain_curve(start_s, acquire),
            end_s=min(_DEADLINE_S, start_s + float(draws.uniform(5400, 10800))),
            shared=f"slot-{n}",
            up=lifetimes_s,
        )
        results.append(slot)
    return tuple(results)


def trial(
    workflow: Workflow, levels: tuple[float, float], increment: float, seed: int, measure: Measure
) -> int | None:
    """Return the number of slots added until the task's probability has risen by the increment;
    None where that is impossible.

    Charts that cannot hold the workflow at all are drawn again.
    """
    acquire, up = levels
    for attempt in range(100):
        chart = f"{acquire} {up} {attempt}"  # the same charts for all increments
        draws = stream(seed, "replication", chart)
        workflow_set = WorkflowSet(
            name="study", workflows=(workflow,), deadline_s=_DEADLINE_S, needed=1
        )
        slots = random_chart(acquire, up, draws)
        draft = Draft(Snapshot(workflow_set=workflow_set, slots=slots, seed=seed, scenarios=4096))
        if place_workflow(draft, workflow.name, slots):
            key = (workflow.name, str(draws.choice(list(workflow.order))))
            desired = min(1.0, measure(draft, key, ()) + increment)
            replicas = raise_task(draft, key, desired, slots, measure)
            return None if replicas is None else len(replicas)
    return None


def _cell(job: tuple[Workflow, float, float, float, int, str]) -> TrialCell:
    workflow, acquire, up, increment, trials, rule = job
    measure = RULES[rule]
    results = [trial(workflow, (acquire, up), increment, seed, measure) for seed in range(trials)]
    factors = tuple(sorted(f for f in results if f is not None))
    return TrialCell(acquire=acquire, up=up, increment=increment, trials=trials, factors=factors)


def study(workflow: Workflow, trials: int, rule: str = "paper") -> list[TrialCell]:
    """Run every combination, on all cores, with a progress bar."""
    jobs = [(workflow, *levels, trials, rule) for levels in product(LEVELS, LEVELS, INCREMENTS)]
    with process_pool() as pool:
        done = pool.map(_cell, jobs)
        return list(track(done, "replicating", total=len(jobs), console=Console(stderr=True)))


def table(cells: Sequence[TrialCell]) -> str:
    """Return success rates and median factors as a Markdown table."""
    head = (
        *("slotAcqProb", "slotUpProb", "increment"),
        *("success rate", "median factor", "90 % factor"),
    )
    rows = []
    for c in cells:
        spread = [f"{np.quantile(c.factors, q):.0f}" if c.factors else "–" for q in (0.5, 0.9)]
        levels = (f"{c.acquire}", f"{c.up}", f"{c.increment}")
        rows.append((*levels, f"{c.success_rate:.2f}", *spread))
    return markdown_table(head, rows)


def draw(cells: Sequence[TrialCell], path: Path) -> None:
    """Draw Figure 8 (factors at low, medium and high reliability) over Figure 9 (success rates)."""
    with diagrams(path, 4, (14, 3.4)) as axes:
        for axis, level in zip(axes, (0.4, 0.6, 0.8), strict=False):
            rows = [c for c in cells if (c.acquire, c.up) == (level, level)]
            axis.boxplot(
                [c.factors or (0,) for c in rows], tick_labels=[str(c.increment) for c in rows]
            )
            axis.set(
                title=f"acquire {level}, up {level} ± .1",
                xlabel="increment",
                ylabel="replication factor",
            )
        for up in LEVELS:
            rows = [c for c in cells if (c.acquire, c.up) == (0.7, up)]
            axes[3].plot(
                [c.increment for c in rows], [c.success_rate for c in rows], "o-", label=f"up {up}"
            )
        axes[3].set(title="success rate, acquire 0.7", xlabel="increment", ylim=(0, 1.05))
        axes[3].legend(frameon=False)


def lead() -> Workflow:
    """Return a workflow with the shape and times of LEAD (SC'09 Figure 1): without its data."""

    tasks = [
        Task(id="terrain_preprocessor", runtime_s=4),
        Task(id="static_preprocessor", runtime_s=338),
        Task(id="boundary_interpolator", runtime_s=146, parents=("terrain_preprocessor",)),
        Task(id="initial_interpolator", runtime_s=88, parents=("terrain_preprocessor",)),
        Task(
            id="arps_to_wrf",
            runtime_s=78,
            parents=("static_preprocessor", "boundary_interpolator", "initial_interpolator"),
        ),
        Task(id="wrf", runtime_s=4620, procs=16, parents=("arps_to_wrf",)),
    ]
    return make_workflow("lead", tasks)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = StudyParser("replication", __doc__)
    parser.add_argument(
        "--trials", type=int, default=25, help="number of trials for each combination"
    )
    parser.add_argument(
        "--rule",
        choices=tuple(RULES),
        default="paper",
        help="rule for the required probability of a task",
    )
    parser.add_argument("--picture", type=picture_file, help="file for the figures (SVG)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    chosen = parser.parse_args(arguments)
    cells = study(lead(), chosen.trials, chosen.rule)
    if chosen.picture:
        draw(cells, chosen.picture)
    rows = [asdict(c) | {"success_rate": c.success_rate} for c in cells]
    sys.stdout.write((json.dumps({"rows": rows}) if chosen.json else table(cells)) + "\n")


if __name__ == "__main__":
    main()
