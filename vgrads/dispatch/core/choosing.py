"""Which bags a host is offered, in which order, and on whose terms: owners by their share, their
bags by Rank."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from random import Random
from typing import NamedTuple

from vgrads.bags.choice import FAIR_SHARE
from vgrads.dispatch.core.advertising import Ad, bag_ad, host_ad, job_ad, queue_ad
from vgrads.dispatch.core.bag_index import BagIndex
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.orders import Group, Order, Rank, Row
from vgrads.dispatch.core.talk import Triple
from vgrads.policies.policy import Residual, Verdict

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
        self.index = BagIndex(board)
        self._draws = Random(0)
        self.due: list[tuple[float, int, int, int, int]] = []

    # the order of bags

    def offers(self, host: Host, now_s: float) -> Iterator[Offer]:
        """Bags with work that this host may serve, the first first."""
        self.index.refresh()
        board = self._board
        if len(board.serving) == 1 and not self.index.has_policies:  # nothing to choose
            bag = board.serving[0]
            if board.work_for(bag) and self.index.rank(bag.number, host, {}) is not None:
                yield Offer(bag)
            return
        ad = host_ad(board, host, now_s) if self.index.has_policies else {}
        found = [(group, *self.index.order(group, host, ad)) for group in self.index.groups()]
        if self._fair:
            yield from self._by_share(found, ad)
        else:
            rows = [
                g.row(order, owner, rank) for g, order, rank in found for owner in [*order.owners]
            ]
            yield from self._in_turn(rows, ad)

    def serves(self, host: Host, number: int) -> bool:
        """May a host have tasks of a bag?"""
        self.index.refresh()
        ad = host_ad(self._board, host, self._board.state.now_s) if self.index.has_policies else {}
        group = self.index.group_of(number)
        return group is not None and self.index.order(group, host, ad)[1](number) is not None

    def fits(self, number: int, grid: Mapping[str, object]) -> bool:
        """May hosts of a grid be had for a bag? ``grid``: its ad."""
        return self.index.fits(number, grid)

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
        if not self.index.has_policy(bag.number):
            return Offer(bag, rank)
        with serving(bag.number):
            terms, concurrency = self.index.terms(bag), None
            if self.index.policy(bag).has("Concurrency"):
                concurrency = terms.concurrency(ad, self.index.job(bag), queue_ad(self._board))
        return Offer(bag, rank, concurrency, terms)

    # what follows a hand-out

    def handed_out(self, host: Host, offer: Offer, given: Sequence[Triple], now_s: float) -> None:
        """Remember since when a host has tasks, and until when."""
        if offer.terms is None:
            return
        board, limit_s = self._board, None
        if self.index.policy(offer.bag).has("Deadline"):
            ad, queue = host_ad(board, host, now_s), queue_ad(board)
            limit_s = offer.terms.deadline(
                ad, self.index.job(offer.bag), queue, offer.concurrency or 1
            )
        for number, task, attempt in given:
            board.given_s[host.number, number, task] = now_s
            if limit_s is not None:
                at_s = now_s + max(_LEAST_S, limit_s)
                heapq.heappush(self.due, (at_s, host.number, number, task, attempt))

    def taken_up(self, host: Host, bag: BagState, task: int, attempt: int, now_s: float) -> None:
        """The same for what a host had before."""
        if self.index.has_policy(bag.number):
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
        self.index.refresh()
        rules = self._board.bags[bag.number]
        if rules.policy is None or not rules.policy.has("ReplicationRequirements"):
            return []
        terms = self.index.terms(bag)
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
