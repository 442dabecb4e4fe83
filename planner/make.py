"""Snapshot in, plan out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.kernel.units import format_usd
from vgrads.planner.improve import FRESH, TOLD, Version, improve, slot_uses
from vgrads.planner.phases import run_phases
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import PhaseReport, Plan, Promise
from vgrads.planner.policies import make_draft, make_pipeline
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.promise.rollout import Played, rollout
from vgrads.planner.snapshot import PLACES, Snapshot
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to plan: a policy and a rule of probability, by name (:mod:`vgrads.planner.policies`);
    ``effort_s``: about how many seconds the last step may look for a cheaper plan."""

    policy: str = "vgrads"
    probability: str = "joint"
    effort_s: float = 0.5

    @property
    def standard(self) -> bool:
        """True where the planner is free to choose."""
        return (self.policy, self.probability) == ("vgrads", "joint")


STANDARD = Options()
SINGLE = Options(policy="no-replication")
"""One copy of each task: two that write the same files must not run at once."""
_OTHERS = (("vgrads", "paper"), ("no-replication", "joint"), ("heft", "joint"))
_CLOUD = (("cloud-first", "joint"), ("cloud-only", "joint"))
_HOPING = (
    0.5  # below which quantile of run times places are made only where nothing else gives a plan
)
_MOST_TRIED = 1_500  # tasks up to which other policies are tried as well


def make_plan(snapshot: Snapshot, options: Options = STANDARD) -> Plan:
    """The plan of a policy; ``feasible`` is False, with what is lacking, where F cannot be met.

    What is asked decides what is bought: of plans that reach the asked probability the cheapest,
    else the surest. The standard policy, where it falls short, also tries the others that cost no
    more planning, and the cloud first where these fall short too; what reaches what was asked is
    made cheaper (:mod:`vgrads.planner.improve`).
    """
    if not snapshot.wanted.workflows:
        return _nothing(snapshot.wanted)
    if snapshot.wanted.released and options.standard:
        return _narrower(snapshot, plan_alone(snapshot, SINGLE))
    plan = plan_alone(snapshot, options)
    if options.standard:
        plan = _cheaper(snapshot, _narrower(snapshot, _best(snapshot, plan)), options.effort_s)
    return plan


def _nothing(wanted: WorkflowSet) -> Plan:
    """The plan of a set of which nothing is left to do."""
    return Plan(
        set_name=wanted.name,
        deadline_s=wanted.deadline_s,
        needed=0,
        asked_probability=wanted.probability,
        feasible=True,
        lacking="",
        promise=Promise(probability=1.0, standard_error=0.0, by_workflow={}, cautious=1.0),
        placements=(),
        uses=(),
        phases=(),
    )


def _narrower(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan, or one whose tasks have less room where that is surer: many places made for the
    worst case are more than the worst case of all together, most of all where errors are large."""
    for places in PLACES if snapshot.wanted.uncertain else ():
        enough = plan.kept_as_asked if places >= _HOPING else plan.feasible
        if places < snapshot.places and not enough:
            tighter = replace(snapshot, places=places)
            alone = snapshot.wanted.released
            other = plan_alone(tighter, SINGLE if alone else STANDARD)
            plan = max((plan, other if alone else _best(tighter, other)), key=_rank)
    return plan


def _best(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan, or one by another policy where that does better what was asked."""
    tasks = sum(len(workflow.tasks) for workflow in snapshot.wanted.workflows)
    if (plan.kept_as_asked and plan.cost_usd == 0) or tasks > _MOST_TRIED:
        return plan
    tried = [plan, *(_rival(snapshot, name, rule) for name, rule in _OTHERS)]
    if not any(t.kept_as_asked for t in tried):
        tried += [_rival(snapshot, name, rule) for name, rule in _CLOUD]
    tried = [t for t in tried if not t.problems(snapshot)]
    best = max(tried, key=_rank)
    gain = best.promise.probability - plan.promise.probability
    little = not plan.kept_as_asked and gain <= best.promise.standard_error
    if best is plan or (best.feasible == plan.feasible and little):
        return plan
    seconds = {name: sum(t.seconds.get(name, 0.0) for t in tried) for name in best.seconds}
    return replace(best, seconds=seconds, policy=f"vgrads, as {best.policy}")


def _rank(plan: Plan) -> tuple[bool, float, float, float]:
    """What is asked decides: reached, the cheapest is the best; else the surest."""
    sure = 1.0 if plan.kept_as_asked else plan.promise.probability
    return plan.feasible, sure, -plan.expected_usd, -plan.expected_hours


def _cheaper(snapshot: Snapshot, plan: Plan, effort_s: float) -> Plan:
    """The cheapest version that was found and keeps the promise in scenarios that no choice was
    made in."""
    if effort_s <= 0 or not plan.kept_as_asked:
        return plan
    begin = time.perf_counter()
    versions = improve(snapshot, plan.placements, effort_s)
    found = plan
    for version in reversed(versions[1:]):
        made = _version(plan, version)
        if not made.problems(snapshot):
            found = made
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
        placed=len(found.placements) - len(plan.placements),
        probability_before=plan.promise.probability,
        probability_after=found.promise.probability,
        steps=tuple(steps),
    )
    return replace(
        found, phases=(*plan.phases, report), seconds={**plan.seconds, "improving": report.seconds}
    )


