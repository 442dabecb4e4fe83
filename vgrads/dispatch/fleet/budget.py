"""What the nodes of a dispatcher cost, for which bag, and which must end before a budget is
exceeded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from vgrads.dispatch.core.state import BagState, SlotRequest
from vgrads.dispatch.fleet.site_view import FleetSite
from vgrads.drivers.api import SlotState
from vgrads.kernel.units import billed_usd

RELEASE_S = 30.0
"""A node that cannot be paid any longer is released so long before: the site needs some time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidSlot:
    """A slot whose nodes cost money: from its request until ``ended_s`` (None: it has not
    ended)."""

    id: str
    where: FleetSite
    nodes: int
    since_s: float
    ended_s: float | None

    def cost_usd(self, at_s: float) -> float:
        """Return what it will have cost at an instant."""
        end_s = at_s if self.ended_s is None else self.ended_s
        where = self.where
        return billed_usd(self.nodes, end_s - self.since_s, where.billing_s, where.price)


def list_paid_slots(
    slots: Mapping[str, SlotRequest], sources: Iterable[FleetSite]
) -> tuple[PaidSlot, ...]:
    """Return the slots that cost money. One that the site refused costs nothing; one that was
    released before it was ready may have."""
    by_name = {where.name: where for where in sources if where.price}
    return tuple(
        PaidSlot(
            id=name,
            where=by_name[slot.source],
            nodes=slot.agents,
            since_s=slot.requested_s,
            ended_s=slot.ended_s,
        )
        for name, slot in slots.items()
        if slot.source in by_name
        and not (slot.ended and slot.ready_s is None and slot.state == SlotState.FAILED)
    )


def divide_costs(bags: Sequence[BagState]) -> dict[int, float]:
    """Return which share of the money each bag accounts for: by the processor seconds of its
    tasks; before any has ended, all alike."""
    used = {bag.number: bag.ran_s * bag.procs for bag in bags}
    total = sum(used.values())
    if total > 0.0:
        return {number: seconds / total for number, seconds in used.items()}
    return {bag.number: 1.0 / len(bags) for bag in bags}


class Paid(Protocol):
    """Nodes that cost money since an instant; those that have ended cost no more from then on."""

    @property
    def since_s(self) -> float: ...

    def cost_usd(self, at_s: float, /) -> float: ...


_Nodes = TypeVar("_Nodes", bound=Paid)


def find_unpayable(
    slots: Sequence[PaidSlot], most_usd: float, now_s: float, ahead_s: float
) -> tuple[str, ...]:
    """Return the slots that :func:`must_end`."""
    return tuple(slot.id for slot in must_end(slots, most_usd, now_s, ahead_s))


def must_end(
    nodes: Iterable[_Nodes], most_usd: float, now_s: float, ahead_s: float
) -> tuple[_Nodes, ...]:
    """Return the nodes that must have ended ``ahead_s`` from now, so that all together do not cost
    more than ``most_usd`` then: the newest first, of those that begin a paid period until then."""
    then_s, ordered = now_s + ahead_s, sorted(nodes, key=lambda n: n.since_s, reverse=True)
    total = sum(node.cost_usd(then_s) for node in ordered)
    ending = []
    for node in ordered:
        # the sum of the costs may exceed an exact budget by its rounding
        if total <= most_usd + 1e-9:
            break
        saved = node.cost_usd(then_s) - node.cost_usd(now_s)
        if saved > 0.0:
            total -= saved
            ending.append(node)
    return tuple(ending)
