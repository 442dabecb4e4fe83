"""Which bags a host is offered, in which order, and on whose terms: owners by their share, their bags by Rank.

Verdicts on a host are remembered by what the policies read of it, and brought up to date by the bags that changed, so
that a request costs the bags that it is offered and not the bags that there are (GridBot, Algorithm 1 and 6.2).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from random import Random
from typing import Any

from bags.choice import FAIR_SHARE
from bags.policy import Policy, Residual, Verdict
from dispatch.advertising import Ad, bag_ad, host_ad, job_ad, queue_ad
from dispatch.board import Board
from dispatch.hosts import Host
from dispatch.state import BagState

_FITTING = ("JobRequirements", "Rank")
_CHANGING = frozenset({"JobsLeft", "JobsDone", "Queue.BOTsInQueue"})
"""What changes with every task: verdicts that read it are not remembered with a host's order."""
_MOST_ORDERS = 4096
_LEAST_S = 1e-3


@dataclass(frozen=True, slots=True)
class Offer:
    """A bag that may serve a host. ``concurrency``: the most tasks the host may hold then; None: as many as is good."""

    bag: BagState
    rank: float = 0.0
    concurrency: int | None = None
    terms: Residual | None = None


@dataclass(slots=True)
class _Order:
    """The bags that a kind of host may serve, by owner, the highest rank first; ``upto``: changes taken in."""

    upto: int = 0
    rows: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    places: dict[int, tuple[str, float]] = field(default_factory=dict)

    def put(self, number: int, owner: str, rank: float) -> None:
        self.places[number] = (owner, rank)
        insort(self.rows.setdefault(owner, []), (-rank, number))

    def drop(self, number: int) -> None:
        place = self.places.pop(number, None)
        if place is not None:
            row = self.rows[place[0]]
            del row[bisect_left(row, (-place[1], number))]


