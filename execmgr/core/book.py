"""What never changes during a run: the plan, looked up from the side of execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from vgrads.drivers.api import SlotSpec
from vgrads.execmgr.engines.base import Pilot
from vgrads.planner.plan import Placement, Plan, SlotUse, in_order
from vgrads.planner.promise.schedule import Schedule, make_schedule
from vgrads.planner.snapshot import CopyKey, Snapshot, TaskKey
from vgrads.workflows.dag import Workflow

_LATE = 0.95
_GRACE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Book:
    """Orders of the slots, copies of the tasks, what each slot must be asked for."""

    plan: Plan
    snapshot: Snapshot
    uses: Mapping[str, SlotUse]
    order: Mapping[str, tuple[CopyKey, ...]]
    placements: Mapping[CopyKey, Placement]
    copies: Mapping[TaskKey, tuple[CopyKey, ...]]

    @cached_property
    def scheduled(self) -> frozenset[str]:
        """Workflows that stand in the plan."""
        return frozenset(placement.workflow for placement in self.plan.placements)

    @cached_property
    def schedule(self) -> tuple[Schedule, list[CopyKey]]:
        """The plan as arrays, and the copies in their order."""
        submits_s = {slot: use.submit_s for slot, use in self.uses.items()}
        schedule, ordered = make_schedule(self.snapshot, self.plan.placements, submits_s)
        return schedule, [p.key for p in ordered]

    @cached_property
    def tasks(self) -> list[TaskKey]:
        """Tasks as the schedule numbers them."""
        return [(w.name, task) for w in self.snapshot.wanted.workflows for task in w.order]

    @cached_property
    def position(self) -> Mapping[CopyKey, int]:
        """Copy → where it stands in its slot's order."""
        return {key: number for keys in self.order.values() for number, key in enumerate(keys)}

    @cached_property
    def overdue_s(self) -> Mapping[str, float]:
        """Slot → when it gives cause to think again if it is still not ready: 19 of 20 are ready by
        then."""
        return {slot: _overdue_s(use) for slot, use in self.uses.items()}

    @property
    def released(self) -> bool:
        """True where tasks begin only when they are released."""
        return self.snapshot.wanted.released

    def workflow(self, key: CopyKey) -> Workflow:
        """The workflow that a copy belongs to."""
        return self.snapshot.workflow_by_name[key[0]]

    def slot_of(self, key: CopyKey) -> str:
        """The slot that a copy is planned in."""
        return self.placements[key].slot

    def place(self, slot: str) -> str:
        """The site of a slot."""
        return self.uses[slot].slot.site

    def site_of(self, key: CopyKey) -> str:
        """The site that a copy is planned at."""
        return self.place(self.slot_of(key))

    def duration_s(self, key: CopyKey) -> float:
        """Planned run time of a copy where it is planned."""
        placement = self.placements[key]
        return placement.end_s - placement.start_s

    def median_s(self, key: CopyKey) -> float:
        """Median run time of a copy where it is planned."""
        speed = self.uses[self.slot_of(key)].slot.speed
        return self.snapshot.task(key[:2]).runtime_s / speed

    def held_s(self, slot_id: str) -> float:
        """How long a slot is asked for: if it is ready at once, it must still last to its end."""
        use = self.uses[slot_id]
        return use.slot.end_s - use.submit_s

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """What to ask the slot's site for; the id carries the run, so that asking twice is once."""
        slot = self.uses[slot_id].slot
        environment = {"VGRADS_SLOT_NAME": slot_id, **pilot.environment} if pilot else {}
        return SlotSpec(
            id=spec_id(slot_id, run),
            name=slot_id,
            site=slot.site,
            queue=slot.queue,
            procs=slot.procs,
            duration_s=self.held_s(slot_id),
            nodes=slot.nodes,
            node_type=slot.node_type,
            environment=environment,
            pilot=pilot.command if pilot else "",
        )


def _overdue_s(use: SlotUse) -> float:
    ready_s = float(use.slot.curve.ready_at(_LATE * use.slot.curve.best))
    later_s = 0.0 if use.slot.fixed else use.submit_s
    return max(use.start_s, later_s + ready_s) + _GRACE_S


def spec_id(slot_id: str, run: str, again: int = 0) -> str:
    """The id under which a site knows a slot of a run; ``again``: how often it was asked for
    anew."""
    return f"{run}.{slot_id}.again{again}" if again else f"{run}.{slot_id}"


def amend(book: Book, plan: Plan, snapshot: Snapshot, settled: frozenset[CopyKey]) -> Book:
    """The book after replanning: ``plan`` and ``snapshot`` hold the old and the new.

    A slot's order is what has started or ended there (``settled``), as before, then what is new.
    """
    whole = make_book(plan, snapshot)
    order = {}
    for slot, keys in whole.order.items():
        before = tuple(key for key in book.order.get(slot, ()) if key in settled)
        order[slot] = (*before, *(key for key in keys if key not in book.placements))
    return replace(whole, order=order)


def make_book(plan: Plan, snapshot: Snapshot) -> Book:
    """Index a plan; copies of a slot stand in the order of their planned starts."""
    order: dict[str, list[Placement]] = {use.slot.id: [] for use in plan.uses}
    copies: dict[TaskKey, list[CopyKey]] = {}
    for placement in in_order(plan.placements, snapshot):
        order[placement.slot].append(placement)
        copies.setdefault(placement.task_key, []).append(placement.key)
    return Book(
        plan=plan,
        snapshot=snapshot,
        uses={use.slot.id: use for use in plan.uses},
        order={slot: tuple(p.key for p in placed) for slot, placed in order.items()},
        placements={p.key: p for p in plan.placements},
        copies={key: tuple(found) for key, found in copies.items()},
    )
