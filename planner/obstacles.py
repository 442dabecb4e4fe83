"""Why a plan is not feasible, as text."""

from __future__ import annotations

from collections.abc import Sequence

from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task


def lacking_of(snapshot: Snapshot, plan: Plan) -> str:
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
    reason = next(result, "") or _refused(plan) or _full(snapshot)
    return (
        f"{missing} of the {format_count(workflow_set.needed, 'workflow')} needed cannot be "
        f"placed: {reason}"
    )


def _full(snapshot: Snapshot) -> str:
    """Return that the slots on offer hold no more."""
    slots = len(snapshot.slots)
    return (
        f"room: {format_count(slots, 'slot', 'are')} on offer, and no other workflow fits "
        "into them by the deadline"
    )


def too_dear(plan: Plan, workflow_set: WorkflowSet, would_usd: float) -> str:
    """Return why the minimum is not placed if that would exceed the budget on average."""
    return (
        f"{workflow_set.needed - plan.scheduled} of the "
        f"{format_count(workflow_set.needed, 'workflow')} needed "
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
            f"task '{task.id}' needs {format_count(task.procs, 'processor')}{share}, the widest "
            "slot on offer "
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
        takes, away = _two_durations(length_s, deadline_s)
        return (
            f"time: '{workflow.name}' takes {takes} on the fastest site, the deadline is {away} "
            "away"
        )
    if not any(slot.curve.probabilities.any() for slot in snapshot.slots):
        return "sites with a known probability: no slot on offer has one"
    return next(filter(None, (_too_long(t, snapshot) for t in workflow.tasks.values())), "")


def _too_long(task: Task, snapshot: Snapshot) -> str:
    """Return that every slot that holds a task ends before the task would; empty if one does
    not."""
    slots = [slot for slot in snapshot.slots if slot.holds(task.needs)]
    rests = [(slot.end_s - slot.curve.reaches_s(0.0), slot) for slot in slots]
    if any(snapshot.duration_s(task, slot) <= rest_s + 1e-6 for rest_s, slot in rests):
        return ""
    longest_s, slot = max(rests, key=lambda rest: rest[0])
    takes, lasts = _two_durations(snapshot.duration_s(task, slot), max(0.0, longest_s))
    return (
        f"time: task '{task.id}' takes {takes}, the longest slot on offer that holds it lasts "
        f"{lasts}"
    )


def _two_durations(first_s: float, second_s: float) -> tuple[str, str]:
    """Return two different durations as texts that differ."""
    texts = format_duration(first_s), format_duration(second_s)
    return texts if texts[0] != texts[1] else (f"{first_s:.6g} s", f"{second_s:.6g} s")
