"""A plan in the making: placements come and go, and the promise follows.

Mutable on purpose and private to the planner; what leaves it is a frozen :class:`Plan`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.planner.placement.bookings import Bookings
from vgrads.planner.plan import Placement
from vgrads.planner.promise.gangs import chances_of_gangs
from vgrads.planner.promise.probability import (
    Bits,
    Scenarios,
    WorkflowOutcome,
    at_least,
    paper_probability,
    standard_error,
)
from vgrads.planner.snapshot import CopyKey, Snapshot, TaskKey

Reasons = Mapping[str, Any]
"""The numbers that decided, by name."""


class Draft:
    """Placements of all tasks, the slots that they hold, and in which scenarios what gets done."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.scenarios = Scenarios(snapshot)
        self.slots = Bookings(snapshot)
        self.copies: dict[str, dict[str, list[Placement]]] = {}
        self.outcomes: dict[str, WorkflowOutcome] = {}
        # workflows of which every copy lies whole in one slot: copy → when it is done
        self._gangs: dict[str, dict[int, Bits]] = {}
        self.done: dict[str, Bits] = {}
        self._counts: NDArray[np.int16] = np.zeros(self.scenarios.count, dtype=np.int16)
        self._journal: list[Placement] = []
        self.phase = ""  # the one at work, for the record
        self.reasons: dict[CopyKey, Reasons] = {}
        # tasks whose copies came or went since their workflow was settled
        self._touched: defaultdict[str, set[str]] = defaultdict(set)

    def place(self, placement: Placement) -> None:
        """Add a copy. Its workflow's outcome is brought up to date by :meth:`settle`."""
        outcome = self.outcome(placement.workflow)
        self._book_all([placement])
        self._touched[placement.workflow].add(placement.task)
        outcome.copies.setdefault(placement.task, []).append(
            (placement, outcome.success(placement))
        )

    def place_all(self, placements: Sequence[Placement]) -> None:
        """Add copies of one workflow's tasks; in which scenarios they succeed is reckoned for all
        at once, by :meth:`settle`."""
        name = placements[0].workflow
        self.outcome(name)
        self._touched[name].update([p.task for p in placements])
        self._book_all(placements)

    def _book_all(self, placements: Sequence[Placement]) -> None:
        """Take copies of one workflow's tasks down, and their processors."""
        tasks = self.copies.setdefault(placements[0].workflow, {})
        for p in placements:
            tasks.setdefault(p.task, []).append(p)
        self._journal += placements
        self.slots.add(placements)

    def place_gang(self, placements: Sequence[Placement]) -> bool:
        """Add a copy of every task of a workflow, all in one slot; False where that raises nothing.

        Such a copy needs no outcome of its own: it is done where the slot is ready by the first
        start and lives to the last end. That copies of one workflow could also help each other out
        task by task is left uncounted.
        """
        name, copy, mark = placements[0].workflow, placements[0].copy, self.mark()
        before = self.scenarios.share(self.done[name]) if name in self.done else 0.0
        slot = self.snapshot.slot_by_id[placements[0].slot]
        if (name in self.copies and name not in self._gangs) or self.snapshot.failure(slot) > 0:
            self.place_all(placements)
        else:
            fate = self.scenarios.alive(
                slot, min(p.start_s for p in placements), max(p.end_s for p in placements)
            )
            if self.scenarios.share(self.done.get(name, self.scenarios.none) | fate) <= before:
                return False
            self.outcomes.pop(name, None)  # an empty one, from an attempt task by task
            self._gangs.setdefault(name, {})[copy] = fate
            self._book_all(placements)
        self.settle(name)
        if self.scenarios.share(self.done[name]) <= before:
            self.back_to(mark)
            return False
        return True

    def outcome(self, workflow: str) -> WorkflowOutcome:
        """The outcome of a workflow, empty if nothing of it is placed."""
        if workflow not in self.outcomes:
            outcome = WorkflowOutcome(self.snapshot.workflow_by_name[workflow], self.scenarios)
            if self._gangs.pop(workflow, None) is not None:
                outcome.recompute(self.copies[workflow], self.copies[workflow].keys())
            self.outcomes[workflow] = outcome
        return self.outcomes[workflow]

    def note(self, placement: Placement, rule: str, numbers: Reasons) -> None:
        """Remember why a copy stands where it does."""
        self.reasons[placement.key] = {"phase": self.phase, "rule": rule, **numbers}

    def settle(self, workflow: str) -> None:
        """Bring up to date in which scenarios the workflow is done, after copies came or went."""
        before = self.done.pop(workflow, None)
        if before is not None:
            self._counts -= self.scenarios.unpack(before)
        if not self.copies.get(workflow):
            return
        touched = self._touched.pop(workflow, set())
        if workflow in self._gangs:
            done = np.bitwise_or.reduce(list(self._gangs[workflow].values()))
        else:
            done = self.outcome(workflow).recompute(self.copies[workflow], touched)
        self.done[workflow] = done
        self._counts += self.scenarios.unpack(done)

    def mark(self) -> int:
        """A point to go back to."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Take back everything placed since the mark."""
        taken = self._journal[mark:]
        del self._journal[mark:]
        taken.reverse()  # the newest of its task's first
        for p in taken:
            self.copies[p.workflow][p.task].pop()
            if p.workflow in self._gangs:
                self._gangs[p.workflow].pop(p.copy, None)
            else:
                self._touched[p.workflow].add(p.task)
        self.slots.take_back(taken)
        for workflow in sorted({p.workflow for p in taken}):
            if not any(self.copies[workflow].values()):
                del self.copies[workflow]
                for kept in (self.outcomes, self._gangs, self._touched):
                    kept.pop(workflow, None)
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

    def replay_whole(self, placements: Sequence[Placement]) -> None:
        """Place again what :meth:`place_gang` had placed."""
        for _, gang in groupby(placements, key=lambda p: (p.workflow, p.copy)):
            self.place_gang(list(gang))

    @property
    def promise(self) -> float:
        """P(at least the needed number of workflows is done)."""
        return float((self._counts >= self.snapshot.wanted.needed).mean())

    @property
    def standard_error(self) -> float:
        """Of the promise, because scenarios are drawn."""
        return standard_error(self.promise, self.scenarios.count)

    def workflow_chance(self, name: str) -> float:
        """P(a workflow that is placed is done)."""
        return self.scenarios.share(self.done[name])

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

    @property
    def cost_usd(self) -> float:
        """USD for all slots used."""
        return self.slots.cost_usd

    def probabilities(self) -> Mapping[tuple[str, str, int], float]:
        """Success probability of every copy."""
        found = {
            placement.key: self.scenarios.share(bits)
            for outcome in self.outcomes.values()
            for pairs in outcome.copies.values()
            for placement, bits in pairs
        }
        gangs = ((name, self.copies[name], len(gang)) for name, gang in self._gangs.items())
        return found | chances_of_gangs(self.scenarios, self.snapshot, gangs)


class PaperDraft(Draft):
    """A draft that reckons its promise by the paper's rule, as if workflows were independent."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._known: dict[str, tuple[int, float]] = {}

    @property
    def promise(self) -> float:
        """P(at least the needed number of workflows is done), by products and minima."""
        chances = map(self.workflow_chance, self.copies)
        # rounded: sums must not seem to fall
        return round(at_least(chances, self.snapshot.wanted.needed), 12)

    @property
    def standard_error(self) -> float:
        """The rule has none."""
        return 0.0

    def workflow_chance(self, name: str) -> float:
        """How sure a workflow is; remembered until its copies change."""
        placements = [p for copies in self.copies[name].values() for p in copies]
        stamp = hash(tuple(placements))
        if self._known.get(name, (0, 0.0))[0] != stamp:
            workflow = self.snapshot.workflow_by_name[name]
            chance = paper_probability(workflow, placements, self.snapshot.slot_by_id)
            self._known[name] = (stamp, chance)
        return self._known[name][1]
