"""Replanning during a run: completed tasks stay completed, running tasks continue, the remainder is
planned.

The remainder becomes a separate set on a clock that starts now: tasks that are not done, with their
remaining run times; open slots, with the probability of being ready by each instant, given that
they are not ready yet; slots that are not requested yet; and new offers. The plan that continues is
a start of the search. It and the new one, with the running tasks where they run, are then simulated
in the same scenarios, and the new one is used if its promise is more probable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.kernel.units import format_chance
from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Placement, Plan, SlotUse
from vgrads.planner.promise.posterior import ObservedError, PosteriorErrors, left_of, update_errors
from vgrads.planner.promise.reported import add_promise
from vgrads.planner.snapshot import ReplicaKey, Snapshot, TaskKey
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_SCENARIOS = 1024
REPLANNING = Options(within_s=10.0)
"""The whole search, ended early if it takes long: a run waits for the result."""
_BRIEFLY = replace(REPLANNING, effort=0.2)
_FIRST_S = -1e-3  # planned start of running replicas: they are before all others of their slots
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
    ``grown``: factors by which failures have multiplied the memory and the run time of tasks;
    ``repeating``: task that has failed by itself → probability that it does so each time."""

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
    repeating: Mapping[TaskKey, float] = field(default_factory=dict)


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
    larger = _add_tasks(snapshot, added)
    left = make_remainder(plan, larger, progress, offers)
    fresh = make_plan(left.snapshot, _BRIEFLY) if left is not None else None
    if left is None or fresh is None or not fresh.feasible:
        return None, fresh.lacking if fresh is not None else "no time is left"
    text = f"with the added tasks, the promise is {fresh.promise.probability:.3f}"
    return Amended(
        plan=_merge_plans(plan, fresh, progress),
        snapshot=_join_snapshots(larger, left.snapshot, progress),
        reason=text,
    ), text


def _add_tasks(snapshot: Snapshot, added: Iterable[tuple[str, Task]]) -> Snapshot:
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
    plan: Plan,
    snapshot: Snapshot,
    progress: Progress,
    offers: Offers,
    options: Options = REPLANNING,
) -> tuple[Amended | None, str]:
    """Return a better plan for the remainder, or None; and the numbers that decided, with whether
    the search was ended early."""
    left = make_remainder(plan, snapshot, progress, offers)
    if left is None:
        return None, "nothing is left to be planned"
    remainder = left.snapshot
    current = add_promise(remainder, plan_as_it_stays(plan, left, progress))
    staying = current.promise.probability
    effort = options.begin()
    fresh = make_plan(as_paid(remainder, progress), options, effort, others=(current,))
    ended = f"; the search was ended after {options.within_s:g} s" if effort.ended_early else ""
    if not fresh.feasible:
        return (
            None,
            f"no plan for the remainder: {fresh.lacking}; the current plan promises "
            f"{format_chance(staying)}{ended}",
        )
    promised = add_promise(remainder, _plan_where_they_run(fresh, current, progress)).promise
    gain = promised.probability - staying
    text = (
        f"the current plan promises {format_chance(staying)}, planned again "
        f"{format_chance(promised.probability)} for ${fresh.cost_usd:.2f} more{ended}"
    )
    if gain < _GAIN:
        return None, f"{text}: the current plan continues"
    return Amended(
        plan=_merge_plans(plan, fresh, progress),
        snapshot=_join_snapshots(snapshot, remainder, progress),
        reason=text,
    ), text


def plan_change(
    plan: Plan,
    snapshot: Snapshot,
    progress: Progress,
    offers: Offers,
    options: Options = REPLANNING,
) -> tuple[Amended | None, float, str]:
    """Return a plan of the remainder for a changed request, its promise, and why there is none.

    ``plan`` and ``snapshot`` have the changed request already, ``progress`` no slots of sites that
    are not used any more. The plan so far is one of the candidates, so it stays where it is best.
    """
    left = make_remainder(plan, snapshot, progress, offers)
    if left is None:
        enough = float(enough_is_done(snapshot, progress))
        return Amended(plan=plan, snapshot=snapshot, reason="nothing is left"), enough, ""
    remainder = left.snapshot
    current = add_promise(remainder, plan_as_it_stays(plan, left, progress))
    fresh = make_plan(as_paid(remainder, progress), options, options.begin(), others=(current,))
    if not fresh.feasible:
        return None, 0.0, fresh.lacking
    promised = add_promise(remainder, _plan_where_they_run(fresh, current, progress)).promise
    merged = _merge_plans(plan, fresh, progress)
    joined = _join_snapshots(snapshot, remainder, progress)
    text = f"for the changed request, the promise is {promised.probability:.3f}"
    return Amended(plan=merged, snapshot=joined, reason=text), promised.probability, ""


