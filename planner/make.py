"""Snapshot in, plan out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.draft import Draft
from planner.phases import run_phases
from planner.plan import Plan, Promise, SlotUse
from planner.policies import make_draft, make_pipeline
from planner.probability import standard_error
from planner.rollout import rollout
from planner.snapshot import Snapshot
from vgrid.binding import latest_submission
from workflows.dag import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to plan: a policy and a rule of probability, by name (:mod:`planner.policies`)."""

    policy: str = "vgrads"
    probability: str = "joint"


STANDARD = Options()
_OTHERS = (Options(probability="paper"), Options(policy="no-replication"), Options(policy="heft"))
_CLOUD = (Options(policy="cloud-first"), Options(policy="cloud-only"))
_FRESH = 1_000_003  # from the seed of planning to that of the promise
_MOST_TRIED = 1_500  # tasks up to which other policies are tried as well


def make_plan(snapshot: Snapshot, options: Options = STANDARD) -> Plan:
    """The plan of a policy; ``feasible`` is False, with what is lacking, where F cannot be met.

    The standard policy, where it falls short of what was asked, also tries the others that cost no
    more planning, and the cloud first where these fall short too, and takes what is surest when played through, the cheapest among equals.
    """
    plan = _plan(snapshot, options)
    tasks = sum(len(workflow.tasks) for workflow in snapshot.wanted.workflows)
    if options != STANDARD or plan.kept_as_asked or tasks > _MOST_TRIED:
        return plan
    tried = [plan, *(_plan(snapshot, other, judged=True) for other in _OTHERS)]
    if not any(t.kept_as_asked for t in tried):
        tried += [_plan(snapshot, other, judged=True) for other in _CLOUD]
    tried = [t for t in tried if not t.problems(snapshot)]
    best = max(tried, key=lambda t: (t.feasible, t.promise.probability, -t.cost_usd))
    gain = best.promise.probability - plan.promise.probability
    if best.feasible == plan.feasible and gain <= plan.promise.standard_error:
        return plan
    seconds = {name: sum(t.seconds.get(name, 0.0) for t in tried) for name in best.seconds}
    return replace(best, seconds=seconds, policy=f"vgrads, as {best.policy}")


def _plan(snapshot: Snapshot, options: Options, judged: bool = False) -> Plan:
    """One policy's plan; ``judged``: its promise is the joint one whatever rule it was made by."""
    wanted = snapshot.wanted
    draft = make_draft(snapshot, options.probability)
    phases = run_phases(draft, make_pipeline(options.policy)(draft))
    lacking = _lacking(snapshot, draft)
    probabilities = draft.probabilities()
    uses = tuple(_use(draft, slot_id) for slot_id in draft.calendars if draft.in_slot(slot_id))
    paper = options.probability == "paper"
    return Plan(
        set_name=wanted.name, deadline_s=wanted.deadline_s, needed=wanted.needed,
        asked_probability=wanted.probability, feasible=not lacking, lacking=lacking,
        promise=_reckoned(draft) if paper and not judged else _promise(draft, uses),
        placements=tuple(replace(p, probability=probabilities[p.key]) for p in draft.placements),
        uses=uses, phases=phases, reasons={p.key: draft.reasons[p.key] for p in draft.placements if p.key in draft.reasons},
        policy="the paper's rule" if paper else options.policy, seconds={report.name: report.seconds for report in phases},
    )  # fmt: skip


def _reckoned(draft: Draft) -> Promise:
    """The promise as the phases reckoned it."""
    return Promise(
        probability=draft.promise, standard_error=draft.standard_error, cautious=draft.promise,
        by_workflow={name: draft.workflow_chance(name) for name in draft.scheduled},
    )  # fmt: skip


def _promise(draft: Draft, uses: Sequence[SlotUse]) -> Promise:
    """The promise as the plan would be carried out, in futures other than those that it was chosen in: a choice looks
    better than it is in the futures that it was made by. As the phases reckoned it where that is too much."""
    submits = {use.slot.id: use.submit_s for use in uses}
    fresh = replace(draft.snapshot, seed=draft.snapshot.seed + _FRESH)
    played = rollout(fresh, draft.placements, submits)
    probability = played.promise(draft.snapshot.wanted.needed)
    return Promise(
        probability=probability, standard_error=standard_error(probability, played.scenarios),
        by_workflow={name: float(np.isfinite(done_s).mean()) for name, done_s in played.done_s.items()}, cautious=draft.promise,
    )  # fmt: skip


def _use(draft: Draft, slot_id: str) -> SlotUse:
    slot, placed = draft.snapshot.slot_by_id[slot_id], draft.in_slot(slot_id)
    start_s = min(p.start_s for p in placed)
    return SlotUse(
        slot=slot, submit_s=latest_submission(slot, [p.start_s for p in placed]), start_s=start_s,
        end_s=max(p.end_s for p in placed) if slot.paid else slot.end_s,
        probability=slot.curve.by(start_s) * slot.up, cost_usd=draft.slot_cost(slot_id),
    )  # fmt: skip


def _lacking(snapshot: Snapshot, draft: Draft) -> str:
    """Why the minimum is not placed, in words; empty if it is."""
    wanted = snapshot.wanted
    missing = wanted.needed - len(draft.scheduled)
    if missing <= 0:
        return (
            ""
            if draft.promise > 0
            else "every plan depends on slots that will surely not come in time"
        )
    unplaced = [w for w in wanted.workflows if w.name not in draft.copies]
    reason = next(
        (r for r in map(lambda w: _obstacle(w, snapshot), unplaced) if r),
        "room in the slots on offer",
    )
    return f"{missing} of the {wanted.needed} workflows needed cannot be placed: {reason}"


def _obstacle(workflow: Workflow, snapshot: Snapshot) -> str:
    """What keeps a workflow out even with every slot to itself."""
    widest = max((slot.procs for slot in snapshot.slots), default=0)
    for task in workflow.tasks.values():
        if task.procs > widest:
            return f"task '{task.id}' needs {task.procs} processors, the widest slot on offer has {widest}"
        if not any(slot.holds(task.procs, task.memory_mib) for slot in snapshot.slots):
            return f"task '{task.id}' needs {task.memory_mib:.0f} MiB of memory, no slot on offer has that much"
    fastest = max(slot.speed for slot in snapshot.slots)
    length_s = workflow.critical_path_s() * snapshot.padding / fastest
    deadline_s = snapshot.wanted.deadline_s
    if length_s > deadline_s:
        return f"time: '{workflow.name}' takes {length_s:.0f} s on the fastest site, the deadline is {deadline_s:.0f} s away"
    if not any(slot.curve.probabilities.any() for slot in snapshot.slots):
        return "sites with a known chance: no slot on offer has one"
    return ""
