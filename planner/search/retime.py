"""Planned times of replicas after one was moved: the same slots and order, each as early as it
can."""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush

from vgrads.kernel.profile import Profile
from vgrads.planner.plan import Placement
from vgrads.planner.search.trials import Placements
from vgrads.planner.snapshot import Snapshot, TaskKey


def retimed(snapshot: Snapshot, placements: Placements) -> Placements | None:
    """Return the placements with new starts, in the order of the old ones: after the data of the
    parents, and no earlier than the first start in their slot. None if one ends too late."""
    slots = snapshot.slot_by_id
    profiles = {p.slot: Profile(slots[p.slot].procs, slots[p.slot].end_s) for p in placements}
    begins_s = dict[str, float]()
    for p in placements:
        begins_s[p.slot] = min(p.start_s, begins_s.get(p.slot, p.start_s))
    ends: defaultdict[TaskKey, list[Placement]] = defaultdict(list)
    blocked: defaultdict[TaskKey, list[int]] = defaultdict(list)
    due = [(p.start_s, n) for n, p in enumerate(placements)]
    heapify(due)
    result: list[Placement | None] = [None] * len(placements)
    while due:
        _, n = heappop(due)
        p = placements[n]
        task, slot = snapshot.task(p.task_key), slots[p.slot]
        missing = next((q for q in task.parents if not ends[p.workflow, q]), None)
        if missing is not None:
            blocked[p.workflow, missing].append(n)
            continue
        ready_s = max(begins_s[p.slot], _inputs_s(snapshot, p, ends))
        limit_s = min(slot.end_s, snapshot.workflow_set.deadline_s)
        length_s = snapshot.duration_s(task, slot)
        start_s = profiles[p.slot].earliest_fit(ready_s, length_s, p.procs, limit_s)
        if start_s is None:
            return None
        profiles[p.slot].add(start_s, start_s + length_s, p.procs)
        moved = Placement(
            workflow=p.workflow,
            task=p.task,
            replica=p.replica,
            slot=p.slot,
            start_s=start_s,
            end_s=start_s + length_s,
            procs=p.procs,
        )
        result[n] = moved
        ends[p.task_key].append(moved)
        for waiting in blocked.pop(p.task_key, ()):
            heappush(due, (placements[waiting].start_s, waiting))
    placed = tuple(p for p in result if p is not None)
    return placed if len(placed) == len(placements) else None


def _inputs_s(
    snapshot: Snapshot, p: Placement, ends: defaultdict[TaskKey, list[Placement]]
) -> float:
    """Return when the data of all parents can be at the site of a replica."""
    workflow, site = snapshot.workflow_by_name[p.workflow], snapshot.slot_by_id[p.slot].site
    return max(
        (
            min(
                q.end_s
                + snapshot.transfer_s(
                    workflow, parent, p.task, (snapshot.slot_by_id[q.slot].site, site)
                )
                for q in ends[p.workflow, parent]
            )
            for parent in workflow.tasks[p.task].parents
        ),
        default=0.0,
    )
