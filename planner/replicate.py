"""Fault tolerance: one more copy of a task, where it raises the task's probability most."""

from __future__ import annotations

from collections.abc import Iterable

from planner.draft import Draft
from planner.mapping import candidates
from planner.plan import Placement
from planner.snapshot import TaskKey
from vgrid.slot import Slot


def add_copy(draft: Draft, key: TaskKey, slots: Iterable[Slot]) -> Placement | None:
    """Place the copy that helps the task most, within its window; None if none helps.

    The window (SC'09 §3.2.3): after the parents' data can be there, and early enough for every
    child's first copy, transfers counted, or by the deadline for a tail.
    """
    outcome = draft.outcome(key[0])
    known = outcome.task_done(key[1])
    before = draft.scenarios.share(known)
    best: tuple[float, float, Placement] | None = None
    for slot in slots:
        limit = _window_end(draft, key, slot.site)
        for option in candidates(draft, key, [slot], limit):
            after = draft.scenarios.share(known | outcome.success(option.placement))
            rank = (after, -option.placement.end_s, option.placement)
            if after > before and (best is None or rank[:2] > best[:2]):
                best = rank
    if best is None:
        return None
    draft.place(best[2])
    draft.settle(key[0])
    return best[2]


def _window_end(draft: Draft, key: TaskKey, site: str) -> float:
    snapshot = draft.snapshot
    workflow = snapshot.workflow_by_name[key[0]]
    limits = [
        p.start_s
        - snapshot.transfer_s(workflow, key[1], child, (site, snapshot.slot_by_id[p.slot].site))
        for child in workflow.children[key[1]]
        for p in draft.copies[key[0]].get(child, ())
    ]
    return min(limits, default=snapshot.wanted.deadline_s)


def add_twin_workflow(draft: Draft, name: str, slots: tuple[Slot, ...]) -> bool:
    """A second copy of every task of a workflow, parents first, each in a slot without its twin."""
    workflow = draft.snapshot.workflow_by_name[name]
    mark, before = draft.mark(), draft.scenarios.share(draft.done[name])
    for task_id in workflow.order:
        limit = _twin_limit(draft, name, task_id)
        options = [o for o in candidates(draft, (name, task_id), slots, limit) if o.probability > 0]
        best = min(
            options, key=lambda o: (-round(o.probability, 2), o.placement.end_s), default=None
        )
        if best is not None:
            draft.place(best.placement)
    draft.settle(name)
    if draft.scenarios.share(draft.done[name]) <= before:
        draft.back_to(mark)
        return False
    return True


def _twin_limit(draft: Draft, name: str, task_id: str) -> float:
    """Latest end of a twin: what its own descendants, run at the first copies' speed, leave of the deadline."""
    workflow = draft.snapshot.workflow_by_name[name]
    rest = 0.0
    frontier = [task_id]
    depth: dict[str, float] = {task_id: 0.0}
    while frontier:
        current = frontier.pop()
        for child in workflow.children[current]:
            length = depth[current] + workflow.tasks[child].runtime_s
            if length > depth.get(child, -1.0):
                depth[child] = length
                frontier.append(child)
            rest = max(rest, length)
    return draft.snapshot.wanted.deadline_s - rest
