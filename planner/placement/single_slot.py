"""Single-slot placement: a whole workflow in one slot, by list scheduling by deadline, for sets too
large to evaluate every task.

All tasks of the workflow then share one availability sample, so its probability is one look-up, and
a set of a hundred thousand tasks is planned in seconds. Workflows that do not fit into one slot are
left to :mod:`vgrads.planner.placement.mapping`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.profile import Steps, fit, use
from vgrads.planner.placement.deadlines import deadline_order
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import Placement
from vgrads.vgrid.slot import Slot
from vgrads.workflows.shape import ShapeArrays

_TRIES = 6  # slots tried for a workflow, the most promising first
_EQUAL = 0.02  # closer chances count as equal: the emptier slot decides


@compiled
def pack(
    s: ShapeArrays,
    order: Ints,
    lengths_s: Floats,
    place: tuple[Steps, int, float, float],
    starts_s: Floats,
) -> bool:
    """Place all tasks of a shape in this order at their earliest; return False if any ends too
    late. ``place``: the steps of a slot's calendar, its processors, first start and latest end;
    filled: the starts."""
    steps, size, begin_s, latest_end_s = place
    ends_s = np.zeros(len(order))
    for t in order:
        ready_s = begin_s
        for n in range(s.parents_at[t], s.parents_at[t + 1]):
            ready_s = max(ready_s, ends_s[s.parents[n]])
        starts_s[t] = fit(steps, size, ready_s, lengths_s[t], s.procs[t], latest_end_s)
        if starts_s[t] == np.inf:
            return False
        ends_s[t] = starts_s[t] + lengths_s[t]
        use(steps, starts_s[t], ends_s[t], s.procs[t])
    return True


class SingleSlotPlacements:
    """Places whole workflows; caches the order of tasks per shape of workflow."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._orders: dict[int, tuple[str, ...]] = {}
        self._loads = {slot.id: 0.0 for slot in draft.snapshot.slots}
        self._ranks: dict[str, tuple[float, float, str]] = {}  # while loads are unchanged

    def place(self, name: str, slots: Iterable[Slot]) -> bool:
        """Place a workflow, or one more replica of all of it, in the best slot that can hold it."""
        taken = {
            p.slot for replicas in self.draft.replicas.get(name, {}).values() for p in replicas
        }
        for slot in self._ranked([slot for slot in slots if slot.id not in taken])[:_TRIES]:
            placements = self._fit(name, slot)
            if placements and self.draft.place_workflow(placements):
                for placement in placements:
                    self.draft.note(placement, "whole workflow in one slot", {})
                work = sum((p.end_s - p.start_s) * p.procs for p in placements)
                self._loads[slot.id] += work / slot.procs
                # the ranks of other slots depend on their own loads only
                self._ranks.pop(slot.id, None)
                return True
        return False

    def _ranked(self, slots: Sequence[Slot]) -> list[Slot]:
        """Sort by probability at the instant to which the slots are filled; among equals the
        emptiest first."""

        def rank(slot: Slot) -> tuple[float, float, str]:
            if slot.id in self._ranks:
                return self._ranks[slot.id]
            load_s = self._loads[slot.id]
            ready_s = slot.curve.milestones[-1][0] if slot.curve.milestones else float("inf")
            sure = slot.curve.by(max(load_s, ready_s)) * slot.up
            result = (-round(sure / _EQUAL), max(load_s, ready_s), slot.id)
            self._ranks[slot.id] = result
            return result

        return sorted(slots, key=rank)

    def _fit(self, name: str, slot: Slot) -> list[Placement]:
        """Place all tasks in their order at their earliest, from the slot's latest possible
        milestone on; empty if too late."""
        workflow = self.draft.snapshot.workflow_by_name[name]
        shape, snapshot = workflow.shape, self.draft.snapshot
        if not slot.curve.milestones or not all(
            slot.holds(needs) for needs in shape.distinct_needs
        ):
            return []
        order, count = self._order(name), len(workflow.order)
        turns = np.array([shape.rank[task_id] for task_id in order])
        lengths_s = snapshot.lengths_s(workflow) / slot.speed
        latest_end_s = min(snapshot.workflow_set.deadline_s, slot.end_s)
        starts_s = np.empty(count)
        # the later the milestone, the more probable it is that the slot is ready
        for begin_s, _ in reversed(slot.curve.milestones):
            steps = self.draft.slots.calendar(slot.id).steps(count)
            if pack.after(count * (5 + int(steps.head[0])))(
                shape.arrays, turns, lengths_s, (steps, slot.procs, begin_s, latest_end_s), starts_s
            ):
                ends_s = starts_s + lengths_s
                break
        else:
            return []
        replica = len(next(iter(self.draft.replicas.get(name, {"": ()}).values())))
        return [
            Placement(name, task_id, replica, slot.id, start_s, end_s, procs)
            for task_id, start_s, end_s, procs in zip(
                order,
                starts_s[turns].tolist(),
                ends_s[turns].tolist(),
                shape.arrays.procs[turns].tolist(),
                strict=True,
            )
        ]

    def _order(self, name: str) -> tuple[str, ...]:
        """Return the task ids by deadline, parents first; equal workflows share their tasks and
        this order."""
        workflow = self.draft.snapshot.workflow_by_name[name]
        texts = self._orders.get(id(workflow.tasks))
        if texts is None:
            texts = deadline_order(workflow, self.draft.snapshot)
            self._orders[id(workflow.tasks)] = texts
        return texts
