"""The cheapest way to finish a job by its deadline on nodes that come and go: a stochastic dynamic
programme.

State: steps until the deadline; whether spot nodes are available, and for how long they have been
or have not; where the job runs; its *slack*, the time until the deadline less the work left. A
step of work leaves the slack as it is; idling costs a step of slack, a restart its restart cost. A
state with too little slack to restart on demand has infinite cost, and so has each action that may
lead to such a state: the deadline is never risked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vgrads.pool.spot.survival import AGES_S, STEP_S, Hazards

NONE, SPOT, ON_DEMAND = 0, 1, 2
_INFINITE, INFEASIBLE_USD = 1e18, 1e9
"""Far apart: the probability of a state that must not be reached may be small."""
_MOST_UNITS = 300
_RESOLUTIONS = (10, 5, 2, 1)  # units of slack in a step

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """``actions``: by steps left, availability, interval of its age, where the job runs, and units
    of slack. ``costs``: expected dollars from there on, by the same; above
    :data:`INFEASIBLE_USD` where the deadline may be missed."""

    actions: NDArray[np.int8]
    costs: NDArray[np.float32]
    units_a_step: int
    step_s: float
    restart_s: float

    def choices(
        self,
        left_s: float | Values,
        slack_s: Values,
        available: NDArray[np.bool_],
        age: NDArray[np.int64],
        market: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return where each of several jobs runs next.

        ``left_s``: until the deadline; ``age``: interval of the age of (un)availability;
        ``market``: where each runs now; arrays are broadcast to each other. With too little
        slack for a restart, a job stays where it runs, or starts on demand.
        """
        market = np.where((market == SPOT) & ~available, NONE, market)
        at = self._position(left_s, slack_s, available, age, market)
        late = self._is_late(slack_s, market)
        stays = np.where((market == SPOT) & (slack_s >= 0.0), SPOT, ON_DEMAND)
        return np.where(late, stays, self.actions.ravel()[at])

    def expected_usd(
        self, left_s: float, slack_s: float, available: bool, age: int, market: int
    ) -> float:
        """Return the expected dollars of one job from now on."""
        market = NONE if market == SPOT and not available else market
        slack, there = np.array(slack_s), np.array(market)
        if self._is_late(slack, there):
            return _INFINITE
        at = self._position(left_s, slack, np.array(available), np.array(age), there)
        return float(self.costs.ravel()[at])

    def _is_late(self, slack_s: Values, market: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(slack_s < np.where(market == ON_DEMAND, 0.0, self.restart_s))

    def _position(
        self,
        left_s: float | Values,
        slack_s: Values,
        available: NDArray[np.bool_],
        age: NDArray[np.int64],
        market: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return positions in the flat tables."""
        most, _, ages, markets, units = self.actions.shape
        steps = np.clip(np.rint(np.asarray(left_s) / self.step_s), 1, most - 1).astype(np.int64)
        unit = np.clip(slack_s * (self.units_a_step / self.step_s) + 1e-6, 0, units - 1)
        rows = (steps * 2 + available) * ages + np.minimum(age, ages - 1)
        position: NDArray[np.int64] = (rows * markets + market) * units + unit.astype(np.int64)
        return position


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrices:
    """Dollars per hour of one node."""

    spot_usd: float
    on_demand_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketRules:
    """``step_s``: between two decisions; ``restart_s``: what a restart costs; ``hazards``: for
    steps of :data:`STEP_S`; ``late``: of equally cheap actions the one that waits, otherwise the
    one that works."""

    step_s: float
    restart_s: float
    prices: MarketPrices
    hazards: Hazards
    late: bool = False


@lru_cache(maxsize=16)
def make_decision_table(rules: MarketRules, steps: int, slack_steps: int) -> DecisionTable:
    """Return the best actions for so many steps until the deadline and so many of slack."""
    step_s = rules.step_s
    units_a_step = next(
        units for units in _RESOLUTIONS if units * slack_steps <= _MOST_UNITS or units == 1
    )
    slack_units, hours = slack_steps * units_a_step, step_s / 3600.0
    restart = rules.restart_s / step_s * units_a_step
    spot_step = min(rules.prices.spot_usd * hours, _INFINITE / 10.0)
    on_demand_step = rules.prices.on_demand_usd * hours
    ages = len(AGES_S) if math.isfinite(rules.prices.spot_usd) else 1  # without spot all alike
    ends = 1.0 - (1.0 - rules.hazards.steps[:, :ages, None, None]) ** (step_s / STEP_S)
    widths = np.append(np.diff(AGES_S), AGES_S[-1])[:ages]
    older = (1.0 - ends) * np.minimum(1.0, step_s / widths)[None, :, None, None]
    following = np.minimum(np.arange(ages) + 1, ages - 1)
    slack, margin = np.arange(slack_units + 1), 1e-9 if rules.late else -1e-9
    values: Values = np.zeros((2, ages, 3, slack_units + 1))
    actions, costs = (np.zeros((steps + 1, *values.shape), t) for t in (np.int8, np.float32))
    for left in range(1, steps + 1):
        work = left * units_a_step - slack
        share = np.clip(work / units_a_step, 0.0, 1.0)
        after = (
            (1.0 - ends - older) * values + older * values[:, following] + ends * values[::-1, :1]
        )
        idle = np.full((2, ages, slack_units + 1), _INFINITE)
        idle[..., units_a_step:] = after[:, :, NONE, : max(0, slack_units + 1 - units_a_step)]
        on_spot = np.full_like(idle, _INFINITE)
        lost = ends[1, :, 0] * values[0, :1, NONE]
        stayed = (1.0 - ends - older)[1, :, 0] * values[1, :, SPOT] + spot_step * share
        stayed += older[1, :, 0] * values[1, following, SPOT]
        on_spot[1] = stayed + lost
        on_demand = after[:, :, ON_DEMAND] + on_demand_step * share
        demand_again = _later(on_demand, restart)
        spot_again = np.full_like(idle, _INFINITE)  # a node lost at once costs no more than a step
        spot_again[1] = _later(stayed, restart) + _later(lost, min(restart, float(units_a_step)))
        for market in (NONE, SPOT, ON_DEMAND):
            spot = on_spot if market == SPOT else spot_again
            demand = on_demand if market == ON_DEMAND else demand_again
            best, action = np.minimum(idle, spot), actions[left, :, :, market]
            action[spot < idle - margin] = SPOT
            action[demand < best - margin] = ON_DEMAND
            action[best > INFEASIBLE_USD] = ON_DEMAND
            np.minimum(best, demand, out=best)
            best[best > INFEASIBLE_USD] = _INFINITE
            values[:, :, market] = np.where(work > 0, best, 0.0)
        values[0, :, SPOT] = values[0, :, NONE]
        costs[left] = values
    return DecisionTable(actions, costs, units_a_step, step_s, rules.restart_s)


def _later(costs: Values, units: float) -> Values:
    """Return costs with so many units of slack less, linear between units."""
    whole = int(units)
    part = units - whole
    moved = np.full_like(costs, _INFINITE)
    if whole < costs.shape[-1]:
        moved[..., whole:] = costs[..., : costs.shape[-1] - whole]
    if part > 1e-9:
        lower = np.full_like(costs, _INFINITE)
        lower[..., 1:] = moved[..., :-1]
        moved = (1.0 - part) * moved + part * lower
    return moved
