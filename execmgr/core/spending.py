"""What the slots of a run cost."""

from __future__ import annotations

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import RunState, SlotRecord
from vgrads.planner.plan import SlotUse


def sum_spent_usd(execution: ExecutionPlan, state: RunState) -> float:
    """Return what the slots have cost, those that are open as planned."""
    return sum(
        _compute_cost_usd(execution.uses[slot], record) for slot, record in state.slots.items()
    )


def _compute_cost_usd(use: SlotUse, record: SlotRecord) -> float:
    if record.ended_s is None:
        return 0.0 if record.requested_s is None else use.cost_usd
    if record.ready_s is None:
        return 0.0
    return use.slot.cost_usd(record.ended_s - record.ready_s)
