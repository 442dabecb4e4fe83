"""A draft plan: placements are added and removed, and the promise is updated.

Mutable on purpose and private to the planner; the result is a frozen :class:`Plan`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.profile import Profile
from vgrads.planner.plan import Placement
from vgrads.planner.promise.probability import (
    Bits,
    Scenarios,
    WorkflowOutcome,
    at_least,
    compute_paper_probability,
    standard_error,
)
from vgrads.planner.promise.single_slot_success import single_slot_probabilities
from vgrads.planner.snapshot import ReplicaKey, Snapshot, TaskKey
from vgrads.vgrid.binding import price_request

Reasons = Mapping[str, Any]
"""The numbers that decided, by name."""


class Draft:
    """Placements of all tasks, their slots, and the scenarios in which workflows are done."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.scenarios = Scenarios(snapshot)
        self.slots = Bookings(snapshot)
        self.replicas: dict[str, dict[str, list[Placement]]] = {}
        self.outcomes: dict[str, WorkflowOutcome] = {}
        # workflows that were only placed whole: replica → scenarios where it is done
        self._whole: dict[str, dict[int, Bits]] = {}
        self.done: dict[str, Bits] = {}
        # workflows done in each scenario
        self.counts: NDArray[np.int32] = np.zeros(self.scenarios.count, dtype=np.int32)
        self._journal: list[Placement] = []
        self.work = 0  # of packing until now, in steps of profiles
        self.phase = ""  # the current phase, for the record
        self.reasons: dict[ReplicaKey, Reasons] = {}
        # tasks whose replicas changed since their workflow was settled
        self._touched: defaultdict[str, set[str]] = defaultdict(set)

    def place(self, placement: Placement) -> None:
        """Add a replica. :meth:`settle` updates the outcome of its workflow."""
        outcome = self.outcome(placement.workflow)
        self._reserve_all([placement])
        self._touched[placement.workflow].add(placement.task)
        outcome.replicas.setdefault(placement.task, []).append(
            (placement, outcome.success(placement))
        )

    def place_all(self, placements: Sequence[Placement]) -> None:
        """Add replicas of one workflow's tasks; :meth:`settle` computes for all at once the
        scenarios in which they succeed."""
        name = placements[0].workflow
        self.outcome(name)
        self._touched[name].update([p.task for p in placements])
        self._reserve_all(placements)

    def _reserve_all(self, placements: Sequence[Placement]) -> None:
        """Record replicas of one workflow's tasks, and reserve their processors."""
        tasks = self.replicas.setdefault(placements[0].workflow, {})
        for p in placements:
            tasks.setdefault(p.task, []).append(p)
        self._journal += placements
        self.slots.add(placements)

    def place_workflow(self, placements: Sequence[Placement]) -> bool:
        """Add a replica of every task of a workflow, each where the outputs of its parents in this
        replica are there in time; return False if that does not raise the probability.

        Such a replica needs no separate outcome: it is done if each slot is ready by its first
        start in it and lives to the last end. The case that replicas of one workflow complement
        each other task by task is ignored.
        """
        name, replica, mark = placements[0].workflow, placements[0].replica, self.mark()
        before = self.scenarios.share(self.done[name]) if name in self.done else 0.0
        by_tasks = name in self.replicas and name not in self._whole
        slots = {self.snapshot.slot_by_id[p.slot] for p in placements}
        if by_tasks or any(self.snapshot.failure(slot) > 0 for slot in slots):
            self.place_all(placements)
        else:
            alive = self.scenarios.alive_throughout(placements)
            if self.scenarios.share(self.done.get(name, self.scenarios.none) | alive) <= before:
                return False
            self.outcomes.pop(name, None)  # an empty one, from an attempt task by task
            self._whole.setdefault(name, {})[replica] = alive
            self._reserve_all(placements)
        self.settle(name)
        if self.scenarios.share(self.done[name]) <= before:
            self.back_to(mark)
            return False
        return True

    def outcome(self, workflow: str) -> WorkflowOutcome:
        """Return the outcome of a workflow, empty if nothing of it is placed."""
        if workflow not in self.outcomes:
            outcome = WorkflowOutcome(self.snapshot.workflow_by_name[workflow], self.scenarios)
            if self._whole.pop(workflow, None) is not None:
                outcome.recompute(self.replicas[workflow], self.replicas[workflow].keys())
            self.outcomes[workflow] = outcome
        return self.outcomes[workflow]

    def note(self, placement: Placement, rule: str, numbers: Reasons) -> None:
        """Record the reason for a placement."""
        self.reasons[placement.key] = {"phase": self.phase, "rule": rule, **numbers}

    def settle(self, workflow: str) -> None:
        """Update the scenarios in which the workflow is done, after replicas changed."""
        before = self.done.pop(workflow, None)
        if before is not None:
            self.counts -= self.scenarios.unpack(before)
        if not self.replicas.get(workflow):
            return
        touched = self._touched.pop(workflow, set())
        if workflow in self._whole:
            done = np.bitwise_or.reduce(list(self._whole[workflow].values()))
        else:
            done = self.outcome(workflow).recompute(self.replicas[workflow], touched)
        self.done[workflow] = done
        self.counts += self.scenarios.unpack(done)

    def mark(self) -> int:
        """Return a mark for :meth:`back_to`."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Undo all placements since the mark."""
        taken = self._journal[mark:]
        del self._journal[mark:]
        taken.reverse()  # the newest replicas of a task first
        for p in taken:
            self.replicas[p.workflow][p.task].pop()
            if p.workflow in self._whole:
                self._whole[p.workflow].pop(p.replica, None)
            else:
                self._touched[p.workflow].add(p.task)
        # in the same order as above: each slot's newest placements are removed from its end
        self.slots.take_back(taken)
        # sorted, because the order of a set of names differs between processes
        for workflow in sorted({p.workflow for p in taken}):
            if not any(self.replicas[workflow].values()):
                del self.replicas[workflow]
                for stored in (self.outcomes, self._whole, self._touched):
                    stored.pop(workflow, None)
            self.settle(workflow)

    @contextmanager
    def trial(self) -> Iterator[int]:
        """Undo all placements of the block at its end."""
        mark = self.mark()
        try:
            yield mark
        finally:
            self.back_to(mark)

    def since(self, mark: int) -> list[Placement]:
        """Return the placements since the mark."""
        return self._journal[mark:]

    def replay(self, placements: list[Placement]) -> None:
        """Place these and update their workflows."""
        for placement in placements:
            self.place(placement)
        for workflow in sorted({p.workflow for p in placements}):
            self.settle(workflow)

    def replay_whole(self, placements: Sequence[Placement]) -> None:
        """Repeat placements of :meth:`place_workflow`."""
        for _, placement_group in groupby(placements, key=lambda p: (p.workflow, p.replica)):
            self.place_workflow(list(placement_group))

    @property
    def promise(self) -> float:
        """Return P(at least the needed number of workflows is done)."""
        return float((self.counts >= self.snapshot.workflow_set.needed).mean())

    @property
    def standard_error(self) -> float:
        """Return the standard error of the promise, from the sampling of scenarios."""
        return standard_error(self.promise, self.scenarios.count)

    def workflow_chance(self, name: str) -> float:
        """Return P(a placed workflow is done)."""
        return self.scenarios.share(self.done[name])

    @property
    def expected_done(self) -> float:
        """Return the expected number of workflows done."""
        return float(self.counts.mean())

    @property
    def scheduled(self) -> list[str]:
        """Return the names of the placed workflows, in the set's order."""
        return [w.name for w in self.snapshot.workflow_set.workflows if w.name in self.replicas]

    @property
    def placements(self) -> list[Placement]:
        """Return all replicas by start."""
        return sorted(self._journal, key=lambda p: (p.start_s, p.slot, p.key))

    def task_probability(self, key: TaskKey) -> float:
        """Return P(any replica of the task succeeds)."""
        return self.scenarios.share(self.outcome(key[0]).task_done(key[1]))

    @property
    def cost_usd(self) -> float:
        """Return the cost in USD of all slots used."""
        return self.slots.cost_usd

    def probabilities(self) -> Mapping[tuple[str, str, int], float]:
        """Return the success probability of every replica."""
        for name, whole in list(self._whole.items()):
            if len({p.slot for own in self.replicas[name].values() for p in own}) > len(whole):
                self.outcome(name)  # some replica is spread over several slots
        result = {
            placement.key: self.scenarios.share(bits)
            for outcome in self.outcomes.values()
            for pairs in outcome.replicas.values()
            for placement, bits in pairs
        }
        rest = ((name, self.replicas[name], len(own)) for name, own in self._whole.items())
        return result | single_slot_probabilities(self.scenarios, self.snapshot, rest)


