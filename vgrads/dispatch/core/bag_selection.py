"""Bags offered to an agent, their order and their terms: owners by their share, their bags by
Rank."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from random import Random
from typing import NamedTuple

from vgrads.bags.choice import FAIR_SHARE
from vgrads.dispatch.core.advertising import (
    Ad,
    make_agent_ad,
    make_bag_ad,
    make_job_ad,
    make_queue_ad,
)
from vgrads.dispatch.core.bag_index import BagGroup, BagIndex, BagOrdering, Rank, Row
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.state import AgentState, BagState
from vgrads.exchange.values import Triple
from vgrads.policies.policy import PolicyVerdict, Residual

_LEAST_S = 1.0
"""Lower limit of Deadline, in seconds: with a shorter one, tasks would be evicted again and again
before they can be reported."""


class Offer(NamedTuple):
    """A bag that may serve an agent. ``concurrency``: the maximum number of tasks that the agent
    may then hold; None: no limit."""

    bag: BagState
    rank: float = 0.0
    concurrency: int | None = None
    terms: Residual | None = None


class BagSelection:
    """``due``: deadlines of assigned tasks: (instant, agent, bag, task, attempt)."""

    def __init__(self, dispatch_index: DispatchIndex) -> None:
        self._dispatch_index = dispatch_index
        self._fair = dispatch_index.rules.policy == FAIR_SHARE
        self.index = BagIndex(dispatch_index)
        # a fixed seed: a simulated dispatcher gives the same result each time
        self._draws = Random(0)
        self.due: list[tuple[float, int, int, int, int]] = []

    # the order of bags

    def offers(self, agent: AgentState, now_s: float) -> Iterator[Offer]:
        """Return the bags with work that this agent may serve, best first."""
        self.index.refresh()
        dispatch_index = self._dispatch_index
        if len(dispatch_index.serving) == 1 and not self.index.has_policies:  # nothing to choose
            bag = dispatch_index.serving[0]
            if dispatch_index.work_for(bag) and self.index.rank(bag.number, agent, {}) is not None:
                yield Offer(bag)
            return
        ad = make_agent_ad(dispatch_index, agent, now_s) if self.index.has_policies else {}
        orders = [(group, *self.index.order(group, agent, ad)) for group in self.index.groups()]
        if self._fair:
            yield from self._by_share(orders, ad)
        else:
            rows = [
                g.row(order, owner, rank) for g, order, rank in orders for owner in [*order.owners]
            ]
            yield from self._in_turn(rows, ad)

    def serves(self, agent: AgentState, number: int) -> bool:
        """Return True where an agent may get tasks of a bag."""
        self.index.refresh()
        ad = (
            make_agent_ad(self._dispatch_index, agent, self._dispatch_index.state.now_s)
            if self.index.has_policies
            else {}
        )
        group = self.index.group_of(number)
        return group is not None and self.index.order(group, agent, ad)[1](number) is not None

    def fits(self, number: int, grid: Mapping[str, object]) -> bool:
        """Return True where agents of a grid may be requested for a bag. ``grid``: its ad."""
        return self.index.fits(number, grid)

    def _by_share(
        self, orders: Sequence[tuple[BagGroup, BagOrdering, Rank]], ad: Ad
    ) -> Iterator[Offer]:
        """Yield from the owner with the least usage by weight, chosen again each time (stride
        scheduling, Waldspurger 1995)."""

        def turn(owner: str) -> Iterator[Offer]:
            rows = [g.row(order, owner, rank) for g, order, rank in orders if owner in order.owners]
            return self._in_turn(rows, ad)

        owners = dict.fromkeys(o for g, order, _ in orders for o in order.owners if o in g.owners)
        shares, turns = self._dispatch_index.shares, dict[str, Iterator[Offer]]()
        if len(owners) == 1:
            yield from turn(next(iter(owners)))
            return
        if owners:  # usually only the first one is requested
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
                # read again: the tasks that were just assigned have increased the share
                heapq.heapreplace(heap, (shares[owner], i, owner))

    def _in_turn(self, rows: Sequence[Row], ad: Ad) -> Iterator[Offer]:
        """Order by rank; of equal ones the one with the least usage, or the earliest."""
        dispatch_index = self._dispatch_index
        row, ready = rows[0] if len(rows) == 1 else heapq.merge(*rows), dispatch_index.ready
        for neg_rank, ties in groupby(row, key=itemgetter(0)):
            replicas = dispatch_index.replicas
            numbers = [n for _, n in ties if n in ready or replicas.get(n)]
            for number in self._least_first(numbers) if self._fair and numbers[1:] else numbers:
                yield self._offer(dispatch_index.state.bags[number], -neg_rank, ad)

    def _least_first(self, numbers: Sequence[int]) -> Iterator[int]:
        """Sort bags by usage, only as far as requested. Those with goals are next to each other, by
        their mean usage, the earliest deadline first: no other order keeps more of them."""
        load, due = self._dispatch_index.load, self._dispatch_index.due
        urgent = sorted((n for n in numbers if n in due), key=lambda n: (due[n], n)) if due else []
        # bags with goals share one position, so that their order among each other is by deadline
        # alone
        mean = sum(load[n] for n in urgent) / max(1, len(urgent))
        heap = [(mean, i, n) for i, n in enumerate(urgent)]  # usage, position among equals, bag
        heap += [(load[n], n, n) for n in numbers if n not in due]
        heapq.heapify(heap)
        while heap:
            yield heapq.heappop(heap)[2]

    def _offer(self, bag: BagState, rank: float, ad: Ad) -> Offer:
        if not self.index.has_policy(bag.number):
            return Offer(bag, rank)
        with serving(bag.number):
            terms, concurrency = self.index.terms(bag), None
            if self.index.policy(bag).has("Concurrency"):
                concurrency = terms.concurrency(
                    ad, self.index.job(bag), make_queue_ad(self._dispatch_index)
                )
        return Offer(bag, rank, concurrency, terms)

    # after an assignment

    def handed_out(
        self, agent: AgentState, offer: Offer, values: Sequence[Triple], now_s: float
    ) -> None:
        """Record the start and the deadline of tasks at an agent."""
        if offer.terms is None:
            return
        dispatch_index, limit_s = self._dispatch_index, None
        if self.index.policy(offer.bag).has("Deadline"):
            ad, queue = make_agent_ad(dispatch_index, agent, now_s), make_queue_ad(dispatch_index)
            limit_s = offer.terms.deadline(
                ad, self.index.job(offer.bag), queue, offer.concurrency or 1
            )
        for number, task, attempt in values:
            dispatch_index.assigned_s[agent.number, number, task] = now_s
            if limit_s is not None:
                at_s = now_s + max(_LEAST_S, limit_s)
                # entries of ended attempts stay in the heap: the attempt is
                # compared when the instant has come
                heapq.heappush(self.due, (at_s, agent.number, number, task, attempt))

    def taken_up(
        self, agent: AgentState, bag: BagState, task: int, attempt: int, now_s: float
    ) -> None:
        """Record the same for a task that the agent had before."""
        if self.index.has_policy(bag.number):
            ad = make_agent_ad(self._dispatch_index, agent, now_s)
            self.handed_out(agent, self._offer(bag, 0.0, ad), [(bag.number, task, attempt)], now_s)

    # copies

    def may_replica(self, agent: AgentState, offer: Offer, task: int, now_s: float) -> bool:
        """Return True where an agent may get a replica of a task that runs elsewhere."""
        if offer.terms is None:
            return True
        dispatch_index, rules = self._dispatch_index, self._dispatch_index.bags[offer.bag.number]
        job = make_job_ad(dispatch_index, offer.bag, rules, task, now_s)
        return offer.terms.requirements(
            make_agent_ad(dispatch_index, agent, now_s), job, make_queue_ad(dispatch_index)
        )

    def to_replica(self, bag: BagState, now_s: float, most: int) -> list[int]:
        """Draw running tasks for which a bag's dispatch policy requests replicas; tasks with fewer
        replicas are more probable."""
        self.index.refresh()
        rules = self._dispatch_index.bags[bag.number]
        if rules.policy is None or not rules.policy.has("ReplicationRequirements"):
            return []
        terms = self.index.terms(bag)
        tasks = [t for t in bag.tasks.where if len(bag.tasks.agents_of(t)) < rules.most_replicas]
        if len(tasks) > most:
            # Efraimidis and Spirakis 2006 (doi:10.1016/j.ipl.2005.11.003): weighted, without
            # replacement
            keys = {t: self._draws.random() ** len(bag.tasks.agents_of(t)) for t in tasks}
            tasks = heapq.nlargest(most, tasks, key=keys.__getitem__)
        queue, counts = make_queue_ad(self._dispatch_index), rules.policy.has("Concurrency")
        offers = []
        for task in islice(tasks, most):
            job = make_job_ad(self._dispatch_index, bag, rules, task, now_s)
            # each of these tasks runs, so there is a first replica
            agent = job["Replica1"]["Host"]
            in_force = terms.concurrency(agent, job, queue) if counts else 1
            if terms.replication(job, queue, agent, in_force):
                offers.append(task)
        return offers

    # why

    def verdicts(
        self, agent: AgentState, bag: BagState, task: int, now_s: float
    ) -> list[PolicyVerdict]:
        """Return the policy slots that decide whether an agent gets a task, with the values that
        they read."""
        rules = self._dispatch_index.bags[bag.number]
        if rules.policy is None:
            return []
        state = make_bag_ad(bag, bag.number in self._dispatch_index.tails)
        agent_, job = (
            make_agent_ad(self._dispatch_index, agent, now_s),
            make_job_ad(self._dispatch_index, bag, rules, task, now_s),
        )
        return [
            rules.policy.explain(
                slot, state, host=agent_, job=job, queue=make_queue_ad(self._dispatch_index)
            )
            for slot in ("JobRequirements", "Rank", "Concurrency")
            if rules.policy.has(slot)
        ]
