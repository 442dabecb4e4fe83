"""In which order bags come for a kind of host, kept for the next host of that kind and brought up
to date."""

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
"""How a bag ranks the host; None where it does not fit."""


@dataclass(slots=True)
class Order:
    """What bags make of a kind of host. ``upto``: changes taken in; ``owners``: those who may have
    bags for it; ``rows``: of those that were asked for; ``said``: the rank of bags that are
    alike."""

    upto: int
    owners: dict[str, None]
    rows: dict[str, Row] = field(default_factory=dict)
    places: dict[int, tuple[str, float]] = field(default_factory=dict)
    said: dict[Any, float | None] = field(default_factory=dict)

    def put(self, number: int, owner: str, rank: float) -> None:
        """A bag fits."""
        self.places[number] = (owner, rank)
        insort(self.rows[owner], (-rank, number))
        self.owners[owner] = None

    def drop(self, number: int) -> None:
        """A bag is to be looked at again, or gone."""
        place = self.places.pop(number, None)
        if place is not None:
            row = self.rows[place[0]]
            del row[bisect_left(row, (-place[1], number))]
            if not row:
                self.owners.pop(place[0], None)


@dataclass(slots=True)
class Group:
    """Bags whose policies read the same of a host: what else changes of it does not touch their
    order.

    ``members``: bag → owner; ``owners``: their bags; ``log``: members that changed, for orders to
    catch up; ``orders``: by what is read.
    """

    names: tuple[str, ...]
    members: dict[int, str] = field(default_factory=dict)
    owners: dict[str, dict[int, None]] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)
    orders: dict[Any, Order] = field(default_factory=dict)

    def take(self, number: int, owner: str) -> None:
        """A bag belongs to it, perhaps anew."""
        self.members[number] = owner
        self.owners.setdefault(owner, {})[number] = None
        self._changed(number)

    def leave(self, number: int) -> None:
        """A bag does so no more."""
        owner = self.members.pop(number)
        del self.owners[owner][number]
        if not self.owners[owner]:
            del self.owners[owner]
        self._changed(number)

    def _changed(self, number: int) -> None:
        """Have the orders look at a bag again; all at once where that is cheaper."""
        self.log.append(number)
        if len(self.log) > max(_LEAST_LOG, len(self.members)):
            self.orders.clear()
            self.log.clear()

    def catch_up(self, order: Order, rank: Rank) -> None:
        """Take in what has changed since an order was asked for last."""
        if order.upto == len(self.log):
            return
        for number in dict.fromkeys(self.log[order.upto :]):
            order.drop(number)
            owner = self.members.get(number)
            if owner is None:
                continue
            if owner not in order.rows:
                order.owners[owner] = None
            elif (found := rank(number)) is not None:
                order.put(number, owner, found)
        order.upto = len(self.log)

    def row(self, order: Order, owner: str, rank: Rank) -> Row:
        """The bags of an owner: looked at when they are asked for, as most hosts take what the
        first owner has."""
        row = order.rows.get(owner)
        if row is None:
            found = [(rank(number), number) for number in self.owners.get(owner, ())]
            row = order.rows[owner] = sorted((-r, number) for r, number in found if r is not None)
            order.places.update((number, (owner, -r)) for r, number in row)
            if not row:
                order.owners.pop(owner, None)
        return row


def value_of(ad: Ad, name: str) -> Any:
    """What a host says to ``Host.…``, however it spells that, as it is remembered: 1, 1.0 and true
    are different, and so are lists of them; one NaN is all of them."""
    value = ad.get(name[5:])
    return signed(look_up(name, (ad, {}, {}, {}, 1)) if value is None else value)


def signed(value: object) -> Any:
    """A value with its kind."""
    if isinstance(value, list | tuple):
        return (*map(signed, value),)
    if isinstance(value, float) and isnan(value):
        return "NaN", float
    if isinstance(value, bool | int | float | str | None):
        return value, type(value)
    return "no value", object
