"""Which limit excludes or weakens a plan, as text: money, time or room.

Each is decided by a trial: money, if more workflows fit with an unlimited budget; time, if a
workflow cannot be done by the deadline although it has every slot alone; else room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.planner.phases import minimal
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.mapping import place_early, place_workflow
from vgrads.planner.placement.pack import pack_minimum
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_MOST_TRIED = 600  # tasks of a set, or of a workflow, that is placed to decide
_MOST_WORK = 20_000  # tasks times slots of a workflow that is placed alone
_MOST_SAMPLED = 200  # slots
_LATER = 1000.0  # multiple of the deadline within which every workflow ends that can
_LATE_START = "time: every slot that holds the workflows is certain to start too late"


def explain_lacking(snapshot: Snapshot, plan: Plan) -> str:
    """Return why the minimum is not placed, as text; empty if it is."""
    workflow_set = snapshot.workflow_set
    missing = workflow_set.needed - plan.scheduled
    if missing <= 0:
        return "" if plan.promise.probability > 0 else _LATE_START
    unplaced = find_unplaced(snapshot, plan)
    obstacles = {id(w.tasks): find_obstacle(w, snapshot) for w in _select_distinct(unplaced)}
    possible = [w for w in unplaced if not obstacles[id(w.tasks)]]
    if len(possible) < missing:
        reason = next(filter(None, obstacles.values()))
    else:
        reason = (
            _find_money_obstacle(snapshot, plan)
            or _find_too_slow(possible, snapshot)
            or _explain_full(snapshot, plan)
        )
    return _make_obstacle(workflow_set, missing, reason)


def _make_obstacle(workflow_set: WorkflowSet, missing: int, reason: str) -> str:
    needed = format_count(workflow_set.needed, "workflow")
    return f"{missing} of the {needed} needed cannot be placed: {reason}"


def find_unplaced(snapshot: Snapshot, plan: Plan) -> list[Workflow]:
    """Return the workflows that are not in a plan."""
    placed = {p.workflow for p in plan.placements}
    return [w for w in snapshot.workflow_set.workflows if w.name not in placed]


def _select_distinct(workflows: Sequence[Workflow]) -> list[Workflow]:
    """Return the first workflow of each shape: the same tasks have the same obstacles."""
    # reversed twice: of equal keys a dict keeps the last
    return list({id(w.tasks): w for w in reversed(workflows)}.values())[::-1]


def explain_cost(plan: Plan, workflow_set: WorkflowSet, would_usd: float) -> str:
    """Return why the minimum is not placed if that would exceed the budget on average."""
    missing = workflow_set.needed - plan.scheduled
    return _make_obstacle(
        workflow_set,
        missing,
        _describe_over_budget(workflow_set.most_usd, would_usd, " on average"),
    )


def _describe_over_budget(budget_usd: float, would_usd: float, how: str = "") -> str:
    return (
        f"money: the budget is {format_usd(budget_usd)}, with them the plan would cost "
        f"{format_usd(would_usd)}{how}"
    )


def _find_money_obstacle(snapshot: Snapshot, plan: Plan) -> str:
    """Return that an unlimited budget would suffice, with what a plan would cost; empty if not."""
    workflow_set = snapshot.workflow_set
    if workflow_set.budget_usd is None or not any(slot.paid for slot in snapshot.slots):
        return ""
    # what the phases have recorded already, before anything is planned again
    for step in _list_refused(plan):
        if step.get("would_place", 0) >= step.get("missing", 1):
            return _describe_over_budget(workflow_set.budget_usd, step["would_cost_usd"])
    if workflow_set.task_count > _MOST_TRIED:
        return ""
    unlimited = replace(snapshot, workflow_set=replace(workflow_set, budget_usd=None))
    costs = [
        draft.cost_usd
        for draft in _list_drafts(replace(unlimited, quantile=plan.quantile))
        if len(draft.scheduled) >= workflow_set.needed
    ]
    would_usd = min(costs, default=0.0)
    return _describe_over_budget(workflow_set.budget_usd, would_usd) if would_usd > 0 else ""


def _list_drafts(snapshot: Snapshot) -> Iterator[Draft]:
    """Return drafts of the minimum: with as much as possible in slots without cost, in any slots,
    and with every workflow where it ends first."""
    for begin in (minimal, lambda _: None):
        draft = Draft(snapshot)
        begin(draft)
        pack_minimum(draft, snapshot.slots)
        yield draft
    draft = Draft(snapshot)
    for name in snapshot.by_length[: _MOST_WORK // max(1, len(snapshot.slots))]:
        if len(draft.scheduled) < snapshot.workflow_set.needed:
            place_workflow(draft, name, snapshot.slots)
    yield draft


def _list_refused(plan: Plan) -> Iterator[dict[str, float]]:
    """Return the steps of phases that a larger budget would extend."""
    for phase in plan.phases:
        yield from (dict(step) for step in phase.steps if step.get("refused") == "budget")


def _find_too_slow(workflows: Sequence[Workflow], snapshot: Snapshot) -> str:
    """Return that one of the workflows, alone in all slots, would be done too late; empty if each
    would be done in time, or if that takes too long to decide."""
    return next(
        filter(None, (explain_slowness(w, snapshot) for w in _select_distinct(workflows))), ""
    )


def explain_slowness(workflow: Workflow, snapshot: Snapshot) -> str:
    """Return that a workflow that has all slots alone would be done too late; empty if not."""
    size = len(workflow.tasks)
    if size > _MOST_TRIED or size * len(snapshot.slots) > _MOST_WORK:
        return ""
    if place_workflow(Draft(snapshot), workflow.name, snapshot.slots):
        return ""
    deadline_s = snapshot.workflow_set.deadline_s
    late_s = _LATER * deadline_s
    later = replace(
        snapshot,
        workflow_set=replace(snapshot.workflow_set, deadline_s=late_s),
        slots=tuple(replace(slot, end_s=late_s) for slot in snapshot.slots),
    )
    draft = Draft(later)
    if not place_early(draft, workflow.name, later.slots):
        return ""
    end_s = max(p.end_s for p in draft.placements)
    takes, away = _format_two_durations(end_s, deadline_s)
    if end_s <= deadline_s:
        return (
            f"time: the slots on offer end too early for '{workflow.name}', which would be done "
            f"after {takes}"
        )
    return (
        f"time: '{workflow.name}' is done after {takes} if it has all slots alone, "
        f"the deadline is {away} away"
    )


def _explain_full(snapshot: Snapshot, plan: Plan) -> str:
    """Return that the slots on offer hold no more."""
    dearer = ""
    more = max((int(step.get("would_place", 0)) for step in _list_refused(plan)), default=0)
    if more:
        dearer = f", whatever they cost ({format_count(more, 'more workflow')} for more money)"
    return (
        "room: no other workflow fits into the "
        f"{format_count(len(snapshot.slots), 'slot')} on offer by the deadline{dearer}"
    )


def _explain_nowhere(task: Task, slots: Sequence[Slot]) -> str:
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


def find_obstacle(workflow: Workflow, snapshot: Snapshot) -> str:
    """Return the obstacle that excludes a workflow even if it had every slot alone; empty if none
    is found without placing it."""
    if not snapshot.slots:
        return "room: no slot is on offer"
    for task in workflow.tasks.values():
        if not any(slot.holds(task.needs) for slot in snapshot.slots):
            return f"room: {_explain_nowhere(task, snapshot.slots)}"
    fastest = max(slot.speed for slot in snapshot.slots)
    length_s = snapshot.longest_s(workflow) / fastest
    deadline_s = snapshot.workflow_set.deadline_s
    if length_s > deadline_s:
        takes, away = _format_two_durations(length_s, deadline_s)
        return (
            f"time: '{workflow.name}' takes {takes} on the fastest site, the deadline is {away} "
            "away"
        )
    if not any(slot.curve.probabilities.any() for slot in snapshot.slots):
        return "room: no slot on offer has a probability above 0 of being ready by the deadline"
    return next(filter(None, (_explain_too_long(t, snapshot) for t in workflow.tasks.values())), "")


def _explain_too_long(task: Task, snapshot: Snapshot) -> str:
    """Return that every slot that holds a task ends before the task would; empty if one does
    not."""
    slots = [slot for slot in snapshot.slots if slot.holds(task.needs)]
    rests = [(slot.end_s - slot.curve.reaches_s(0.0), slot) for slot in slots]
    if any(snapshot.duration_s(task, slot) <= rest_s + 1e-6 for rest_s, slot in rests):
        return ""
    longest_s, slot = max(rests, key=lambda rest: rest[0])
    takes, lasts = _format_two_durations(snapshot.duration_s(task, slot), max(0.0, longest_s))
    return (
        f"time: task '{task.id}' takes {takes}, the longest slot on offer that holds it lasts "
        f"{lasts}"
    )


def _format_two_durations(first_s: float, second_s: float) -> tuple[str, str]:
    """Return two different durations as texts that differ."""
    texts = format_duration(first_s), format_duration(second_s)
    return texts if texts[0] != texts[1] else (f"{first_s:.6g} s", f"{second_s:.6g} s")


def explain_shortfall(snapshot: Snapshot, plan: Plan) -> str:
    """Return the limits that keep the promise of a feasible plan below the requested probability,
    as text: each of which a larger amount alone suffices (``plan.relaxations``), or at least raises
    it."""
    workflow_set = snapshot.workflow_set
    changes = " ".join(relaxation.change for relaxation in plan.relaxations)
    dearer = [s for s in _list_refused(plan) if s["would_promise"] > plan.promise.probability]
    limits = []
    if "larger budget" in changes or dearer:
        more = "" if "larger budget" in changes else ", a larger one does not suffice by itself"
        limits.append(f"money (the budget is {format_usd(workflow_set.most_usd)}{more})")
    if "later deadline" in changes:
        limits.append(f"time (the deadline is {format_duration(workflow_set.deadline_s)} away)")
    if "more processors" in changes:
        limits.append(f"room ({_count_offered(snapshot)})")
    if limits:
        return " or ".join(limits)
    first = _compute_first_ready(snapshot)
    if first < workflow_set.probability:
        return (
            f"room ({_count_offered(snapshot)}; that any is ready in time has a probability of "
            f"{first:.3f})"
        )
    return "several limits: a change of one by itself does not suffice"


def _count_offered(snapshot: Snapshot) -> str:
    return f"{format_count(len(snapshot.slots), 'slot', 'are')} on offer"


def _compute_first_ready(snapshot: Snapshot) -> float:
    """Return P(any slot is ready so early that the shortest workflow may end in time); 1 if there
    are too many to tell."""
    if len(snapshot.slots) > _MOST_SAMPLED:
        return 1.0
    shortest = snapshot.workflow_by_name[snapshot.by_length[0]]
    fastest = max(slot.speed for slot in snapshot.slots)
    last_s = snapshot.workflow_set.deadline_s - snapshot.longest_s(shortest) / fastest
    ready = np.zeros(snapshot.scenarios, dtype=bool)
    for slot in snapshot.slots:
        ready |= sample_availability(slot, snapshot.scenarios, snapshot.seed)[0] <= last_s
    return float(ready.mean())
