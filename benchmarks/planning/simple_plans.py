"""Plans that need no planner: rules that anybody could follow, for comparison with ours.

All place whole workflows, each in one slot, by list scheduling in the order of their tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vgrads.kernel.profile import Profile
from vgrads.planner.plan import Placement
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow

Placements = tuple[Placement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimplePlan:
    """The placements of a rule, by its name."""

    rule: str
    placements: Placements


def simple_plans(snapshot: Snapshot) -> Iterator[SimplePlan]:
    """Return the plans of all rules that place anything; one for each site of ``single site``."""
    slots = snapshot.slots
    paid = [slot for slot in slots if slot.paid]
    free = [slot for slot in slots if not slot.paid]
    rules = [
        ("everywhere, half", everywhere(snapshot, slots, 0.5)),
        ("everywhere, three quarters", everywhere(snapshot, slots, 0.75)),
        ("all cloud", everywhere(snapshot, paid, 1.0)),
        ("one replica each", single_replicas(snapshot, slots)),
        ("race, then cloud", race_then_cloud(snapshot, free, paid)),
    ]
    for site in sorted({slot.site for slot in slots}):
        here = [slot for slot in slots if slot.site == site]
        rules.append((f"single site {site}", everywhere(snapshot, here, 0.5)))
    for rule, placements in rules:
        if placements:
            yield SimplePlan(rule=rule, placements=placements)


def everywhere(snapshot: Snapshot, slots: Iterable[Slot], share: float) -> Placements:
    """A complete replica of every workflow in every slot in which it fits, from the instant at
    which the probability that the slot is ready reaches this share of its maximum."""
    rows = _Rows(snapshot)
    for slot in slots:
        begin_s = ready_by(slot, share)
        for name in snapshot.by_length if begin_s < math.inf else ():
            rows.add(name, slot, begin_s)
    return tuple(rows.placements)


def single_replicas(snapshot: Snapshot, slots: Sequence[Slot]) -> Placements:
    """One replica of every workflow, in the slot that is most probably ready at its start; of equal
    ones in the cheapest, then in the emptiest."""
    rows = _Rows(snapshot)
    for name in snapshot.by_length:
        ranked = sorted(
            (slot for slot in slots if ready_by(slot, 0.75) < math.inf),
            key=lambda s: (
                -round(0.75 * s.curve.best * s.up, 2),
                s.price_usd_per_hour * s.nodes,
                rows.count(s),
                s.id,
            ),
        )
        any(rows.add(name, slot, ready_by(slot, 0.75)) for slot in ranked)
    return tuple(rows.placements)


def race_then_cloud(snapshot: Snapshot, free: Sequence[Slot], paid: Sequence[Slot]) -> Placements:
    """Every workflow in every free slot, and the needed number also in paid slots, one in each, as
    late as it would still be in time."""
    rows = _Rows(snapshot)
    for slot in free:
        begin_s = ready_by(slot, 0.5)
        for name in snapshot.by_length if begin_s < math.inf else ():
            rows.add(name, slot, begin_s)
    unused = list(paid)
    for name in snapshot.by_length[: snapshot.workflow_set.needed]:
        for slot in list(unused):
            ends_s = rows.schedule(snapshot.workflow_by_name[name], slot, 0.0)
            if ends_s is None or ready_by(slot, 1.0) == math.inf:
                continue
            limit_s = min(slot.end_s, snapshot.workflow_set.deadline_s)
            latest_s = limit_s - max(end_s for _, end_s in ends_s.values())
            begin_s = max(ready_by(slot, 1.0), latest_s - 0.25 * ready_by(slot, 1.0))
            if rows.add(name, slot, begin_s):
                unused.remove(slot)
                break
    return tuple(rows.placements)


def ready_by(slot: Slot, share: float) -> float:
    """Return the first instant at which the slot is ready with this share of its highest
    probability; ``inf`` if it never is."""
    if slot.curve.best <= 0:
        return math.inf
    return float(slot.curve.ready_at(share * slot.curve.best))


class _Rows:
    """Placements so far, with the free processors of each slot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.placements: list[Placement] = []
        self._profiles = {s.id: Profile(s.procs, s.end_s) for s in snapshot.slots}
        self._replicas: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def count(self, slot: Slot) -> int:
        return self._counts.get(slot.id, 0)

    def add(self, name: str, slot: Slot, begin_s: float) -> bool:
        """Add a replica of a workflow if it fits by the deadline."""
        workflow = self.snapshot.workflow_by_name[name]
        times_s = self.schedule(workflow, slot, begin_s)
        if times_s is None:
            return False
        replica = self._replicas.get(name, 0)
        self._replicas[name] = replica + 1
        self._counts[slot.id] = self.count(slot) + 1
        rows = []
        for task_id, (start_s, end_s) in times_s.items():
            procs = workflow.tasks[task_id].procs
            rows.append((start_s, end_s, procs))
            self.placements.append(
                Placement(
                    workflow=name,
                    task=task_id,
                    replica=replica,
                    slot=slot.id,
                    start_s=start_s,
                    end_s=end_s,
                    procs=procs,
                )
            )
        for row in rows:
            self._profiles[slot.id].add(*row)
        return True

    def schedule(
        self, workflow: Workflow, slot: Slot, begin_s: float
    ) -> dict[str, tuple[float, float]] | None:
        """Return start and end of each task; None if one does not fit."""
        if not all(slot.holds(task.needs) for task in workflow.tasks.values()):
            return None
        profile, times_s = self._profiles[slot.id], dict[str, tuple[float, float]]()
        limit_s = min(slot.end_s, self.snapshot.workflow_set.deadline_s)
        reserved: list[tuple[float, float, int]] = []
        for task_id in workflow.order:
            task = workflow.tasks[task_id]
            ready_s = max((times_s[p][1] for p in task.parents), default=begin_s)
            length_s = self.snapshot.duration_s(task, slot)
            start_s = profile.earliest_fit(ready_s, length_s, task.procs, limit_s)
            if start_s is None:
                _take_back(profile, reserved)
                return None
            times_s[task_id] = start_s, start_s + length_s
            reserved.append((start_s, start_s + length_s, task.procs))
            profile.add(*reserved[-1])
        _take_back(profile, reserved)
        return times_s


def _take_back(profile: Profile, reserved: Sequence[tuple[float, float, int]]) -> None:
    for start_s, end_s, procs in reserved[::-1]:
        profile.add(start_s, end_s, -procs)
