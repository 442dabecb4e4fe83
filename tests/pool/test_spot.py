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
from vgrads.pool.spot import table as tables
from vgrads.pool.spot.choose import Current, choose
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR, tables_of_elsewhere
from vgrads.pool.spot.regimes import (
    SpotRegimes,
    _filter_of,
    estimate_hazards,
    estimate_weights,
    make_regimes,
    single_regime,
)
from vgrads.pool.spot.survival import AGES_S, NEVER, STEP_S, Hazards, find_interval, make_life_table
from vgrads.pool.spot.table import (
    MarketPrices,
    MarketRules,
    make_decision_table,
    make_market_table,
)

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


def two_zones():
    stable = make_life_table(history_of(series(0.5, 0.01, 5000, 2)), 5000 * STEP_S)
    nervous = make_life_table(history_of(series(0.5, 0.5, 5000, 3)), 5000 * STEP_S)
    return stable, nervous


def test_what_was_seen_says_which_recorded_zones_are_like_this_one():
    stable, nervous = two_zones()

    def estimate(chance):
        history = history_of(series(0.5, chance, 400, 4))
        return estimate_hazards(history, (stable, nervous), 400 * STEP_S).steps[1, 0]

    first = estimate_hazards(SpotHistory(0.0, True), (stable, nervous), 0.0).steps[1, 0]
    assert estimate(0.01) < first / 2.0
    assert estimate(0.5) == pytest.approx(0.5, abs=0.15)


def test_what_was_seen_today_counts_more_than_last_week():
    """A zone that was restless for a week and has been calm for two days is calm."""
    week, days = series(0.5, 0.5, 1008, 5), series(0.5, 0.01, 288, 6)

    def estimate(available):
        now_s = len(available) * STEP_S
        return estimate_hazards(history_of(available), two_zones(), now_s).steps[1, 0]

    assert estimate(np.concatenate([week, days])) < estimate(week) / 2.0


def test_zones_that_agree_are_one_regime_and_each_regime_stands_three_times():
    stable, nervous = two_zones()
    assert make_regimes((stable, nervous)).count == 6
    many = make_regimes((stable, nervous) * 6)
    assert many.count == 18
    calm, restless, most = np.split(many.steps, 3)
    assert np.all(calm[:, 1] < restless[:, 1]) and np.all(restless[:, 1] <= most[:, 1])
    assert np.array_equal(restless[:, 0], calm[:, 0])


def test_recorded_zones_of_a_date_or_zone_can_be_left_out():
    others = tables_of_elsewhere(PRIOR, "10-26-2022", {"us-west-2a", "us-west-2b"})
    assert 0 < len(others) < len(PRIOR)
    assert not any(t.origin[0] == "10-26-2022" or "us-west-2a" in t.origin for t in others)


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
    nowhere = MarketPrices(spot_usd=math.inf, on_demand_usd=3.0)
    old = SpotHistory(-HOUR, False)  # an age in a later interval
    decision = choose(0.0, HOUR, 9 * HOUR, 180.0, Current(), nowhere, old, PRIOR)
    assert decision.market == "on-demand"
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
        rules = MarketRules(
            step_s=600.0,
            restart_s=180.0,
            prices=prices,
            regimes=single_regime(NEVER),
            late=late,
        )
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
        regimes=single_regime(Hazards(hazards)),
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
    _, expected = table.decide(steps * STEP_S, slack * STEP_S, True, 0, 0, np.ones(1))
    error = np.std(costs) / len(costs) ** 0.5
    assert np.mean(costs) == pytest.approx(expected, abs=4 * error + 0.05)


@settings(deadline=None)
@given(
    work_s=st.floats(0.1, 5000.0),
    restart_s=st.floats(0.0, 100.0),
    slack_s=st.floats(0.0, 5000.0),
    usd=st.sampled_from([0.3, 360.0]),
    step_s=st.sampled_from([1.0, 36.0, 600.0]),
)
def test_without_spot_nodes_nothing_is_won_by_waiting(work_s, restart_s, slack_s, usd, step_s):
    prices = MarketPrices(spot_usd=math.inf, on_demand_usd=usd)
    deadline_s = work_s + restart_s + slack_s
    history = SpotHistory(0.0, False)
    decision = choose(0.0, work_s, deadline_s, restart_s, Current(), prices, history, PRIOR, step_s)
    assert decision.market == "on-demand"
    assert decision.cost_usd == pytest.approx((work_s + restart_s) / HOUR * usd)


