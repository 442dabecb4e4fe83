"""Planning anew in the middle of a run: what is done stays done, what runs goes on, the remainder
is planned.

The remainder becomes a set of its own on a clock that starts now: tasks that are not done, with
what they still need; slots that are open, with how surely they are ready by when, given that they
are not yet; and fresh offers. The old plan and the new one are then played through in the same
futures (:mod:`vgrads.planner.promise.rollout`), and the new one is taken where it keeps the promise
more surely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Placement, Plan, SlotUse
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.promise.sharpen import Seen, Sharpened, left_of, sharpen
from vgrads.planner.snapshot import CopyKey, Snapshot, TaskKey
from vgrads.vgrid.slot import Slot, StartCurve, certain_from
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_SCENARIOS = 1024
_AT_ONCE = Options(effort_s=0.0)  # a run waits for the answer
_GAIN = 0.01  # what a new plan must promise more, to be worth the change
Offers = Callable[[WorkflowSet], tuple[Slot, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """A slot that was asked for and has not ended: ready or not, and until when it lasts if it were
    ready now."""

    use: SlotUse
    ready: bool
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How a run stands, on its own clock. ``running``: copy → since when; ``ended``: copy that was
    done → what it took; ``coming``: slots that are planned and were not asked for yet; ``broken``:
    workflows that can never be done; ``closed``: queues (site, queue) that are asked no more;
    ``grown``: by how much failures have multiplied the memory and the run time of tasks."""

    now_s: float
    done: frozenset[TaskKey]
    running: Mapping[CopyKey, float]
    waiting: frozenset[CopyKey]
    open_slots: tuple[OpenSlot, ...]
    spent_usd: float
    version: int
    coming: tuple[SlotUse, ...] = ()
    ended: Mapping[CopyKey, float] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    closed: frozenset[tuple[str, str]] = frozenset()
    grown: Mapping[TaskKey, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Amended:
    """The old and the new in one: the plan with all copies, the snapshot with all slots, why."""

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
    """A plan for the remainder with more tasks in it, each of a workflow, or None where there is
    none in time; and why.

    InputError where the tasks do not fit to those that are there.
    """
    larger = _with_tasks(snapshot, added)
    left = _remainder_of(plan, larger, progress, offers)
    fresh = make_plan(left.snapshot, _AT_ONCE) if left is not None else None
    if left is None or fresh is None or not fresh.feasible:
        return None, fresh.lacking if fresh is not None else "no time is left"
    told = f"with tasks that were added {fresh.promise.probability:.3f} is promised"
    return Amended(
        plan=_merged(plan, fresh, progress),
        snapshot=_joined(larger, left.snapshot, progress),
        reason=told,
    ), told


def _with_tasks(snapshot: Snapshot, added: Iterable[tuple[str, Task]]) -> Snapshot:
    more: dict[str, list[Task]] = {}
    for workflow, task in added:
        more.setdefault(workflow, []).append(task)
    workflows = tuple(
        make_workflow(w.name, [*w.tasks.values(), *more[w.name]], w.file_mib, w.name)
        if w.name in more
        else w
        for w in snapshot.wanted.workflows
    )
    return replace(snapshot, wanted=replace(snapshot.wanted, workflows=workflows))


def replan(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers, options: Options = _AT_ONCE
) -> tuple[Amended | None, str]:
    """A better plan for the remainder, or None; and the numbers that decided."""
    left = _remainder_of(plan, snapshot, progress, offers)
    if left is None:
        return None, "nothing is left to be planned"
    staying, remainder = _staying(plan, left, progress).probability, left.snapshot
    fresh = make_plan(remainder, options)
    if not fresh.feasible:
        return None, f"no plan for the remainder: {fresh.lacking}; going on promises {staying:.3f}"
    gain = fresh.promise.probability - staying
    told = (
        f"going on promises {staying:.3f}, planned anew {fresh.promise.probability:.3f} for "
        f"{fresh.cost_usd:.2f} USD more"
    )
    if gain < _GAIN:
        return None, f"{told}: going on"
    return Amended(
        plan=_merged(plan, fresh, progress),
        snapshot=_joined(snapshot, remainder, progress),
        reason=told,
    ), told


@dataclass(frozen=True, slots=True)
class Outlook:
    """P(the promise is kept), given how a run stands, and when it will be as likely as not; None:
    surely never."""

    probability: float
    end_s: float | None = None


def promise_now(plan: Plan, snapshot: Snapshot, progress: Progress) -> Outlook:
    """How the promise stands if everything goes on as planned."""
    left = _remainder_of(plan, snapshot, progress, lambda _: ())
    if left is not None:
        return _staying(plan, left, progress)
    wanted = snapshot.wanted
    names = (w.name for w in wanted.workflows if all((w.name, t) in progress.done for t in w.tasks))
    kept = sum(1 for _ in names) >= wanted.needed
    return Outlook(float(kept), progress.now_s if kept else None)


@dataclass(frozen=True, slots=True)
class _Remainder:
    """What is left, as the input of a plan on a clock that starts now, and what ended tasks told of
    sites."""

    snapshot: Snapshot
    known: Sharpened


def _remainder_of(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers
) -> _Remainder | None:
    """None where nothing is left."""
    wanted = snapshot.wanted
    slots = {p.key: snapshot.slot_by_id[p.slot] for p in plan.placements}
    known = sharpen(_seen(snapshot, progress, slots))
    parts = {w.name: _left_of(w, snapshot, progress, (known, slots)) for w in wanted.workflows}
    needed = wanted.needed - sum(left is None for left in parts.values())
    workflows = tuple(
        left for name, left in parts.items() if left is not None and name not in progress.broken
    )
    deadline_s = plan.deadline_s - progress.now_s
    if not workflows or needed <= 0 or deadline_s <= 0:
        return None
    budget = wanted.budget_usd
    remainder = replace(
        wanted,
        workflows=workflows,
        needed=needed,
        deadline_s=deadline_s,
        budget_usd=None if budget is None else max(0.0, budget - progress.spent_usd),
    )
    held = tuple(_held(slot, progress.now_s) for slot in progress.open_slots)
    suffix = f"~{progress.version + 1}"
    free = tuple(
        _renamed(slot, suffix)
        for slot in offers(remainder)
        if (slot.site, slot.queue) not in progress.closed
    )
    rest = replace(
        snapshot,
        wanted=remainder,
        slots=tuple(known.of_slot(slot) for slot in (*held, *free)),
        places=plan.places,
        scenarios=min(_SCENARIOS, snapshot.scenarios),
    )
    return _Remainder(rest, known)


def _seen(snapshot: Snapshot, progress: Progress, slots: Mapping[CopyKey, Slot]) -> Iterator[Seen]:
    """What ended so far, against what was expected of it."""
    for key, took_s in progress.ended.items():
        task = snapshot.task(key[:2])
        spread, slot = snapshot.wanted.spread(task), slots[key]
        if spread.total > 0 and took_s > 0 and task.runtime_s > 0:
            error = math.log(took_s * slot.speed / task.runtime_s)
            yield Seen(workflow=key[0], site=slot.site, kind=task.kind, spread=spread, error=error)


def _left_of(
    workflow: Workflow,
    snapshot: Snapshot,
    progress: Progress,
    known: tuple[Sharpened, Mapping[CopyKey, Slot]],
) -> Workflow | None:
    """A workflow without what is done, with what is known by now; of a running task what is left.
    None where all is done."""
    sharpened, slots = known
    ages = {
        key[:2]: (progress.now_s - since_s) * sharpened.of_slot(slots[key]).speed
        for key, since_s in progress.running.items()
    }
    tasks = []
    for task_id, task in workflow.tasks.items():
        if (workflow.name, task_id) in progress.done:
            continue
        left = sharpened.of(workflow.name, task, snapshot.wanted.spread(task))
        parents = tuple(p for p in task.parents if (workflow.name, p) not in progress.done)
        age_s = ages.get((workflow.name, task_id))
        if age_s is not None:
            left, parents = left_of(left, snapshot.wanted.spread(left), age_s), ()
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


def _held(slot: OpenSlot, now_s: float) -> Slot:
    """An open slot as an offer from now on: paid for already, and as sure as it is now."""
    given = slot.use.slot
    curve = (
        certain_from(0.0) if slot.ready else given_not_yet(given.curve, now_s - slot.use.submit_s)
    )
    return replace(
        given, curve=curve, end_s=max(0.0, slot.end_s - now_s), submit_s=0.0, price_usd_per_hour=0.0
    )


def _coming(use: SlotUse, now_s: float) -> Slot:
    """A slot that will be asked for, on a clock that starts now."""
    lasts_s = use.slot.end_s - use.submit_s
    return replace(use.slot, submit_s=0.0, end_s=max(0.0, use.submit_s - now_s) + lasts_s)


def given_not_yet(curve: StartCurve, waited_s: float) -> StartCurve:
    """P(ready within t more | not ready before ``waited_s``): what was asked for just now may start
    at once."""
    later = curve.times_s >= waited_s
    before = 0.0 if later.all() else float(curve.probabilities[~later][-1])
    if before >= 1.0 or not later.any():
        return certain_from(0.0, 0.0)
    chances = (curve.probabilities[later] - before) / (1.0 - before)
    return StartCurve(curve.times_s[later] - waited_s, np.clip(chances, 0.0, 1.0))


def _renamed(slot: Slot, suffix: str) -> Slot:
    """A fresh offer under a name of its own; slots of one queue still share its fate."""
    shared = slot.shared if slot.queue else f"{slot.shared}{suffix}"
    return replace(slot, id=f"{slot.id}{suffix}", shared=shared)


def _staying(plan: Plan, left: _Remainder, progress: Progress) -> Outlook:
    """How the promise stands if everything goes on as planned."""
    later = {use.slot.id: max(0.0, use.submit_s - progress.now_s) for use in progress.coming}
    coming = (left.known.of_slot(_coming(use, progress.now_s)) for use in progress.coming)
    remainder = replace(left.snapshot, slots=(*left.snapshot.slots, *coming))
    known = remainder.workflow_by_name
    open_ids = {slot.id for slot in remainder.slots}
    shifted = []
    for p in plan.placements:
        live = p.key in progress.running or p.key in progress.waiting
        if (
            not live
            or p.task_key in progress.done
            or p.slot not in open_ids
            or p.workflow not in known
        ):
            continue
        length_s = remainder.duration_s(remainder.task(p.task_key), remainder.slot_by_id[p.slot])
        begin_s = 0.0 if p.key in progress.running else max(0.0, p.start_s - progress.now_s)
        shifted.append(replace(p, start_s=begin_s, end_s=begin_s + length_s))
    used = {p.slot for p in shifted}
    played = rollout(
        remainder, shifted, {slot: later.get(slot, 0.0) for slot in sorted(used)}, plan.spare
    )
    kept_s = played.enough_s(remainder.wanted.needed)
    in_time = kept_s[np.isfinite(kept_s)]
    end_s = float(np.median(in_time)) + progress.now_s if len(in_time) else None
    return Outlook(float(np.isfinite(kept_s).mean()), end_s)


def _merged(plan: Plan, fresh: Plan, progress: Progress) -> Plan:
    """All copies, old and new, on the run's clock; what runs is not placed a second time."""
    last: dict[TaskKey, int] = {}
    for p in plan.placements:
        last[p.task_key] = max(last.get(p.task_key, 0), p.copy)
    runs = {key[:2] for key in progress.running}
    added: list[Placement] = []
    for p in fresh.placements:
        if p.task_key in runs:
            continue
        last[p.task_key] = last.get(p.task_key, -1) + 1
        begin_s, end_s = p.start_s + progress.now_s, p.end_s + progress.now_s
        added.append(replace(p, copy=last[p.task_key], start_s=begin_s, end_s=end_s))
    known = {use.slot.id for use in plan.uses}
    uses = [_shifted(use, progress.now_s) for use in fresh.uses if use.slot.id not in known]
    wanted = {p.slot for p in added}
    uses = [use for use in uses if use.slot.id in wanted]
    return replace(
        plan, placements=(*plan.placements, *added), uses=(*plan.uses, *uses), spare=fresh.spare
    )


def _shifted(use: SlotUse, by_s: float) -> SlotUse:
    slot = replace(use.slot.as_stated(), end_s=use.slot.end_s + by_s)
    return replace(
        use,
        slot=slot,
        submit_s=use.submit_s + by_s,
        start_s=use.start_s + by_s,
        end_s=use.end_s + by_s,
    )


def _joined(snapshot: Snapshot, remainder: Snapshot, progress: Progress) -> Snapshot:
    """The old snapshot with the new slots, on the run's clock."""
    known = snapshot.slot_by_id
    new = (
        replace(s.as_stated(), end_s=s.end_s + progress.now_s)
        for s in remainder.slots
        if s.id not in known
    )
    return replace(snapshot, slots=(*snapshot.slots, *new))
