"""Slots that placements use: when each is requested, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgrads.planner.plan import Placement, SlotUse, order_by_queue
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.binding import price_request
from vgrads.vgrid.slot import Slot


def derive_slot_uses(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[SlotUse, ...]:
    """Return the use of each slot by these replicas, requested as late as possible without loss of
    probability or of the order in its queue."""
    by_slot: dict[str, list[tuple[float, float]]] = {}
    for p in placements:
        by_slot.setdefault(p.slot, []).append((p.start_s, p.end_s))
    return order_by_queue(_use(s, by_slot[s.id]) for s in snapshot.slots if s.id in by_slot)


def _use(slot: Slot, times_s: Sequence[tuple[float, float]]) -> SlotUse:
    begin_s, last_s = min(a for a, _ in times_s), max(b for _, b in times_s)
    request = price_request(slot, times_s)
    return SlotUse(
        slot=slot,
        submit_s=request.submit_s,
        start_s=begin_s,
        end_s=last_s if slot.paid else slot.end_s,
        probability=slot.curve.by(begin_s) * slot.up,
        cost_usd=request.usd,
    )