class Choosing:
    """``due``: when the time of tasks is over that have a deadline: (instant, host, bag, task, attempt)."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._fair = board.rules.policy == FAIR_SHARE
        self._orders: dict[tuple[Any, ...], _Order] = {}
        self._reads: tuple[str, ...] = ()
        self._looked = 0
        self._policies: set[int] = set()
        self._live: set[int] = set()
        self._draws = Random(0)
        self.due: list[tuple[float, int, int, int, int]] = []

    # the order of bags

    def offers(self, host: Host, now_s: float) -> Iterator[Offer]:
        """Bags with work that this host may serve, the first first."""
        self._look()
        ad = host_ad(self._board, host, now_s) if self._policies else {}
        order = self._order(host, ad)
        rows: dict[str, list[tuple[float, int]]] = order.rows
        if self._live:
            rows = {owner: list(row) for owner, row in rows.items()}
            for number in self._live:
                rank = self._rank(number, host, ad)
                if rank is not None:
                    insort(
                        rows.setdefault(self._board.state.bags[number].owner, []), (-rank, number)
                    )
        if self._fair:
            yield from self._by_share(rows, ad)
        else:
            yield from self._in_turn(heapq.merge(*rows.values()), ad)

    def _by_share(self, rows: dict[str, list[tuple[float, int]]], ad: Ad) -> Iterator[Offer]:
        """The owner who has had least by weight comes first, each time anew (stride scheduling, Waldspurger 1995)."""
        turns = {owner: self._in_turn(row, ad) for owner, row in rows.items()}
        first = {owner: offer for owner, turn in turns.items() if (offer := next(turn, None))}
        while first:
            owner = min(first, key=self._had) if len(first) > 1 else next(iter(first))
            yield first.pop(owner)
            if (offer := next(turns[owner], None)) is not None:
                first[owner] = offer

    def _had(self, owner: str) -> float:
        flight = sum(b.in_flight for b in self._board.serving if b.owner == owner and b.tasks.where)
        return self._board.state.owners[owner].had + flight

    def _in_turn(self, row: Iterable[tuple[float, int]], ad: Ad) -> Iterator[Offer]:
        """By rank; of equal ones the one that has had least, or came first."""
        bags = self._board.state.bags
        for neg_rank, ties in groupby(row, key=itemgetter(0)):
            ready = [bags[n] for _, n in ties if self._board.work_for(bags[n])]
            if self._fair:
                ready.sort(key=lambda bag: (bag.had + bag.in_flight, bag.number))
            for bag in ready:
                yield self._offer(bag, -neg_rank, ad)

    def _offer(self, bag: BagState, rank: float, ad: Ad) -> Offer:
        if bag.number not in self._policies:
            return Offer(bag, rank)
        terms, concurrency = self._terms(bag), None
        if self._policy(bag).has("Concurrency"):
            concurrency = terms.concurrency(ad, self._job(bag), queue_ad(self._board))
        return Offer(bag, rank, concurrency, terms)

    # verdicts

    def _look(self) -> None:
        """Take in bags that came; what is read of hosts may be more then."""
        changed = self._board.changed
        if self._looked == len(changed):
            return
        for number in changed[self._looked :]:
            rules = self._board.bags.get(number)
            if rules is not None and rules.policy is not None:
                self._policies.add(number)
                if any(_CHANGING & rules.policy.reads(slot) for slot in _FITTING):
                    self._live.add(number)
        self._looked = len(changed)
        self._policies &= {bag.number for bag in self._board.serving}
        self._live &= self._policies
        reads = {
            name.removeprefix("Host.")
            for number in self._policies - self._live for slot in _FITTING
            for name in self._terms(self._board.state.bags[number]).reads(slot) if name.startswith("Host.")
        }  # fmt: skip
        if not reads <= set(self._reads):
            self._reads = tuple(sorted(reads))
            self._orders.clear()

    def _order(self, host: Host, ad: Ad) -> _Order:
        kind = (host.site, host.procs, *[_plain(ad.get(name)) for name in self._reads])
        order = self._orders.get(kind)
        if order is None:
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            order = self._orders[kind] = _Order(upto=len(self._board.changed))
            for bag in self._board.serving:
                self._place(order, bag.number, host, ad)
        elif order.upto < len(self._board.changed):
            for number in dict.fromkeys(self._board.changed[order.upto :]):
                order.drop(number)
                self._place(order, number, host, ad)
            order.upto = len(self._board.changed)
        return order

    def _place(self, order: _Order, number: int, host: Host, ad: Ad) -> None:
        bag = self._board.state.bags[number]
        rank = None if bag.over or number in self._live else self._rank(number, host, ad)
        if rank is not None:
            order.put(number, bag.owner, rank)

    def _rank(self, number: int, host: Host, ad: Ad) -> float | None:
        """How a bag ranks this host; None where it does not fit."""
        bag = self._board.state.bags[number]
        if bag.procs > host.procs or (bag.sites and host.site not in bag.sites):
            return None
        if number not in self._policies:
            return 0.0
        terms, job, queue = self._terms(bag), self._job(bag), queue_ad(self._board)
        return terms.rank(ad, job, queue) if terms.requirements(ad, job, queue) else None

    def _policy(self, bag: BagState) -> Policy:
        policy = self._board.bags[bag.number].policy
        assert policy is not None
        return policy

    def _terms(self, bag: BagState) -> Residual:
        return self._policy(bag).under(bag_ad(bag, bag.number in self._board.tails))

    def _job(self, bag: BagState) -> Ad:
        return job_ad(self._board, bag, self._board.bags[bag.number], None, 0.0)

    def fits(self, number: int, grid: Mapping[str, object]) -> bool:
        """May hosts of a grid be had for a bag? ``grid``: its ad."""
        if number not in self._policies:
            return True
        return self._terms(self._board.state.bags[number]).grid(grid, queue_ad(self._board))

    # what follows a hand-out

    def handed_out(self, host: Host, offer: Offer, task: int, attempt: int, now_s: float) -> None:
        """Remember since when a host has a task, and until when."""
        if offer.terms is None:
            return
        self._board.given_s[host.number, offer.bag.number, task] = now_s
        if self._policy(offer.bag).has("Deadline"):
            ad = host_ad(self._board, host, now_s)
            limit_s = offer.terms.deadline(
                ad, self._job(offer.bag), queue_ad(self._board), offer.concurrency or 1
            )
            if limit_s is not None:
                entry = (
                    now_s + max(_LEAST_S, limit_s),
                    host.number,
                    offer.bag.number,
                    task,
                    attempt,
                )
                heapq.heappush(self.due, entry)

    def taken_up(self, host: Host, bag: BagState, task: int, attempt: int, now_s: float) -> None:
        """The same for what a host had before."""
        if bag.number in self._policies:
            ad = host_ad(self._board, host, now_s)
            self.handed_out(host, self._offer(bag, 0.0, ad), task, attempt, now_s)

    # copies

    def may_copy(self, host: Host, offer: Offer, task: int, now_s: float) -> bool:
        """True where a host may have a copy of a task that runs elsewhere."""
        if offer.terms is None:
            return True
        board, rules = self._board, self._board.bags[offer.bag.number]
        job = job_ad(board, offer.bag, rules, task, now_s)
        return offer.terms.requirements(host_ad(board, host, now_s), job, queue_ad(board))

    def to_copy(self, bag: BagState, now_s: float, most: int) -> list[int]:
        """Running tasks that a bag's written policy wants copied: drawn, those with fewer replicas more likely."""
        rules, terms = self._board.bags[bag.number], self._terms(bag)
        if not self._policy(bag).has("ReplicationRequirements"):
            return []
        tasks = [t for t in bag.tasks.where if len(bag.tasks.hosts_of(t)) < rules.most_copies]
        if len(tasks) > most:
            # Efraimidis and Spirakis 2006 (doi:10.1016/j.ipl.2005.11.003): weighted, without replacement
            keys = {t: self._draws.random() ** len(bag.tasks.hosts_of(t)) for t in tasks}
            tasks = heapq.nlargest(most, tasks, key=keys.__getitem__)
        queue = queue_ad(self._board)
        return [
            task for task in islice(tasks, most)
            if terms.replication(job_ad(self._board, bag, rules, task, now_s), queue)
        ]  # fmt: skip

    # why

    def verdicts(self, host: Host, bag: BagState, task: int, now_s: float) -> list[Verdict]:
        """The slots that decide whether a host gets a task, with what they read."""
        rules = self._board.bags[bag.number]
        if rules.policy is None:
            return []
        state = bag_ad(bag, bag.number in self._board.tails)
        host_, job = host_ad(self._board, host, now_s), job_ad(self._board, bag, rules, task, now_s)
        return [
            rules.policy.explain(slot, state, host=host_, job=job, queue=queue_ad(self._board))
            for slot in ("JobRequirements", "Rank", "Concurrency") if rules.policy.has(slot)
        ]  # fmt: skip


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