def _version(plan: Plan, version: Version) -> Plan:
    """A version as a plan; what is known of each copy stays with it."""
    known = {(p.task_key, p.slot): p for p in plan.placements}
    before = [known[p.task_key, p.slot] for p in version.placements]
    placements = tuple(
        p.as_sure(old.probability) for p, old in zip(version.placements, before, strict=True)
    )
    reasons = {
        p.key: plan.reasons[old.key]
        for p, old in zip(placements, before, strict=True)
        if old.key in plan.reasons
    }
    made = replace(
        plan, placements=placements, uses=version.uses, reasons=reasons, spare=version.spare
    )
    return _told(made, version.played)


def _rival(snapshot: Snapshot, policy: str, rule: str) -> Plan:
    """Another policy's plan; its promise is the joint one whatever rule it was made by."""
    return plan_alone(snapshot, Options(policy=policy, probability=rule), judged=True)


def plan_alone(snapshot: Snapshot, options: Options, judged: bool = False) -> Plan:
    """One policy's plan. ``judged``: its promise is the joint one whatever rule it was made by.

    Phases keep what they plan within the budget; tasks that take longer hold what is paid for.
    Where that costs more than the budget on average, less is planned.
    """
    wanted = snapshot.wanted
    plan, budget = _by_policy(snapshot, options, judged), wanted.most_usd
    would_usd, left_usd = plan.cost_usd, budget
    while plan.cost_usd > budget + 1e-9 and left_usd > 0:
        left_usd = max(0.0, left_usd - max(plan.cost_usd - budget, 0.1 * budget))
        tighter = replace(snapshot, wanted=replace(wanted, budget_usd=left_usd))
        plan = _by_policy(tighter, options, judged)
        if plan.scheduled < wanted.needed:
            plan = replace(plan, lacking=_too_dear(plan, wanted, would_usd))
    return plan


def _by_policy(snapshot: Snapshot, options: Options, judged: bool) -> Plan:
    wanted = snapshot.wanted
    draft = make_draft(snapshot, options.probability)
    phases = run_phases(draft, make_pipeline(options.policy)(draft))
    probabilities = draft.probabilities()
    placements = tuple(p.as_sure(probabilities[p.key]) for p in draft.placements)
    placed = {p.key for p in placements}
    paper = options.probability == "paper"
    plan = Plan(
        set_name=wanted.name,
        deadline_s=wanted.deadline_s,
        needed=wanted.needed,
        asked_probability=wanted.probability,
        feasible=True,
        lacking="",
        promise=_reckoned(draft),
        placements=placements,
        uses=slot_uses(snapshot, placements),
        phases=phases,
        reasons={key: why for key, why in draft.reasons.items() if key in placed},
        places=snapshot.places,
        policy="the paper's rule" if paper else options.policy,
        seconds={report.name: report.seconds for report in phases},
    )
    played = _played(snapshot, plan)
    if paper and not judged:
        played = replace(played, promise=plan.promise)
    lacking = _lacking(snapshot, played)
    return replace(played, feasible=not lacking, lacking=lacking)


