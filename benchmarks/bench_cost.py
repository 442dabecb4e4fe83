"""What a promise costs: LEAD on the shipped sites, told, judged, paid and held.

    python benchmarks/bench_cost.py [--plays 2000] [--days 20.3 22.6 25.5 end past] \\
        [--policies vgrads paper]

Two questions: 4 of 8 within 5,600 s with probability .9, and 4 of 4 within 9,000 s with .95; at
instants of the shipped histories, in days, of which some find busy queues; ``past``: at the end,
foretold by past waits alone (what the first measurements of these rows were made with: .856 for
$14.99 and 235 h, .973 for $8.04 and 214 h). ``judged``, ``paid`` and ``held`` (processor-hours) are
means of as many executions by the core (``tests/planner/plan_judge.py``), which gives slots back as
soon as nothing is left for them; ``planned`` are what the plan itself reckons with. Of the hours
held, ``useful`` ran for the workflows needed, ``further`` for others, ``lost`` for twins and
failures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from tests.planner.plan_judge import judge
from tests.planner.promise_truth import by_past_waits, shipped
from vgrads.api.config import embedded_data
from vgrads.api.plans.planning import GridSnapshot, take_snapshot
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import WorkflowSet

POLICIES = {
    "vgrads": Options(),
    "paper": Options(probability="paper"),
    "no-replication": Options(policy="no-replication"),
}
DAYS = ("past", "20.3", "22.6", "25.5", "end")


def questions() -> Iterator[WorkflowSet]:
    """LEAD twice: half of the forecasts soon, all of them later."""
    lead = load_workflow(embedded_data() / "lead.json")
    for count, deadline_s, probability in ((8, 5_600.0, 0.9), (4, 9_000.0, 0.95)):
        workflows = tuple(lead.renamed(f"lead-{n + 1}") for n in range(count))
        yield WorkflowSet(
            name=f"LEAD 4 of {count}, {deadline_s:,.0f} s",
            workflows=workflows,
            deadline_s=deadline_s,
            needed=4,
            probability=probability,
            budget_usd=40.0,
        )


def grid_of(day: str) -> GridSnapshot:
    """The shipped sites at an instant."""
    if day == "past":
        return by_past_waits()
    return shipped(None if day == "end" else float(day) * 86_400.0)


def planned_hours(plan: Plan) -> float:
    """Processor-hours of the slots from their first task to the end that the plan holds them to."""
    return sum((use.end_s - use.start_s) * use.slot.procs for use in plan.uses) / 3600.0


def row(snapshot: Snapshot, day: str, policy: str, simulations: int) -> str:
    """One plan, judged."""
    begun = time.perf_counter()
    plan = make_plan(snapshot, POLICIES[policy])
    seconds = time.perf_counter() - begun
    plan.check(snapshot)
    judged = judge(snapshot, plan, simulations)
    return (
        f"| {plan.set_name} | {day} | {policy} | {plan.requested_probability} | "
        f"{plan.promise.probability:.3f} | "
        f"{judged.probability:.3f} ± {judged.standard_error:.3f} | {plan.cost_usd:.2f} | "
        f"{judged.usd:.2f} | {planned_hours(plan):.0f} | "
        f"{judged.hours:.0f} | {judged.useful_hours:.0f} | {judged.further_hours:.0f} | "
        f"{judged.lost_hours:.0f} | {seconds:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plays", type=int, default=2000)
    parser.add_argument(
        "--days", nargs="*", default=DAYS, help="instants of the histories, 'end', or 'past'"
    )
    parser.add_argument(
        "--policies", nargs="*", default=("vgrads", "paper"), choices=tuple(POLICIES)
    )
    options = parser.parse_args()
    print(
        "| set | day | policy | asked | told | judged | planned $ | paid $ | planned h | "
        "held h | useful | further | lost | planning s |"
    )
    print("| --- | --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    for day in options.days:
        grid = grid_of(day)
        for workflow_set in questions():
            snapshot = take_snapshot(workflow_set, grid, 0)
            for policy in options.policies:
                print(row(snapshot, day, policy, options.plays), flush=True)


if __name__ == "__main__":
    main()
