"""Whether missed promises are announced before they are due, and what is paid after they are lost.

``python -m benchmarks.planning.bench_announced --runs 300``: LEAD sets over the shipped sites with
so little time and money that many are missed, each planned at a random instant of their histories
and run by the execution manager from there, with replanning. The states are those of the journal
(:func:`vgrads.execmgr.core.promise_record.state_of_promise`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.bench_replanning import Record
from benchmarks.planning.bench_managed import Question
from vgrads.api.config import embedded_data
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import state_of_promise
from vgrads.execmgr.core.states import Event, RunState
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.streams import stream
from vgrads.research.promises.replication import lead
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.sets import WorkflowSet

QUESTIONS = (
    Question(4, 8, 5600.0, 0.9),
    Question(6, 8, 7200.0, 0.9),
    Question(4, 4, 8000.0, 0.95),
    Question(1, 1, 5000.0, 0.95),
    Question(2, 3, 5400.0, 0.9),
    Question(8, 8, 9000.0, 0.8),
)
_BUDGETS_USD = (0.0, 6.0)
_BAD = (PromiseState.AT_RISK, PromiseState.CANNOT_BE_MET, PromiseState.FAILING)


@dataclass(frozen=True, slots=True)
class Announced:
    """A run: whether it was kept; when, as shares of the time until the deadline, it was first said
    to be in danger, and that it cannot be met (None: never); paid slots that cost more than one
    billing unit after that."""

    kept: bool
    danger: float | None
    lost: float | None
    paid_on: int


def plan_and_run(number: int) -> Announced | None:
    """Plan a set at an instant and run it; None where there is no plan."""
    question = QUESTIONS[number % len(QUESTIONS)]
    workflow_set = WorkflowSet(
        name="lead",
        workflows=tuple(lead().renamed(f"w{n}") for n in range(question.count)),
        deadline_s=question.deadline_s,
        needed=question.needed,
        probability=question.probability,
        budget_usd=_BUDGETS_USD[number // len(QUESTIONS) % len(_BUDGETS_USD)],
    )
    at_s = float(stream(number, "announced runs").uniform(5.0, 28.0)) * 86_400.0
    plan = plan_set(workflow_set, open_grid(load_catalog(embedded_data() / "sites.toml"), at_s))
    if not plan.plan.feasible:
        return None
    danger: list[float] = []

    def watch(execution: ExecutionPlan, state: RunState, _: list[Event]) -> None:
        if not danger and state_of_promise(execution, state) in _BAD:
            danger.append(state.now_s / question.deadline_s)

    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(run_id="r", folder=Path(folder), seed=number, at=at_s)
        outcome = run_plan(plan, options, Record(), watch)
    lost_s = outcome.state.promise.lost_s
    return Announced(
        kept=outcome.kept,
        danger=danger[0] if danger else None,
        lost=None if lost_s is None else lost_s / question.deadline_s,
        paid_on=_paid_on(outcome, lost_s),
    )


def _paid_on(outcome: RunOutcome, lost_s: float | None) -> int:
    """Return how many slots cost more than one billing unit after the promise was lost."""
    count = 0
    for name, record in outcome.state.slots.items():
        offer = outcome.execution.uses[name].slot
        if lost_s is None or not offer.paid or record.ready_s is None or record.ended_s is None:
            continue
        before = offer.cost_usd(max(0.0, lost_s - record.ready_s))
        unit = offer.cost_usd(min(1.0, offer.billing_s))
        count += offer.cost_usd(record.ended_s - record.ready_s) - before > unit + 0.01
    return count


def table(runs: Sequence[Announced]) -> list[tuple[str, str]]:
    """Return what is measured, in words and numbers."""
    missed = [run for run in runs if not run.kept]
    kept = [run for run in runs if run.kept]
    lost = sum(run.lost is not None for run in missed)
    announced = [1.0 - run.danger for run in missed if run.danger is not None and run.danger < 1.0]
    return [
        ("runs, of which missed", f"{len(runs)}, {len(missed)}"),
        ("missed runs announced before due", _share(len(announced), len(missed))),
        ("median lead, of the time until the deadline", f"{np.median(announced or [0.0]):.2f}"),
        (
            "cannot be met, among missed",
            _share(lost, len(missed)),
        ),
        ("false: cannot be met, and kept", str(sum(run.lost is not None for run in kept))),
        ("at risk, and kept", _share(sum(run.danger is not None for run in kept), len(kept))),
        ("slots paid for more than a unit after a loss", str(sum(run.paid_on for run in runs))),
    ]


def _share(count: int, total: int) -> str:
    return f"{count / max(1, total):.3f} ({count} of {total})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.processes) as pool:
        runs = [run for run in pool.map(plan_and_run, range(chosen.runs)) if run is not None]
    print("| measure | value |\n| --- | --: |")
    for name, value in table(runs):
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
