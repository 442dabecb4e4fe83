"""Make a plan from a snapshot."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vgrads.planner.effort import UNIT, Effort
from vgrads.planner.obstacles import explain_cost, explain_lacking
from vgrads.planner.phases import run_phases
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import Plan, Promise
from vgrads.planner.policies import make_draft, make_pipeline
from vgrads.planner.promise.reported import add_promise
from vgrads.planner.snapshot import QUANTILE_LEVELS, Snapshot
from vgrads.planner.uses import derive_slot_uses
from vgrads.workflows.sets import WorkflowSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of planning: a planning policy and a probability rule, by name
    (:mod:`vgrads.planner.policies`); ``effort``: the work of planning, a multiple of the usual
    (:mod:`vgrads.planner.effort`); ``within_s``: seconds after which it ends earlier; ``relax``:
    look for changes that suffice where the request cannot be met, and for the evidence of
    :mod:`vgrads.planner.evidence`."""

    policy: str = "vgrads"
    probability: str = "joint"
    effort: float = 1.0
    within_s: float = math.inf
    relax: bool = True

    @property
    def standard(self) -> bool:
        """True if the planner may choose."""
        return (self.policy, self.probability) == ("vgrads", "joint")

    def begin(self) -> Effort:
        """Return the effort of planning that begins now."""
        return Effort(self.effort * UNIT, time.monotonic() + self.within_s)


STANDARD = Options()
SINGLE = Options(policy="no-replication")
"""One replica of each task: two that write the same files must not run at once."""

_MOST_AT_ALL_LEVELS = 1_500  # tasks
_MOST_SEARCHED = 3_000  # tasks
_MOST_ANEW = 600  # tasks up to which plans for other offers need no first plan
_FEW_LEVELS = (QUANTILE_LEVELS[3], QUANTILE_LEVELS[-1])


def make_plan(
    snapshot: Snapshot,
    options: Options = STANDARD,
    effort: Effort | None = None,
    others: Iterable[Plan] = (),
) -> Plan:
    """Return the plan of a planning policy; ``feasible`` is False, with the lacking resource, if F
    cannot be reached.

    The requested probability decides: of the plans that reach it the cheapest, otherwise the most
    probable. The first plan is that of the four phases; a search makes better ones of it, and of
    ``others``, as long as ``effort`` is left (:mod:`vgrads.planner.search`).
    """
    first = first_plan(snapshot, options)
    return searched(snapshot, first, options, effort or options.begin(), others)


def first_plan(snapshot: Snapshot, options: Options = STANDARD) -> Plan:
    """Return the plan of a planning policy, without a search. If run times are uncertain and no
    plan reserves time for the safest quantile, it reserves less: the sum of many worst cases
    exceeds the worst case of the sum."""
    workflow_set = snapshot.workflow_set
    if not workflow_set.workflows:
        return _make_empty_plan(workflow_set)
    chosen = SINGLE if workflow_set.released and options.standard else options
    plan = plan_alone(snapshot, chosen)
    tasks = workflow_set.task_count
    levels = QUANTILE_LEVELS if tasks <= _MOST_AT_ALL_LEVELS else _FEW_LEVELS
    for quantile in levels if workflow_set.uncertain and options.standard else ():
        if plan.feasible:
            break
        if quantile < snapshot.quantile:
            other = plan_alone(replace(snapshot, quantile=quantile), chosen)
            plan = other if other.feasible else plan
    return plan


def searched(
    snapshot: Snapshot, plan: Plan, options: Options, effort: Effort, others: Iterable[Plan] = ()
) -> Plan:
    """Return the best plan that is found within the effort, beginning with this one and others."""
    tasks, released = snapshot.workflow_set.task_count, snapshot.workflow_set.released
    if not options.standard or effort.left <= 0 or not 0 < tasks <= _MOST_SEARCHED:
        return plan
    if released and plan.meets_request:  # a program outside waits for it
        return plan
    from vgrads.planner.search.search import search  # noqa: PLC0415  # it takes time to load

    return search(snapshot, plan, effort, others)