def _reckoned(draft: Draft) -> Promise:
    """The promise as the phases reckoned it."""
    return Promise(
        probability=draft.promise,
        standard_error=draft.standard_error,
        cautious=draft.promise,
        by_workflow={name: draft.workflow_chance(name) for name in draft.scheduled},
    )


def _played(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan with its promise as it would be carried out, in futures other than those that it was
    chosen in: a choice looks better than it is in the futures that it was made by."""
    fresh = replace(snapshot, seed=snapshot.seed + FRESH)
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    return _told(plan, rollout(fresh, plan.placements, submits_s, plan.spare, TOLD))


def _told(plan: Plan, played: Played) -> Plan:
    """The plan with what playing it gave."""
    probability = played.promise(plan.needed)
    promise = Promise(
        probability=probability,
        standard_error=standard_error(probability, played.scenarios),
        by_workflow={
            name: float(np.isfinite(done_s).mean()) for name, done_s in played.done_s.items()
        },
        cautious=plan.promise.cautious,
    )
    return replace(
        plan,
        promise=promise,
        expected_usd=round(played.usd(plan.uses), 2),
        expected_hours=round(played.hours(plan.uses), 2),
    )


def _lacking(snapshot: Snapshot, plan: Plan) -> str:
    """Why the minimum is not placed, in words; empty if it is."""
    wanted = snapshot.wanted
    missing = wanted.needed - plan.scheduled
    if missing <= 0:
        sure = plan.promise.probability > 0
        return "" if sure else "every plan depends on slots that will surely not come in time"
    placed = {p.workflow for p in plan.placements}
    unplaced = [w for w in wanted.workflows if w.name not in placed]
    shapes = {id(w.tasks): w for w in reversed(unplaced)}  # equals have equal obstacles
    found = (r for r in map(lambda w: _obstacle(w, snapshot), shapes.values()) if r)
    reason = next(found, "") or _refused(plan) or "room in the slots on offer"
    return f"{missing} of the {wanted.needed} workflows needed cannot be placed: {reason}"


def _too_dear(plan: Plan, wanted: WorkflowSet, would_usd: float) -> str:
    """Why the minimum is not placed where that would cost more than the budget on average."""
    return (
        f"{wanted.needed - plan.scheduled} of the {wanted.needed} workflows needed cannot "
        "be placed: money: the budget is "
        f"{format_usd(wanted.most_usd)}, with them the plan would cost "
        f"{format_usd(would_usd)} on average"
    )


def _refused(plan: Plan) -> str:
    """That money was what kept the next workflow out; empty where it was not."""
    for phase in plan.phases:
        for step in phase.steps:
            if step.get("refused") == "budget":
                return (
                    f"money: the budget is ${step['budget_usd']:.2f}, with one more the plan "
                    f"would cost ${step['would_cost_usd']:.2f}"
                )
    return ""


def _nowhere(task: Task, slots: Sequence[Slot]) -> str:
    """Why none of these slots holds a task, the plainest reason first."""
    box = task.manner.boxed
    if box is not None and not any(slot.runs(task.needs.engine) for slot in slots):
        known = ", ".join(sorted({engine for slot in slots for engine in slot.containers}))
        engine = box.engine or "an engine for containers"
        return (
            f"task '{task.id}' needs {engine} for its image '{box.image}', sites have "
            f"{known or 'none'} (`containers` of a site)"
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
    """What keeps a workflow out even with every slot to itself."""
    for task in workflow.tasks.values():
        if not any(slot.holds(task.needs) for slot in snapshot.slots):
            return _nowhere(task, snapshot.slots)
    fastest = max(slot.speed for slot in snapshot.slots)
    length_s = snapshot.longest_s(workflow) / fastest
    deadline_s = snapshot.wanted.deadline_s
    if length_s > deadline_s:
        return (
            f"time: '{workflow.name}' takes {length_s:.0f} s on the fastest site, the deadline "
            f"is {deadline_s:.0f} s away"
        )
    if not any(slot.curve.probabilities.any() for slot in snapshot.slots):
        return "sites with a known chance: no slot on offer has one"
    return ""
