"""The cheapest plan for a bag that keeps its deadline with the requested probability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

import numpy as np

from vgrads.pool.deadline.scenarios import draw_scenarios
from vgrads.pool.deadline.simulate import PlanOutcome, simulate_plans
from vgrads.pool.deadline.values import DeadlineCase, NodePlan, NodeSource, Work
from vgrads.pool.spot.regimes import estimate_hazards, single_regime
from vgrads.pool.spot.survival import NEVER
from vgrads.pool.spot.table import (
    DecisionTable,
    MarketPrices,
    MarketRules,
    make_decision_table,
)

_STEPS, _BEYOND = 96, 0.25
_NEAR = 1.1
_FACTORS = (0.25, 0.5, 0.8, 1.1, 1.4, 2.0, 3.0, 5.0)
_ROUGH, _ROUGH_MARGIN, _SHORT = 64, 0.03, 6
_ROUNDS, _CHANGE = 8, 0.15
"""Rounds in which the numbers of nodes change by one, or by this share."""
_MOST_PROMISES = 32
"""Plans whose promise in execution is computed where none is probable enough."""
_NODE_HOUR_USD = 1e-3
"""What an hour of a node without a price counts for: of equally cheap plans the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """``deadline_s`` from now; ``probability`` with which it must be kept; ``budget_usd``: the most
    to be spent, whatever happens."""

    deadline_s: float
    probability: float = 0.95
    budget_usd: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedNodes:
    """A plan, and what it does: probability, mean and .95 quantile of the dollars, mean node hours,
    median end. ``cloud``: the name of the cloud that it uses; empty: none."""

    plan: NodePlan
    cloud: str
    probability: float
    cost_usd: float
    cost_high_usd: float
    node_hours: float
    end_s: float

    @property
    def price(self) -> float:
        """Return what plans are compared by."""
        return self.cost_usd + self.node_hours * _NODE_HOUR_USD


@dataclass(frozen=True, kw_only=True)
class DeadlinePlan:
    """``chosen``: the cheapest plan whose nodes reach the probability; where there is none, the
    cheapest whose ``promise`` does, or the one that promises most (``enough`` is False).
    ``promise``: the probability in execution, where the plan is made anew, and nodes of a cloud are
    added when those of the plan can no longer be in time.
    ``front``: plans of which none is both cheaper and more probable than another, and the chosen
    one."""

    chosen: PlannedNodes
    promise: float
    enough: bool
    front: tuple[PlannedNodes, ...]


class SimulatedPlans:
    """Plans for a goal in the same scenarios, so many of them."""

    def __init__(
        self, work: Work, sources: Sequence[NodeSource], goal: Goal, count: int, seed: int
    ) -> None:
        self._goal, self.case = goal, _make_case(work, sources, goal)
        self._scenarios = draw_scenarios(self.case, count, seed)
        self._table_of = _make_tables(self.case)

    def planned(self, plans: Sequence[NodePlan]) -> list[PlannedNodes]:
        """Return what plans do."""
        return [planned for planned, _ in self.outcomes(plans)]

    def promises(self, planned: Sequence[PlannedNodes]) -> list[float]:
        """Return the probabilities of plans whose nodes of the cloud are added to when they can no
        longer be in time; no less than without."""
        if self.case.cloud is None:
            return [p.probability for p in planned]
        grown = {p.plan: p.probability for p, _ in self.outcomes([p.plan for p in planned], True)}
        return [max(p.probability, grown[p.plan]) for p in planned]

    def outcomes(
        self, plans: Sequence[NodePlan], grows: bool = False
    ) -> list[tuple[PlannedNodes, PlanOutcome]]:
        """Return what plans do, also in each scenario; in any order. ``grows``: nodes of the cloud
        are added when those of the plan can no longer be in time."""
        results = []
        for late in (None, False, True):
            group = [p for p in plans if (p.late if p.cloud or grows else None) is late]
            if group:
                table = None if late is None else self._table_of(late)
                outcomes = simulate_plans(group, self.case, table, self._scenarios, grows)
                results += [
                    (_make_plan(plan, outcome, self.case, self._goal), outcome)
                    for plan, outcome in zip(group, outcomes, strict=True)
                ]
        return results


