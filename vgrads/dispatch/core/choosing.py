"""Which bags a host is offered, in which order, and on whose terms: owners by their share, their
bags by Rank.

Verdicts on a host are remembered by what the policies read of it, and brought up to date by the
bags that changed, so that a request costs the bags that it is offered and not the bags that there
are (GridBot, Algorithm 1 and 6.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from vgrads.bags.choice import FAIR_SHARE
from vgrads.dispatch.core.advertising import Ad, bag_ad, host_ad, job_ad, queue_ad
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.orders import Group, Order, Rank, Row, value_of
from vgrads.dispatch.core.talk import Triple
from vgrads.policies.policy import Policy, Residual, Verdict

_FITTING = ("JobRequirements", "Rank", "Concurrency")
_COUNTS = frozenset({"JobsLeft", "JobsDone"})
_QUEUE = "Queue.BOTsInQueue"
_MOST_PLACES = 400_000
"""So many places of bags are remembered in all orders; then all are forgotten."""
_LEAST_S = 1.0
"""A shorter Deadline is taken for this: it would take back what cannot have been told yet, over and
over."""


class Offer(NamedTuple):
    """A bag that may serve a host. ``concurrency``: the most tasks the host may hold then; None: as
    many as is good."""

    bag: BagState
    rank: float = 0.0
    concurrency: int | None = None
    terms: Residual | None = None


class Choosing:
    """``due``: when the time of tasks is over that have a deadline: (instant, host, bag, task,
    attempt)."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._fair = board.rules.policy == FAIR_SHARE
        self._groups: dict[tuple[str, ...], Group] = {}
        self._of: dict[int, Group] = {}
        self._words: dict[Any, int] = {}
        self._policies: dict[int, tuple[Policy, int]] = {}  # with a number for its words
        self._alike: dict[int, Any] = {}  # bags of the same one fit the same hosts at the same rank
        self._jobs: dict[int, Ad] = {}
        self._queued: set[int] = set()
        self._always: set[int] = set()  # bags whose verdicts change by what is no host's
        self._queue = 0
        self._places = 0
        self._draws = Random(0)
        self.due: list[tuple[float, int, int, int, int]] = []

    # the order of bags

    def offers(self, host: Host, now_s: float) -> Iterator[Offer]:
        """Bags with work that this host may serve, the first first."""
        self._look()
        board = self._board
        if len(board.serving) == 1 and not self._policies:  # nothing to choose
            bag = board.serving[0]
            if board.work_for(bag) and self._rank(bag.number, host, {}) is not None:
                yield Offer(bag)
            return
        ad = host_ad(board, host, now_s) if self._policies else {}
        found = [(group, *self._order(group, host, ad)) for group in self._groups.values()]
        if self._fair:
            yield from self._by_share(found, ad)
        else:
            rows = [
                g.row(order, owner, rank) for g, order, rank in found for owner in [*order.owners]
            ]
            yield from self._in_turn(rows, ad)

    def serves(self, host: Host, number: int) -> bool:
        """May a host have tasks of a bag?"""
        self._look()
        ad = host_ad(self._board, host, self._board.state.now_s) if self._policies else {}
        group = self._of.get(number)
        return group is not None and self._order(group, host, ad)[1](number) is not None

    def _by_share(self, found: Sequence[tuple[Group, Order, Rank]], ad: Ad) -> Iterator[Offer]:
        """The owner who has had least by weight comes first, each time anew (stride scheduling,
        Waldspurger 1995)."""

        def turn(owner: str) -> Iterator[Offer]:
            rows = [g.row(order, owner, rank) for g, order, rank in found if owner in order.owners]
            return self._in_turn(rows, ad)

        owners = dict.fromkeys(o for g, order, _ in found for o in order.owners if o in g.owners)
        shares, turns = self._board.shares, dict[str, Iterator[Offer]]()
        if len(owners) == 1:
            yield from turn(next(iter(owners)))
            return
        if owners:  # mostly nothing else is asked for
            first = min(owners, key=shares.__getitem__)
            turns[first] = turn(first)
            yield from islice(turns[first], 1)
        heap = [(shares[owner], i, owner) for i, owner in enumerate(owners)]
        heapq.heapify(heap)
        while heap:
            _, i, owner = heap[0]
            if owner not in turns:
                turns[owner] = turn(owner)
            offer = next(turns[owner], None)
            if offer is None:
                heapq.heappop(heap)
            else:
                yield offer
                heapq.heapreplace(heap, (shares[owner], i, owner))

    def _in_turn(self, rows: Sequence[Row], ad: Ad) -> Iterator[Offer]:
        """By rank; of equal ones the one that has had least, or came first."""
        board = self._board
        row, ready = rows[0] if len(rows) == 1 else heapq.merge(*rows), board.ready
        for neg_rank, ties in groupby(row, key=itemgetter(0)):
            copies = board.copies
            numbers = [n for _, n in ties if n in ready or copies.get(n)]
            for number in self._least_first(numbers) if self._fair and numbers[1:] else numbers:
                yield self._offer(board.state.bags[number], -neg_rank, ad)

    def _least_first(self, numbers: Sequence[int]) -> Iterator[int]:
        """Bags by what they have had, sorted no further than is asked for."""
        heap = [(self._board.load[n], n) for n in numbers]
        heapq.heapify(heap)
        while heap:
            yield heapq.heappop(heap)[1]

    def _offer(self, bag: BagState, rank: float, ad: Ad) -> Offer:
        if bag.number not in self._policies:
            return Offer(bag, rank)
        with serving(bag.number):
            terms, concurrency = self._terms(bag), None
            if self._policy(bag).has("Concurrency"):
                concurrency = terms.concurrency(ad, self._job(bag), queue_ad(self._board))
        return Offer(bag, rank, concurrency, terms)

    # verdicts

    def _look(self) -> None:
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
        terms = self._terms(bag)
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

    def _order(self, group: Group, host: Host, ad: Ad) -> tuple[Order, Rank]:
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
                    said[alike] = self._rank(number, host, ad)
            return said[alike]

        group.catch_up(order, rank)
        return order, rank

    def _rank(self, number: int, host: Host, ad: Ad) -> float | None:
        """How a bag ranks this host; None where it does not fit."""
        bag = self._board.state.bags[number]
        if bag.procs > host.procs or (bag.sites and host.site not in bag.sites):
            return None
        if number not in self._policies:
            return 0.0
        terms, job, queue = self._terms(bag), self._job(bag), queue_ad(self._board)
        if not terms.requirements(ad, job, queue):
            return None
        if self._policy(bag).has("Concurrency") and not terms.concurrency(ad, job, queue):
            return None  # nor is it to keep others from the host
        return terms.rank(ad, job, queue)

    def _policy(self, bag: BagState) -> Policy:
        return self._policies[bag.number][0]

    def _terms(self, bag: BagState) -> Residual:
        return self._policy(bag).under(bag_ad(bag, bag.number in self._board.tails))

    def _job(self, bag: BagState) -> Ad:
        """A job of a bag that runs nowhere: they are all alike, and stay so."""
        found = self._jobs.get(bag.number)
        if found is None:
            found = job_ad(self._board, bag, self._board.bags[bag.number], None, 0.0)
            self._jobs[bag.number] = found
        return found

    def fits(self, number: int, grid: Mapping[str, object]) -> bool:
        """May hosts of a grid be had for a bag? ``grid``: its ad."""
        self._look()
        if number not in self._policies:
            return True
        with serving(number):
            return self._terms(self._board.state.bags[number]).grid(grid, queue_ad(self._board))

    # what follows a hand-out

    def handed_out(self, host: Host, offer: Offer, given: Sequence[Triple], now_s: float) -> None:
        """Remember since when a host has tasks, and until when."""
        if offer.terms is None:
            return
        board, limit_s = self._board, None
        if self._policy(offer.bag).has("Deadline"):
            ad, queue = host_ad(board, host, now_s), queue_ad(board)
            limit_s = offer.terms.deadline(ad, self._job(offer.bag), queue, offer.concurrency or 1)
        for number, task, attempt in given:
            board.given_s[host.number, number, task] = now_s
            if limit_s is not None:
                at_s = now_s + max(_LEAST_S, limit_s)
                heapq.heappush(self.due, (at_s, host.number, number, task, attempt))

    def taken_up(self, host: Host, bag: BagState, task: int, attempt: int, now_s: float) -> None:
        """The same for what a host had before."""
        if bag.number in self._policies:
            ad = host_ad(self._board, host, now_s)
            self.handed_out(host, self._offer(bag, 0.0, ad), [(bag.number, task, attempt)], now_s)

    # copies

    def may_copy(self, host: Host, offer: Offer, task: int, now_s: float) -> bool:
        """True where a host may have a copy of a task that runs elsewhere."""
        if offer.terms is None:
            return True
        board, rules = self._board, self._board.bags[offer.bag.number]
        job = job_ad(board, offer.bag, rules, task, now_s)
        return offer.terms.requirements(host_ad(board, host, now_s), job, queue_ad(board))

    def to_copy(self, bag: BagState, now_s: float, most: int) -> list[int]:
        """Running tasks that a bag's written policy wants copied: drawn, those with fewer replicas
        more likely."""
        self._look()
        rules = self._board.bags[bag.number]
        if rules.policy is None or not rules.policy.has("ReplicationRequirements"):
            return []
        terms = self._terms(bag)
        tasks = [t for t in bag.tasks.where if len(bag.tasks.hosts_of(t)) < rules.most_copies]
        if len(tasks) > most:
            # Efraimidis and Spirakis 2006 (doi:10.1016/j.ipl.2005.11.003): weighted, without
            # replacement
            keys = {t: self._draws.random() ** len(bag.tasks.hosts_of(t)) for t in tasks}
            tasks = heapq.nlargest(most, tasks, key=keys.__getitem__)
        queue, counts = queue_ad(self._board), rules.policy.has("Concurrency")
        found = []
        for task in islice(tasks, most):
            job = job_ad(self._board, bag, rules, task, now_s)
            host = job["Replica1"]["Host"]
            in_force = terms.concurrency(host, job, queue) if counts else 1
            if terms.replication(job, queue, host, in_force):
                found.append(task)
        return found

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
            for slot in ("JobRequirements", "Rank", "Concurrency")
            if rules.policy.has(slot)
        ]
