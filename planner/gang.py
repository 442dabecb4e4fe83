"""A whole workflow in one slot: list scheduling by deadline, for sets too large to weigh every task.

Everything of the workflow then shares one fate, so its probability is one look-up, and a set of a
hundred thousand tasks is planned in seconds. What a slot alone cannot hold is left to
:mod:`planner.mapping`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.deadlines import latest_finishes
from planner.draft import Draft
from planner.plan import Placement
from vgrid.slot import Slot

_TRIES = 6  # slots that a workflow is tried in, the most promising first
_EQUAL = 0.02  # chances closer than this count as equal: the emptier slot decides


class Gangs:
    """Places workflows whole; remembers per shape of workflow in which order its tasks go."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._orders: dict[int, list[str]] = {}
        self._loads = {slot.id: 0.0 for slot in draft.snapshot.slots}

    def place(self, name: str, slots: Iterable[Slot]) -> bool:
        """Place a workflow, or one more copy of all of it, in the best slot that can hold it."""
        taken = {p.slot for copies in self.draft.copies.get(name, {}).values() for p in copies}
        for slot in self._ranked([slot for slot in slots if slot.id not in taken])[:_TRIES]:
            placements = self._fit(name, slot)
            if placements and self.draft.place_gang(placements):
                for placement in placements:
                    self.draft.note(placement, "whole workflow in one slot", {})
                work = sum((p.end_s - p.start_s) * p.procs for p in placements)
                self._loads[slot.id] += work / slot.procs
                return True
        return False

    def _ranked(self, slots: Sequence[Slot]) -> list[Slot]:
        """Surest at the instant to which they are filled; among equals the emptiest."""

        def rank(slot: Slot) -> tuple[float, float, str]:
            load_s = self._loads[slot.id]
            ready_s = slot.curve.milestones[-1][0] if slot.curve.milestones else float("inf")
            sure = slot.curve.by(max(load_s, ready_s)) * slot.up
            return -round(sure / _EQUAL), max(load_s, ready_s), slot.id

        return sorted(slots, key=rank)

    def _fit(self, name: str, slot: Slot) -> list[Placement]:
        """All tasks in their order at their earliest, from where the slot is sure; empty if too late."""
        workflow = self.draft.snapshot.workflow_by_name[name]
        whole = all(slot.holds(t.procs, t.memory_mib) for t in workflow.tasks.values())
        if not whole or not slot.curve.milestones:
            return []
        calendar, limit_s = self.draft.calendars[slot.id], self.draft.snapshot.wanted.deadline_s
        copy = len(next(iter(self.draft.copies.get(name, {"": ()}).values())))
        for begin_s, _ in reversed(slot.curve.milestones):
            placed: list[Placement] = []
            ends: dict[str, float] = {}
            for task_id in self._order(name):
                task = workflow.tasks[task_id]
                ready_s = max([begin_s, *(ends[parent] for parent in task.parents)])
                length_s = self.draft.snapshot.duration_s(task, slot)
                start_s = calendar.earliest_fit(ready_s, length_s, task.procs, limit_s)
                if start_s is None:
                    break
                ends[task_id] = start_s + length_s
                calendar.add(start_s, ends[task_id], task.procs)
                p = Placement(
                    workflow=name, task=task_id, copy=copy, slot=slot.id, start_s=start_s, end_s=ends[task_id],
                    procs=task.procs,
                )  # fmt: skip
                placed.append(p)
            for p in placed:
                calendar.add(p.start_s, p.end_s, -p.procs)
            if len(placed) == len(workflow.tasks):
                return placed
        return []

    def _order(self, name: str) -> list[str]:
        """Task ids by deadline, parents first; equal workflows share their tasks and this."""
        workflow = self.draft.snapshot.workflow_by_name[name]
        found = self._orders.get(id(workflow.tasks))
        if found is None:
            latest = latest_finishes(workflow, self.draft.snapshot)
            position = {task_id: index for index, task_id in enumerate(workflow.order)}
            found = sorted(workflow.order, key=lambda t: (latest[t], position[t]))
            self._orders[id(workflow.tasks)] = found
        return found
