"""The promise of a plan as it is reported: simulated in scenarios that did not choose it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vgrads.planner.plan import Plan, Promise
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.promise.rollout import SimulatedPlan, rollout
from vgrads.planner.snapshot import Snapshot

FRESH = 1_000_003
"""Difference between the seed of planning and that of the promise."""
REPORTED_SCENARIOS = 2048
"""Scenarios in which a promise is simulated before it is reported."""


def add_promise(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan with the results of its simulation, in other scenarios than those of the
    choice: a choice looks better in the scenarios that it was based on."""
    fresh = replace(snapshot, seed=snapshot.seed + FRESH)
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    simulated = rollout(fresh, plan.placements, submits_s, plan.spare_workflows, REPORTED_SCENARIOS)
    return _with_results(plan, simulated)


def _with_results(plan: Plan, simulated: SimulatedPlan) -> Plan:
    probability = simulated.promise(plan.needed)
    promise = Promise(
        probability=probability,
        standard_error=standard_error(probability, simulated.scenarios),
        by_workflow={
            name: float(np.isfinite(done_s).mean()) for name, done_s in simulated.done_s.items()
        },
        cautious=min(plan.promise.cautious, probability),
    )
    return replace(
        plan,
        promise=promise,
        expected_usd=round(simulated.usd(plan.uses), 2),
        expected_hours=round(simulated.hours(plan.uses), 2),
    )
