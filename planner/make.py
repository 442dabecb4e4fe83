"""Make a plan from a snapshot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.kernel.units import format_usd
from vgrads.planner.improve import FRESH, REPORTED_SCENARIOS, Version, improve, slot_uses
from vgrads.planner.phases import run_phases
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import PhaseReport, Plan, Promise
from vgrads.planner.policies import make_draft, make_pipeline
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.promise.rollout import SimulatedPlan, rollout
from vgrads.planner.snapshot import QUANTILE_LEVELS, Snapshot
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of planning: a planning policy and a probability rule, by name
    (:mod:`vgrads.planner.policies`); ``effort_s``: approximate limit in seconds for the search for
    a cheaper plan."""

    policy: str = "vgrads"
    probability: str = "joint"
    effort_s: float = 0.5

    @property
    def standard(self) -> bool:
        """True if the planner may choose."""
        return (self.policy, self.probability) == ("vgrads", "joint")


STANDARD = Options()
SINGLE = Options(policy="no-replication")
"""One replica of each task: two that write the same files must not run at once."""
_OTHERS = (("vgrads", "paper"), ("no-replication", "joint"), ("heft", "joint"))
_CLOUD = (("cloud-first", "joint"), ("cloud-only", "joint"))
_HOPING = 0.5  # lower quantiles are tried only without a feasible plan
_MOST_TRIED = 1_500  # tasks up to which other planning policies are tried


def make_plan(snapshot: Snapshot, options: Options = STANDARD) -> Plan:
    """Return the plan of a planning policy; ``feasible`` is False, with the lacking resource, if F
    cannot be reached.

    The requested probability decides: of the plans that reach it the cheapest, otherwise the most
    probable. If the standard policy does not reach it, the others that cost no more planning are
    also tried, and then those that use the cloud first; a plan that reaches it is made cheaper
    (:mod:`vgrads.planner.improve`).
    """
    if not snapshot.workflow_set.workflows:
        return _nothing(snapshot.workflow_set)
    if snapshot.workflow_set.released and options.standard:
        return _narrower(snapshot, plan_alone(snapshot, SINGLE))
    plan = plan_alone(snapshot, options)
    if options.standard:
        plan = _cheaper(snapshot, _narrower(snapshot, _best(snapshot, plan)), options.effort_s)
    return plan


def _nothing(workflow_set: WorkflowSet) -> Plan:
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


