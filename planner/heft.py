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
    if not slots:
        return False
    workflow, mark = draft.snapshot.workflow_by_name[name], draft.mark()
    ranks, machines = upward_ranks(workflow, draft.snapshot, slots), _Machines(draft, slots)
    for task_id in sorted(workflow.order, key=lambda t: -ranks[t]):
        best = machines.earliest(workflow, task_id)
        if best is None:
            draft.back_to(mark)
            return False
        draft.place(best)
        draft.note(best, "ends first (HEFT)", {"rank_s": ranks[task_id]})
    draft.settle(name)
    return True


class _Machines:
    """Slots with what is asked of them again and again: beginnings, links, where tasks have ended."""

    def __init__(self, draft: Draft, slots: Sequence[Slot]) -> None:
        self.draft, self.slots = draft, slots
        self._begins = {
            slot.id: float(slot.curve.ready_at(0.5 * slot.curve.probabilities[-1]))
            for slot in slots
        }
        sites = sorted({slot.site for slot in slots})
        self._moves = {(a, b): _move(draft.snapshot, a, b) for a in sites for b in sites}
        self._ended: dict[str, tuple[str, float]] = {}  # task → site and end

    def earliest(self, workflow: Workflow, task_id: str) -> Placement | None:
        """The placement that ends first among all slots; those that cannot beat it are not looked into."""
        task, snapshot = workflow.tasks[task_id], self.draft.snapshot
        parents = [(*self._ended[p], workflow.transfer_mib(p, task_id)) for p in task.parents]
        hopes = []
        for n, slot in enumerate(self.slots):
            if slot.holds(task.procs, task.memory_mib):
                length_s = snapshot.duration_s(task, slot)
                ready_s = self._begins[slot.id]
                for source, end_s, mib in parents:
                    latency_s, per_mib = self._moves[source, slot.site]
                    ready_s = max(ready_s, end_s + latency_s + mib * per_mib)
                hopes.append((ready_s + length_s, n, ready_s, length_s))
        hopes.sort()
        best: tuple[float, float, Slot] | None = None
        for hope_s, n, ready_s, length_s in hopes:
            if best is not None and hope_s >= best[0]:
                break
            start_s = self.draft.calendars[self.slots[n].id].earliest_fit(
                ready_s, length_s, task.procs, snapshot.wanted.deadline_s
            )
            if start_s is not None and (best is None or start_s + length_s < best[0]):
                best = (start_s + length_s, start_s, self.slots[n])
        if best is None:
            return None
        end_s, start_s, slot = best
        self._ended[task_id] = (slot.site, end_s)
        return Placement(
            workflow=workflow.name, task=task_id, copy=0, slot=slot.id, start_s=start_s, end_s=end_s, procs=task.procs
        )  # fmt: skip


def _move(snapshot: Snapshot, one: str, other: str) -> tuple[float, float]:
    """Latency and seconds a MiB between two sites; nothing within one."""
    if one == other:
        return 0.0, 0.0
    link = snapshot.links.get(frozenset((one, other)), Link())
    return link.latency_s, 1.0 / link.bandwidth_mib_s
