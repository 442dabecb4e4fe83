"""Replanning during a run: completed tasks stay completed, running tasks continue, the remainder is
planned.

The remainder becomes a separate set on a clock that starts now: tasks that are not done, with their
remaining run times; open slots, with the probability of being ready by each instant, given that
they are not ready yet; and new offers. The old plan and the new one are then simulated in the same
scenarios (:mod:`vgrads.planner.promise.rollout`), and the new one is used if its promise is more
probable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Placement, Plan, SlotUse
from vgrads.planner.promise.posterior import ObservedError, PosteriorErrors, left_of, update_errors
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.snapshot import ReplicaKey, Snapshot, TaskKey
from vgrads.vgrid.slot import Slot, StartCurve, certain_from
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_SCENARIOS = 1024
_BRIEFLY = Options(effort=0.2, within_s=10.0)  # a run waits for the result
_GAIN = 0.01  # minimum gain in promise that is worth the change
Offers = Callable[[WorkflowSet], tuple[Slot, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """A requested slot that is not terminal: ready or not, and its end if it were ready now."""

    use: SlotUse
    ready: bool
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a run, on its clock. ``running``: replica → since when; ``ended``: completed
    replica → its run time; ``coming``: planned slots that were not requested yet; ``broken``:
    workflows that can never be done; ``closed``: queues (site, queue) that get no more requests;
    ``grown``: factors by which failures have multiplied the memory and the run time of tasks."""

    now_s: float
    done: frozenset[TaskKey]
    running: Mapping[ReplicaKey, float]
    waiting: frozenset[ReplicaKey]
    open_slots: tuple[OpenSlot, ...]
    spent_usd: float
    version: int
    coming: tuple[SlotUse, ...] = ()
    ended: Mapping[ReplicaKey, float] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    closed: frozenset[tuple[str, str]] = frozenset()
    grown: Mapping[TaskKey, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Amended:
    """The old and the new plan combined: the plan with all replicas, the snapshot with all slots,
    the reason."""

    plan: Plan
    snapshot: Snapshot
    reason: str


def grow(
    plan: Plan,
    snapshot: Snapshot,
    progress: Progress,
    offers: Offers,
    added: Iterable[tuple[str, Task]],
) -> tuple[Amended | None, str]:
    """Return a plan for the remainder with more tasks in it, each of a workflow, or None if there
    is none in time; and the reason.

    InputError if the tasks do not fit the existing ones.
    """
    larger = _with_tasks(snapshot, added)
    left = _remainder_of(plan, larger, progress, offers)
    fresh = make_plan(left.snapshot, _BRIEFLY) if left is not None else None
    if left is None or fresh is None or not fresh.feasible:
        return None, fresh.lacking if fresh is not None else "no time is left"
    text = f"with the added tasks, the promise is {fresh.promise.probability:.3f}"
    return Amended(
        plan=_merged(plan, fresh, progress),
        snapshot=_joined(larger, left.snapshot, progress),
        reason=text,
    ), text


def _with_tasks(snapshot: Snapshot, added: Iterable[tuple[str, Task]]) -> Snapshot:
    more: dict[str, list[Task]] = {}
    for workflow, task in added:
        more.setdefault(workflow, []).append(task)
    workflows = tuple(
        make_workflow(w.name, [*w.tasks.values(), *more[w.name]], w.file_mib, w.name)
        if w.name in more
        else w
        for w in snapshot.workflow_set.workflows
    )
    return replace(snapshot, workflow_set=replace(snapshot.workflow_set, workflows=workflows))


def replan(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers, options: Options = _BRIEFLY
) -> tuple[Amended | None, str]:
    """Return a better plan for the remainder, or None; and the numbers that decided."""
    left = _remainder_of(plan, snapshot, progress, offers)
    if left is None:
        return None, "nothing is left to be planned"
    staying, remainder = _staying(plan, left, progress).probability, left.snapshot
    fresh = make_plan(remainder, options)
    if not fresh.feasible:
        return (
            None,
            f"no plan for the remainder: {fresh.lacking}; the current plan promises {staying:.3f}",
        )
    gain = fresh.promise.probability - staying
    text = (
        f"the current plan promises {staying:.3f}, planned again "
        f"{fresh.promise.probability:.3f} for "
        f"{fresh.cost_usd:.2f} USD more"
    )
    if gain < _GAIN:
        return None, f"{text}: the current plan continues"
    return Amended(
        plan=_merged(plan, fresh, progress),
        snapshot=_joined(snapshot, remainder, progress),
        reason=text,
    ), text


@dataclass(frozen=True, slots=True)
class Outlook:
    """P(the promise is kept), given the progress of a run, and the median time at which it will be;
    None: never."""

    probability: float
    end_s: float | None = None


def promise_now(plan: Plan, snapshot: Snapshot, progress: Progress) -> Outlook:
    """Return the current promise if the plan continues unchanged."""
    left = _remainder_of(plan, snapshot, progress, lambda _: ())
    if left is not None:
        return _staying(plan, left, progress)
    workflow_set = snapshot.workflow_set
    names = (
        w.name for w in workflow_set.workflows if all((w.name, t) in progress.done for t in w.tasks)
    )
    enough = sum(1 for _ in names) >= workflow_set.needed
    return Outlook(float(enough), progress.now_s if enough else None)


@dataclass(frozen=True, slots=True)
class _Remainder:
    """The remainder as input of a plan on a clock that starts now, and the posterior of sites from
    completed tasks."""

    snapshot: Snapshot
    posterior: PosteriorErrors


def _remainder_of(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers
) -> _Remainder | None:
    """Return the remainder; None if nothing is left."""
    workflow_set = snapshot.workflow_set
    slots = {p.key: snapshot.slot_by_id[p.slot] for p in plan.placements}
    sharpened = update_errors(_observed_errors(snapshot, progress, slots))
    parts = {
        w.name: _left_of(w, snapshot, progress, (sharpened, slots)) for w in workflow_set.workflows
    }
    needed = workflow_set.needed - sum(left is None for left in parts.values())
    workflows = tuple(
        left for name, left in parts.items() if left is not None and name not in progress.broken
    )
    deadline_s = plan.deadline_s - progress.now_s
    if not workflows or needed <= 0 or deadline_s <= 0:
        return None
    budget = workflow_set.budget_usd
    remainder = replace(
        workflow_set,
        workflows=workflows,
        needed=needed,
        deadline_s=deadline_s,
        budget_usd=None if budget is None else max(0.0, budget - progress.spent_usd),
    )
    reserved = tuple(_as_slot(slot, progress.now_s) for slot in progress.open_slots)
    suffix = f"~{progress.version + 1}"
    free = tuple(
        _renamed(slot, suffix)
        for slot in offers(remainder)
        if (slot.site, slot.queue) not in progress.closed
    )
    rest = replace(
        snapshot,
        workflow_set=remainder,
        slots=tuple(sharpened.of_slot(slot) for slot in (*reserved, *free)),
        scenarios=min(_SCENARIOS, snapshot.scenarios),
    )
    return _Remainder(rest, sharpened)


def _observed_errors(
    snapshot: Snapshot, progress: Progress, slots: Mapping[ReplicaKey, Slot]
) -> Iterator[ObservedError]:
    """Return the errors of completed tasks: their run times compared with the expected ones."""
    for key, took_s in progress.ended.items():
        task = snapshot.task(key[:2])
        spread, slot = snapshot.workflow_set.spread(task), slots[key]
        if spread.total > 0 and took_s > 0 and task.runtime_s > 0:
            error = math.log(took_s * slot.speed / task.runtime_s)
            yield ObservedError(
                workflow=key[0], site=slot.site, kind=task.kind, spread=spread, error=error
            )


def _left_of(
    workflow: Workflow,
    snapshot: Snapshot,
    progress: Progress,
    state: tuple[PosteriorErrors, Mapping[ReplicaKey, Slot]],
) -> Workflow | None:
    """Return a workflow without completed tasks, with posterior run times; of running tasks the
    rest. None if all is done."""
    sharpened, slots = state
    ages = {
        key[:2]: (progress.now_s - since_s) * sharpened.of_slot(slots[key]).speed
        for key, since_s in progress.running.items()
    }
    tasks = []
    for task_id, task in workflow.tasks.items():
        if (workflow.name, task_id) in progress.done:
            continue
        left = sharpened.of(workflow.name, task, snapshot.workflow_set.spread(task))
        parents = tuple(p for p in task.parents if (workflow.name, p) not in progress.done)
        age_s = ages.get((workflow.name, task_id))
        if age_s is not None:
            left, parents = left_of(left, snapshot.workflow_set.spread(left), age_s), ()
        memory, time = progress.grown.get((workflow.name, task_id), (1.0, 1.0))
        tasks.append(
            replace(
                left,
                parents=parents,
                memory_mib=left.memory_mib * memory,
                runtime_s=left.runtime_s * time,
            )
        )
    return make_workflow(workflow.name, tasks, workflow.file_mib) if tasks else None


def _as_slot(slot: OpenSlot, now_s: float) -> Slot:
    """Return an open slot as an offer from now on: paid for already, with its current
    probability."""
    value = slot.use.slot
    curve = (
        certain_from(0.0)
        if slot.ready
        else conditional_curve(value.curve, now_s - value.zero_s(slot.use.submit_s))
    )
    return replace(
        value, curve=curve, end_s=max(0.0, slot.end_s - now_s), submit_s=0.0, price_usd_per_hour=0.0
    )


def _coming(use: SlotUse, now_s: float) -> Slot:
    """Return a slot that will be requested, on a clock that starts now."""
    if use.slot.fixed:
        return use.slot.later(-now_s)
    lasts_s = use.slot.end_s - use.submit_s
    return replace(use.slot, submit_s=0.0, end_s=max(0.0, use.submit_s - now_s) + lasts_s)


def conditional_curve(curve: StartCurve, waited_s: float) -> StartCurve:
    """Return P(ready within t more | not ready before ``waited_s``): a slot that was just requested
    may start at once."""
    later = curve.times_s >= waited_s
    before = 0.0 if later.all() else float(curve.probabilities[~later][-1])
    if before >= 1.0 or not later.any():
        return certain_from(0.0, 0.0)
    chances = (curve.probabilities[later] - before) / (1.0 - before)
    return StartCurve(curve.times_s[later] - waited_s, np.clip(chances, 0.0, 1.0))


def _renamed(slot: Slot, suffix: str) -> Slot:
    """Rename a new offer; slots of one queue still share its availability sample."""
    shared = slot.shared if slot.queue else f"{slot.shared}{suffix}"
    return replace(slot, id=f"{slot.id}{suffix}", shared=shared)


def _staying(plan: Plan, left: _Remainder, progress: Progress) -> Outlook:
    """Return the promise if the plan continues unchanged."""
    later = {use.slot.id: max(0.0, use.submit_s - progress.now_s) for use in progress.coming}
    coming = (left.posterior.of_slot(_coming(use, progress.now_s)) for use in progress.coming)
    remainder = replace(
        left.snapshot, slots=(*left.snapshot.slots, *coming), quantile=plan.quantile
    )
    by_name = remainder.workflow_by_name
    open_ids = {slot.id for slot in remainder.slots}
    shifted = []
    for p in plan.placements:
        live = p.key in progress.running or p.key in progress.waiting
        if (
            not live
            or p.task_key in progress.done
            or p.slot not in open_ids
            or p.workflow not in by_name
        ):
            continue
        length_s = remainder.duration_s(remainder.task(p.task_key), remainder.slot_by_id[p.slot])
        begin_s = 0.0 if p.key in progress.running else max(0.0, p.start_s - progress.now_s)
        shifted.append(replace(p, start_s=begin_s, end_s=begin_s + length_s))
    used = {p.slot for p in shifted}
    simulated = rollout(
        remainder,
        shifted,
        {slot: later.get(slot, 0.0) for slot in sorted(used)},
        plan.spare_workflows,
    )
    needed_done_s = simulated.enough_s(remainder.workflow_set.needed)
    in_time = needed_done_s[np.isfinite(needed_done_s)]
    end_s = float(np.median(in_time)) + progress.now_s if len(in_time) else None
    return Outlook(float(np.isfinite(needed_done_s).mean()), end_s)


def _merged(plan: Plan, fresh: Plan, progress: Progress) -> Plan:
    """Return all replicas, old and new, on the run's clock; running ones are not placed again."""
    last: dict[TaskKey, int] = {}
    for p in plan.placements:
        last[p.task_key] = max(last.get(p.task_key, 0), p.replica)
    runs = {key[:2] for key in progress.running}
    added: list[Placement] = []
    for p in fresh.placements:
        if p.task_key in runs:
            continue
        last[p.task_key] = last.get(p.task_key, -1) + 1
        begin_s, end_s = p.start_s + progress.now_s, p.end_s + progress.now_s
        added.append(replace(p, replica=last[p.task_key], start_s=begin_s, end_s=end_s))
    slot_ids = {use.slot.id for use in plan.uses}
    uses = [_shifted(use, progress.now_s) for use in fresh.uses if use.slot.id not in slot_ids]
    slots = {p.slot for p in added}
    uses = [use for use in uses if use.slot.id in slots]
    return replace(
        plan,
        placements=(*plan.placements, *added),
        uses=(*plan.uses, *uses),
        spare_workflows=fresh.spare_workflows,
        quantile=fresh.quantile,
    )


def _shifted(use: SlotUse, by_s: float) -> SlotUse:
    slot = use.slot.as_stated().later(by_s)
    return replace(
        use,
        slot=slot,
        submit_s=use.submit_s + by_s,
        start_s=use.start_s + by_s,
        end_s=use.end_s + by_s,
    )


def _joined(snapshot: Snapshot, remainder: Snapshot, progress: Progress) -> Snapshot:
    """Return the old snapshot with the new slots, on the run's clock."""
    by_id = snapshot.slot_by_id
    new = (s.as_stated().later(progress.now_s) for s in remainder.slots if s.id not in by_id)
    return replace(snapshot, slots=(*snapshot.slots, *new))
