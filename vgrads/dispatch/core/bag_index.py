"""Which bags fit which kind of host, and at which rank: verdicts of policies, remembered by what
they read of a host and brought up to date by the bags that changed.

So a request costs the bags that it is offered and not the bags that there are (GridBot, Algorithm 1
and 6.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vgrads.dispatch.core.advertising import Ad, bag_ad, job_ad, queue_ad
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.orders import Group, Order, Rank, value_of
from vgrads.policies.policy import Policy, Residual

_FITTING = ("JobRequirements", "Rank", "Concurrency")
_COUNTS = frozenset({"JobsLeft", "JobsDone"})
_QUEUE = "Queue.BOTsInQueue"
_MOST_PLACES = 400_000
"""So many places of bags are remembered in all orders; then all are forgotten."""


class BagIndex:
    """Bags in groups by what their policies read of a host."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._groups: dict[tuple[str, ...], Group] = {}
        self._of: dict[int, Group] = {}
        self._words: dict[tuple[tuple[str, str], ...], int] = {}
        self._policies: dict[int, tuple[Policy, int]] = {}  # with a number for its words
        self._alike: dict[int, Any] = {}  # bags of the same one fit the same hosts at the same rank
        self._jobs: dict[int, Ad] = {}
        self._queued: set[int] = set()
        self._always: set[int] = set()  # bags whose verdicts change by what is no host's
        self._queue = 0
        self._places = 0

    @property
    def has_policies(self) -> bool:
        """True where a bag has a policy of its own."""
        return bool(self._policies)

    def has_policy(self, number: int) -> bool:
        """True where this bag has."""
        return number in self._policies

    def groups(self) -> Iterator[Group]:
        """Those that there are."""
        return iter(self._groups.values())

    def group_of(self, number: int) -> Group | None:
        """A bag's group; None where it is over."""
        return self._of.get(number)

    def refresh(self) -> None:
        """Take in bags that came, went or changed."""
        board = self._board
        if self._queued and self._queue != len(board.serving):
            self._queue = len(board.serving)
            for number in self._queued:
                board.change(number)
        while board.changed:
            number = next(iter(board.changed))
            del board.changed[number]
            with serving(number):
                self._take_in(number)

    def _take_in(self, number: int) -> None:
        """Put a bag into the group that reads what it reads now."""
        bag, before = self._board.state.bags[number], self._of.get(number)
        group = None if bag.over else self._group(bag)
        if before is not None and before is not group:
            before.leave(number)
            if not before.members:
                self._groups.pop(before.names, None)
        if group is None:
            self._of.pop(number, None)
            self._policies.pop(number, None)
            for numbers in (self._queued, self._always, self._board.counting):
                numbers.discard(number)
            self._jobs.pop(number, None)
            self._alike.pop(number, None)
            return
        self._groups.setdefault(group.names, group)
        self._of[number] = group
        group.take(number, bag.owner)

    def _group(self, bag: BagState) -> Group:
        number, rules = bag.number, self._board.bags.get(bag.number)
        if rules is None or rules.policy is None:
            self._alike[number] = (bag.procs, bag.sites)
            return self._groups.get(()) or Group(())
        policy = rules.policy
        if number not in self._policies:
            words = self._words.setdefault(tuple(policy.attributes.items()), len(self._words))
            self._policies[number] = (policy, words)
            written = frozenset[str]().union(*(policy.reads(slot) for slot in _FITTING))
            if _COUNTS & written:
                self._board.counting.add(number)
            if _QUEUE in written:
                self._queued.add(number)
            if _COUNTS & written or _QUEUE in written:
                self._always.add(number)
        terms = self.terms(bag)
        reads = {name for slot in _FITTING for name in terms.reads(slot)}
        names = tuple(sorted(name for name in reads if name.startswith("Host.")))
        own = len(names) < len(reads) or number in self._always
        tail = number in self._board.tails
        self._alike[number] = (
            self._policies[number][1],
            tail,
            bag.procs,
            bag.sites,
            number if own else None,
        )
        return self._groups.get(names) or Group(names)

    def order(self, group: Group, host: Host, ad: Ad) -> tuple[Order, Rank]:
        """The order of a group's bags for a host, and what ranks them."""
        kind = (host.site, host.procs, *[value_of(ad, name) for name in group.names])
        order = group.orders.get(kind)
        if order is None:
            self._places += 1 + len(group.members)
            if self._places > _MOST_PLACES:
                self._places = 0
                for other in self._groups.values():
                    other.orders.clear()
            order = group.orders[kind] = Order(len(group.log), dict.fromkeys(group.owners))
        said = order.said

        def rank(number: int) -> float | None:
            alike = self._alike[number]
            if number in self._always or alike not in said:
                with serving(number):
                    said[alike] = self.rank(number, host, ad)
            return said[alike]

        group.catch_up(order, rank)
        return order, rank

    def rank(self, number: int, host: Host, ad: Ad) -> float | None:
        """How a bag ranks this host; None where it does not fit."""
        bag = self._board.state.bags[number]
        if bag.procs > host.procs or (bag.sites and host.site not in bag.sites):
            return None
        if number not in self._policies:
            return 0.0
        terms, job, queue = self.terms(bag), self.job(bag), queue_ad(self._board)
        if not terms.requirements(ad, job, queue):
            return None
        if self.policy(bag).has("Concurrency") and not terms.concurrency(ad, job, queue):
            return None  # nor is it to keep others from the host
        return terms.rank(ad, job, queue)

    def policy(self, bag: BagState) -> Policy:
        return self._policies[bag.number][0]

    def terms(self, bag: BagState) -> Residual:
        return self.policy(bag).under(bag_ad(bag, bag.number in self._board.tails))

    def job(self, bag: BagState) -> Ad:
        """A job of a bag that runs nowhere: they are all alike, and stay so."""
        found = self._jobs.get(bag.number)
        if found is None:
            found = job_ad(self._board, bag, self._board.bags[bag.number], None, 0.0)
            self._jobs[bag.number] = found
        return found

    def fits(self, number: int, grid: Mapping[str, object]) -> bool:
        """May hosts of a grid be had for a bag? ``grid``: its ad."""
        self.refresh()
        if number not in self._policies:
            return True
        with serving(number):
            return self.terms(self._board.state.bags[number]).grid(grid, queue_ad(self._board))
