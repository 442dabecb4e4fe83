"""Where a job or a bag runs next, on a spot node, on demand or nowhere, so that it is cheapest and
never misses its deadline.

This function decides in execution, in the scenarios of plans and in the benchmark ("Can't Be
Late", Wu et al., NSDI 2024). See docs/deadlines.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vgrads.kernel.units import billed_usd
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.regimes import estimate_weights, make_regimes
from vgrads.pool.spot.survival import STEP_S, LifeTable, find_interval
from vgrads.pool.spot.table import (
    INFEASIBLE_USD,
    NONE,
    ON_DEMAND,
    SPOT,
    MarketPrices,
    MarketRules,
    make_market_table,
)

MARKETS = ("none", "spot", "on-demand")
_AT = {"none": NONE, "spot": SPOT, "on-demand": ON_DEMAND}
_MOST_STEPS = 450


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
    if not math.isfinite(prices.spot_usd):  # to wait changes no price, and costs slack
        on_demand = current.market == "on-demand"
        need_s = 0.0 if on_demand else restart_cost_s
        cost_usd = billed_usd(1, work_left_s + over_s + need_s, 0.0, prices.on_demand_usd)
        return MarketDecision(
            market="on-demand",
            slack_s=slack_s,
            cost_usd=cost_usd if slack_s >= need_s - 1e-6 else None,
            reason=f"on-demand: slack of {slack_s / 60:.0f} min, there are no spot nodes",
        )
    look_s = step_s
    # tables grow with the number of steps: long jobs are decided in longer ones
    while (deadline_s - now_s) / step_s > _MOST_STEPS:
        step_s *= 2.0
    regimes = make_regimes(prior)
    rules = MarketRules(step_s=step_s, restart_s=restart_cost_s, prices=prices, regimes=regimes)
    table = make_market_table(deadline_s - now_s, slack_s, rules)
    age_s = history.age_s(now_s)
    action, cost_usd = table.decide(
        deadline_s - now_s,
        slack_s,
        available,
        find_interval(age_s),
        _AT[current.market],
        estimate_weights(regimes, history, now_s),
        look_s,
    )
    chosen = MARKETS[action]
    return MarketDecision(
        market=chosen,
        slack_s=slack_s,
        cost_usd=None if cost_usd > INFEASIBLE_USD else cost_usd,
        reason=(
            f"{chosen}: slack of {slack_s / 60:.0f} min, spot nodes "
            f"{'' if available else 'not '}available for {age_s / 60:.0f} min"
        ),
    )
