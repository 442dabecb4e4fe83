"""Plans in which every replica of a workflow is whole in one slot, and a quick estimate of their
promise.

Such a replica depends on one slot only: in a scenario it is done if the slot is ready so early that
the list schedule of the slot ends it in time, and lives until then. So the promise of thousands of
plans is estimated by look-ups in the same scenarios, and only the best are simulated. The estimate
ignores what the simulation adds: replicas that are cancelled because another was done, backfilling,
failing tasks and errors of run times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.profile import Profile
from vgrads.planner.placement.deadlines import deadline_order
from vgrads.planner.plan import Placement
from vgrads.planner.search.trials import LOOK, Placements
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow

_RESERVE = 0.25  # of a slot's wait, if it is to begin late
Bools = NDArray[np.bool_]
Contents = Mapping[str, tuple[str, ...]]
"""Slot → its workflows, in order."""
_SHARES = (0.75, 0.5, 0.25, 0.0)
"""Probability at which a slot is planned to begin, as a share of its highest: the largest at which
everything fits."""


@dataclass(frozen=True, slots=True)
class SlotSchedule:
    """The list schedule of a slot, in seconds after its begin: (workflow, task, start, end,
    processors) of each task, and the end of each workflow."""

    tasks: tuple[tuple[str, str, float, float, int], ...]
    ends_s: Mapping[str, float]

    @property
    def length_s(self) -> float:
        return max(self.ends_s.values(), default=0.0)


class WholeReplicas:
    """Schedules of whole workflows in the slots of a snapshot, with the scenarios in which each is
    done."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.deadline_s = snapshot.workflow_set.deadline_s
        self._names = {w.name: n for n, w in enumerate(snapshot.workflow_set.workflows)}
        count = min(LOOK, snapshot.scenarios)
        self._fates = {s.id: sample_availability(s, count, snapshot.seed) for s in snapshot.slots}
        self._none: Bools = np.zeros((len(self._names), count), np.bool_)
        self._orders: dict[int, tuple[str, ...]] = {}
        self._schedules: dict[object, SlotSchedule] = {}

    def fits(self, slot: Slot, name: str) -> bool:
        """True if a slot holds the tasks of a workflow."""
        workflow = self.snapshot.workflow_by_name[name]
        return all(slot.holds(needs) for needs in workflow.shape.distinct_needs)

    def schedule(self, slot: Slot, names: tuple[str, ...]) -> SlotSchedule:
        """Return the list schedule of these workflows, one after the other, each task at its
        earliest; those that do not end before the slot or the deadline are left out."""
        limit_s = min(slot.end_s, self.deadline_s) - slot.curve.reaches_s(0.0)
        key = (slot.procs, slot.speed, limit_s, names, self.fits_key(slot))
        if key not in self._schedules:
            self._schedules[key] = self._schedule(slot, names, limit_s)
        return self._schedules[key]

    def fits_key(self, slot: Slot) -> tuple[object, ...]:
        """What decides, besides processors, which tasks a slot holds."""
        return slot.memory_mib, slot.nodes, slot.containers, slot.resources

    def _schedule(self, slot: Slot, names: Sequence[str], limit_s: float) -> SlotSchedule:
        profile, rows, ends_s = Profile(slot.procs), [], dict[str, float]()
        for name in names:
            workflow = self.snapshot.workflow_by_name[name]
            fits = self.fits(slot, name)
            placed = self.placed(profile, workflow, slot, (0.0, limit_s)) if fits else []
            rows += [(name, *row) for row in placed]
            if placed:
                ends_s[name] = max(end_s for _, _, end_s, _ in placed)
        return SlotSchedule(tuple(rows), ends_s)

    def placed(
        self, profile: Profile, workflow: Workflow, slot: Slot, window_s: tuple[float, float]
    ) -> list[tuple[str, float, float, int]]:
        """Reserve the tasks of a workflow at their earliest within a window; return (task, start,
        end, processors) of each. Nothing if one ends too late."""
        begin_s, limit_s = window_s
        rows, ends_s = list[tuple[str, float, float, int]](), dict[str, float]()
        for task_id in self._order(workflow):
            task = workflow.tasks[task_id]
            ready_s = max((ends_s[p] for p in task.parents), default=begin_s)
            length_s = self.snapshot.duration_s(task, slot)
            start_s = profile.earliest_fit(ready_s, length_s, task.procs, limit_s)
            if start_s is None:
                for _, first_s, last_s, procs in rows[::-1]:
                    profile.add(first_s, last_s, -procs)
                return []
            ends_s[task_id] = start_s + length_s
            rows.append((task_id, start_s, ends_s[task_id], task.procs))
            profile.add(start_s, ends_s[task_id], task.procs)
        return rows

    def _order(self, workflow: Workflow) -> tuple[str, ...]:
        """Return the tasks by deadline, parents first; equal workflows share this order."""
        order = self._orders.get(id(workflow.tasks))
        if order is None:
            order = self._orders[id(workflow.tasks)] = deadline_order(workflow, self.snapshot)
        return order

    def done(self, slot: Slot, names: tuple[str, ...]) -> Bools:
        """Return the scenarios in which each workflow is done in a slot with these: workflows ×
        scenarios."""
        result = self._none.copy()
        ready_s, broken_s = self._fates[slot.id]
        for name, end_s in self.schedule(slot, names).ends_s.items():
            done_s = ready_s + end_s
            result[self._names[name]] = (done_s <= self.deadline_s + 1e-6) & (done_s <= broken_s)
        return result

    def value(self, done: Iterable[Bools]) -> tuple[float, float]:
        """Return the share of scenarios in which enough workflows are done, and the expected number
        of these."""
        counts = self.any_of(done).sum(axis=0)
        needed = self.snapshot.workflow_set.needed
        return float((counts >= needed).mean()), float(np.minimum(counts, needed).mean())

    def any_of(self, done: Iterable[Bools]) -> Bools:
        """Return the scenarios in which each workflow is done in any of the slots."""
        return np.asarray(np.logical_or.reduce([self._none, *done]))

    def ordered(self, contents: Contents, rounds: int = 2) -> Contents:
        """Return the contents with the order of workflows in each slot that makes the promise most
        probable, one change at a time."""
        now, slots = dict(contents), self.snapshot.slot_by_id
        done = {slot: self.done(slots[slot], names) for slot, names in now.items()}
        best = self.value(done.values())
        for _ in range(rounds):
            before = best
            for slot_id, names in list(now.items()):
                others = [bits for other, bits in done.items() if other != slot_id]
                for name in names[1:]:
                    first = (name, *(n for n in now[slot_id] if n != name))
                    bits = self.done(slots[slot_id], first)
                    value = self.value([*others, bits])
                    if value > best:
                        best, now[slot_id], done[slot_id] = value, first, bits
            if best == before:
                break
        return now

    def placements(self, contents: Contents, late: frozenset[str] = frozenset()) -> Placements:
        """Return the replicas of these contents; in slots of ``late`` as late as they end in time,
        with a quarter of the slot's wait as reserve."""
        replicas, rows = dict[str, int](), list[Placement]()
        for slot_id, names in contents.items():
            slot = self.snapshot.slot_by_id[slot_id]
            schedule = self.schedule(slot, names)
            if not schedule.tasks:
                continue
            begin_s = self._begin(slot, schedule.length_s, slot_id in late)
            for name, task_id, start_s, end_s, procs in schedule.tasks:
                rows.append(
                    Placement(
                        workflow=name,
                        task=task_id,
                        replica=replicas.get(name, 0),
                        slot=slot_id,
                        start_s=begin_s + start_s,
                        end_s=begin_s + end_s,
                        procs=procs,
                    )
                )
            for name in schedule.ends_s:
                replicas[name] = replicas.get(name, 0) + 1
        return tuple(rows)

    def _begin(self, slot: Slot, length_s: float, late: bool) -> float:
        latest_s = min(slot.end_s, self.deadline_s) - length_s
        if late:
            sure_s = slot.curve.reaches_s(1.0)
            return max(
                slot.curve.reaches_s(0.0), min(latest_s, max(sure_s, latest_s - 0.25 * sure_s))
            )
        return next(s for share in _SHARES if (s := slot.curve.reaches_s(share)) <= latest_s + 1e-9)
