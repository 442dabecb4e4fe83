"""Observations of a run about its sites: each slot from request to end.

Slots that failed because of a configuration error are no evidence about later slots.
"""

from __future__ import annotations

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import RunState, SlotRecord
from vgrads.vgrid.acquisition import Acquisition


def list_acquisitions(execution: ExecutionPlan, state: RunState) -> list[Acquisition]:
    """Return the requested slots, ordered by id."""
    records = ((slot, record) for slot, record in sorted(state.slots.items()))
    return [
        _make_acquisition(execution, slot, record)
        for slot, record in records
        if record.requested_s is not None and not record.permanent
    ]


def _make_acquisition(execution: ExecutionPlan, slot_id: str, record: SlotRecord) -> Acquisition:
    slot, failed = execution.uses[slot_id].slot, record.state == SlotState.FAILED
    # a slot that was ready when its grant was first seen was ready at once
    granted_s = record.ready_s if record.granted_s is None else record.granted_s
    return Acquisition(
        site=slot.site,
        queue=slot.queue,
        procs=slot.procs,
        requested_s=record.requested_s or 0.0,
        granted_s=granted_s,
        ready_s=record.ready_s,
        ended_s=record.ended_s,
        refused=failed and granted_s is None,
        broken=failed and granted_s is not None,
    )