class PaperDraft(Draft):
    """A draft that computes its promise by the paper's rule, as if workflows were independent."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._cache: dict[str, tuple[int, float]] = {}

    @property
    def promise(self) -> float:
        """Return P(at least the needed number of workflows is done), by products and minima."""
        chances = map(self.workflow_chance, self.replicas)
        # rounded: sums must not seem to fall
        return round(at_least(chances, self.snapshot.workflow_set.needed), 12)

    @property
    def standard_error(self) -> float:
        """Return 0: the rule has no standard error."""
        return 0.0

    def workflow_chance(self, name: str) -> float:
        """Return the probability of a workflow; cached until its replicas change."""
        placements = [p for replicas in self.replicas[name].values() for p in replicas]
        # replicas may be undone and placed elsewhere: their number would not show a change
        stamp = hash(tuple(placements))
        if self._cache.get(name, (0, 0.0))[0] != stamp:
            workflow = self.snapshot.workflow_by_name[name]
            chance = compute_paper_probability(workflow, placements, self.snapshot.slot_by_id)
            self._cache[name] = (stamp, chance)
        return self._cache[name][1]


class Bookings:
    """The calendar of every slot, and its placements."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._slots = snapshot.slot_by_id
        self._calendars = {slot.id: Profile(slot.procs, slot.end_s) for slot in snapshot.slots}
        self._placed: defaultdict[str, list[Placement]] = defaultdict(list)

    def calendar(self, slot_id: str) -> Profile:
        """Return the free processors of a slot over time."""
        return self._calendars[slot_id]

    def placed(self, slot_id: str) -> list[Placement]:
        """Return the replicas placed in a slot."""
        return self._placed[slot_id]

    def add(self, placements: Sequence[Placement]) -> None:
        """Reserve processors for replicas."""
        by_slot = defaultdict[str, list[Placement]](list)
        for p in placements:
            by_slot[p.slot].append(p)
        for slot_id, own in by_slot.items():
            self._placed[slot_id] += own
            self._calendars[slot_id].add_all([(p.start_s, p.end_s, p.procs) for p in own])

    def take_back(self, placements: Sequence[Placement]) -> None:
        """Undo :meth:`add` for the replicas that were added last, the newest first."""
        by_slot = defaultdict[str, list[tuple[float, float, int]]](list)
        for p in placements:
            by_slot[p.slot].append((p.start_s, p.end_s, -p.procs))
        for slot_id, rows in by_slot.items():
            # the newest are the last, because trials are undone in reverse order
            del self._placed[slot_id][-len(rows) :]
            self._calendars[slot_id].add_all(rows)

    def slot_usd(self, slot_id: str) -> float:
        """Return the cost in USD of holding a slot from its request to the end of its last task."""
        slot, placed = self._slots[slot_id], self._placed[slot_id]
        if not slot.paid or not placed:
            return 0.0
        return price_request(slot, [(p.start_s, p.end_s) for p in placed]).usd

    @property
    def cost_usd(self) -> float:
        """Return the cost in USD of all slots used."""
        return sum(self.slot_usd(slot_id) for slot_id in self._calendars)