def plan_nodes(
    work: Work, sources: Sequence[NodeSource], goal: Goal, scenarios: int = 400, seed: int = 0
) -> DeadlinePlan:
    """Return the cheapest plan: how many nodes of which queue, and how many of one cloud, whose
    market is chosen during execution. Of several clouds (also of zones, if each is a source), that
    of the best plan is used."""
    queues = [source for source in sources if not source.cloud]
    alternatives = [[*queues, source] for source in sources if source.cloud] or [queues]
    searches = [_Search(work, there, goal, scenarios, seed) for there in alternatives]
    first = min(searches, key=lambda search: search.rank)
    # where no plan is probable enough, one of another cloud may promise more; where prices are
    # close, a search among its neighbours may put another cloud first
    near = [s for s in searches if s is first or (s.enough and s.rank[2] <= first.rank[2] * _NEAR)]
    results = [search.result() for search in (near if first.enough else searches)]
    chosen, promise = min(results, key=lambda r: _order(r[0], goal.probability, r[1]))
    return DeadlinePlan(
        chosen=chosen,
        promise=promise,
        enough=promise >= goal.probability,
        front=_insert_chosen(
            chosen, _select_front([p for search in searches for p in search.plans])
        ),
    )


class _Search:
    """The search for the cheapest plan for queues and at most one cloud. ``plans``: those that were
    judged in all scenarios."""

    def __init__(
        self, work: Work, sources: Sequence[NodeSource], goal: Goal, scenarios: int, seed: int
    ) -> None:
        self._simulated = SimulatedPlans(work, sources, goal, scenarios, seed)
        self._requested = goal.probability
        rough_ones = SimulatedPlans(work, sources, goal, min(scenarios, _ROUGH), seed)
        rough = rough_ones.planned(list(_list_candidates(self._simulated.case)))
        # few scenarios are in error by some hundredths: plans that seem to exceed the probability
        # by that much are kept as well as those that seem to reach it
        cautious = goal.probability + _ROUGH_MARGIN
        shortlist = sorted(rough, key=lambda p: _order(p, cautious))[:_SHORT]
        shortlist += sorted(rough, key=lambda p: _order(p, goal.probability))[:_SHORT]
        shortlist += _select_front(rough)
        self.plans = self._simulated.planned(list(dict.fromkeys(p.plan for p in shortlist)))

    @property
    def rank(self) -> tuple[float, float, float]:
        """Return the order of its best plan so far among those of other searches."""
        return _order(self._best(), self._requested)

    @property
    def enough(self) -> bool:
        """Return True where a plan so far reaches the probability."""
        return self._best().probability >= self._requested

    def result(self) -> tuple[PlannedNodes, float]:
        """Return the best plan and its promise, after a search among its neighbours."""
        chosen = self._improved()
        if chosen.probability >= self._requested:
            return chosen, self._simulated.promises([chosen])[0]
        # all that were tried would take longer than the search for them
        best = sorted(self.plans, key=lambda p: _order(p, self._requested))[:_MOST_PROMISES]
        plans = list(dict.fromkeys([*best, *_select_front(self.plans)]))
        promises = zip(plans, self._simulated.promises(plans), strict=True)
        return min(promises, key=lambda p: _order(p[0], self._requested, p[1]))

    def _improved(self) -> PlannedNodes:
        """Return the best plan after trying its neighbours as long as one is better."""
        chosen = self._best()
        for _ in range(_ROUNDS):
            tried = {planned.plan for planned in self.plans}
            neighbours = _list_neighbours(chosen.plan, self._simulated.case)
            self.plans += self._simulated.planned([p for p in neighbours if p not in tried])
            before, chosen = chosen, self._best()
            if chosen is before:
                break
        return chosen

    def _best(self) -> PlannedNodes:
        return min(self.plans, key=lambda p: _order(p, self._requested))


def _order(
    planned: PlannedNodes, requested: float, promise: float | None = None
) -> tuple[float, float, float]:
    """Order plans: those that reach the probability by their price, then the more probable; of
    equally improbable ones the earlier, and of those that end late in any case the largest.
    ``promise``: counts instead of their probability."""
    probability = planned.probability if promise is None else promise
    if probability >= requested:
        return (0.0, 0.0, planned.price)
    late = math.isinf(planned.end_s)
    return (1.0 - probability, planned.end_s, -planned.node_hours if late else planned.price)


def _make_case(work: Work, sources: Sequence[NodeSource], goal: Goal) -> DeadlineCase:
    cloud, hazards = next((source for source in sources if source.cloud), None), NEVER
    if cloud is not None and cloud.history is not None:
        hazards = estimate_hazards(cloud.history, cloud.prior, cloud.now_s)
    return DeadlineCase(
        work=work,
        queues=tuple(source for source in sources if not source.cloud),
        cloud=cloud,
        deadline_s=goal.deadline_s,
        budget_usd=goal.budget_usd,
        hazards=hazards,
        step_s=goal.deadline_s / _STEPS,
        steps=round(_STEPS * (1.0 + _BEYOND)),
    )


