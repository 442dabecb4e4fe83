"""What a run teaches about its sites: each slot from request to end.

What failed for something written down wrong says nothing of how the next slot will fare.
"""

from __future__ import annotations

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import RunState, SlotRecord
from vgrads.vgrid.acquisition import Acquisition


def acquisitions(book: Book, state: RunState) -> list[Acquisition]:
    """The slots that were asked for, in the order of their ids."""
    asked = ((slot, record) for slot, record in sorted(state.slots.items()))
    return [
        _acquisition(book, slot, record)
        for slot, record in asked
        if record.asked_s is not None and not record.permanent
    ]


def _acquisition(book: Book, slot_id: str, record: SlotRecord) -> Acquisition:
    slot, failed = book.uses[slot_id].slot, record.state == SlotState.FAILED
    granted = record.granted_s is not None or record.ready_s is not None
    return Acquisition(
        site=slot.site,
        queue=slot.queue,
        procs=slot.procs,
        requested_s=record.asked_s or 0.0,
        granted_s=record.granted_s,
        ready_s=record.ready_s,
        ended_s=record.ended_s,
        refused=failed and not granted,
        broken=failed and granted,
    )
