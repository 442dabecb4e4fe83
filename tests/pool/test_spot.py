"""Decisions about spot nodes: life tables, the dynamic programme, the deadline that is never
missed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight
from vgrads_studies.spot.rules import (
    LateJob,
    clairvoyant_usd,
    greedy,
    ours,
    simulate,
    uniform_progress,
)

from tests.examples import examples
from vgrads.pool.spot.choose import Current, choose
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.survival import (
    AGES_S,
    NEVER,
    STEP_S,
    Hazards,
    compute_posterior,
    make_life_table,
)
from vgrads.pool.spot.table import MarketPrices, MarketRules, make_decision_table

PRICES = MarketPrices(spot_usd=1.0, on_demand_usd=3.0)
HOUR = 3600.0


def series(probability_up, probability_down, steps, seed):
    draws, state, result = np.random.default_rng(seed), True, []
    for chance in draws.random(steps):
        result.append(state)
        state = state ^ bool(chance < (probability_down if state else probability_up))
    return np.array(result)


def history_of(available):
    changes = np.flatnonzero(np.diff(available)) + 1
    return SpotHistory(0.0, bool(available[0]), tuple(float(n) * STEP_S for n in changes))


def test_a_history_knows_state_age_and_spells_at_each_instant():
    history = SpotHistory(0.0, True).observed(100.0, False).observed(250.0, True)
    assert history.observed(260.0, True) == history  # nothing new
    assert history.observed(200.0, False) == history  # in the past
    assert [history.is_available(at) for at in (50.0, 100.0, 249.0, 250.0)] == [
        True,
        False,
        False,
        True,
    ]
    assert history.age_s(180.0) == 80.0
    assert history.as_of(120.0).is_available(400.0) is False
    assert [(s.available, s.length_s, s.ended) for s in history.spells(300.0)] == [
        (True, 100.0, True),
        (False, 150.0, True),
        (True, 50.0, False),
    ]


def test_the_life_table_is_that_of_kaplan_and_meier():
    """Where every interval is one step wide, the survival by the life table equals the estimate of
    a library, also with censored spells."""
    history = history_of(series(0.3, 0.25, 4000, 1))
    now_s = 4000 * STEP_S
    table = make_life_table(history, now_s)
    spells = [s for s in history.spells(now_s) if s.available]
    estimate = SurvfuncRight(
        np.array([s.length_s / STEP_S for s in spells]), np.array([int(s.ended) for s in spells])
    )
    narrow = np.flatnonzero(np.diff(AGES_S) == STEP_S)
    ended, at_risk = table.ended[1][narrow], table.at_risk[1][narrow]
    survival = np.cumprod(1.0 - ended / at_risk)
    expected = [estimate.surv_prob[list(estimate.surv_times).index(n + 1)] for n in narrow]
    assert survival == pytest.approx(expected, rel=1e-9)


def test_what_was_seen_outweighs_other_places():
    stable = make_life_table(history_of(series(0.5, 0.01, 5000, 2)), 5000 * STEP_S)
    nervous = make_life_table(history_of(series(0.5, 0.5, 5000, 3)), 5000 * STEP_S)
    little = compute_posterior(make_life_table(SpotHistory(0.0, True), STEP_S), (stable, nervous))
    assert nervous.hazards[1, 0] > little[1, 0] > stable.hazards[1, 0]
    much = compute_posterior(nervous, (stable,))
    assert much[1, 0] == pytest.approx(0.5, abs=0.05)


@settings(max_examples=examples(60), deadline=None)
@given(
    up=st.floats(0.02, 0.9),
    down=st.floats(0.02, 0.9),
    seed=st.integers(0, 10**6),
    work_h=st.floats(1.0, 12.0),
    slack_h=st.floats(0.4, 8.0),
    restart_min=st.sampled_from([0.0, 3.0, 12.0]),
)
def test_no_deadline_is_missed_and_nobody_beats_the_clairvoyant(
    up, down, seed, work_h, slack_h, restart_min
):
    steps = math.ceil((work_h + slack_h) * HOUR / STEP_S)
    job = LateJob(
        work_s=round(work_h * 60) * 60.0, deadline_s=steps * STEP_S, restart_s=restart_min * 60
    )
    available = series(up, down, steps, seed)
    best = clairvoyant_usd(job, available)
    for rule in (ours(job, PRIOR), greedy(job), uniform_progress(job)):
        cost, late = simulate(job, available, rule)
        assert not late
        assert cost >= best - 3.06 / 6.0  # the clairvoyant rounds the work to minutes


def question(available, slack_s, market="none", restart_s=180.0, prices=PRICES, work_s=10 * HOUR):
    history = SpotHistory(0.0, available)
    deadline_s = 600.0 + work_s + slack_s
    return choose(
        600.0, work_s, deadline_s, restart_s, Current(market=market), prices, history, PRIOR
    )


def test_decisions_that_leave_no_choice():
    assert question(True, 5 * HOUR).market == "spot"
    assert question(False, 200.0).market == "on-demand"  # too late for anything else
    assert question(False, 10.0, market="on-demand").market == "on-demand"
    assert question(True, 200.0, market="on-demand").market == "on-demand"
    assert question(True, 60.0, market="spot").market == "spot"  # a restart is too late
    assert question(True, -HOUR).cost_usd is None
    assert question(True, HOUR, work_s=0.0).market == "none"
    dear = MarketPrices(spot_usd=4.0, on_demand_usd=3.0)
    assert question(True, 5 * HOUR, prices=dear).market != "spot"


def test_a_long_job_a_short_one_and_any_unit_of_time_are_decided():
    for work_s in (30.0, 60.0, 10 * HOUR, 90 * 24 * HOUR):
        decision = question(True, work_s, work_s=work_s, restart_s=1.0)
        assert decision.market in ("none", "spot", "on-demand")
        assert decision.cost_usd is not None and decision.cost_usd <= 3.0 * work_s / HOUR + 1.0


def test_without_spot_nodes_on_demand_starts_at_once_or_as_late_as_possible():
    prices = MarketPrices(spot_usd=math.inf, on_demand_usd=3.0)
    for late, market in ((False, 2), (True, 0)):
        rules = MarketRules(step_s=600.0, restart_s=180.0, prices=prices, hazards=NEVER, late=late)
        table = make_decision_table(rules, 60, 24)
        none, no = np.array([0]), np.array([False])
        chosen = table.choices(60 * 600.0, np.array([20 * 600.0]), no, none, none)
        assert chosen[0] == market
        chosen = table.choices(60 * 600.0, np.array([700.0]), no, none, none)
        assert chosen[0] == 2


def test_the_expected_cost_is_that_of_many_simulations():
    """The value of the programme against the rule's mean cost on series of the same hazards."""
    hazards = np.full((2, len(AGES_S)), 0.2)
    steps, slack = 60, 24
    rules = MarketRules(
        step_s=STEP_S,
        restart_s=180.0,
        prices=MarketPrices(spot_usd=1.0, on_demand_usd=3.0),
        hazards=Hazards(hazards),
    )
    table = make_decision_table(rules, steps, slack)
    costs = []
    for seed in range(400):
        available = series(0.2, 0.2, steps, seed)
        market, slack_s, cost, restart_s, age = 0, slack * STEP_S, 0.0, 0.0, 0
        for step in range(steps):
            age = age + 1 if step and available[step] == available[step - 1] else 0
            if market == 1 and not available[step]:
                market, restart_s = 0, 0.0
            left_s = (steps - step) * STEP_S
            interval = int(np.searchsorted(AGES_S, age * STEP_S + 1e-6, side="right")) - 1
            chosen = table.choices(
                left_s,
                np.array([slack_s - restart_s]),
                np.array([available[step]]),
                np.array([interval]),
                np.array([market]),
            )
            if chosen[0] != market:
                restart_s = 180.0 if chosen[0] else 0.0
            market = int(chosen[0])
            if left_s - slack_s <= 0:
                break
            if market:
                used_s = min(STEP_S, left_s - slack_s + restart_s)
                cost += (0.0, 1.0, 3.0)[market] * used_s / HOUR
                spent_s = min(restart_s, used_s)
                slack_s, restart_s = slack_s - spent_s, restart_s - spent_s
            else:
                slack_s -= STEP_S
        costs.append(cost)
    expected = table.expected_usd(steps * STEP_S, slack * STEP_S, True, 0, 0)
    error = np.std(costs) / len(costs) ** 0.5
    assert np.mean(costs) == pytest.approx(expected, abs=4 * error + 0.05)
