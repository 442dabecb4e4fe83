"""Promises against managed runs in virtual time, with replanning.

``python -m benchmarks.planning.bench_managed --runs 400``: six LEAD sets over the shipped sites,
each planned at so many random instants of their histories and run by the execution manager from
there: at one instant the queues' waits are the same in every run. Required: the share of runs that
kept the promise is within .03 and two standard errors of the mean of the promised probabilities.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from vgrads_studies.promises.replication import lead

from benchmarks.bench_replanning import Record
from vgrads.api.config import embedded_data
from vgrads.api.plans.execution import run_plan
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.kernel.streams import stream
from vgrads.planner.promise.probability import standard_error
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.sets import WorkflowSet

_ALLOWED = 0.03


@dataclass(frozen=True, slots=True)
class Question:
    """A LEAD set: needed of count workflows, deadline in seconds, requested probability."""

    needed: int
    count: int
    deadline_s: float
    probability: float


QUESTIONS = (
    Question(4, 8, 5600.0, 0.9),
    Question(6, 8, 7200.0, 0.9),
    Question(4, 4, 9000.0, 0.95),
    Question(1, 1, 5400.0, 0.95),
    Question(2, 3, 5400.0, 0.9),
    Question(8, 8, 9000.0, 0.8),
)


def run_at_an_instant(question: Question, number: int) -> tuple[float, bool]:
    """Plan a set at an instant and run it; return its promise and whether that was kept."""
    workflow_set = WorkflowSet(
        name="lead",
        workflows=tuple(lead().renamed(f"w{n}") for n in range(question.count)),
        deadline_s=question.deadline_s,
        needed=question.needed,
        probability=question.probability,
    )
    days = stream(number, "managed runs").uniform(5.0, 28.0)
    at_s = float(days) * 86_400.0
    plan = plan_set(workflow_set, open_grid(load_catalog(embedded_data() / "sites.toml"), at_s))
    if not plan.plan.feasible:
        return 0.0, False
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(run_id="r", folder=Path(folder), seed=number, at=at_s)
        outcome = run_plan(plan, options, Record())
    return plan.plan.promise.probability, outcome.kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    print("| set | promised | kept | s.e. | within |\n| --- | --: | --: | --: | --- |")
    with ProcessPoolExecutor(chosen.processes) as pool:
        for question in QUESTIONS:
            runs = list(pool.map(partial(run_at_an_instant, question), range(chosen.runs)))
            promised = float(np.mean([probability for probability, _ in runs]))
            share = float(np.mean([is_done for _, is_done in runs]))
            error = standard_error(share, chosen.runs)
            within = abs(share - promised) <= _ALLOWED + 2 * error
            print(
                f"| {question.needed} of {question.count}, {question.deadline_s:.0f} s | "
                f"{promised:.3f} | {share:.3f} | {error:.3f} | {'yes' if within else 'no'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