@settings(max_examples=examples(80), deadline=None)
@given(
    luck=st.lists(st.booleans(), min_size=1, max_size=40),
    worst=st.booleans(),
    step_s=st.sampled_from([60.0, 300.0, 600.0, 1800.0]),
    restart=st.sampled_from([0.0, 0.12, 0.6, 1.0, 2.5]),
    work=st.floats(0.1, 30.0),
    slack=st.floats(0.0, 12.0),
)
def test_no_deadline_is_missed_when_each_loss_costs_a_whole_step(
    luck, worst, step_s, restart, work, slack
):
    """A spot node is taken back just after it was looked at: the step's work is lost too. Whenever
    the job is not feasible at first, nothing is claimed."""
    restart_s = restart * step_s
    work_s = work * step_s
    deadline_s = work_s + restart_s + slack * step_s
    history = SpotHistory(0.0, luck[0] or worst)
    now_s, market, restart_left_s, left_s, step = 0.0, "none", 0.0, work_s, 0
    while left_s > 1e-6:
        available = luck[step % len(luck)] or worst
        history = history.observed(now_s, available)
        current = Current(market=market, restart_left_s=restart_left_s)
        decision = choose(
            now_s, left_s, deadline_s, restart_s, current, PRICES, history, PRIOR, step_s
        )
        assert decision.cost_usd is not None
        if decision.market != market:
            restart_left_s = restart_s
        market = decision.market
        lost = market == "spot" and (worst or not luck[(step + 1) % len(luck)])
        if market != "none" and not lost:
            starting_s = min(restart_left_s, step_s)
            restart_left_s -= starting_s
            left_s -= step_s - starting_s
            if left_s <= 1e-6:
                assert now_s + step_s + min(0.0, left_s) <= deadline_s + 1e-3
        if lost or market == "none":
            market, restart_left_s = "none", 0.0
        now_s, step = now_s + step_s, step + 1
        assert now_s <= deadline_s + step_s


def test_a_node_is_left_where_a_loss_would_only_be_seen_a_whole_step_later():
    """With 17 minutes of slack and restarts of 3 a look each ten minutes is often enough to stay
    on a spot node, one each 15 minutes is not; waiting for one is as dangerous."""

    def ask(market, step_s, available=True):
        history = SpotHistory(0.0, available)
        return choose(
            0.0,
            10 * HOUR,
            10 * HOUR + 1020.0,
            180.0,
            Current(market=market),
            PRICES,
            history,
            PRIOR,
            step_s,
        ).market

    assert (ask("spot", 600.0), ask("spot", 900.0)) == ("spot", "on-demand")
    assert ask("none", 900.0, available=False) == "on-demand"


def test_a_decision_does_not_depend_on_what_was_decided_before():
    """The same answers with tables and estimates of earlier decisions, and without."""
    available = series(0.2, 0.2, 120, 9)
    history = history_of(available)
    questions = [
        (step * STEP_S, history.as_of(step * STEP_S), work_h * HOUR)
        for step, work_h in zip(range(0, 120, 3), np.linspace(15.0, 4.0, 40), strict=True)
    ]

    def answer(now_s, seen, work_s):
        current = Current(market="spot" if seen.is_available(now_s) else "none")
        return choose(now_s, work_s, 21 * HOUR, 180.0, current, PRICES, seen, PRIOR)

    warm = [answer(*question) for question in questions]
    cold = []
    for question in reversed(questions):
        tables._TABLES.clear()
        _filter_of.cache_clear()
        cold.append(answer(*question))
    assert warm == cold[::-1]
    assert {decision.market for decision in warm} == {"none", "spot", "on-demand"}


def test_probabilities_of_regimes_follow_a_history_that_was_corrected():
    regimes = make_regimes(PRIOR)
    first = SpotHistory(0.0, True).observed(3000.0, False)
    other = SpotHistory(0.0, True).observed(1200.0, False).observed(1800.0, True)
    expected = []
    for history in (first, other):
        _filter_of.cache_clear()
        expected.append(estimate_weights(regimes, history, 9000.0))
    _filter_of.cache_clear()
    again = [estimate_weights(regimes, history, 9000.0) for history in (first, other, first)]
    assert np.array_equal(again[0], expected[0]) and np.array_equal(again[2], expected[0])
    assert np.array_equal(again[1], expected[1]) and not np.array_equal(*expected)


def test_many_jobs_of_one_regime_are_decided_as_each_alone():
    hazards = Hazards(np.full((2, len(AGES_S)), 0.15))
    rules = MarketRules(
        step_s=STEP_S, restart_s=180.0, prices=PRICES, regimes=single_regime(hazards)
    )
    table = make_market_table(40 * STEP_S, 20 * STEP_S, rules)
    slack = np.repeat(np.array(table.grid[1:-1]) * STEP_S, 6)
    available, market = np.resize([False, True], slack.shape), np.resize([0, 1, 2], slack.shape)
    age = np.full(slack.shape, find_interval(1800.0))
    together = table.choices(30 * STEP_S, slack, available, age, market)
    alone = [
        table.decide(30 * STEP_S, s, bool(a), 3, int(m), np.ones(1))[0]
        for s, a, m in zip(slack, available, market, strict=True)
    ]
    assert together.tolist() == alone and set(alone) == {0, 1, 2}


def test_a_job_waits_in_bad_times_where_better_ones_may_come():
    bad, good = np.full((2, len(AGES_S)), 0.5), np.full((2, len(AGES_S)), 0.5)
    bad[0], good[0], good[1] = 0.08, 0.9, 0.005

    def waits(regimes, weights):
        rules = MarketRules(step_s=STEP_S, restart_s=60.0, prices=PRICES, regimes=regimes)
        table = make_market_table(400 * STEP_S, 100 * STEP_S, rules)
        ages = range(len(AGES_S))
        return [
            table.decide(400 * STEP_S, slack * STEP_S, False, age, 0, weights)[0] == 0
            for age in ages
            for slack in range(4, 100, 4)
        ]

    changing = waits(SpotRegimes(np.array([bad, good])), np.array([1.0, 0.0]))
    assert any(changing)
    assert not any(waits(single_regime(Hazards(bad)), np.ones(1)))
