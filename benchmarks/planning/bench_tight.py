"""Tight sets in managed runs in virtual time, without and with replanning.

``python -m benchmarks.planning.bench_tight --runs 100``: LEAD over the shipped sites at random
instants of their histories; deadlines are 1.02 to 1.2 critical paths after the begin. Every plan is
run twice with the same seed. With replanning, a run may spend what its plan costs, not the rest of
its budget, unless ``--whole-budget``. By fifth of the promise: the mean promise, the shares of runs
that kept it, and what the slots cost. Required: with replanning, each fifth within .05 and two
standard errors, and at least .03 more of all kept for no more money.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from vgrads_studies.promises.replication import lead

from benchmarks.bench_replanning import Record
from vgrads.api.config import embedded_data
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.planning import Planned, open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options
from vgrads.planner.promise.probability import standard_error
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.sets import WorkflowSet

_NEEDED = ((2, 2), (4, 4), (5, 6), (8, 8), (10, 12))
_TIGHT = (1.02, 1.2)
_BUDGETS = (0.0, 3.0, 8.0)
_PARTS = 5


class Ended(NamedTuple):
    """One run: whether its promise was kept, and what its slots cost."""

    kept: bool
    usd: float
    versions: int


class Pair(NamedTuple):
    """A promise, and the runs of its plan without and with replanning."""

    promise: float
    without: Ended
    replanned: Ended


def run_twice(number: int, whole_budget: bool = False) -> Pair | None:
    """Plan a tight set at an instant and run it twice; None if it has no plan."""
    draws = stream(number, "tight runs")
    needed, count = _NEEDED[int(draws.integers(len(_NEEDED)))]
    catalog = load_catalog(embedded_data() / "sites.toml")
    path_s = lead().critical_path_s()
    workflow_set = WorkflowSet(
        name="lead",
        workflows=tuple(lead().renamed(f"w{n}") for n in range(count)),
        deadline_s=float(draws.uniform(*_TIGHT)) * path_s,
        needed=needed,
        probability=0.9,
        budget_usd=_BUDGETS[int(draws.integers(len(_BUDGETS)))],
    )
    at_s = float(draws.uniform(5.0, 28.0)) * 86_400.0
    planned = plan_set(workflow_set, open_grid(catalog, at_s), options=Options(relax=False))
    if not planned.plan.feasible:
        return None
    if not whole_budget:
        planned = _for_planned_money(planned)
    without, replanned = (_run(planned, number, at_s, replan) for replan in (False, True))
    return Pair(planned.plan.promise.probability, without, replanned)


def _for_planned_money(planned: Planned) -> Planned:
    """Return the same with what the plan costs as the budget."""
    snapshot = planned.snapshot
    poorer = replace(snapshot.workflow_set, budget_usd=planned.plan.cost_usd)
    return replace(planned, snapshot=replace(snapshot, workflow_set=poorer))


def _run(planned: Planned, seed: int, at_s: float, replan: bool) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(run_id="r", folder=Path(folder), seed=seed, at=at_s, replan=replan)
        outcome = run_plan(planned, options, Record())
    return Ended(outcome.kept, _paid_usd(outcome), outcome.state.version)


def _paid_usd(outcome: RunOutcome) -> float:
    """Return what the slots cost, from ready to released."""
    return sum(
        outcome.execution.uses[slot].slot.cost_usd(
            (record.ended_s or outcome.state.now_s) - record.ready_s
        )
        for slot, record in outcome.state.slots.items()
        if record.ready_s is not None
    )


def _row(name: str, pairs: Sequence[Pair]) -> str:
    promise = float(np.mean([p.promise for p in pairs]))
    without, replanned = (
        float(np.mean([run.kept for run in runs]))
        for runs in ([p.without for p in pairs], [p.replanned for p in pairs])
    )
    usd = [np.mean([p.without.usd for p in pairs]), np.mean([p.replanned.usd for p in pairs])]
    changed = sum(p.replanned.versions > 0 for p in pairs)
    error = standard_error(replanned, len(pairs))
    return (
        f"| {name} | {len(pairs)} | {promise:.3f} | {without:.3f} | {replanned:.3f} | {error:.3f} "
        f"| {changed} | {usd[0]:.2f} | {usd[1]:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--whole-budget", action="store_true", help="for replanning, too")
    parser.add_argument("--each", action="store_true", help="print every run")
    chosen = parser.parse_args()
    pairs = list[Pair]()
    for number in range(chosen.first, chosen.first + chosen.runs):
        pair = run_twice(number, chosen.whole_budget)
        if pair is not None:
            pairs.append(pair)
        if chosen.each:
            print(number, pair, flush=True)
    pairs.sort(key=lambda pair: pair.promise)
    print(
        "| promise | runs | mean | kept without | kept with | s.e. | changed | $ without | $ with |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for n, part in enumerate(np.array_split(np.arange(len(pairs)), _PARTS)):
        if len(part):
            print(_row(f"fifth {n + 1}", [pairs[k] for k in part]))
    print(_row("all", pairs))


if __name__ == "__main__":
    main()
