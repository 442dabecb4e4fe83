"""Snapshot in, plan out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.draft import Draft, PaperDraft
from planner.outlook import LARGEST, outlook
from planner.phases import run_phases
from planner.plan import Plan, Promise, SlotUse
from planner.policies import make_draft, make_pipeline
from planner.probability import standard_error
from planner.snapshot import Snapshot
from vgrid.binding import latest_submission
from workflows.dag import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to plan: a policy and a rule of probability, by name (:mod:`planner.policies`)."""

    policy: str = "vgrads"
    probability: str = "joint"


STANDARD = Options()


def make_plan(snapshot: Snapshot, options: Options = STANDARD) -> Plan:
    """The plan of a policy; ``feasible`` is False, with what is lacking, where F cannot be met."""
    wanted = snapshot.wanted
    draft = make_draft(snapshot, options.probability)
    phases = run_phases(draft, make_pipeline(options.policy)(draft))
    lacking = _lacking(snapshot, draft)
    probabilities = draft.probabilities()
    uses = tuple(_use(draft, slot_id) for slot_id in draft.calendars if draft.in_slot(slot_id))
    return Plan(
        set_name=wanted.name, deadline_s=wanted.deadline_s, needed=wanted.needed,
        asked_probability=wanted.probability, feasible=not lacking, lacking=lacking, promise=_promise(draft, uses),
        placements=tuple(replace(p, probability=probabilities[p.key]) for p in draft.placements),
        uses=uses,
        phases=phases, reasons={p.key: draft.reasons[p.key] for p in draft.placements if p.key in draft.reasons},
        policy=options.policy, seconds={report.name: report.seconds for report in phases},
    )  # fmt: skip


def _promise(draft: Draft, uses: Sequence[SlotUse]) -> Promise:
    """The promise as the plan would be carried out; as the phases reckoned it where that is too much.

    The paper's rule is left as it is.
    """
    cautious = draft.promise
    by_workflow = {name: draft.workflow_chance(name) for name in draft.scheduled}
    if isinstance(draft, PaperDraft) or not 0 < draft.mark() <= LARGEST:
        return Promise(
            probability=cautious, standard_error=draft.standard_error, by_workflow=by_workflow, cautious=cautious
        )  # fmt: skip
    submits = {use.slot.id: use.submit_s for use in uses}
    played = outlook(draft.snapshot, draft.placements, submits)
    probability = float((sum(played.values()) >= np.int64(draft.snapshot.wanted.needed)).mean())
    return Promise(
        probability=probability, standard_error=standard_error(probability, draft.scenarios.count),
        by_workflow={name: float(done.mean()) for name, done in played.items()}, cautious=cautious,
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
