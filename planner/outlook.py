"""The promise of a run now, if its plan continues unchanged: how probable, until when, and whether
it is possible at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.planner.plan import Plan
from vgrads.planner.promise.reported import FRESH
from vgrads.planner.promise.rollout import SimulatedPlan, rollout
from vgrads.planner.replan import Progress, enough_is_done, make_remainder, plan_as_it_stays
from vgrads.planner.snapshot import Snapshot, TaskKey
from vgrads.vgrid.slot import make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.spread import EXACT

_MOST_SCENARIOS = 4096
"""Without any success in so many scenarios, a promise may be impossible."""
_AT_BEST = 0.05
_NEVER = make_certain_curve(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """P(the promise is kept), given the progress of a run, and the median time at which it will be;
    None: never. ``possible``: False where it is kept in no scenario, nor with every wait and run
    time at its 5 % quantile."""

    probability: float
    end_s: float | None = None
    possible: bool = True


def compute_promise(plan: Plan, snapshot: Snapshot, progress: Progress) -> Outlook:
    """Return the current promise if the plan continues unchanged."""
    left = make_remainder(plan, snapshot, progress, lambda _: ())
    if left is not None:
        return _make_outlook(left.snapshot, plan_as_it_stays(plan, left, progress), progress)
    enough = enough_is_done(snapshot, progress)
    return Outlook(float(enough), progress.now_s if enough else None, enough)


def _make_outlook(remainder: Snapshot, plan: Plan, progress: Progress) -> Outlook:
    # not in the scenarios in which the plan was chosen: it is the best there by chance, too
    simulated = _simulate_remainder(replace(remainder, seed=remainder.seed + FRESH), plan)
    with_failures = _add_failures(simulated, progress.repeating, remainder.seed)
    needed_done_s = with_failures.enough_s(plan.needed)
    in_time = needed_done_s[np.isfinite(needed_done_s)]
    end_s = float(np.median(in_time)) + progress.now_s if len(in_time) else None
    probability = float(np.isfinite(needed_done_s).mean())
    # counted without failures: that they repeat makes a promise improbable, not impossible
    possible = bool(len(in_time)) or simulated.promise(plan.needed) > 0
    return Outlook(probability, end_s, possible or _is_possible(remainder, plan))


def _simulate_remainder(
    remainder: Snapshot, plan: Plan, scenarios: int | None = None
) -> SimulatedPlan:
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    return rollout(remainder, plan.placements, submits_s, plan.spare_workflows, scenarios)


def _add_failures(
    simulated: SimulatedPlan, repeating: Mapping[TaskKey, float], seed: int
) -> SimulatedPlan:
    """Return the scenarios with failures that repeat: there the workflow is never done."""
    done_s = dict(simulated.done_s)
    for (workflow, task), share in sorted(repeating.items()):
        if workflow in done_s:
            draws = stream(seed, "failure repeats", workflow, task).random(simulated.scenarios)
            done_s[workflow] = np.where(draws < share, np.inf, done_s[workflow])
    return replace(simulated, done_s=done_s)


def _is_possible(remainder: Snapshot, plan: Plan) -> bool:
    """Return True where the plan is kept in some of many scenarios, or with every wait and run time
    at its 5 % quantile."""
    # one scenario: nothing is random in the best case
    if _simulate_remainder(_make_best_case(remainder), plan, 1).promise(plan.needed) > 0:
        return True
    simulated, seed = 0, remainder.seed + FRESH
    while simulated < _MOST_SCENARIOS:  # a large plan is simulated in fewer at a time
        seed += FRESH
        many = _simulate_remainder(replace(remainder, seed=seed, scenarios=_MOST_SCENARIOS), plan)
        if many.promise(plan.needed) > 0:
            return True
        simulated += many.scenarios
    return False


def _make_best_case(remainder: Snapshot) -> Snapshot:
    """Return the remainder with every wait and run time at its 5 % quantile, and without losses."""
    workflow_set = remainder.workflow_set
    workflows = []
    for workflow in workflow_set.workflows:
        tasks = [
            replace(
                task,
                runtime_s=task.runtime_s * workflow_set.spread(task).factor(_AT_BEST),
                spread=EXACT,
            )
            for task in workflow.tasks.values()
        ]
        workflows.append(make_workflow(workflow.name, tasks, workflow.file_mib))
    slots = tuple(
        replace(
            slot,
            curve=make_certain_curve(slot.curve.reaches_s(_AT_BEST))
            if slot.curve.best > 0
            else _NEVER,
            up=1.0,
            task_failure=0.0,
        )
        for slot in remainder.slots
    )
    return replace(
        remainder, workflow_set=replace(workflow_set, workflows=tuple(workflows)), slots=slots
    )