def _narrower(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan, or a more probable one that reserves less time per task: the sum of many
    worst cases exceeds the worst case of the sum, especially if errors are large."""
    for places in QUANTILE_LEVELS if snapshot.workflow_set.uncertain else ():
        enough = plan.meets_request if places >= _HOPING else plan.feasible
        if places < snapshot.quantile and not enough:
            tighter = replace(snapshot, quantile=places)
            alone = snapshot.workflow_set.released
            other = plan_alone(tighter, SINGLE if alone else STANDARD)
            plan = max((plan, other if alone else _best(tighter, other)), key=_rank)
    return plan


def _best(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan, or one of another planning policy that ranks higher."""
    tasks = sum(len(workflow.tasks) for workflow in snapshot.workflow_set.workflows)
    if (plan.meets_request and plan.cost_usd == 0) or tasks > _MOST_TRIED:
        return plan
    tried = [plan, *(_rival(snapshot, name, rule) for name, rule in _OTHERS)]
    if not any(t.meets_request for t in tried):
        tried += [_rival(snapshot, name, rule) for name, rule in _CLOUD]
    tried = [t for t in tried if not t.problems(snapshot)]
    best = max(tried, key=_rank)
    gain = best.promise.probability - plan.promise.probability
    little = not plan.meets_request and gain <= best.promise.standard_error
    if best is plan or (best.feasible == plan.feasible and little):
        return plan
    seconds = {name: sum(t.seconds.get(name, 0.0) for t in tried) for name in best.seconds}
    return replace(best, seconds=seconds, policy=f"vgrads, as {best.policy}")


def _rank(plan: Plan) -> tuple[bool, float, float, float]:
    """Rank by the request: if it is reached, the cheapest is best; otherwise the most probable."""
    sure = 1.0 if plan.meets_request else plan.promise.probability
    return plan.feasible, sure, -plan.expected_usd, -plan.expected_hours


def _cheaper(snapshot: Snapshot, plan: Plan, effort_s: float) -> Plan:
    """Return the cheapest version found that keeps the promise in scenarios that were not used for
    choices."""
    if effort_s <= 0 or not plan.meets_request:
        return plan
    begin = time.perf_counter()
    versions = improve(snapshot, plan.placements, effort_s)
    overlay_plan = plan
    for version in reversed(versions[1:]):
        created = _version(plan, version)
        if not created.problems(snapshot):
            overlay_plan = created
            break
    steps = [
        {
            "promise": v.promise,
            "expected_usd": round(v.usd, 2),
            "expected_hours": round(v.hours, 1),
            "slots": len(v.uses),
        }
        for v in versions
    ]
    report = PhaseReport(
        name="improving",
        seconds=time.perf_counter() - begin,
        placed=len(overlay_plan.placements) - len(plan.placements),
        probability_before=plan.promise.probability,
        probability_after=overlay_plan.promise.probability,
        steps=tuple(steps),
    )
    return replace(
        overlay_plan,
        phases=(*plan.phases, report),
        seconds={**plan.seconds, "improving": report.seconds},
    )


def _version(plan: Plan, version: Version) -> Plan:
    """Return a version as a plan; the data of each replica are retained."""
    by_slot = {(p.task_key, p.slot): p for p in plan.placements}
    before = [by_slot[p.task_key, p.slot] for p in version.placements]
    placements = tuple(
        p.with_probability(old.probability)
        for p, old in zip(version.placements, before, strict=True)
    )
    reasons = {
        p.key: plan.reasons[old.key]
        for p, old in zip(placements, before, strict=True)
        if old.key in plan.reasons
    }
    overlay_plan = replace(
        plan,
        placements=placements,
        uses=version.uses,
        reasons=reasons,
        spare_workflows=version.spare_workflows,
    )
    return _with_promise(overlay_plan, version.simulated)


def _rival(snapshot: Snapshot, policy: str, rule: str) -> Plan:
    """Return another planning policy's plan, with the joint promise for every probability rule."""
    return plan_alone(snapshot, Options(policy=policy, probability=rule), judged=True)


def plan_alone(snapshot: Snapshot, options: Options, judged: bool = False) -> Plan:
    """Return the plan of one planning policy. ``judged``: its promise is the joint one for every
    probability rule.

    Phases keep the planned cost within the budget, but tasks that take longer hold paid slots
    longer. If the average cost exceeds the budget, less is planned.
    """
    workflow_set = snapshot.workflow_set
    plan, budget = _by_policy(snapshot, options, judged), workflow_set.most_usd
    would_usd, left_usd = plan.cost_usd, budget
    while plan.cost_usd > budget + 1e-9 and left_usd > 0:
        left_usd = max(0.0, left_usd - max(plan.cost_usd - budget, 0.1 * budget))
        tighter = replace(snapshot, workflow_set=replace(workflow_set, budget_usd=left_usd))
        plan = _by_policy(tighter, options, judged)
        if plan.scheduled < workflow_set.needed:
            plan = replace(plan, lacking=_too_dear(plan, workflow_set, would_usd))
    return plan


def _by_policy(snapshot: Snapshot, options: Options, judged: bool) -> Plan:
    plan = _from_phases(snapshot, options)
    simulated = _simulated(snapshot, plan)
    if options.probability == "paper" and not judged:
        simulated = replace(simulated, promise=plan.promise)
    lacking = _lacking(snapshot, simulated)
    return replace(simulated, feasible=not lacking, lacking=lacking)


def _from_phases(snapshot: Snapshot, options: Options) -> Plan:
    """Return the plan that the phases make, with the promise as they computed it. What they worked
    with is gone before its simulation begins: it is as large as the plan."""
    workflow_set = snapshot.workflow_set
    draft = make_draft(snapshot, options.probability)
    phases = run_phases(draft, make_pipeline(options.policy)(draft))
    probabilities = draft.probabilities()
    placements = tuple(p.with_probability(probabilities[p.key]) for p in draft.placements)
    placed = {p.key for p in placements}
    paper = options.probability == "paper"
    return Plan(
        set_name=workflow_set.name,
        deadline_s=workflow_set.deadline_s,
        needed=workflow_set.needed,
        requested_probability=workflow_set.probability,
        feasible=True,
        lacking="",
        promise=_computed(draft),
        placements=placements,
        uses=slot_uses(snapshot, placements),
        phases=phases,
        reasons={key: why for key, why in draft.reasons.items() if key in placed},
        quantile=snapshot.quantile,
        policy="the paper's rule" if paper else options.policy,
        seconds={report.name: report.seconds for report in phases},
    )


def _computed(draft: Draft) -> Promise:
    """Return the promise as the phases computed it."""
    return Promise(
        probability=draft.promise,
        standard_error=draft.standard_error,
        cautious=draft.promise,
        by_workflow={name: draft.workflow_chance(name) for name in draft.scheduled},
    )


def _simulated(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan with the promise of its simulation, in other scenarios than those of the
    choice: a choice looks better in the scenarios that it was based on."""
    fresh = replace(snapshot, seed=snapshot.seed + FRESH)
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    return _with_promise(
        plan, rollout(fresh, plan.placements, submits_s, plan.spare_workflows, REPORTED_SCENARIOS)
    )


def _with_promise(plan: Plan, simulated: SimulatedPlan) -> Plan:
    """Return the plan with the results of its simulation."""
    probability = simulated.promise(plan.needed)
    promise = Promise(
        probability=probability,
        standard_error=standard_error(probability, simulated.scenarios),
        by_workflow={
            name: float(np.isfinite(done_s).mean()) for name, done_s in simulated.done_s.items()
        },
        cautious=plan.promise.cautious,
    )
    return replace(
        plan,
        promise=promise,
        expected_usd=round(simulated.usd(plan.uses), 2),
        expected_hours=round(simulated.hours(plan.uses), 2),
    )


def _lacking(snapshot: Snapshot, plan: Plan) -> str:
    """Return why the minimum is not placed, as text; empty if it is."""
    workflow_set = snapshot.workflow_set
    missing = workflow_set.needed - plan.scheduled
    if missing <= 0:
        sure = plan.promise.probability > 0
        return "" if sure else "every plan depends on slots that are certain to start too late"
    placed = {p.workflow for p in plan.placements}
    unplaced = [w for w in workflow_set.workflows if w.name not in placed]
    shapes = {id(w.tasks): w for w in reversed(unplaced)}  # same shape, same obstacles
    result = (r for r in map(lambda w: _obstacle(w, snapshot), shapes.values()) if r)
    reason = next(result, "") or _refused(plan) or "capacity of the slots on offer"
    return f"{missing} of the {workflow_set.needed} workflows needed cannot be placed: {reason}"


def _too_dear(plan: Plan, workflow_set: WorkflowSet, would_usd: float) -> str:
    """Return why the minimum is not placed if that would exceed the budget on average."""
    return (
        f"{workflow_set.needed - plan.scheduled} of the {workflow_set.needed} workflows needed "
        f"cannot be placed: money: the budget is {format_usd(workflow_set.most_usd)}, with them "
        f"the plan would cost {format_usd(would_usd)} on average"
    )


def _refused(plan: Plan) -> str:
    """Return that money excluded the next workflow; empty if it did not."""
    for phase in plan.phases:
        for step in phase.steps:
            if step.get("refused") == "budget":
                return (
                    f"money: the budget is ${step['budget_usd']:.2f}, with one more the plan "
                    f"would cost ${step['would_cost_usd']:.2f}"
                )
    return ""


def _nowhere(task: Task, slots: Sequence[Slot]) -> str:
    """Return why none of these slots holds a task, the plainest reason first."""
    box = task.environment.boxed
    if box is not None and not any(slot.runs(task.needs.engine) for slot in slots):
        choices = ", ".join(sorted({engine for slot in slots for engine in slot.containers}))
        engine = box.engine or "an engine for containers"
        return (
            f"task '{task.id}' needs {engine} for its image '{box.image}', sites have "
            f"{choices or 'none'} (`containers` of a site)"
        )
    for name, units in task.resources:
        most = max((dict(slot.resources).get(name, 0) for slot in slots), default=0)
        if units > most:
            return f"task '{task.id}' needs {units} of {name}, the slot with most of it has {most}"
    widest = max((slot.procs for slot in slots), default=0)
    if task.procs > widest:
        share = " for its share of resources" if task.threads else ""
        return (
            f"task '{task.id}' needs {task.procs} processors{share}, the widest slot on offer "
            f"has {widest}"
        )
    most_mib = max(slot.memory_for(min(task.procs, slot.procs)) for slot in slots)
    if task.memory_mib > most_mib:
        return (
            f"task '{task.id}' needs {task.memory_mib:.0f} MiB of memory, no slot on offer has "
            f"that much: at most {most_mib:.0f}"
        )
    return f"task '{task.id}' needs more at once than any slot on offer has"


def _obstacle(workflow: Workflow, snapshot: Snapshot) -> str:
    """Return the obstacle that excludes a workflow even if it had every slot alone."""
    for task in workflow.tasks.values():
        if not any(slot.holds(task.needs) for slot in snapshot.slots):
            return _nowhere(task, snapshot.slots)
    fastest = max(slot.speed for slot in snapshot.slots)
    length_s = snapshot.longest_s(workflow) / fastest
    deadline_s = snapshot.workflow_set.deadline_s
    if length_s > deadline_s:
        return (
            f"time: '{workflow.name}' takes {length_s:.0f} s on the fastest site, the deadline "
            f"is {deadline_s:.0f} s away"
        )
    if not any(slot.curve.probabilities.any() for slot in snapshot.slots):
        return "sites with a known probability: no slot on offer has one"
    return ""
