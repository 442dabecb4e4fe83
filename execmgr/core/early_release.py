"""Work of a run that is superfluous, by the plan's own rule (:mod:`vgrads.planner.rules`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import LIVE, Delivery, ReplicaRecord, SlotRecord
from vgrads.kernel.arrays import Bools
from vgrads.kernel.units import format_chance, format_count
from vgrads.planner.plan import EVERYTHING, order_replicas
from vgrads.planner.rules import superfluous
from vgrads.planner.snapshot import ReplicaKey, TaskKey


class RunView(Protocol):
    """State of a run."""

    @property
    def slots(self) -> Mapping[str, SlotRecord]:
        """Slots by name."""

    @property
    def replicas(self) -> Mapping[ReplicaKey, ReplicaRecord]:
        """Replicas by key."""

    @property
    def done(self) -> Mapping[TaskKey, Delivery]:
        """Completed tasks."""


def released_early(
    execution: ExecutionPlan, run: RunView, whole: int
) -> tuple[list[ReplicaKey], str]:
    """Return the waiting or running replicas that are superfluous, and the reason as text;
    ``whole``: number of workflows that are done."""
    plan = execution.plan
    if whole >= plan.needed:
        words = (
            f"{format_count(whole, 'workflow', 'are')} done, {plan.needed} are needed: the "
            "rest is released"
        )
        return _list_live(execution, run), words
    if plan.spare_workflows >= EVERYTHING:
        return [], ""
    words = (
        f"{format_count(plan.needed + plan.spare_workflows, 'workflow', 'are')} placed in "
        "available slots, "
        f"{plan.needed} are needed: "
        "the rest is released early; with this rule the plan promised "
        f"{format_chance(plan.promise.probability)}"
    )
    return _list_superfluous(execution, run, whole), words


def _list_live(execution: ExecutionPlan, run: RunView) -> list[ReplicaKey]:
    """Return the replicas that wait or run, in the schedule's order."""
    live = [execution.placements[key] for key, r in run.replicas.items() if r.state in LIVE]
    numbers = {slot: number for number, slot in enumerate(execution.uses)}
    ordered = order_replicas(live, execution.snapshot)
    return [placement.key for placement in sorted(ordered, key=lambda p: numbers[p.slot])]


def _list_superfluous(execution: ExecutionPlan, run: RunView, whole: int) -> list[ReplicaKey]:
    """Return the live replicas that the plan does not need as long as its ready slots last."""
    plan, (schedule, keys) = execution.plan, execution.schedule
    ready = np.array([run.slots[slot].state == SlotState.READY for slot in execution.uses])
    late_s = np.zeros(len(ready))
    for n, slot in enumerate(execution.uses):
        came_s = run.slots[slot].ready_s
        if ready[n] and came_s is not None:
            first = schedule.replicas[schedule.slots[n].first_at]
            late_s[n] = max(0.0, came_s - first.start_s)
    replicas, tasks = execution.replica_numbers, execution.task_numbers
    live = _mark_numbers(
        len(keys), [replicas[k] for k, r in run.replicas.items() if r.state in LIVE]
    )
    done = _mark_numbers(len(tasks), [tasks[task] for task in run.done])
    spare_workflows = np.zeros(len(keys), np.bool_)
    limits = np.array([whole, plan.needed, plan.spare_workflows, plan.deadline_s])
    judge = superfluous.after(len(keys) * (len(ready) + 2))
    if not judge(schedule, ready, live, done, late_s, limits, spare_workflows):
        return []
    return [key for key, is_spare in zip(keys, spare_workflows, strict=True) if is_spare]


def _mark_numbers(count: int, numbers: list[int]) -> Bools:
    """Return an array that is true at these numbers."""
    result = np.zeros(count, np.bool_)
    result[numbers] = True
    return result
