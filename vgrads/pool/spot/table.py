"""The cheapest way to finish a job by its deadline on nodes that come and go: a stochastic dynamic
programme on whole steps.

State: whole steps until the deadline; whether spot nodes are available, and for how long they have
been or have not; the regime of the market; where the job runs; its *slack*, the time until the
deadline less the work left. A step of work leaves the slack as it is; idling costs a step of slack,
a restart its restart cost.

What is feasible does not depend on probabilities. Whoever looks once a step may lose a whole step:
the node may be taken back just after it was looked at. So a job waits, or stays on a spot node,
only where a step of slack and a restart are left, and starts on a spot node only where they are
left after the start. All else runs on demand; then the deadline is never risked.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from vgrads.pool.spot.regimes import LASTS_S, SpotRegimes, Weights
from vgrads.pool.spot.survival import AGES_S, STEP_S

NONE, SPOT, ON_DEMAND = 0, 1, 2
_INFINITE, INFEASIBLE_USD = 1e18, 1e9
"""Far apart: the probability of a state that must not be reached may be small."""
_UNITS, _FINE, _MIDDLE, _COARSE = 5, 2, 24, 96
"""Units of slack in a step; the grid of slack has each of them up to some steps, then whole steps,
then each fourth, then each 16th."""
_EQUAL, _ROUNDING, _ROUNDING_S = 1e-5, 1e-9, 1e-6
_STEPS_MORE = 24
_MOST_BYTES = 256 * 2**20

Values = NDArray[np.float64]
Costs = NDArray[np.float32]
Actions = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrices:
    """Dollars per hour of one node."""

    spot_usd: float
    on_demand_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketRules:
    """``step_s``: between two decisions; ``restart_s``: what a restart costs; ``regimes``: hazards
    for steps of :data:`STEP_S`; ``late``: of equally cheap actions the one that waits, otherwise
    the one that works."""

    step_s: float
    restart_s: float
    prices: MarketPrices
    regimes: SpotRegimes
    late: bool = False


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """Expected dollars from a state on if in this step the job idles, runs on a spot node, or on
    demand, and had run there before: by steps left, availability (``spot``: there is one), interval
    of its age, slack on the grid, and regime."""

    rules: MarketRules
    grid: tuple[float, ...]
    idle: Costs
    spot: Costs
    demand: Costs

    @property
    def steps(self) -> int:
        """Return the most steps until the deadline."""
        return len(self.idle) - 1

    def covers(self, steps: int, slack_steps: float) -> bool:
        """Return whether it has so many steps until the deadline and so many of slack."""
        return steps <= self.steps and slack_steps <= self.grid[-1]

    @property
    def bytes(self) -> int:
        """Return its size."""
        return self.idle.nbytes + self.spot.nbytes + self.demand.nbytes

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        """The grid's place of each unit of slack."""
        units = np.arange(round(self.grid[-1] * _UNITS) + 1)
        places = np.searchsorted(self.grid, units / _UNITS + _ROUNDING, side="right") - 1
        return np.minimum(places, len(self.grid) - 2)

    @cached_property
    def _place_of(self) -> list[int]:
        return [int(place) for place in self._positions]

    def decide(  # noqa: PLR0913, PLR0917 the state
        self,
        left_s: float,
        slack_s: float,
        available: bool,
        age: int,
        market: int,
        weights: Weights,
        look_s: float | None = None,
    ) -> tuple[int, float]:
        """Return where a job runs next, and its expected dollars from now on.

        ``left_s``: until the deadline; ``age``: interval of the age of (un)availability;
        ``market``: where it runs now; ``weights``: probabilities of the regimes; ``look_s``: time
        until the next decision, where it is not a step. With too little slack for a restart, it
        stays where it runs, or starts on demand.
        """
        rules = self.rules
        if market == SPOT and not available:
            market = NONE
        if slack_s < (0.0 if market == ON_DEMAND else rules.restart_s) - _ROUNDING_S:
            return (SPOT if market == SPOT and slack_s >= 0.0 else ON_DEMAND), _INFINITE
        row, kind, age = self._row(left_s), int(available), min(age, self.idle.shape[2] - 1)
        restarted_s = slack_s - rules.restart_s
        costs = [_INFINITE, _INFINITE, _INFINITE]
        costs[ON_DEMAND] = self._expected(
            self.demand[row, kind, age], slack_s if market == ON_DEMAND else restarted_s, weights
        )
        need_s = (look_s or rules.step_s) + rules.restart_s - _ROUNDING_S
        if slack_s >= need_s:
            costs[NONE] = self._expected(self.idle[row, kind, age], slack_s, weights)
            after_s = slack_s if market == SPOT else restarted_s
            if available and after_s >= need_s:
                costs[SPOT] = self._expected(self.spot[row, age], after_s, weights)
        best = min(costs)
        equal = best + _EQUAL * (1.0 + abs(best))
        order = (NONE, SPOT, ON_DEMAND) if rules.late else (ON_DEMAND, SPOT, NONE)
        return next(action for action in order if costs[action] <= equal), best

    def _row(self, left_s: float) -> int:
        return min(self.steps, max(1, int(left_s / self.rules.step_s + 1e-6)))

    def _expected(self, costs: Costs, slack_s: float, weights: Weights) -> float:
        """Return the mean over regimes, linear between the slacks of the grid."""
        slack = slack_s / self.rules.step_s
        places = self._place_of
        place = places[min(max(0, int(slack * _UNITS + 1e-6)), len(places) - 1)]
        low, high = self.grid[place], self.grid[place + 1]
        share = min(1.0, (slack - low) / (high - low))
        at = costs[place : place + 2] @ weights
        return float(at[0]) * (1.0 - share) + float(at[1]) * share

    @cached_property
    def _actions(self) -> Actions:
        """The best action of a market of one regime: by steps left, availability, interval of its
        age, where the job runs, slack on the grid."""
        steps, _, ages, slacks, regimes = self.idle.shape
        assert regimes == 1
        actions = np.zeros((steps, 2, ages, 3, slacks), np.int8)
        space = _Space(self.rules, np.array(self.grid))
        for left in range(1, steps):
            costs = (self.idle[left], self.spot[left], self.demand[left])
            for market in (NONE, SPOT, ON_DEMAND):
                options = [option[..., 0] for option in space.options(costs, market)]
                best = np.minimum(np.minimum(options[0], options[1]), options[2])
                equal = best + _EQUAL * (1.0 + np.abs(best))
                # the last assignment counts, so the preferred action comes last
                order = (ON_DEMAND, SPOT, NONE) if self.rules.late else (NONE, SPOT, ON_DEMAND)
                for action in order:
                    actions[left, :, :, market][options[action] <= equal] = action
        return actions

    def choices(
        self,
        left_s: float | Values,
        slack_s: Values,
        available: NDArray[np.bool_],
        age: NDArray[np.int64],
        market: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return where each of several jobs runs next, in a market of one regime; arguments as of
        :meth:`decide`, arrays are broadcast to each other, slack is rounded down to the grid."""
        rules = self.rules
        market = np.where((market == SPOT) & ~available, NONE, market)
        steps = np.clip(np.asarray(left_s) / rules.step_s + 1e-6, 1, self.steps).astype(np.int64)
        most = len(self._positions) - 1
        units = np.clip(slack_s * (_UNITS / rules.step_s) + 1e-6, 0, most).astype(np.int64)
        _, _, ages, markets, slacks = self._actions.shape
        rows = (steps * 2 + available) * ages + np.minimum(age, ages - 1)
        at = (rows * markets + market) * slacks + self._positions[units]
        stays = np.where((market == SPOT) & (slack_s >= 0.0), SPOT, ON_DEMAND)
        late = slack_s < np.where(market == ON_DEMAND, 0.0, rules.restart_s) - _ROUNDING_S
        return np.where(late, stays, self._actions.ravel()[at])


class _Space:
    """Slacks of the grid, and costs with less slack."""

    def __init__(self, rules: MarketRules, grid: Values) -> None:
        restart = rules.restart_s / rules.step_s
        self._restart = _earlier(grid, restart)
        self._step = _earlier(grid, 1.0)
        column = grid[:, None]
        self._waits = column >= 1.0 + restart - _ROUNDING
        self._starts = column >= 1.0 + 2.0 * restart - _ROUNDING

    def after_step(self, costs: Values) -> Values:
        """Return costs with a step of slack less."""
        return _shift(costs, self._step)

    def options(
        self, costs: tuple[Costs | Values, Costs | Values, Costs | Values], market: int
    ) -> tuple[Values, Values, Values]:
        """Return the costs of idling, of a spot node and on demand for a job that runs somewhere;
        infinite where an option is not feasible or spot nodes are not available."""
        idle, spot, demand = costs
        there = np.full(idle.shape, _INFINITE)
        if market == SPOT:
            there[1] = np.where(self._waits, spot, _INFINITE)
        else:
            there[1] = np.where(self._starts, _shift(spot, self._restart), _INFINITE)
        again = np.asarray(demand, np.float64)
        if market != ON_DEMAND:
            again = _shift(demand, self._restart)
        waits: Values = np.where(self._waits, idle, _INFINITE)
        return waits, there, again


def make_market_table(left_s: float, slack_s: float, rules: MarketRules) -> DecisionTable:
    """Return the decisions for up to ``left_s`` until the deadline and ``slack_s`` of slack, from
    a cache where they are there."""
    steps = max(1, math.ceil(left_s / rules.step_s - 1e-6))
    slack_steps = max(0.0, slack_s / rules.step_s)
    with _LOCK:
        table = _TABLES.get(rules)
        if table is None or not table.covers(steps, slack_steps):
            if table is not None:  # it will grow further
                steps = math.ceil(steps / _STEPS_MORE) * _STEPS_MORE
            # made under the lock: two threads would make the same one
            table = make_decision_table(rules, steps, slack_steps)
            _TABLES[rules] = table
        _TABLES.move_to_end(rules)
        # the newest stays whatever its size: it is used now
        while len(_TABLES) > 1 and sum(kept.bytes for kept in _TABLES.values()) > _MOST_BYTES:
            _TABLES.popitem(last=False)
        return table


_LOCK = Lock()
_TABLES: OrderedDict[MarketRules, DecisionTable] = OrderedDict()


def make_decision_table(rules: MarketRules, steps: int, slack_steps: float) -> DecisionTable:
    """Return the expected costs for so many steps until the deadline and so many of slack. A cost
    does not depend on how far the table reaches."""
    ages = len(AGES_S) if math.isfinite(rules.prices.spot_usd) else 1  # without spot all alike
    grid = _slack_grid(slack_steps, whole=ages == 1)
    market, space = _Market(rules, ages), _Space(rules, grid)
    shape = (steps + 1, 2, ages, len(grid), rules.regimes.count)
    idle, demand = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    spot = np.zeros((steps + 1, *shape[2:]), np.float32)
    values = [np.zeros(shape[1:]) for _ in range(3)]
    hours = rules.step_s / 3600.0
    # finite, because infinity times a share of 0 is undefined
    spot_usd = min(rules.prices.spot_usd * hours, _INFINITE / 10.0)
    demand_usd = rules.prices.on_demand_usd * hours
    for left in range(1, steps + 1):
        work = (left - grid)[:, None]
        share = np.clip(work, 0.0, 1.0)
        none, there, on_demand = (market.renew(value) for value in values)
        costs = (
            space.after_step(market.after_step(none)),
            market.after_step_on_spot(none, there) + spot_usd * share,
            market.after_step(on_demand) + demand_usd * share,
        )
        idle[left], spot[left], demand[left] = costs
        for place in (NONE, SPOT, ON_DEMAND):
            options = space.options(costs, place)
            best = np.minimum(np.minimum(options[0], options[1]), options[2])
            values[place] = np.where(work > 0.0, best, 0.0)
    return DecisionTable(rules, tuple(float(slack) for slack in grid), idle, spot, demand)


class _Market:
    """What follows a step: availability, its age, the regime. Axes of values: availability, age,
    slack, regime."""

    def __init__(self, rules: MarketRules, ages: int) -> None:
        hazards = rules.regimes.steps.transpose(1, 2, 0)[:, :ages, None, :]
        self._ends = 1.0 - (1.0 - hazards) ** (rules.step_s / STEP_S)
        widths = np.append(np.diff(AGES_S), np.inf)[:ages, None, None]
        self._older = (1.0 - self._ends) * np.minimum(1.0, rules.step_s / widths)
        self._same = 1.0 - self._ends - self._older
        self._following = np.minimum(np.arange(ages) + 1, ages - 1)
        self._changes = 1.0 - math.exp(-rules.step_s / LASTS_S) if rules.regimes.count > 1 else 0.0

    def renew(self, values: Values) -> Values:
        """Return expected values before another regime may have taken the place of each."""
        if not self._changes:
            return values
        mean = values.mean(axis=-1, keepdims=True)
        renewed: Values = values * (1.0 - self._changes) + mean * self._changes
        return renewed

    def after_step(self, values: Values) -> Values:
        """Return expected values before a step, where its end leaves the job where it is."""
        result: Values = self._same * values
        result += self._older * values[:, self._following]
        result += self._ends * values[::-1, :1]
        return result

    def after_step_on_spot(self, none: Values, there: Values) -> Values:
        """Return expected values before a step on a spot node, which may be taken back."""
        result: Values = self._same[1] * there[1]
        result += self._older[1] * there[1, self._following]
        result += self._ends[1] * none[0, :1]
        return result


def _slack_grid(steps: float, whole: bool) -> Values:
    """Return the slacks of a table; ``whole``: each step, so that equal costs remain equal."""
    parts = (
        np.arange(0, _FINE * _UNITS) / _UNITS,
        np.arange(_FINE, max(_FINE, steps) + 2 if whole else _MIDDLE),
        np.arange(_MIDDLE, _COARSE, 4),
        np.arange(_COARSE, max(_COARSE, steps) + 16, 16),
    )
    grid: Values = np.concatenate(parts[: 2 if whole else None]).astype(np.float64)
    most = int(np.searchsorted(grid, steps + _ROUNDING)) + 1
    return grid[: max(2, min(len(grid), most))]


def _earlier(grid: Values, less: float) -> tuple[NDArray[np.int64], Values]:
    """Return places on the grid, and shares between them and the next, with less slack."""
    slack = grid - less
    low = np.clip(np.searchsorted(grid, slack + 1e-12, side="right") - 1, 0, len(grid) - 2)
    shares = (slack - grid[low]) / (grid[low + 1] - grid[low])
    return low, shares[:, None]


def _shift(costs: Costs | Values, by: tuple[NDArray[np.int64], Values]) -> Values:
    """Return costs at other places, linear between them and beyond the least slack."""
    low, shares = by
    shifted: Values = costs[..., low, :] * (1.0 - shares) + costs[..., low + 1, :] * shares
    return shifted
