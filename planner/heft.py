"""HEFT (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3) 2002, doi:10.1109/71.993206), the yardstick.

Tasks by upward rank, each to the slot in which it ends first, gaps used. It knows nothing of
probabilities: slots count from the instant at which they are as likely there as not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.draft import Draft
from planner.plan import Placement
from planner.snapshot import Snapshot
from vgrid.catalog import Link
from vgrid.slot import Slot
from workflows.dag import Workflow


def upward_ranks(
    workflow: Workflow, snapshot: Snapshot, slots: Sequence[Slot]
) -> Mapping[str, float]:
    """Task id → longest way to the end by mean run and transfer times (equation 7)."""
    slowness = float(np.mean([1.0 / slot.speed for slot in slots]))
    latency_s, per_mib = _mean_link(snapshot, slots)
    ranks: dict[str, float] = {}
    for task_id in reversed(workflow.order):
        below = [
            latency_s + workflow.transfer_mib(task_id, child) * per_mib + ranks[child]
            for child in workflow.children[task_id]
        ]
        ranks[task_id] = workflow.tasks[task_id].runtime_s * slowness + max(below, default=0.0)
    return ranks


def _mean_link(snapshot: Snapshot, slots: Sequence[Slot]) -> tuple[float, float]:
    """Mean latency and seconds a MiB over all pairs of slots; 0 within a site."""
    sites = [slot.site for slot in slots]
    pairs = [(a, b) for n, a in enumerate(sites) for b in sites[n + 1 :]]
    links = [None if a == b else snapshot.links.get(frozenset((a, b)), Link()) for a, b in pairs]
    latencies = [link.latency_s if link else 0.0 for link in links] or [0.0]
    rates = [1.0 / link.bandwidth_mib_s if link else 0.0 for link in links] or [0.0]
    return float(np.mean(latencies)), float(np.mean(rates))


def place_heft(draft: Draft, name: str, slots: Sequence[Slot]) -> bool:
    """Place a workflow by HEFT; False, with nothing placed, where a task ends after the deadline."""
    workflow, mark = draft.snapshot.workflow_by_name[name], draft.mark()
    if not slots:
        return False
    ranks = upward_ranks(workflow, draft.snapshot, slots)
    begins = {
        slot.id: float(slot.curve.ready_at(0.5 * slot.curve.probabilities[-1])) for slot in slots
    }
    where: dict[str, tuple[str, float]] = {}  # task → site and end
    for task_id in sorted(workflow.order, key=lambda t: -ranks[t]):
        best = _earliest(draft, workflow, task_id, slots, (begins, where))
        if best is None:
            draft.back_to(mark)
            return False
        draft.place(best)
        draft.note(best, "ends first (HEFT)", {"rank_s": ranks[task_id]})
        where[task_id] = (draft.snapshot.slot_by_id[best.slot].site, best.end_s)
    draft.settle(name)
    return True


def _earliest(
    draft: Draft,
    workflow: Workflow,
    task_id: str,
    slots: Sequence[Slot],
    known: tuple[Mapping[str, float], Mapping[str, tuple[str, float]]],
) -> Placement | None:
    """The placement that ends first among all slots."""
    begins, where = known
    task, snapshot = workflow.tasks[task_id], draft.snapshot
    arrivals: dict[str, float] = {}  # by site: slots of one site see the data at once
    best: Placement | None = None
    for slot in slots:
        if not slot.holds(task.procs, task.memory_mib):
            continue
        if slot.site not in arrivals:
            arrivals[slot.site] = max(
                (
                    where[p][1]
                    + snapshot.transfer_s(workflow, p, task_id, (where[p][0], slot.site))
                    for p in task.parents
                ),
                default=0.0,
            )
        length_s = snapshot.duration_s(task, slot)
        ready_s = max(begins[slot.id], arrivals[slot.site])
        if best is not None and ready_s + length_s >= best.end_s:
            continue
        start_s = draft.calendars[slot.id].earliest_fit(
            ready_s, length_s, task.procs, snapshot.wanted.deadline_s
        )
        if start_s is not None and (best is None or start_s + length_s < best.end_s):
            best = Placement(
                workflow=workflow.name, task=task_id, copy=0, slot=slot.id, start_s=start_s,
                end_s=start_s + length_s, procs=task.procs,
            )  # fmt: skip
    return best
