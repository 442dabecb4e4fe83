"""Windows of time in slots: those that are ready or paid for, and machines that can be
requested."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vgrads.planner.placement.draft import Draft
from vgrads.vgrid.binding import LOSS, price_request
from vgrads.vgrid.slot import Slot
from vgrads.vgrid.varq import STEP_S

_HOLDS = 6  # further durations tried after the first few billing units


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A slot from ``begin_s`` to ``end_s``; ``requested_s``: its request, from which it is paid
    for; ``opened``: paid for only if used."""

    slot: Slot
    requested_s: float
    begin_s: float
    end_s: float
    opened: bool = False

    def requested_at(self, first_s: float) -> float:
        """Return when it is requested if nothing starts in it before ``first_s``."""
        if self.slot.fixed:
            return self.requested_s
        lead_s = self.begin_s - self.requested_s
        return max(self.requested_s, (first_s - lead_s) // STEP_S * STEP_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidSlots:
    """Equal unused paid slots, certainly ready ``lead_s`` after their request."""

    slots: tuple[Slot, ...]
    lead_s: float

    @property
    def unit_usd(self) -> float:
        """Price of one billing unit."""
        return self.slots[0].cost_usd(self.slots[0].billing_s)

    def useful_s(self, units: int) -> float:
        """Return the processor-seconds, at speed 1, of one machine held for these units."""
        slot = self.slots[0]
        duration_s = min(units * slot.billing_s, slot.end_s)
        return max(0.0, duration_s - self.lead_s) * slot.procs * slot.speed

    def holds(self, deadline_s: float) -> Sequence[int]:
        """Return the numbers of billing units that a machine may be held for: the first few, then
        coarser up to the deadline."""
        slot = self.slots[0]
        # at least one unit beyond the lead: in fewer no task could run
        fewest = math.floor(self.lead_s / slot.billing_s) + 1
        most = max(fewest, math.ceil(min(slot.end_s, deadline_s) / slot.billing_s))
        if most - fewest < _HOLDS:
            return range(fewest, most + 1)
        return sorted({round(n) for n in np.geomspace(fewest, most, _HOLDS)})

    def hired(self, total: int, units: int, spread_s: float, deadline_s: float) -> Iterator[Window]:
        """Return windows of machines with ``total`` billing units together, each held for ``units``
        and the last for the rest, requested one after the other over ``spread_s``, or less if the
        deadline requires it."""
        whole, rest = divmod(total, units)
        lengths = [*[units] * whole, *([rest] if rest else [])][: len(self.slots)]
        for n, (slot, length) in enumerate(zip(self.slots, lengths, strict=False)):
            limit_s = min(slot.end_s, deadline_s)
            later_s = spread_s * n / max(1, len(lengths) - 1)
            later_s = max(0.0, min(later_s, limit_s - length * slot.billing_s))
            requested_s = slot.submit_s if slot.fixed else later_s // STEP_S * STEP_S
            begin_s = self.lead_s if slot.fixed else requested_s + self.lead_s
            end_s = min(limit_s, requested_s + length * slot.billing_s)
            if end_s > begin_s:
                yield Window(
                    slot=slot, requested_s=requested_s, begin_s=begin_s, end_s=end_s, opened=True
                )


def lead_s(slot: Slot, share: float = 1.0) -> float:
    """Return the time after its request at which a slot is ready with this share of its best
    probability; in whole seconds."""
    return float(math.ceil(slot.curve.ready_at(max(0.0, share * slot.curve.best - LOSS))))


def machines(draft: Draft, slots: Iterable[Slot], share: float = 1.0) -> list[PaidSlots]:
    """Return unused paid slots, equal ones grouped; those with the highest use per cost first."""
    results: dict[tuple[object, ...], list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.paid and slot.curve.best > 0 and not draft.slots.placed(slot.id):
            alike = (
                slot.site,
                slot.queue,
                slot.procs,
                slot.speed,
                slot.price_usd_per_hour,
                slot.billing_s,
                slot.nodes,
                slot.memory_mib,
                slot.resources,
                slot.end_s,
                slot.up,
                slot.curve.best,
                slot.fixed,
                slot.submit_s,
                lead_s(slot, share),
            )
            results[alike].append(slot)
    kinds = [
        PaidSlots(slots=tuple(same), lead_s=lead_s(same[0], share)) for same in results.values()
    ]
    return sorted(
        kinds,
        key=lambda k: k.unit_usd / (k.slots[0].billing_s * k.slots[0].procs * k.slots[0].speed),
    )


def open_windows(draft: Draft, slots: Iterable[Slot]) -> list[Window]:
    """Return windows without additional cost: billing units that are paid for, and free slots from
    the milestone that promises most time."""
    results = []
    deadline_s = draft.snapshot.workflow_set.deadline_s
    for slot in slots:
        placed = draft.slots.placed(slot.id)
        if slot.paid and placed:
            requested_s = price_request(slot, [(p.start_s, p.end_s) for p in placed]).submit_s
            # rounding must not add a unit to a task that ends exactly with one
            units = math.ceil((max(p.end_s for p in placed) - requested_s) / slot.billing_s - 1e-9)
            end_s = min(slot.end_s, deadline_s, requested_s + units * slot.billing_s)
            begin_s = lead_s(slot) + (0.0 if slot.fixed else requested_s)
            results.append(Window(slot=slot, requested_s=requested_s, begin_s=begin_s, end_s=end_s))
        elif not slot.paid and slot.curve.milestones:
            end_s = min(slot.end_s, deadline_s)
            begin_s, _ = max(slot.curve.milestones, key=lambda m: m[1] * (end_s - m[0]))
            results.append(Window(slot=slot, requested_s=0.0, begin_s=begin_s, end_s=end_s))
    return [window for window in results if window.end_s > window.begin_s]
