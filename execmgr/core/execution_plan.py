"""The constant part of a run: the plan, indexed for execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from vgrads.drivers.api import SlotSpec
from vgrads.execmgr.pilots import Pilot
from vgrads.execmgr.slot_names import spec_id
from vgrads.planner.plan import Placement, Plan, SlotUse, order_replicas
from vgrads.planner.schedule import Schedule, make_schedule
from vgrads.planner.snapshot import ReplicaKey, Snapshot, TaskKey
from vgrads.workflows.dag import Workflow

_LATE = 0.75
_GRACE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ExecutionPlan:
    """Order of each slot, replicas of the tasks, and the request for each slot."""

    plan: Plan
    snapshot: Snapshot
    uses: Mapping[str, SlotUse]
    order: Mapping[str, tuple[ReplicaKey, ...]]
    placements: Mapping[ReplicaKey, Placement]
    replicas: Mapping[TaskKey, tuple[ReplicaKey, ...]]

    @cached_property
    def scheduled(self) -> frozenset[str]:
        """Workflows in the plan."""
        return frozenset(placement.workflow for placement in self.plan.placements)

    @cached_property
    def schedule(self) -> tuple[Schedule, list[ReplicaKey]]:
        """The plan as arrays, and the replicas in their order."""
        submits_s = {slot: use.submit_s for slot, use in self.uses.items()}
        schedule, ordered = make_schedule(self.snapshot, self.plan.placements, submits_s)
        return schedule, [p.key for p in ordered]

    @cached_property
    def replica_numbers(self) -> Mapping[ReplicaKey, int]:
        """Replica → its row in the schedule."""
        return {key: number for number, key in enumerate(self.schedule[1])}

    @cached_property
    def task_numbers(self) -> Mapping[TaskKey, int]:
        """Task → its row in the schedule."""
        workflows = self.snapshot.workflow_set.workflows
        return {
            task: number
            for number, task in enumerate((w.name, task) for w in workflows for task in w.order)
        }

    @cached_property
    def position(self) -> Mapping[ReplicaKey, int]:
        """Replica → position in its slot's order."""
        return {key: number for keys in self.order.values() for number, key in enumerate(keys)}

    @cached_property
    def slot_numbers(self) -> Mapping[str, int]:
        """Slot → its number in the plan's order."""
        return {slot: number for number, slot in enumerate(self.order)}

    @cached_property
    def overdue_s(self) -> Mapping[str, float]:
        """Slot → when it is overdue if not ready, which leads to replanning: three of four are
        ready by then."""
        return {slot: _compute_overdue_s(use) for slot, use in self.uses.items()}

    @cached_property
    def released(self) -> bool:
        """True if tasks start only when they are released."""
        return self.snapshot.workflow_set.released

    def workflow(self, key: ReplicaKey) -> Workflow:
        """Return the workflow of a replica."""
        return self.snapshot.workflow_by_name[key[0]]

    def slot_of(self, key: ReplicaKey) -> str:
        """Return the planned slot of a replica."""
        return self.placements[key].slot

    def place(self, slot: str) -> str:
        """Return the site of a slot."""
        return self.uses[slot].slot.site

    def procs(self, slot: str) -> int:
        """Return the processors of a slot."""
        return self.uses[slot].slot.procs

    def site_of(self, key: ReplicaKey) -> str:
        """Return the planned site of a replica."""
        return self.place(self.slot_of(key))

    def median_s(self, key: ReplicaKey) -> float:
        """Return the median run time of a replica at its planned site."""
        speed = self.uses[self.slot_of(key)].slot.speed
        return self.snapshot.task(key[:2]).runtime_s / speed

    def slot_duration_s(self, slot_id: str) -> float:
        """Return the requested duration of a slot: if it is ready at once, it must still last to
        its end."""
        use = self.uses[slot_id]
        return use.slot.end_s - use.submit_s

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """Return the request for a slot; the id contains the run, so submission is idempotent."""
        slot = self.uses[slot_id].slot
        environment = pilot.environment if pilot else {}
        return SlotSpec(
            id=spec_id(slot_id, run),
            name=slot_id,
            site=slot.site,
            queue=slot.queue,
            procs=slot.procs,
            duration_s=self.slot_duration_s(slot_id),
            nodes=slot.nodes,
            every_node=slot.nodes > 1,
            node_type=slot.node_type,
            environment=environment,
            pilot=pilot.command if pilot else "",
        )


def _compute_overdue_s(use: SlotUse) -> float:
    return use.slot.zero_s(use.submit_s) + use.slot.curve.reaches_s(_LATE) + _GRACE_S


def amend(
    execution: ExecutionPlan, plan: Plan, snapshot: Snapshot, settled: frozenset[ReplicaKey]
) -> ExecutionPlan:
    """Return the execution plan after replanning: ``plan`` and ``snapshot`` hold the old and the
    new.

    A slot's order is the replicas that have started or ended there (``settled``), as before, then
    the new ones.
    """
    whole = make_execution(plan, snapshot)
    order = {}
    for slot, keys in whole.order.items():
        before = tuple(key for key in execution.order.get(slot, ()) if key in settled)
        order[slot] = (*before, *(key for key in keys if key not in execution.placements))
    return replace(whole, order=order)


def make_execution(plan: Plan, snapshot: Snapshot) -> ExecutionPlan:
    """Index a plan; replicas of a slot are in the order of their planned starts."""
    order: dict[str, list[ReplicaKey]] = {use.slot.id: [] for use in plan.uses}
    placements: dict[ReplicaKey, Placement] = {}
    replicas: dict[TaskKey, tuple[ReplicaKey, ...]] = {}
    for placement in order_replicas(plan.placements, snapshot):
        key, task = placement.key, placement.task_key
        placements[key] = placement
        order[placement.slot].append(key)
        replicas[task] = (*replicas.get(task, ()), key)
    return ExecutionPlan(
        plan=plan,
        snapshot=snapshot,
        uses={use.slot.id: use for use in plan.uses},
        order={slot: tuple(keys) for slot, keys in order.items()},
        placements=placements,
        replicas=replicas,
    )
