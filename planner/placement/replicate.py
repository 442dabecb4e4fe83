"""Fault tolerance: add the replica of a task that raises its probability most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.mapping import list_candidates
from vgrads.planner.plan import Placement
from vgrads.planner.promise.probability import compute_paper_promise
from vgrads.planner.snapshot import Snapshot, TaskKey
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow


def add_replica(draft: Draft, key: TaskKey, slots: Iterable[Slot]) -> Placement | None:
    """Place the replica that helps the task most, within its window; None if none helps.

    The window (SC'09 §3.2.3): after the parents' data can arrive, and early enough for every
    child's first replica, transfers included, or by the deadline for a tail.
    """
    outcome = draft.outcome(key[0])
    done_bits = outcome.task_done(key[1])
    before = draft.scenarios.share(done_bits)
    best: tuple[float, float, Placement] | None = None
    tried = 0
    for slot in slots:
        limit = window_end(draft, key, slot.site)
        for option in list_candidates(draft, key, [slot], limit):
            after = draft.scenarios.share(done_bits | outcome.success(option.placement))
            tried += 1
            rank = (after, -option.placement.end_s, option.placement)
            if after > before and (best is None or rank[:2] > best[:2]):
                best = rank
    if best is None:
        return None
    draft.place(best[2])
    draft.note(best[2], "replica that helps its task most", {"considered": tried})
    draft.settle(key[0])
    return best[2]


Measure = Callable[[Draft, TaskKey, Sequence[Placement]], float]
"""Probability of a task with these further replicas."""


def raise_task(
    draft: Draft, key: TaskKey, desired: float, slots: Sequence[Slot], measure: Measure
) -> list[Placement] | None:
    """Replicate one task until it reaches the desired probability (SC'09 §3.2.3), each replica
    where it helps most.

    Return the replicas, all within the task's window, or None, with nothing changed, if the slots
    do not suffice.
    """
    mark = draft.mark()
    while measure(draft, key, ()) < desired - 1e-9:
        best = _find_most_probable(draft, key, slots, measure)
        if best is None:
            draft.back_to(mark)
            return None
        draft.place(best)
        draft.settle(key[0])
    return draft.since(mark)


def _find_most_probable(
    draft: Draft, key: TaskKey, slots: Sequence[Slot], measure: Measure
) -> Placement | None:
    """Return the replica that raises the task most; None if none does."""
    best: tuple[float, Placement | None] = (measure(draft, key, ()), None)
    for slot in slots:
        for option in list_candidates(draft, key, [slot], window_end(draft, key, slot.site)):
            after = measure(draft, key, (option.placement,))
            if after > best[0] + 1e-9:
                best = (after, option.placement)
    return best[1]


def alone(draft: Draft, key: TaskKey, more: Sequence[Placement] = ()) -> float:
    """Return P(the slot of any replica is ready for it), regardless of its parents."""
    bits = draft.scenarios.none
    for p in (*draft.replicas[key[0]][key[1]], *more):
        slot = draft.snapshot.slot_by_id[p.slot]
        bits = bits | draft.scenarios.alive(slot, p.start_s, p.end_s)
    return draft.scenarios.share(bits)


def by_paper(draft: Draft, key: TaskKey, more: Sequence[Placement] = ()) -> float:
    """Return the probability by the paper's rule: products over parents in other slots, minima
    within one."""
    placements = [p for replicas in draft.replicas[key[0]].values() for p in replicas]
    workflow = draft.snapshot.workflow_by_name[key[0]]
    return compute_paper_promise(workflow, [*placements, *more], draft.snapshot.slot_by_id)[key[1]]


def window_end(draft: Draft, key: TaskKey, site: str) -> float:
    """Return when a replica at a site must end for every child's replica to have its data."""
    snapshot = draft.snapshot
    workflow = snapshot.workflow_by_name[key[0]]
    limits = [
        p.start_s
        - snapshot.transfer_s(workflow, key[1], child, (site, snapshot.slot_by_id[p.slot].site))
        for child in workflow.children[key[1]]
        for p in draft.replicas[key[0]].get(child, ())
    ]
    return min(limits, default=snapshot.workflow_set.deadline_s)


def add_workflow_replica(draft: Draft, name: str, slots: tuple[Slot, ...]) -> bool:
    """Add a second replica of every task of a workflow, parents first, each in a slot without
    another replica of the task."""
    workflow = draft.snapshot.workflow_by_name[name]
    mark, before = draft.mark(), draft.scenarios.share(draft.done[name])
    rests = _compute_rests_s(workflow, draft.snapshot)
    for task_id in workflow.order:
        limit = draft.snapshot.workflow_set.deadline_s - rests[task_id]
        options = [
            o for o in list_candidates(draft, (name, task_id), slots, limit) if o.probability > 0
        ]
        # probabilities within a hundredth count as equal: the earlier end decides
        best = min(
            options, key=lambda o: (-round(o.probability, 2), o.placement.end_s), default=None
        )
        if best is not None:
            draft.place(best.placement)
            numbers = {"considered": len(options)}
            draft.note(best.placement, "second replica of a whole workflow", numbers)
    draft.settle(name)
    if draft.scenarios.share(draft.done[name]) <= before:
        draft.back_to(mark)
        return False
    return True


def _compute_rests_s(workflow: Workflow, snapshot: Snapshot) -> dict[str, float]:
    """Return for each task the longest chain of run times below it, at the first replicas'
    speed."""
    rests: dict[str, float] = {}
    for task_id in reversed(workflow.order):
        chains = (
            snapshot.length_s(workflow.tasks[c]) + rests[c] for c in workflow.children[task_id]
        )
        rests[task_id] = max(chains, default=0.0)
    return rests
