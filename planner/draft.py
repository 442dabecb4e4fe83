"""A plan in the making: placements come and go, and the promise follows.

Mutable on purpose and private to the planner; what leaves it is a frozen :class:`Plan`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from planner.calendar import Calendar
from planner.plan import Placement
from planner.probability import Bits, Scenarios, WorkflowOutcome
from planner.snapshot import Snapshot, TaskKey
from vgrid.binding import latest_submission


class Draft:
    """Calendars of all slots, placements of all tasks, and in which scenarios what gets done."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.scenarios = Scenarios(snapshot)
        self.calendars = {slot.id: Calendar(slot.procs, slot.end_s) for slot in snapshot.slots}
        self.copies: dict[str, dict[str, list[Placement]]] = {}
        self.outcomes: dict[str, WorkflowOutcome] = {}
        self.done: dict[str, Bits] = {}
        self._counts: NDArray[np.int16] = np.zeros(self.scenarios.count, dtype=np.int16)
        self._journal: list[Placement] = []
        # tasks whose copies came or went since their workflow was settled
        self._touched: defaultdict[str, set[str]] = defaultdict(set)
        self._by_slot: defaultdict[str, list[Placement]] = defaultdict(list)

    def place(self, placement: Placement) -> None:
        """Add a copy. Its workflow's outcome is brought up to date by :meth:`settle`."""
        tasks = self.copies.setdefault(placement.workflow, {})
        tasks.setdefault(placement.task, []).append(placement)
        self.calendars[placement.slot].add(placement.start_s, placement.end_s, placement.procs)
        self._by_slot[placement.slot].append(placement)
        self._journal.append(placement)
        self._touched[placement.workflow].add(placement.task)
        outcome = self.outcome(placement.workflow)
        outcome.copies.setdefault(placement.task, []).append(
            (placement, outcome.success(placement))
        )

    def outcome(self, workflow: str) -> WorkflowOutcome:
        """The outcome of a workflow, empty if nothing of it is placed."""
        if workflow not in self.outcomes:
            self.outcomes[workflow] = WorkflowOutcome(
                self.snapshot.workflow_by_name[workflow], self.scenarios
            )
        return self.outcomes[workflow]

    def settle(self, workflow: str) -> None:
        """Bring up to date in which scenarios the workflow is done, after copies came or went."""
        before = self.done.pop(workflow, None)
        if before is not None:
            self._counts -= self.scenarios.unpack(before)
        if self.copies.get(workflow):
            touched = self._touched.pop(workflow, set())
            self.done[workflow] = self.outcome(workflow).recompute(self.copies[workflow], touched)
            self._counts += self.scenarios.unpack(self.done[workflow])

    def mark(self) -> int:
        """A point to go back to."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Take back everything placed since the mark."""
        workflows = set()
        while len(self._journal) > mark:
            p = self._journal.pop()
            self.copies[p.workflow][p.task].remove(p)
            if not any(self.copies[p.workflow].values()):
                del self.copies[p.workflow]
            self.calendars[p.slot].add(p.start_s, p.end_s, -p.procs)
            self._by_slot[p.slot].remove(p)
            self._touched[p.workflow].add(p.task)
            workflows.add(p.workflow)
        for workflow in sorted(workflows):
            if workflow not in self.copies:
                del self.outcomes[workflow], self._touched[workflow]
            self.settle(workflow)

    @contextmanager
    def trial(self) -> Iterator[int]:
        """Whatever is placed inside is taken back at the end."""
        mark = self.mark()
        try:
            yield mark
        finally:
            self.back_to(mark)

    def since(self, mark: int) -> list[Placement]:
        """What was placed since the mark."""
        return self._journal[mark:]

    def replay(self, placements: list[Placement]) -> None:
        """Place these and bring their workflows up to date."""
        for placement in placements:
            self.place(placement)
        for workflow in sorted({p.workflow for p in placements}):
            self.settle(workflow)

    @property
    def promise(self) -> float:
        """P(at least the needed number of workflows is done)."""
        return float((self._counts >= self.snapshot.wanted.needed).mean())

    @property
    def expected_done(self) -> float:
        """Expected number of workflows done."""
        return float(self._counts.mean())

    @property
    def scheduled(self) -> list[str]:
        """Names of the workflows that are placed, in the set's order."""
        return [w.name for w in self.snapshot.wanted.workflows if w.name in self.copies]

    @property
    def placements(self) -> list[Placement]:
        """All copies by start."""
        return sorted(self._journal, key=lambda p: (p.start_s, p.slot, p.key))

    def task_probability(self, key: TaskKey) -> float:
        """P(some copy of the task succeeds)."""
        return self.scenarios.share(self.outcome(key[0]).task_done(key[1]))

    def in_slot(self, slot_id: str) -> list[Placement]:
        """Copies placed in a slot."""
        return self._by_slot[slot_id]

    def slot_cost(self, slot_id: str) -> float:
        """USD for holding a slot from its request to the end of its last task."""
        slot, placed = self.snapshot.slot_by_id[slot_id], self.in_slot(slot_id)
        if not slot.paid or not placed:
            return 0.0
        submit_s = latest_submission(slot, [p.start_s for p in placed])
        return slot.cost_usd(max(p.end_s for p in placed) - submit_s)

    @property
    def cost_usd(self) -> float:
        """USD for all slots used."""
        return sum(self.slot_cost(slot.id) for slot in self.snapshot.slots if slot.paid)

    def probabilities(self) -> Mapping[tuple[str, str, int], float]:
        """Success probability of every copy."""
        return {
            placement.key: self.scenarios.share(bits)
            for outcome in self.outcomes.values()
            for pairs in outcome.copies.values()
            for placement, bits in pairs
        }
