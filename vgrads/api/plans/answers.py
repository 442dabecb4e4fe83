"""Conversion of values to the JSON of the contracts. External programs rely on these shapes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from vgrads.api.plans.planning import Planned
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.spending import sum_spent_usd
from vgrads.execmgr.core.states import ReplicaState, RunState
from vgrads.planner.plan import EVERYTHING, Placement, Plan, SlotUse
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot

if TYPE_CHECKING:  # loaded by runs alone
    from vgrads.api.plans.execution import RunOutcome

Json = dict[str, Any]


def plan_json(plan: Plan) -> Json:
    """``vgrads plan --json`` and ``GET …/plan``."""
    return {
        "name": plan.set_name,
        "feasible": plan.feasible,
        "lacking": plan.lacking or None,
        "deadline_s": plan.deadline_s,
        "needed": plan.needed,
        "scheduled": plan.scheduled,
        "promise": {
            "probability": plan.promise.probability,
            "standard_error": plan.promise.standard_error,
            "cautious": plan.promise.cautious,
            "requested": plan.requested_probability,
            "meets_request": plan.meets_request,
            "by_workflow": dict(plan.promise.by_workflow),
        },
        "cost_usd": plan.cost_usd,
        "expected": {"cost_usd": plan.expected_usd, "processor_hours": plan.expected_hours},
        "withdraw": {"spare": None if plan.spare_workflows >= EVERYTHING else plan.spare_workflows},
        "phases": [
            {
                "name": phase.name,
                "placed": phase.placed,
                "probability_before": phase.probability_before,
                "probability_after": phase.probability_after,
                "steps": [dict(step) for step in phase.steps],
            }
            for phase in plan.phases
        ],
        "policy": plan.policy,
        "run_times": [dict(entry) for entry in plan.run_times],
        "notes": list(plan.notes),
        "done": done_json(plan),
        "dropped": [{"workflow": name, "why": why} for name, why in plan.dropped.items()],
        "relaxations": [asdict(r) for r in plan.relaxations],
        "slots": [_use_json(use) for use in plan.uses],
        "placements": [_describe_placement(p) for p in plan.placements],
        "reasons": [
            {"workflow": key[0], "task": key[1], "copy": key[2], **why}
            for key, why in plan.reasons.items()
        ],
        "seconds": dict(plan.seconds),
    }


def done_json(plan: Plan) -> list[Json]:
    """Return the tasks that an earlier run completed."""
    return [{"workflow": done.workflow, "task": done.task, "run": done.run} for done in plan.done]


def _use_json(use: SlotUse) -> Json:
    return {
        "id": use.slot.id,
        "site": use.slot.site,
        "queue": use.slot.queue,
        "kind": use.slot.kind,
        "procs": use.slot.procs,
        "start_s": use.start_s,
        "end_s": use.end_s,
        "submit_s": use.submit_s,
        "probability": use.probability,
        "cost_usd": use.cost_usd,
        "basis": use.slot.basis or None,
    }


def _describe_placement(p: Placement) -> Json:
    return {
        "workflow": p.workflow,
        "task": p.task,
        "copy": p.replica,
        "slot": p.slot,
        "start_s": p.start_s,
        "end_s": p.end_s,
        "procs": p.procs,
        "probability": p.probability,
    }


def outcome_json(outcome: RunOutcome) -> Json:
    """Return the result of a run; ``vgrads run --json`` adds it to the plan."""
    states = [record.state for record in outcome.state.replicas.values()]
    execution = outcome.execution
    return {
        "kept": outcome.kept,
        "in_time": outcome.in_time,
        "needed": outcome.execution.plan.needed,
        "finished_s": {name: at_s for name, at_s in sorted(outcome.done.items())},
        "copies": {state.value: states.count(state) for state in ReplicaState},
        "ended_s": outcome.state.now_s,
        "spent_usd": sum_spent_usd(execution, outcome.state),
        "times": outcome.spent.as_json(),
    }


def gantt_json(plan: Plan, snapshot: Snapshot, state: RunState | None = None) -> Json:
    """The Gantt query: slots as lanes, placements as bars, planned and (in a run) actual."""
    return {
        "name": plan.set_name,
        "deadline_s": plan.deadline_s,
        "needed": plan.needed,
        "now_s": state.now_s if state else None,
        "promise": {
            "probability": plan.promise.probability,
            "standard_error": plan.promise.standard_error,
        },
        "cost_usd": plan.cost_usd,
        "decisions": [{"at_s": at_s, "text": text} for at_s, text in state.notes] if state else [],
        "workflows": [w.name for w in snapshot.workflow_set.workflows],
        "done": done_json(plan),
        "slots": [
            _use_json(use) | _start_range(use.slot, use) | _describe_actual_slot(use, state)
            for use in plan.uses
        ],
        "placements": [_describe_placement(p) | _copy_actual(p, state) for p in plan.placements],
    }


def _start_range(slot: Slot, use: SlotUse) -> Json:
    """Return when the slot may be ready: the 5th, 50th and 95th of a hundred equally probable
    starts; null: never."""
    ready = slot.curve.ready_at(np.array([0.05, 0.5, 0.95])) + slot.zero_s(use.submit_s)
    names = ("ready_p5_s", "ready_p50_s", "ready_p95_s")
    return {
        name: float(t) if np.isfinite(t) else None for name, t in zip(names, ready, strict=True)
    }


def _describe_actual_slot(use: SlotUse, state: RunState | None) -> Json:
    if state is None:
        return {"state": "planned", "actual": None}
    record = state.slots[use.slot.id]
    if record.state is None:
        return {"state": "planned", "actual": None}
    actual = {
        "ready_s": record.ready_s,
        "ended_s": record.ended_s,
        "reason": record.reason,
    }
    return {"state": record.state.name.lower(), "actual": actual}


def _copy_actual(placement: Placement, state: RunState | None) -> Json:
    if state is None:
        return {"state": "planned", "actual": None}
    record = state.replicas[placement.key]
    if record.state in (ReplicaState.WAITING, ReplicaState.SKIPPED):
        return {"state": record.state.value, "actual": None, "reason": record.reason}
    end_s = record.end_s if record.state.settled else None
    return {
        "state": record.state.value,
        "actual": {"start_s": record.start_s, "end_s": end_s},
        "reason": record.reason,
    }


def run_gantt(outcome: RunOutcome) -> Json:
    """The Gantt query of a finished run."""
    execution: ExecutionPlan = outcome.execution
    return gantt_json(execution.plan, execution.snapshot, outcome.state)


def planned_gantt(planned: Planned) -> Json:
    """The Gantt query of a plan."""
    return gantt_json(planned.plan, planned.snapshot)
