"""The comparison of starting plans: all in few scenarios, the best of these in as many as chose
between plans later on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from vgrads.kernel.units import format_count
from vgrads.planner.effort import Effort
from vgrads.planner.plan import EVERYTHING, Plan
from vgrads.planner.promise.probability import standard_error
from vgrads.planner.search.orders import NumberedSet, Orders
from vgrads.planner.search.starts import (
    Start,
    brief_starts,
    random_plans,
    starting_plans,
    sure_plans,
)
from vgrads.planner.search.versions import PlacedOrders, Simulator, Version
from vgrads.planner.snapshot import QUANTILE_LEVELS, Snapshot
from vgrads.planner.uses import derive_slot_uses

_SHARE = 0.25  # of the effort, for few scenarios
_RULES = 0.6  # of this, for plans by rules, the rest for variants of the best
_DEAR = 3.0  # times the cost of a plan that suffices, as planned: what costs more is not simulated
_SCREENS, _SCREENED = (32, 128), 6_000  # fewest and most scenarios; so many per task
_COMPARED, _VARIED = 8, 4  # plans that are simulated in more scenarios; that are varied before
_FAR = 0.15  # by which a plan falls short of the best in the fewest scenarios: it is no candidate
_RELEASED = 12  # the surest plans, also with earlier release
_SPARES = 3  # numbers of spare workflows before early release that are tried, from 0 on
_BRIEF = 4  # simulations of a plan for which a brief search has effort, at least
_MARGIN = 1.0  # standard errors above the requested probability


@dataclass(frozen=True, eq=False)
class ComparedPlan:
    """A version, the rule that made its start, and its problem, which reserves time for a quantile
    of run times."""

    rule: str
    version: Version
    problem: NumberedSet


def compare(
    snapshot: Snapshot, plans: Sequence[Plan], effort: Effort, brief: bool
) -> list[ComparedPlan]:
    """Return the best starting plans, the best first, simulated in all scenarios of the choice. If
    all fall short and run times are uncertain, plans reserve little time: a task is then begun as
    long as it may still end in time. ``brief``: begin with ``plans`` and few others."""
    part = effort.part(1.0 if brief else _SHARE)
    requested = snapshot.workflow_set.probability
    usual = NumberedSet(replace(snapshot, quantile=plans[0].quantile))
    # half is kept for plans that reserve little time, which are tried if all of these fall short
    first = part.part(0.5 if snapshot.workflow_set.uncertain else 1.0)
    screened = _screen_plans(usual, plans, first, brief)
    part.take_back(first)
    if snapshot.workflow_set.uncertain and all(s.promise < requested for s in screened):
        little = NumberedSet(replace(snapshot, quantile=QUANTILE_LEVELS[-1]))
        screened += _screen_plans(little, plans, part, brief)
    effort.take_back(part)
    results = list[ComparedPlan]()
    for s in _select_best_by_either(screened, _VARIED if brief else _COMPARED):
        s.simulator.effort = effort
        count = int(effort.left / (_BRIEF * len(s.candidate.orders.task))) if brief else None
        version = s.simulator.version(s.candidate, count and s.simulator.within(count))
        if version is not None:
            results.append(ComparedPlan(s.rule, version, s.simulator.problem))
    counts = [len(r.version.outcome.done) for r in results]
    # numbers of scenarios may differ: the smallest one is the least certain
    required = surely(requested, min(counts, default=1))
    return sorted(results, key=lambda r: r.version.rank(required), reverse=True)


def surely(requested: float, count: int) -> float:
    """Return the probability in so many scenarios with which a plan reaches the requested one, but
    for bad luck."""
    return min(requested + _MARGIN * standard_error(requested, count), (1.0 + requested) / 2)


@dataclass(frozen=True, eq=False)
class _Screened:
    """A starting plan with its results in few scenarios."""

    rule: str
    candidate: PlacedOrders
    simulator: Simulator
    promise: float
    usd: float
    hours: float

    def rank(self, required: float) -> tuple[float, ...]:
        """Return the order of preference, the best highest."""
        # rounded, so that plans with the same results compare as equal
        return min(self.promise, required), -round(self.usd, 2), -round(self.hours, 1)


def _select_best_by_either(screened: Sequence[_Screened], count: int) -> list[_Screened]:
    """Return the plans that seem best, in turn of those that reach the request and of those that
    reach it surely; of several with equal results the first."""
    if not screened:
        return []
    requested = screened[0].simulator.snapshot.workflow_set.probability
    rankings = [_rank_plans(screened, r) for r in (surely(requested, _SCREENS[1]), requested)]
    distinct = dict[tuple[float, ...], _Screened]()
    for s in chain.from_iterable(zip(*rankings, strict=True)):
        # by the whole promise: above what is required, different plans have one rank
        distinct.setdefault(s.rank(1.0), s)
    return list(distinct.values())[:count]


def _rank_plans(screened: Iterable[_Screened], required: float) -> list[_Screened]:
    return sorted(screened, key=lambda s: s.rank(required), reverse=True)


def _screen_plans(
    problem: NumberedSet, plans: Sequence[Plan], effort: Effort, brief: bool
) -> list[_Screened]:
    """Return the starting plans, and variants of the best with fewer hours."""
    if brief:
        starts = brief_starts(problem, plans)
        return list(_screen(Simulator(problem, effort), starts, _SCREENS[0]))
    requested, first = problem.snapshot.workflow_set.probability, effort.part(_RULES)
    simulator = Simulator(problem, first)
    count = max(_SCREENS[0], min(_SCREENS[1], _SCREENED // len(problem.tasks)))
    results = list(_screen(simulator, starting_plans(problem, plans), count))
    if all(s.promise < requested for s in results):
        results += _screen(simulator, sure_plans(problem, plans[0]), count)
    if all(s.promise <= 0 for s in results):
        lucky = random_plans(problem, random.Random(problem.snapshot.seed), first)
        results += islice(_screen(simulator, lucky, count), _VARIED)
    effort.take_back(first)
    simulator.effort = effort
    return [*results, *_screen(simulator, _find_fewer_hours(problem, results), count)]


def _find_fewer_hours(problem: NumberedSet, screened: Sequence[_Screened]) -> Iterator[Start]:
    """Return the best of these plans with earlier release, or with their slots requested as late as
    their starts allow."""
    workflow_set = problem.snapshot.workflow_set
    best = _rank_plans(screened, workflow_set.probability)[:_VARIED]
    surest = sorted(screened, key=lambda s: s.promise, reverse=True)[:_RELEASED]
    if not problem.single:
        for s in dict.fromkeys([*best, *surest]):
            yield Start(f"{s.rule}, released early", replace(s.candidate.orders, spare_workflows=0))
        reserve = len(problem.workflows) - workflow_set.needed
        for s in best:
            for spare in range(1, min(reserve + 1, _SPARES)):
                rule = f"{s.rule}, released with {format_count(spare, 'spare workflow')}"
                yield Start(rule, replace(s.candidate.orders, spare_workflows=spare))
    for s in best:
        orders = s.candidate.orders
        placements = problem.placements(orders, s.candidate.starts_s)
        uses = derive_slot_uses(problem.snapshot, placements)
        late = problem.orders_of(placements, uses, orders.spare_workflows)
        yield Start(f"{s.rule}, requested late", late)
    for s in dict.fromkeys([*best, *surest]):
        if problem.paid[s.candidate.used].any():
            spare_workflows = EVERYTHING if problem.single else 0
            late = _delay_clouds(problem, s.candidate)
            rule = f"{s.rule}, with late clouds"
            yield Start(rule, replace(late, spare_workflows=spare_workflows))


def _delay_clouds(problem: NumberedSet, candidate: PlacedOrders) -> Orders:
    """Return a plan with its paid slots requested as late as they would be in time: they cost
    nothing if enough is done before."""
    last_s = np.zeros(len(problem.slots))
    np.maximum.at(last_s, candidate.orders.slot, candidate.ends_s)
    left_s = np.where(problem.shiftable & problem.paid, problem.work.limit_s - last_s, 0.0)
    return replace(candidate.orders, submits_s=candidate.orders.submits_s + np.floor(left_s))


def _screen(simulator: Simulator, starts: Iterable[Start], count: int) -> Iterator[_Screened]:
    """Simulate plans in few scenarios, each once, and in fewer those that fall far short of the
    best; omit those that do not place the needed workflows, or cost too much, or much more than one
    that suffices."""
    best, enough_usd = 0.0, np.inf
    requested = simulator.snapshot.workflow_set.probability
    for start in starts:
        candidate = simulator.candidate(start.orders) if simulator.is_new(start.orders) else None
        # where a plan without cost suffices, the cent leaves room for rounding only
        if candidate is None or candidate.most_usd > max(_DEAR * enough_usd, 0.01):
            continue
        screened = _simulate_candidate(simulator, start.rule, candidate, _SCREENS[0])
        if screened is not None and count > _SCREENS[0] and screened.promise > best - _FAR:
            screened = _simulate_candidate(simulator, start.rule, candidate, count)
        if screened is not None and screened.usd <= simulator.budget_usd + 1e-9:
            best = max(best, screened.promise)
            if screened.promise >= requested:
                enough_usd = min(enough_usd, screened.usd)
            yield screened


def _simulate_candidate(
    simulator: Simulator, rule: str, candidate: PlacedOrders, count: int
) -> _Screened | None:
    outcome = simulator.simulate(candidate, np.arange(min(count, simulator.count)))
    if outcome is None:
        return None
    return _Screened(
        rule=rule,
        candidate=candidate,
        simulator=simulator,
        promise=float((outcome.done >= simulator.needed).mean()),
        usd=float(outcome.usd.mean()),
        hours=float(outcome.hours.mean()),
    )
