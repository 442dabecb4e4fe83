"""Rules for one job on spot and on-demand nodes: ours, and those of "Can't Be Late" (Wu et al.,
NSDI 2024). Each starts on demand for good at the last instant at which that meets the deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.units import billed_usd
from vgrads.pool.spot.choose import MARKETS, Current, choose
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.survival import STEP_S, LifeTable
from vgrads.pool.spot.table import NONE, ON_DEMAND, SPOT, MarketPrices

PRICES = MarketPrices(spot_usd=0.9731, on_demand_usd=3.06)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateJob:
    """A job of ``work_s`` with a deadline that long after its start."""

    work_s: float
    deadline_s: float
    restart_s: float


@dataclass(slots=True)
class JobProgress:
    """State at a step: where the job runs, what is left of its work and of its restart."""

    now_s: float
    market: int
    work_left_s: float
    restart_left_s: float
    available: bool


Rule = Callable[[JobProgress], int]
"""Returns where the job runs in this step."""


def simulate(job: LateJob, available: NDArray[np.bool_], rule: Rule) -> tuple[float, bool]:
    """Return the cost of a job in dollars and whether it missed its deadline; ``available``: from
    its start on. Time is paid by the second."""
    state = JobProgress(0.0, NONE, job.work_s, 0.0, bool(available[0]))
    cost = 0.0
    for step in range(round(job.deadline_s / STEP_S)):
        state.now_s, state.available = step * STEP_S, bool(available[step])
        if state.market == SPOT and not state.available:
            state.market, state.restart_left_s = NONE, 0.0
        market = rule(state)
        if market == SPOT and not state.available:
            raise ValueError("no spot node is available")
        if market != state.market:
            state.restart_left_s = job.restart_s if market else 0.0
        state.market = market
        if market:
            used_s = min(STEP_S, state.restart_left_s + state.work_left_s)
            restarts_s = min(state.restart_left_s, used_s)
            state.restart_left_s -= restarts_s
            state.work_left_s -= used_s - restarts_s
            price = PRICES.spot_usd if market == SPOT else PRICES.on_demand_usd
            cost += billed_usd(1, used_s, 0.0, price)
        if state.work_left_s <= 1e-6:
            return cost, False
    return cost, True


def _safe(job: LateJob, market: int, state: JobProgress) -> bool:
    """Return whether on demand can still meet the deadline after a step of the worst luck."""
    need_s = state.work_left_s + job.restart_s
    if market == NONE:
        need_s += STEP_S
    elif market == SPOT and state.market != SPOT:
        need_s += job.restart_s
    return market == ON_DEMAND or need_s <= job.deadline_s - state.now_s


def _with_safety_net(job: LateJob, rule: Rule) -> Rule:
    last = False

    def safe(state: JobProgress) -> int:
        nonlocal last
        market = ON_DEMAND if last else rule(state)
        if not (market == SPOT and state.market == SPOT) and not _safe(job, market, state):
            market, last = ON_DEMAND, True
        return market

    return safe


def greedy(job: LateJob) -> Rule:
    """Spot whenever there is any."""
    return _with_safety_net(job, lambda state: SPOT if state.available else NONE)


def uniform_progress(job: LateJob) -> Rule:
    """Spot whenever there is any; on demand while behind a uniform progress."""

    def rule(state: JobProgress) -> int:
        def expected(at_s: float) -> float:
            return job.work_s * at_s / job.deadline_s

        done_s = job.work_s - state.work_left_s
        if state.market == SPOT and state.available:
            return SPOT
        if state.market == ON_DEMAND and done_s < expected(state.now_s + 2 * job.restart_s):
            return ON_DEMAND
        if state.available:
            return SPOT
        behind = state.market == NONE and done_s < expected(state.now_s)
        return ON_DEMAND if behind else NONE

    return _with_safety_net(job, rule)


def ours(job: LateJob, prior: tuple[LifeTable, ...]) -> Rule:
    """:func:`vgrads.pool.spot.choose.choose`, which sees the job's own time and nothing before."""
    history: SpotHistory | None = None

    def rule(state: JobProgress) -> int:
        nonlocal history
        history = (history or SpotHistory(0.0, state.available)).observed(
            state.now_s, state.available
        )
        decision = choose(
            state.now_s,
            state.work_left_s,
            job.deadline_s,
            job.restart_s,
            Current(market=MARKETS[state.market], restart_left_s=state.restart_left_s),
            PRICES,
            history,
            prior,
        )
        return MARKETS.index(decision.market)

    return rule


def clairvoyant_usd(job: LateJob, available: NDArray[np.bool_]) -> float:
    """Return the least possible cost: a dynamic programme over the trace, in minutes of slack."""
    minutes = round(STEP_S / 60.0)
    restart, steps = round(job.restart_s / 60.0), round(job.deadline_s / STEP_S)
    slack = np.arange(round((job.deadline_s - job.work_s) / 60.0) + 1)
    infinite = np.full(len(slack), np.inf)
    values = np.zeros((3, len(slack)))

    def later(costs: NDArray[np.float64], units: int) -> NDArray[np.float64]:
        return np.concatenate([infinite[:units], costs[: max(0, len(costs) - units)]])[: len(slack)]

    for step in range(steps - 1, -1, -1):
        work = (steps - step) * minutes - slack
        hours = np.clip(work, 0, minutes) / 60.0
        idle = later(values[NONE], minutes)
        follows = SPOT if step + 1 < steps and available[step + 1] else NONE
        on_spot = values[follows] + PRICES.spot_usd * hours if available[step] else infinite
        on_demand = values[ON_DEMAND] + PRICES.on_demand_usd * hours
        rows = []
        for market in (NONE, SPOT, ON_DEMAND):
            stays = on_spot if market == SPOT else later(on_spot, restart)
            demand = on_demand if market == ON_DEMAND else later(on_demand, restart)
            rows.append(np.where(work > 0, np.minimum(np.minimum(idle, stays), demand), 0.0))
        values = np.stack(rows)
    return float(values[NONE, -1])
