"""Index of the bags that fit a kind of agent, and their rank: results of dispatch policies, cached
by the attributes that they read and updated for changed bags.

So a request costs as much as the bags that are offered to it, not all bags (GridBot, Algorithm 1
and 6.2).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from vgrads.dispatch.core.advertising import Ad, make_bag_ad, make_job_ad, make_queue_ad
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.state import AgentState, BagState
from vgrads.policies.names import look_up
from vgrads.policies.policy import Policy, Residual

_FITTING = ("JobRequirements", "Rank", "Concurrency")
_COUNTS = frozenset({"JobsLeft", "JobsDone"})
_QUEUE = "Queue.BOTsInQueue"
_MOST_PLACES = 400_000
"""Maximum number of cached positions of bags in all orders; beyond it the cache is cleared."""


class BagIndex:
    """Bags grouped by the agent attributes that their dispatch policies read."""

    def __init__(self, dispatch_index: DispatchIndex) -> None:
        self._dispatch_index = dispatch_index
        self._groups: dict[tuple[str, ...], BagGroup] = {}
        self._of: dict[int, BagGroup] = {}
        self._words: dict[tuple[tuple[str, str], ...], int] = {}
        self._policies: dict[int, tuple[Policy, int]] = {}  # with a number for its text
        self._alike: dict[int, Any] = {}  # bags with equal values fit the same agents at equal rank
        self._jobs: dict[int, Ad] = {}
        self._queued: set[int] = set()
        self._always: set[int] = set()  # bags whose results change by more than agent attributes
        self._queue = 0
        self._places = 0

    @property
    def has_policies(self) -> bool:
        """Return True where a bag has a dispatch policy."""
        return bool(self._policies)

    def has_policy(self, number: int) -> bool:
        """Return True where this bag has a dispatch policy."""
        return number in self._policies

    def groups(self) -> Iterator[BagGroup]:
        """Return the current groups."""
        return iter(self._groups.values())

    def group_of(self, number: int) -> BagGroup | None:
        """Return a bag's group; None where it is terminal."""
        return self._of.get(number)

    def refresh(self) -> None:
        """Update for bags that were added, removed or changed."""
        dispatch_index = self._dispatch_index
        # their policies read how many bags there are
        if self._queued and self._queue != len(dispatch_index.serving):
            self._queue = len(dispatch_index.serving)
            for number in self._queued:
                dispatch_index.change(number)
        while dispatch_index.changed:
            number = next(iter(dispatch_index.changed))
            # removed first: a bag that raises here is failed, which marks it as changed once more
            del dispatch_index.changed[number]
            with serving(number):
                self._take_in(number)

    def _take_in(self, number: int) -> None:
        """Put a bag into the group of the attributes that it reads now."""
        bag, before = self._dispatch_index.state.bags[number], self._of.get(number)
        group = None if bag.over else self._group(bag)
        if before is not None and before is not group:
            before.leave(number)
            if not before.members:
                self._groups.pop(before.names, None)
        if group is None:
            self._of.pop(number, None)
            self._policies.pop(number, None)
            for numbers in (self._queued, self._always, self._dispatch_index.counting):
                numbers.discard(number)
            self._jobs.pop(number, None)
            self._alike.pop(number, None)
            return
        self._groups.setdefault(group.names, group)
        self._of[number] = group
        group.take(number, bag.owner)

    def _group(self, bag: BagState) -> BagGroup:
        number, rules = bag.number, self._dispatch_index.bags.get(bag.number)
        if rules is None or rules.policy is None:
            self._alike[number] = (bag.procs, bag.sites)
            return self._groups.get(()) or BagGroup(())
        policy = rules.policy
        if number not in self._policies or self._policies[number][0] is not policy:
            # policies of the same text share a number, so that their bags share cached ranks
            words = self._words.setdefault(tuple(policy.attributes.items()), len(self._words))
            self._policies[number] = (policy, words)
            # as written: in the terms of a bag the values of its own attributes are filled in
            # already
            written = frozenset[str]().union(*(policy.reads(slot) for slot in _FITTING))
            if _COUNTS & written:
                self._dispatch_index.counting.add(number)
            if _QUEUE in written:
                self._queued.add(number)
            if _COUNTS & written or _QUEUE in written:
                self._always.add(number)
        terms = self.terms(bag)
        reads = {name for slot in _FITTING for name in terms.reads(slot)}
        names = tuple(sorted(name for name in reads if name.startswith("Host.")))
        # what depends on more than the agent is valid for this bag alone
        own = len(names) < len(reads) or number in self._always
        tail = number in self._dispatch_index.tails
        self._alike[number] = (
            self._policies[number][1],
            tail,
            bag.procs,
            bag.sites,
            number if own else None,
        )
        return self._groups.get(names) or BagGroup(names)

    def order(self, group: BagGroup, agent: AgentState, ad: Ad) -> tuple[BagOrdering, Rank]:
        """Return the order of a group's bags for an agent, and the rank function."""
        # site and processors decide whatever the policies read: see rank
        kind = (agent.site, agent.procs, *[value_of(ad, name) for name in group.names])
        order = group.orders.get(kind)
        if order is None:
            self._places += 1 + len(group.members)
            if self._places > _MOST_PLACES:
                self._places = 0
                for other in self._groups.values():
                    other.orders.clear()
            order = group.orders[kind] = BagOrdering(len(group.log), dict.fromkeys(group.owners))
        values = order.values

        def rank(number: int) -> float | None:
            alike = self._alike[number]
            if number in self._always or alike not in values:
                with serving(number):
                    values[alike] = self.rank(number, agent, ad)
            return values[alike]

        group.catch_up(order, rank)
        return order, rank

    def rank(self, number: int, agent: AgentState, ad: Ad) -> float | None:
        """Return a bag's rank of this agent; None where it does not fit."""
        bag = self._dispatch_index.state.bags[number]
        if not bag.fits(agent):
            return None
        if number not in self._policies:
            return 0.0
        terms, job, queue = self.terms(bag), self.job(bag), make_queue_ad(self._dispatch_index)
        if not terms.requirements(ad, job, queue):
            return None
        if self.policy(bag).has("Concurrency") and not terms.concurrency(ad, job, queue):
            return None  # and it must not block others from the agent
        return terms.rank(ad, job, queue)

    def policy(self, bag: BagState) -> Policy:
        return self._policies[bag.number][0]

    def terms(self, bag: BagState) -> Residual:
        return self.policy(bag).under(make_bag_ad(bag, bag.number in self._dispatch_index.tails))

    def job(self, bag: BagState) -> Ad:
        """Return a job of a bag without a running attempt: they are all equal, and stay so."""
        ad = self._jobs.get(bag.number)
        if ad is None:
            ad = make_job_ad(
                self._dispatch_index, bag, self._dispatch_index.bags[bag.number], None, 0.0
            )
            self._jobs[bag.number] = ad
        return ad

    def fits(self, number: int, grid: Mapping[str, object]) -> bool:
        """Return True where agents of a grid may be requested for a bag. ``grid``: its ad."""
        self.refresh()
        if number not in self._policies:
            return True
        with serving(number):
            return self.terms(self._dispatch_index.state.bags[number]).grid(
                grid, make_queue_ad(self._dispatch_index)
            )


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
            # orders refer to positions in the log, so both are emptied together
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
            # nothing of this owner was requested so far: row evaluates all of its bags when it is
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
