"""Where a job or a bag runs next, on a spot node, on demand or nowhere, so that it is cheapest and
never misses its deadline.

This function decides in execution, in the scenarios of plans and in the benchmark ("Can't Be
Late", Wu et al., NSDI 2024). See docs/deadlines.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vgrads.kernel.units import billed_usd
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.survival import (
    STEP_S,
    Hazards,
    LifeTable,
    compute_posterior,
    find_interval,
    make_life_table,
)
from vgrads.pool.spot.table import (
    INFEASIBLE_USD,
    DecisionTable,
    MarketPrices,
    MarketRules,
    make_decision_table,
)

MARKETS = ("none", "spot", "on-demand")
_MOST_STEPS, _SLACK_STEPS = 450, 24
_REFIT_STEPS, _REFIT_GROWTH = 6, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """Where the job runs (one of :data:`MARKETS`), and the part of its restart that is still to
    come."""

    market: str = "none"
    restart_left_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketDecision:
    """``market``: where to run until the next decision. ``slack_s``: time until the deadline less
    the work left. ``cost_usd``: expected from now on; None where the deadline may be missed
    whatever is done."""

    market: str
    slack_s: float
    cost_usd: float | None
    reason: str


def choose(  # noqa: PLR0913, PLR0917 the signature that benchmarks call
    now_s: float,
    work_left_s: float,
    deadline_s: float,
    restart_cost_s: float,
    current: Current,
    prices: MarketPrices,
    history: SpotHistory,
    prior: tuple[LifeTable, ...] = PRIOR,
    step_s: float = STEP_S,
) -> MarketDecision:
    """Decide until the next decision, which follows after ``step_s`` or earlier.

    ``work_left_s``: seconds on one node; ``deadline_s``: an instant of the clock of ``now_s``. A
    restart takes ``restart_cost_s``: from a job, and from a bag as the mean that its running tasks
    lose. Spot is chosen only while ``history`` says that nodes are available.
    """
    available = history.is_available(now_s)
    stays = current.market != "spot" or available
    over_s = current.restart_left_s if stays else 0.0
    slack_s = deadline_s - now_s - work_left_s - over_s
    if work_left_s <= 0.0:
        return MarketDecision(
            market="none", slack_s=slack_s, cost_usd=0.0, reason="no work is left"
        )
    while (deadline_s - now_s) / step_s > _MOST_STEPS:
        step_s *= 2.0
    fit_s = _last_fit_s(history.began_s, now_s, step_s)
    rules = MarketRules(
        step_s=step_s,
        restart_s=restart_cost_s,
        prices=prices,
        hazards=estimate_hazards(history.as_of(fit_s), prior, fit_s),
    )
    table = make_market_table(deadline_s - fit_s, slack_s, rules)
    age_s = history.age_s(now_s)
    until_s, age, market = deadline_s - now_s, find_interval(age_s), MARKETS.index(current.market)
    cost_usd = table.expected_usd(until_s, slack_s, available, age, market)
    if cost_usd > INFEASIBLE_USD and slack_s >= restart_cost_s:  # less than a unit of slack
        cost_usd = billed_usd(1, work_left_s + restart_cost_s, 0.0, prices.on_demand_usd)
    slack, there = np.array([slack_s]), np.array([market])
    choices = table.choices(until_s, slack, np.array([available]), np.array([age]), there)
    chosen = MARKETS[choices[0]]
    return MarketDecision(
        market=chosen,
        slack_s=slack_s,
        cost_usd=None if cost_usd > INFEASIBLE_USD else cost_usd,
        reason=(
            f"{chosen}: slack of {slack_s / 60:.0f} min, spot nodes "
            f"{'' if available else 'not '}available for {age_s / 60:.0f} min"
        ),
    )


def make_market_table(left_s: float, slack_s: float, rules: MarketRules) -> DecisionTable:
    """Return the decisions for up to ``left_s`` until the deadline and at least ``slack_s`` of
    slack."""
    slack_steps = math.ceil(max(0.0, slack_s) / rules.step_s / _SLACK_STEPS + 1e-9) * _SLACK_STEPS
    return make_decision_table(rules, max(1, round(left_s / rules.step_s)), slack_steps)


def _last_fit_s(began_s: float, now_s: float, step_s: float) -> float:
    """Return the last instant at which the hazards were estimated: when a quarter more had been
    seen than the time before, but not more often than each hour."""
    elapsed, fit = int((now_s - began_s) / step_s + 1e-6), 0
    while (following := max(fit + _REFIT_STEPS, int(fit * _REFIT_GROWTH))) <= elapsed:
        fit = following
    return began_s + fit * step_s


@lru_cache(maxsize=64)
def estimate_hazards(history: SpotHistory, prior: tuple[LifeTable, ...], fit_s: float) -> Hazards:
    """Return the hazards of a history until ``fit_s``."""
    return Hazards(compute_posterior(make_life_table(history, fit_s), prior))
