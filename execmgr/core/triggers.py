"""Conditions for replanning: queries about a run, answered from the execution plan and the run's
state."""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import find_first_lost
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import SlotRecord
from vgrads.kernel.units import format_count
from vgrads.planner.snapshot import TaskKey

_UNREADY = (SlotState.REQUESTED, SlotState.QUEUED, SlotState.GRANTED)


def explain_shortfall(execution: ExecutionPlan, lost: Mapping[TaskKey, str]) -> str:
    """Return why the promise is broken without replanning; empty while enough workflows are
    left."""
    if not lost:
        return ""
    broken = {workflow for workflow, _ in lost}
    left, needed = sum(name not in broken for name in execution.scheduled), execution.plan.needed
    if left >= needed:
        return ""
    (workflow, task), why = find_first_lost(lost)
    return (
        f"{format_count(left, 'workflow', 'are')} left, {needed} are needed; "
        f"{workflow}/{task}: {why}"
    )


def is_beyond_help(execution: ExecutionPlan, faulty: Mapping[TaskKey, str]) -> bool:
    """True if too many workflows have a task that fails by itself: no plan can keep the promise any
    more."""
    if not faulty:
        return False
    broken = {workflow for workflow, _ in faulty}
    workflow_set = execution.snapshot.workflow_set
    return len(workflow_set.workflows) - len(broken) < workflow_set.needed


def find_first_overdue_s(execution: ExecutionPlan, slots: Mapping[str, SlotRecord]) -> float:
    """Return when the first slot is overdue if nothing changes; ``inf`` if none can be."""
    return min(
        (execution.overdue_s[slot] for slot, record in slots.items() if _may_be_overdue(record)),
        default=float("inf"),
    )


def _may_be_overdue(record: SlotRecord) -> bool:
    return record.state in _UNREADY and not record.overdue and not record.closing


def find_overdue_slots(
    execution: ExecutionPlan, slots: Mapping[str, SlotRecord], now_s: float
) -> list[str]:
    """Return the slots that should be ready by now, are not, and were not yet recorded as
    overdue."""
    return [
        slot
        for slot, record in slots.items()
        if _may_be_overdue(record) and now_s >= execution.overdue_s[slot]
    ]
