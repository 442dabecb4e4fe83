"""What never changes during a run: the plan, looked up from the side of execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drivers.api import SlotSpec
from planner.plan import Placement, Plan, SlotUse
from planner.snapshot import CopyKey, Snapshot, TaskKey
from workflows.dag import Workflow


@dataclass(frozen=True, kw_only=True)
class Book:
    """Orders of the slots, copies of the tasks, what each slot must be asked for."""

    plan: Plan
    snapshot: Snapshot
    uses: Mapping[str, SlotUse]
    order: Mapping[str, tuple[CopyKey, ...]]
    placements: Mapping[CopyKey, Placement]
    copies: Mapping[TaskKey, tuple[CopyKey, ...]]

    def workflow(self, key: CopyKey) -> Workflow:
        """The workflow that a copy belongs to."""
        return self.snapshot.workflow_by_name[key[0]]

    def slot_of(self, key: CopyKey) -> str:
        """The slot that a copy is planned in."""
        return self.placements[key].slot

    def site_of(self, key: CopyKey) -> str:
        """The site that a copy is planned at."""
        return self.uses[self.slot_of(key)].slot.site

    def duration_s(self, key: CopyKey) -> float:
        """Planned run time of a copy where it is planned."""
        placement = self.placements[key]
        return placement.end_s - placement.start_s

    def spec(self, slot_id: str, run: str) -> SlotSpec:
        """What to ask the slot's site for; the id carries the run, so that asking twice is once."""
        use = self.uses[slot_id]
        return SlotSpec(
            id=f"{run}.{slot_id}",
            name=slot_id, site=use.slot.site, queue=use.slot.queue, procs=use.slot.procs,
            duration_s=use.end_s - use.submit_s if not use.slot.paid else use.slot.end_s - use.submit_s,
        )  # fmt: skip


def make_book(plan: Plan, snapshot: Snapshot) -> Book:
    """Index a plan; copies of a slot stand in the order of their planned starts."""
    order: dict[str, list[Placement]] = {use.slot.id: [] for use in plan.uses}
    copies: dict[TaskKey, list[CopyKey]] = {}
    for placement in sorted(plan.placements, key=lambda p: (p.start_s, p.end_s, p.key)):
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
