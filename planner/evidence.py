"""Evidence for a finished plan: what each replica adds, what other slots would have given, and why
workflows are not in it.

Everything is computed from the finished plan, in the same scenarios and by the same rule, so that
no two numbers contradict each other: a task counts as lost if its slot is not ready at its planned
start (the cautious promise).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vgrads.kernel.units import format_usd
from vgrads.planner.obstacles import explain_slowness, find_obstacle, find_unplaced
from vgrads.planner.phases import free_slots
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.mapping import Candidate, list_candidates, place_workflow
from vgrads.planner.placement.replicate import window_end
from vgrads.planner.plan import Placement, Plan, SlotUse
from vgrads.planner.promise.probability import WorkflowOutcome
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.workflows.dag import Workflow

_SHOWN = 3  # other slots
_MOST_WORK = 15_000  # of evidence for replicas: replicas of their workflows, and slots on offer
_MOST_PLACED = 20_000  # replicas of a plan with which further workflows are compared
_MOST_SHAPES = 20  # shapes of dropped workflows that are placed to say why


def _restore_requested(snapshot: Snapshot, uses: Sequence[SlotUse]) -> Snapshot:
    """Return the snapshot with the curves of slots as they are if requested as planned."""
    later_s = {use.slot.id: use.slot.zero_s(use.submit_s) for use in uses}
    slots = tuple(_delay_slot(slot, later_s.get(slot.id, 0.0)) for slot in snapshot.slots)
    return replace(snapshot, slots=slots)


def _delay_slot(slot: Slot, by_s: float) -> Slot:
    if by_s <= 0:
        return slot
    return replace(slot, curve=StartCurve(slot.curve.times_s + by_s, slot.curve.probabilities))


def draft_of(snapshot: Snapshot, placements: Sequence[Placement], uses: Sequence[SlotUse]) -> Draft:
    """Return a finished plan as a draft."""
    draft, by_workflow = Draft(_restore_requested(snapshot, uses)), dict[str, list[Placement]]()
    for p in placements:
        by_workflow.setdefault(p.workflow, []).append(p)
    for name, own in by_workflow.items():
        draft.place_all(own)
        draft.settle(name)
    return draft


def add_evidence(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan with the evidence in its reasons, and with the workflows that are not in it;
    of large plans only the latter, and less exactly."""
    unplaced = find_unplaced(snapshot, plan)
    small = len(plan.placements) <= _MOST_PLACED
    reserved = replace(snapshot, quantile=plan.quantile)
    draft = draft_of(reserved, plan.placements, plan.uses) if small else None
    dropped = dict(_list_dropped(reserved, plan, unplaced, draft)) if unplaced else {}
    if draft is None:
        return replace(plan, dropped=dropped)
    probabilities = draft.probabilities()
    placements = tuple(p.with_probability(probabilities[p.key]) for p in plan.placements)
    return replace(
        plan,
        dropped=dropped,
        placements=placements,
        # a late replica delays no other in this count, which may so exceed the simulated promise
        promise=replace(plan.promise, cautious=min(draft.promise, plan.promise.probability)),
        reasons=_list_reasons(draft, replace(plan, placements=placements)),
    )


def _list_reasons(draft: Draft, plan: Plan) -> Mapping[tuple[str, str, int], Mapping[str, Any]]:
    """Return the recorded reasons, and the evidence as long as it takes little work."""
    results = dict(plan.reasons)
    work, slots = 0, len(draft.snapshot.slots)
    sizes = {name: sum(map(len, replicas.values())) for name, replicas in draft.replicas.items()}
    for p in plan.placements:
        work += sizes[p.workflow] + slots
        if work > _MOST_WORK:
            break
        results[p.key] = {**(results.get(p.key) or {}), **_Replica(draft, p).evidence()}
    return results