def _list_candidates(case: DeadlineCase) -> Iterator[NodePlan]:
    """Return plans: shares of the least number of workers that could be enough, at queues in the
    order of their waits, and at the cloud."""
    queues, cloud = case.queues, case.cloud
    least = max(1.0, case.work.total_s / case.deadline_s)
    order = sorted(range(len(queues)), key=lambda q: float(np.median(queues[q].waits_s)))
    shares = {tuple(0 for _ in queues)}
    for factor in _FACTORS:
        shares.add(_spread_workers(math.ceil(least * factor), queues, order))
        shares |= {_spread_workers(math.ceil(least * factor), queues, [q]) for q in order[:3]}
    clouds = {0}
    if cloud is not None:
        clouds |= {
            min(cloud.most, max(1, math.ceil(least * factor / cloud.workers)))
            for factor in _FACTORS
        }
    for nodes in sorted(shares):
        for count in sorted(clouds):
            if count or any(nodes):
                yield NodePlan(queues=nodes, cloud=count)
            if count and any(nodes):
                yield NodePlan(queues=nodes, cloud=count, late=True)


def _list_neighbours(plan: NodePlan, case: DeadlineCase) -> Iterator[NodePlan]:
    """Return plans with somewhat more or fewer nodes at one source, or at two in opposite
    directions, each with late and with early on-demand nodes."""
    most = [queue.most for queue in case.queues] + [case.cloud.most if case.cloud else 0]
    counts = np.array([*plan.queues, plan.cloud])
    moves = []
    for share in (0.0, _CHANGE):
        sizes = np.maximum(1, np.rint(counts * share)).astype(int)
        steps = np.diag(sizes)
        moves += [*steps, *-steps]
        moves += [up - down for up, down in permutations(steps, 2)]
    for move in moves:
        nodes = counts + move
        if np.all(nodes >= 0) and np.all(nodes <= most) and nodes.any():
            *queues, cloud = nodes.tolist()
            for late in (False, True)[: 1 + bool(cloud)]:
                yield replace(plan, queues=tuple(queues), cloud=cloud, late=late)
    if plan.cloud:
        yield replace(plan, late=not plan.late)


def _spread_workers(
    workers: int, queues: tuple[NodeSource, ...], order: Sequence[int]
) -> tuple[int, ...]:
    nodes = [0] * len(queues)
    for q in order:
        nodes[q] = min(queues[q].most, math.ceil(workers / queues[q].workers))
        workers -= nodes[q] * queues[q].workers
        if workers <= 0:
            break
    return tuple(nodes)


def _make_tables(case: DeadlineCase) -> Callable[[bool], DecisionTable]:
    """Return the decisions about the cloud's market, for late and for early on-demand nodes."""

    @cache
    def table(late: bool) -> DecisionTable:
        assert case.cloud is not None
        spot_usd = case.cloud.spot_usd_per_hour
        prices = MarketPrices(
            spot_usd=math.inf if spot_usd is None else spot_usd,
            on_demand_usd=case.cloud.usd_per_hour,
        )
        return make_decision_table(
            MarketRules(
                step_s=case.step_s,
                # tasks that are lost with a node have run for half of their time on average
                restart_s=case.cloud.boot_s + case.work.mean_s / 2.0,
                prices=prices,
                regimes=single_regime(case.hazards),
                late=late,
            ),
            _STEPS,
            _STEPS,
        )

    return table


def _make_plan(
    plan: NodePlan, outcome: PlanOutcome, case: DeadlineCase, goal: Goal
) -> PlannedNodes:
    return PlannedNodes(
        plan=plan,
        cloud=case.cloud.name if case.cloud is not None and plan.cloud else "",
        probability=outcome.probability(goal.deadline_s, goal.budget_usd),
        cost_usd=float(outcome.cost_usd.mean()),
        cost_high_usd=float(np.quantile(outcome.cost_usd, 0.95)),
        node_hours=float(outcome.node_s.mean()) / 3600.0,
        end_s=float(np.median(outcome.end_s)),
    )


def _insert_chosen(
    chosen: PlannedNodes, front: tuple[PlannedNodes, ...]
) -> tuple[PlannedNodes, ...]:
    """Return a front with the chosen plan: in execution it may promise more than its own nodes."""
    return front if chosen in front else tuple(sorted((*front, chosen), key=lambda p: p.price))


def _select_front(planned: Sequence[PlannedNodes]) -> tuple[PlannedNodes, ...]:
    """Return the plans of which none is both cheaper and more probable than another."""
    front: list[PlannedNodes] = []
    for candidate in sorted(planned, key=lambda p: (p.price, -p.probability)):
        if not front or candidate.probability > front[-1].probability:
            front.append(candidate)
    return tuple(front)