def enough_is_done(snapshot: Snapshot, progress: Progress) -> bool:
    """Return True where as many workflows are done as are needed."""
    return count_done(snapshot, progress) >= snapshot.workflow_set.needed


def count_done(snapshot: Snapshot, progress: Progress) -> int:
    """Return the number of workflows that are done."""
    workflows = snapshot.workflow_set.workflows
    return sum(all((w.name, t) in progress.done for t in w.tasks) for w in workflows)


@dataclass(frozen=True, slots=True)
class Remainder:
    """The remainder as input of a plan on a clock that starts now, and the posterior of sites from
    completed tasks."""

    snapshot: Snapshot
    posterior: PosteriorErrors


def make_remainder(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers
) -> Remainder | None:
    """Return the remainder; None if nothing is left."""
    workflow_set = snapshot.workflow_set
    slots = {p.key: snapshot.slot_by_id[p.slot] for p in plan.placements}
    sharpened = update_errors(_list_observed_errors(snapshot, progress, slots))
    parts = {
        w.name: _reduce_workflow(w, snapshot, progress, (sharpened, slots))
        for w in workflow_set.workflows
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
    running = _list_running(plan, progress)
    reserved = (
        *(_make_open_slot(slot, progress.now_s, running) for slot in progress.open_slots),
        *(_make_coming_slot(use, progress.now_s) for use in progress.coming),
    )
    # new offers have the names of earlier ones, which may be requested already
    suffix = f"~{progress.version + 1}"
    free = tuple(
        _rename_offer(slot, suffix)
        for slot in offers(remainder)
        if (slot.site, slot.queue) not in progress.closed
    )
    rest = replace(
        snapshot,
        workflow_set=remainder,
        slots=tuple(sharpened.of_slot(slot) for slot in (*reserved, *free)),
        scenarios=min(_SCENARIOS, snapshot.scenarios),
    )
    return Remainder(rest, sharpened)


def _list_observed_errors(
    snapshot: Snapshot, progress: Progress, slots: Mapping[ReplicaKey, Slot]
) -> Iterator[ObservedError]:
    """Return the errors of completed tasks: their run times compared with the expected ones."""
    for key, took_s in progress.ended.items():
        task = snapshot.task(key[:2])
        spread, slot = snapshot.workflow_set.spread(task), slots[key]
        # from a run time that was certain nothing is to be learned
        if spread.total > 0 and took_s > 0 and task.runtime_s > 0:
            error = math.log(took_s * slot.speed / task.runtime_s)
            yield ObservedError(
                workflow=key[0], site=slot.site, kind=task.kind, spread=spread, error=error
            )


def _reduce_workflow(
    workflow: Workflow,
    snapshot: Snapshot,
    progress: Progress,
    state: tuple[PosteriorErrors, Mapping[ReplicaKey, Slot]],
) -> Workflow | None:
    """Return a workflow without completed tasks, with posterior run times; of running tasks the
    rest. None if all is done."""
    sharpened, slots = state
    ages: dict[TaskKey, float] = {}
    for key, since_s in progress.running.items():  # of several replicas the one that is furthest
        work_s = (progress.now_s - since_s) * sharpened.of_slot(slots[key]).speed
        ages[key[:2]] = max(work_s, ages.get(key[:2], 0.0))
    tasks = []
    for task_id, task in workflow.tasks.items():
        if (workflow.name, task_id) in progress.done:
            continue
        left = sharpened.of(workflow.name, task, snapshot.workflow_set.spread(task))
        parents = tuple(p for p in task.parents if (workflow.name, p) not in progress.done)
        age_s = ages.get((workflow.name, task_id))
        if age_s is not None:
            # the inputs of a running task were there when it began
            left, parents = left_of(left, snapshot.workflow_set.spread(left), age_s), ()
            pin = _pin((workflow.name, task_id), left.procs)
            left = replace(left, resources=(*left.resources, pin))
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


def as_paid(remainder: Snapshot, progress: Progress) -> Snapshot:
    """Return the remainder with open slots that end with the time that the plan pays for: more
    would exceed the budget. A plan that continues may take longer, if its tasks do."""
    if remainder.workflow_set.budget_usd is None:
        return remainder
    last_s = {}
    for use, end_s in (
        (slot.use, slot.end_s) for slot in progress.open_slots if slot.use.slot.paid
    ):
        paid_s = 3600.0 * use.cost_usd / (use.slot.nodes * use.slot.price_usd_per_hour)
        begin_s = end_s - (use.slot.end_s - use.submit_s)
        last_s[use.slot.id] = max(0.0, begin_s + paid_s - progress.now_s)
    slots = (replace(s, end_s=min(s.end_s, last_s.get(s.id, s.end_s))) for s in remainder.slots)
    return replace(remainder, slots=tuple(slots))


def _list_running(plan: Plan, progress: Progress) -> dict[str, list[TaskKey]]:
    """Return the tasks that run in each slot."""
    results: dict[str, list[TaskKey]] = {}
    for p in plan.placements:
        if p.key in progress.running:
            results.setdefault(p.slot, []).append(p.task_key)
    return results


def _pin(task: TaskKey, units: int) -> tuple[str, int]:
    """Return a resource that only the slots have in which a task runs, so that it is planned
    nowhere else: what is left of it is a rest only there."""
    return f"{task[0]}/{task[1]} runs", units


def _make_open_slot(slot: OpenSlot, now_s: float, running: Mapping[str, Sequence[TaskKey]]) -> Slot:
    """Return an open slot as an offer from now on: paid for already, with its current
    probability."""
    value = slot.use.slot
    pins = (_pin(task, value.procs) for task in running.get(value.id, ()))
    curve = (
        make_certain_curve(0.0)
        if slot.ready
        else conditional_curve(value.curve, now_s - value.zero_s(slot.use.submit_s))
    )
    return replace(
        value,
        curve=curve,
        end_s=max(0.0, slot.end_s - now_s),
        submit_s=0.0,
        price_usd_per_hour=0.0,
        resources=(*value.resources, *pins),
    )


def _make_coming_slot(use: SlotUse, now_s: float) -> Slot:
    """Return a slot that will be requested, on a clock that starts now."""
    if use.slot.fixed:
        return use.slot.later(-now_s)
    lasts_s = use.slot.end_s - use.submit_s
    return replace(use.slot, submit_s=0.0, end_s=max(0.0, use.submit_s - now_s) + lasts_s)


def conditional_curve(curve: StartCurve, waited_s: float) -> StartCurve:
    """Return P(ready within t more | not ready before ``waited_s``): a slot that was just requested
    may start at once. One that should certainly be ready by now is expected to take as long again
    as it has waited."""
    later = curve.times_s >= waited_s
    before = 0.0 if later.all() else float(curve.probabilities[~later][-1])
    if before >= 1.0:
        return make_certain_curve(waited_s)
    if not later.any():
        return make_certain_curve(0.0, 0.0)
    chances = (curve.probabilities[later] - before) / (1.0 - before)
    return StartCurve(curve.times_s[later] - waited_s, np.clip(chances, 0.0, 1.0))


def _rename_offer(slot: Slot, suffix: str) -> Slot:
    """Rename a new offer; slots of one queue still share its availability sample."""
    shared = slot.shared if slot.queue else f"{slot.shared}{suffix}"
    return replace(slot, id=f"{slot.id}{suffix}", shared=shared)


def plan_as_it_stays(plan: Plan, left: Remainder, progress: Progress) -> Plan:
    """Return what is left of the plan if it continues unchanged, as a plan of the remainder."""
    remainder = replace(left.snapshot, quantile=plan.quantile)
    submits_s = {u.slot.id: max(0.0, u.submit_s - progress.now_s) for u in progress.coming}
    submits_s |= {slot.use.slot.id: 0.0 for slot in progress.open_slots}
    live = progress.waiting | progress.running.keys()
    shifted = []
    for p in plan.placements:
        if (
            p.key not in live
            or p.task_key in progress.done
            or p.slot not in submits_s
            or p.workflow not in remainder.workflow_by_name
        ):
            continue
        slot = remainder.slot_by_id[p.slot]
        length_s = remainder.duration_s(remainder.task(p.task_key), slot)
        begin_s = max(0.0, p.start_s - progress.now_s)
        if p.key in progress.running:  # it has begun, whether or not its worst case is in time
            length_s = min(length_s, slot.end_s, remainder.workflow_set.deadline_s)
            begin_s = _FIRST_S
        shifted.append(replace(p, start_s=begin_s, end_s=begin_s + length_s))
    return replace(
        plan,
        deadline_s=remainder.workflow_set.deadline_s,
        needed=remainder.workflow_set.needed,
        placements=tuple(shifted),
        uses=_list_uses(shifted, remainder, submits_s),
        phases=(),
        reasons={},
    )


def _list_uses(
    placements: Iterable[Placement], snapshot: Snapshot, submits_s: Mapping[str, float]
) -> tuple[SlotUse, ...]:
    """Return the uses of the slots of these replicas."""
    spans: dict[str, tuple[float, float]] = {}
    for p in placements:
        first_s, last_s = spans.get(p.slot, (math.inf, 0.0))
        spans[p.slot] = min(first_s, max(0.0, p.start_s)), max(last_s, p.end_s)
    results = []
    for slot_id, (first_s, last_s) in sorted(spans.items()):
        slot, submit_s = snapshot.slot_by_id[slot_id], submits_s[slot_id]
        results.append(
            SlotUse(
                slot=slot,
                submit_s=submit_s,
                start_s=first_s,
                end_s=last_s,
                probability=slot.curve.by(first_s - slot.zero_s(submit_s)) * slot.up,
                cost_usd=slot.cost_usd(last_s - submit_s),
            )
        )
    return tuple(results)


def _plan_where_they_run(fresh: Plan, current: Plan, progress: Progress) -> Plan:
    """Return a plan of the remainder with running replicas where they run, not where it places
    them: that is what will be executed."""
    running = [p for p in current.placements if p.key in progress.running]
    tasks = {p.task_key for p in running}
    others = [p for p in fresh.placements if p.task_key not in tasks]
    slots, present = {p.slot for p in running}, {use.slot.id for use in fresh.uses}
    uses = [u for u in current.uses if u.slot.id in slots and u.slot.id not in present]
    return replace(fresh, placements=(*running, *others), uses=(*fresh.uses, *uses))


def _merge_plans(plan: Plan, fresh: Plan, progress: Progress) -> Plan:
    """Return all replicas, old and new, on the run's clock; running ones are not placed again.
    Slots that were not requested yet are requested when the new plan says so."""
    last: dict[TaskKey, int] = {}
    for p in plan.placements:
        last[p.task_key] = max(last.get(p.task_key, 0), p.replica)
    runs = {key[:2] for key in progress.running}
    added: list[Placement] = []
    for p in fresh.placements:
        if p.task_key in runs:
            continue
        # numbers go on after those of the old plan, whose replicas stay in the journal
        last[p.task_key] = last.get(p.task_key, -1) + 1
        begin_s, end_s = p.start_s + progress.now_s, p.end_s + progress.now_s
        added.append(replace(p, replica=last[p.task_key], start_s=begin_s, end_s=end_s))
    slots = {p.slot for p in added}
    uses = {u.slot.id: _shift_use(u, progress.now_s) for u in fresh.uses if u.slot.id in slots}
    coming = {use.slot.id for use in progress.coming}
    before = [uses.get(u.slot.id, u) if u.slot.id in coming else u for u in plan.uses]
    slot_ids = {use.slot.id for use in plan.uses}
    return replace(
        plan,
        placements=(*plan.placements, *added),
        uses=(*before, *(use for slot, use in uses.items() if slot not in slot_ids)),
        spare_workflows=fresh.spare_workflows,
        quantile=fresh.quantile,
    )


def _shift_use(use: SlotUse, by_s: float) -> SlotUse:
    # without observations, which the next remainder applies again
    slot = use.slot.as_stated().later(by_s)
    return replace(
        use,
        slot=slot,
        submit_s=use.submit_s + by_s,
        start_s=use.start_s + by_s,
        end_s=use.end_s + by_s,
    )


def _join_snapshots(snapshot: Snapshot, remainder: Snapshot, progress: Progress) -> Snapshot:
    """Return the old snapshot with the new slots, on the run's clock."""
    by_id = snapshot.slot_by_id
    new = (s.as_stated().later(progress.now_s) for s in remainder.slots if s.id not in by_id)
    return replace(snapshot, slots=(*snapshot.slots, *new))
