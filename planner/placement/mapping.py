"""Mappings of a task to slots within its window, the most probable first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgrads.planner.placement.deadlines import deadline_order, latest_finishes
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import Placement
from vgrads.planner.snapshot import TaskKey
from vgrads.vgrid.slot import Slot, StartCurve

_EQUAL = 0.005  # closer probabilities count as equal: earlier end decides


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible placement and its probability."""

    placement: Placement
    probability: float


def list_candidates(
    draft: Draft, key: TaskKey, slots: Iterable[Slot], latest_end_s: float
) -> Iterator[Candidate]:
    """Return candidates in every slot, early or at more probable starts; probability joint with the
    task's parents."""
    workflow, task_id = key
    outcome = draft.outcome(workflow)
    task = draft.snapshot.task(key)
    taken = {p.slot for p in draft.replicas.get(workflow, {}).get(task_id, ())}
    replica_number = len(taken)
    tried: set[tuple[str, int, StartCurve]] = set()
    for slot in slots:
        calendar = draft.slots.calendar(slot.id)
        replica = (slot.site, slot.procs, slot.curve)
        if slot.id in taken or not slot.holds(task.needs) or (calendar.empty and replica in tried):
            continue
        if calendar.empty:
            tried.add(replica)  # equal empty slots have equal candidates
        ready_s = _compute_ready(draft, key, slot.site)
        duration_s = draft.snapshot.duration_s(task, slot)
        for start_s in _list_starts(draft, slot, ready_s, duration_s, task.procs, latest_end_s):
            placement = Placement(
                workflow=workflow,
                task=task_id,
                replica=replica_number,
                slot=slot.id,
                start_s=start_s,
                end_s=start_s + duration_s,
                procs=task.procs,
            )
            yield Candidate(placement, draft.scenarios.share(outcome.success(placement)))


def _compute_ready(draft: Draft, key: TaskKey, site: str) -> float:
    """Return when the first replicas of all parents can have delivered to ``site``."""
    workflow = draft.snapshot.workflow_by_name[key[0]]
    placed = draft.replicas.get(key[0], {})
    ready_s = 0.0
    for parent in workflow.tasks[key[1]].parents:
        arrivals = [
            p.end_s
            + draft.snapshot.transfer_s(
                workflow, parent, key[1], (draft.snapshot.slot_by_id[p.slot].site, site)
            )
            for p in placed.get(parent, ())
        ]
        # a parent without a place delivers never
        ready_s = max(ready_s, min(arrivals, default=float("inf")))
    return ready_s


def _list_starts(
    draft: Draft, slot: Slot, ready_s: float, duration_s: float, procs: int, latest_end_s: float
) -> list[float]:
    """Return candidate starts: as early as possible, and at instants when the slot is more
    probable."""
    calendar = draft.slots.calendar(slot.id)
    start_s = calendar.earliest_fit(ready_s, duration_s, procs, latest_end_s)
    if start_s is None:
        return []
    instants, sure = [start_s], slot.curve.by(start_s)
    for instant_s, probability in slot.curve.milestones:
        if probability > sure + _EQUAL:
            start_s = calendar.earliest_fit(
                max(ready_s, instant_s), duration_s, procs, latest_end_s
            )
            # no room after this instant: none after later ones either
            if start_s is None:
                break
            instants.append(start_s)
            sure = slot.curve.by(start_s)
    return instants


def choose_most_probable(options: Iterable[Candidate]) -> Candidate | None:
    """Return the most probable candidate; among equals the one that ends first."""
    best: Candidate | None = None
    for option in options:
        if (
            best is None
            or option.probability > best.probability + _EQUAL
            or (
                option.probability > best.probability - _EQUAL
                and option.placement.end_s < best.placement.end_s
            )
        ):
            best = option
    return best


def choose_earliest(options: Iterable[Candidate]) -> Candidate | None:
    """Return the candidate that ends first, among those with positive probability."""
    possible = [option for option in options if option.probability > 0]
    return min(possible, key=lambda o: (o.placement.end_s, -o.probability), default=None)


def place_workflow(draft: Draft, name: str, slots: tuple[Slot, ...]) -> bool:
    """Place all tasks of a workflow by deadline, most probable first; if that fails, earliest
    first."""
    workflow = draft.snapshot.workflow_by_name[name]
    latest = latest_finishes(workflow, draft.snapshot)
    return _place_by(draft, name, slots, choose_most_probable, latest) or place_early(
        draft, name, slots
    )


def place_early(draft: Draft, name: str, slots: tuple[Slot, ...]) -> bool:
    """Place all tasks of a workflow, each where it ends first; False if one cannot end in time."""
    return _place_by(draft, name, slots, choose_earliest, {})


def _place_by(
    draft: Draft,
    name: str,
    slots: tuple[Slot, ...],
    choose: Callable[[Iterable[Candidate]], Candidate | None],
    latest_s: Mapping[str, float],
) -> bool:
    """``latest_s``: when tasks must end, by default by the deadline."""
    workflow, mark = draft.snapshot.workflow_by_name[name], draft.mark()
    for task_id in deadline_order(workflow, draft.snapshot):
        limit_s = latest_s.get(task_id, draft.snapshot.workflow_set.deadline_s)
        options = list(list_candidates(draft, (name, task_id), slots, limit_s))
        best = choose(options)
        if best is None or best.probability <= 0:
            draft.back_to(mark)
            return False
        draft.place(best.placement)
        rule = "earliest end" if choose is choose_earliest else "most probable"
        draft.note(best.placement, rule, {"considered": len(options)})
    draft.settle(name)
    return True
