"""Reservations in slots by placements: free processors over time, and cost of the slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from vgrads.kernel.profile import Profile
from vgrads.planner.plan import Placement
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.binding import priced


class Bookings:
    """The calendar of every slot, and its placements."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._slots = snapshot.slot_by_id
        self._calendars = {slot.id: Profile(slot.procs, slot.end_s) for slot in snapshot.slots}
        self._placed: defaultdict[str, list[Placement]] = defaultdict(list)

    def calendar(self, slot_id: str) -> Profile:
        """Return the free processors of a slot over time."""
        return self._calendars[slot_id]

    def placed(self, slot_id: str) -> list[Placement]:
        """Return the replicas placed in a slot."""
        return self._placed[slot_id]

    def add(self, placements: Sequence[Placement]) -> None:
        """Reserve processors for replicas."""
        by_slot = defaultdict[str, list[Placement]](list)
        for p in placements:
            by_slot[p.slot].append(p)
        for slot_id, own in by_slot.items():
            self._placed[slot_id] += own
            self._calendars[slot_id].add_all([(p.start_s, p.end_s, p.procs) for p in own])

    def take_back(self, placements: Sequence[Placement]) -> None:
        """Undo :meth:`add` for the replicas that were added last, the newest first."""
        by_slot = defaultdict[str, list[tuple[float, float, int]]](list)
        for p in placements:
            by_slot[p.slot].append((p.start_s, p.end_s, -p.procs))
        for slot_id, rows in by_slot.items():
            del self._placed[slot_id][-len(rows) :]
            self._calendars[slot_id].add_all(rows)

    def slot_usd(self, slot_id: str) -> float:
        """Return the cost in USD of holding a slot from its request to the end of its last task."""
        slot, placed = self._slots[slot_id], self._placed[slot_id]
        if not slot.paid or not placed:
            return 0.0
        return priced(slot, [(p.start_s, p.end_s) for p in placed]).usd

    @property
    def cost_usd(self) -> float:
        """Return the cost in USD of all slots used."""
        return sum(self.slot_usd(slot_id) for slot_id in self._calendars)
