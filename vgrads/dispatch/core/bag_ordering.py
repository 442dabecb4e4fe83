"""The order of bags for a kind of agent, cached for the next agent of that kind and updated
incrementally."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from vgrads.dispatch.core.advertising import Ad
from vgrads.policies.names import look_up

_LEAST_LOG = 64
Row = list[tuple[float, int]]
"""Bags of an owner: (minus rank, number), sorted."""
Rank = Callable[[int], float | None]
"""Returns a bag's rank of the agent; None where it does not fit."""


@dataclass(slots=True)
class BagOrdering:
    """The order of bags for a kind of agent. ``upto``: changes processed; ``owners``: those who may
    have bags for it; ``rows``: of the owners requested so far; ``values``: the rank of equal bags.
    """

    upto: int
    owners: dict[str, None]
    rows: dict[str, Row] = field(default_factory=dict)
    places: dict[int, tuple[str, float]] = field(default_factory=dict)
    values: dict[Any, float | None] = field(default_factory=dict)

    def put(self, number: int, owner: str, rank: float) -> None:
        """Add a bag that fits."""
        self.places[number] = (owner, rank)
        insort(self.rows[owner], (-rank, number))
        self.owners[owner] = None

    def drop(self, number: int) -> None:
        """Remove a bag that is gone or must be evaluated again."""
        place = self.places.pop(number, None)
        if place is not None:
            row = self.rows[place[0]]
            del row[bisect_left(row, (-place[1], number))]
            if not row:
                self.owners.pop(place[0], None)


@dataclass(slots=True)
class BagGroup:
    """Bags whose dispatch policies read the same attributes of an agent: other attributes do not
    affect their order.

    ``members``: bag → owner; ``owners``: their bags; ``log``: changed members, for orders to catch
    up; ``orders``: by the values read.
    """

    names: tuple[str, ...]
    members: dict[int, str] = field(default_factory=dict)
    owners: dict[str, dict[int, None]] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)
    orders: dict[Any, BagOrdering] = field(default_factory=dict)

    def take(self, number: int, owner: str) -> None:
        """Add a bag, or mark it as changed."""
        self.members[number] = owner
        self.owners.setdefault(owner, {})[number] = None
        self._changed(number)

    def leave(self, number: int) -> None:
        """Remove a bag."""
        owner = self.members.pop(number)
        del self.owners[owner][number]
        if not self.owners[owner]:
            del self.owners[owner]
        self._changed(number)

    def _changed(self, number: int) -> None:
        """Mark a bag for evaluation in all orders; all orders at once where that is cheaper."""
        self.log.append(number)
        if len(self.log) > max(_LEAST_LOG, len(self.members)):
            self.orders.clear()
            self.log.clear()

    def catch_up(self, order: BagOrdering, rank: Rank) -> None:
        """Apply the changes since the last use of an order."""
        if order.upto == len(self.log):
            return
        for number in dict.fromkeys(self.log[order.upto :]):
            order.drop(number)
            owner = self.members.get(number)
            if owner is None:
                continue
            if owner not in order.rows:
                order.owners[owner] = None
            elif (value := rank(number)) is not None:
                order.put(number, owner, value)
        order.upto = len(self.log)

    def row(self, order: BagOrdering, owner: str, rank: Rank) -> Row:
        """Return the bags of an owner, evaluated on request: most agents take work of the first
        owner."""
        row = order.rows.get(owner)
        if row is None:
            results = [(rank(number), number) for number in self.owners.get(owner, ())]
            row = order.rows[owner] = sorted((-r, number) for r, number in results if r is not None)
            order.places.update((number, (owner, -r)) for r, number in row)
            if not row:
                order.owners.pop(owner, None)
        return row


def value_of(ad: Ad, name: str) -> Any:
    """Return the value of ``Host.…``, in any spelling, as a cache key: 1, 1.0 and true are
    different, and so are lists of them; all NaNs are equal."""
    value = ad.get(name[5:])
    return signed(look_up(name, (ad, {}, {}, {}, 1)) if value is None else value)


def signed(value: object) -> Any:
    """Return a value with its type."""
    if isinstance(value, list | tuple):
        return (*map(signed, value),)
    if isinstance(value, float) and isnan(value):
        return "NaN", float
    if isinstance(value, bool | int | float | str | None):
        return value, type(value)
    return "no value", object