class _Replica:
    """One replica of a draft, in place of which others are tried."""

    def __init__(self, draft: Draft, placement: Placement) -> None:
        self.draft, self.placement = draft, placement
        self.workflow = draft.snapshot.workflow_by_name[placement.workflow]

    def evidence(self) -> dict[str, Any]:
        """Return what it adds to the promise, until when its slot is held without it, and what
        other slots would give."""
        p, draft = self.placement, self.draft
        ends_s = (q.end_s for q in draft.slots.placed(p.slot) if q is not p and q.key != p.key)
        return {
            "adds": -self._change(None),
            "slot_needed_until_s": max(ends_s, default=None),
            "others": [self._other(option) for option in self._best_elsewhere()],
        }

    def _best_elsewhere(self) -> list[Candidate]:
        """Return the most probable placements in slots that have no replica of the task, one in
        each, the best first."""
        best: dict[str, Candidate] = {}
        p, draft = self.placement, self.draft
        for site in dict.fromkeys(slot.site for slot in draft.snapshot.slots):
            limit_s = window_end(draft, p.task_key, site)
            there = [slot for slot in draft.snapshot.slots if slot.site == site]
            for option in list_candidates(draft, p.task_key, there, limit_s):
                slot = option.placement.slot
                if slot not in best or option.probability > best[slot].probability:
                    best[slot] = option
        ranked = sorted(best.values(), key=lambda o: (-o.probability, o.placement.end_s))
        return [option for option in ranked[:_SHOWN] if option.probability > 0]

    def _other(self, option: Candidate) -> dict[str, Any]:
        other = option.placement
        result: dict[str, Any] = {
            "slot": other.slot,
            "start_s": other.start_s,
            "end_s": other.end_s,
            "probability": option.probability,
        }
        if option.probability > self.placement.probability:
            result |= {"changes": self._change(other), "more_usd": self._more_usd(other)}
        return result

    def _more_usd(self, other: Placement) -> float:
        """Return by how much the cost of its slot would rise."""
        slots, before_usd = self.draft.slots, self.draft.slots.slot_usd(other.slot)
        # added for its price alone
        slots.add([other])
        more_usd = slots.slot_usd(other.slot) - before_usd
        slots.take_back([other])
        return round(more_usd, 2)

    def _change(self, other: Placement | None) -> float:
        """Return by how much the cautious promise rises with another placement instead of this one,
        or with none."""
        p, draft = self.placement, self.draft
        replicas = {task: list(there) for task, there in draft.replicas[p.workflow].items()}
        number = next(n for n, q in enumerate(replicas[p.task]) if q.key == p.key)
        replicas[p.task][number : number + 1] = [other] if other else []
        outcome = WorkflowOutcome(self.workflow, draft.scenarios)
        outcome.replicas = dict(draft.outcome(p.workflow).replicas)
        done = outcome.recompute(replicas, {p.task})
        counts = draft.counts + draft.scenarios.unpack(done)
        counts = counts - draft.scenarios.unpack(draft.done[p.workflow])
        return float(np.mean(counts >= draft.snapshot.workflow_set.needed)) - draft.promise


def _list_dropped(
    snapshot: Snapshot, plan: Plan, unplaced: Sequence[Workflow], draft: Draft | None
) -> Iterator[tuple[str, str]]:
    """Return each workflow that is not in a plan, with the reason."""
    reasons: dict[int, str] = {}
    for workflow in unplaced:
        shape = id(workflow.tasks)
        if shape not in reasons:
            trial = draft if len(reasons) < _MOST_SHAPES else None
            reasons[shape] = _explain_drop(snapshot, plan, workflow, trial)
        yield workflow.name, reasons[shape]


def _explain_drop(snapshot: Snapshot, plan: Plan, workflow: Workflow, draft: Draft | None) -> str:
    obstacle = find_obstacle(workflow, snapshot)
    if obstacle:
        return obstacle
    enough = (
        f"the request is met without it: {plan.scheduled} for the {plan.needed} needed, promise "
        f"{plan.promise.probability:.3f} of {plan.requested_probability:g}"
    )
    if draft is None:
        return enough if plan.meets_request else plan.lacking or "no place was found for it"
    free = free_slots(draft)
    with draft.trial():
        if free and place_workflow(draft, workflow.name, free):
            if plan.meets_request:
                return enough
            return "in the room that is left it would not raise the promise"
    with draft.trial():
        if place_workflow(draft, workflow.name, draft.snapshot.slots):
            would_usd, budget_usd = draft.cost_usd, snapshot.workflow_set.most_usd
            if would_usd > budget_usd + 1e-9:
                return (
                    f"money: the budget is {format_usd(budget_usd)}, with it the plan would cost "
                    f"{format_usd(would_usd)}"
                )
            more = f"; with it the plan would cost {format_usd(would_usd)}"
            return (enough if plan.meets_request else "it would not raise the promise") + more
    slow = explain_slowness(workflow, snapshot)
    full = "room: the slots that the plan leaves hold no further workflow by the deadline"
    return slow or (f"{enough}; {full}" if plan.meets_request else full)