def plan_again(snapshot: Snapshot, like: Plan, options: Options, effort: Effort) -> Plan:
    """Return a plan for other offers, with ``like`` among the starts of the search; large sets have
    a first plan of their own."""
    if snapshot.workflow_set.task_count > _MOST_ANEW:
        return make_plan(snapshot, options, effort, [like])
    from vgrads.planner.search.search import search_anew  # noqa: PLC0415  # as above

    return search_anew(snapshot, like, effort, [like])


def _make_empty_plan(workflow_set: WorkflowSet) -> Plan:
    """Return the plan of a set with no remaining work."""
    return Plan(
        set_name=workflow_set.name,
        deadline_s=workflow_set.deadline_s,
        needed=0,
        requested_probability=workflow_set.probability,
        feasible=True,
        lacking="",
        promise=Promise(probability=1.0, standard_error=0.0, by_workflow={}, cautious=1.0),
        placements=(),
        uses=(),
        phases=(),
    )


def plan_alone(snapshot: Snapshot, options: Options, judged: bool = False) -> Plan:
    """Return the plan of one planning policy. ``judged``: its promise is the joint one for every
    probability rule.

    Phases keep the planned cost within the budget, but tasks that take longer hold paid slots
    longer. If the average cost exceeds the budget, less is planned.
    """
    workflow_set = snapshot.workflow_set
    plan, budget = _plan_by_policy(snapshot, options, judged), workflow_set.most_usd
    would_usd, left_usd, enough = plan.cost_usd, budget, plan.feasible
    while plan.cost_usd > budget + 1e-9 and left_usd > 0:
        # at least a tenth less each time, so that few plans are made
        left_usd = max(0.0, left_usd - max(plan.cost_usd - budget, 0.1 * budget))
        tighter = replace(snapshot, workflow_set=replace(workflow_set, budget_usd=left_usd))
        plan = _plan_by_policy(tighter, options, judged)
        if enough and plan.scheduled < workflow_set.needed:
            plan = replace(plan, lacking=explain_cost(plan, workflow_set, would_usd))
    return plan


def _plan_by_policy(snapshot: Snapshot, options: Options, judged: bool) -> Plan:
    plan = _plan_by_phases(snapshot, options)
    simulated = add_promise(snapshot, plan)
    if options.probability == "paper" and not judged:
        simulated = replace(simulated, promise=plan.promise)
    lacking = explain_lacking(snapshot, simulated)
    return replace(simulated, feasible=not lacking, lacking=lacking)


def _plan_by_phases(snapshot: Snapshot, options: Options) -> Plan:
    """Return the plan that the phases make, with the promise as they computed it. What they worked
    with is gone before its simulation begins: it is as large as the plan."""
    workflow_set = snapshot.workflow_set
    draft = make_draft(snapshot, options.probability)
    phases = run_phases(draft, make_pipeline(options.policy)(draft))
    probabilities = draft.probabilities()
    placements = tuple(p.with_probability(probabilities[p.key]) for p in draft.placements)
    paper = options.probability == "paper"
    return Plan(
        set_name=workflow_set.name,
        deadline_s=workflow_set.deadline_s,
        needed=workflow_set.needed,
        requested_probability=workflow_set.probability,
        feasible=True,
        lacking="",
        promise=_compute_promise(draft),
        placements=placements,
        uses=derive_slot_uses(snapshot, placements),
        phases=phases,
        reasons={key: why for key, why in draft.reasons.items() if key in probabilities},
        quantile=snapshot.quantile,
        policy="the paper's rule" if paper else options.policy,
        seconds={report.name: report.seconds for report in phases},
    )


def _compute_promise(draft: Draft) -> Promise:
    """Return the promise as the phases computed it."""
    return Promise(
        probability=draft.promise,
        standard_error=draft.standard_error,
        cautious=draft.promise,
        by_workflow={name: draft.workflow_chance(name) for name in draft.scheduled},
    )
