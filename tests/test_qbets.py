"""Bounds, change points, predictors, backtests."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, rankdata

from kernel.errors import InputError
from kernel.streams import stream
from qbets.backtest import backtest, pinball, worst_window
from qbets.bounds import lower_rank, minimum_history, probability_within, rank_table, upper_rank
from qbets.changepoint import _ranks, autocorrelation, run_length
from qbets.predictor import QueuePredictor, learn, replay
from qbets.stream import WaitStream
from tests.logs import make_log
from traces.history import read_history

levels = st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99])


def test_textbook_ranks():
    facts = {59: 59, 60: 60, 93: 92, 100: 99, 200: 196, 500: 484, 1000: 962, 5000: 4776}
    assert {n: upper_rank(n, 0.95, 0.95) for n in facts} == facts
    minima = {
        (0.95, 0.95): 59,
        (0.9, 0.95): 29,
        (0.75, 0.95): 11,
        (0.5, 0.95): 5,
        (0.99, 0.95): 299,
        (0.975, 0.99): 182,
    }
    assert {key: minimum_history(*key) for key in minima} == minima


@given(levels, levels, st.integers(1, 3000))
def test_the_rank_is_the_smallest_that_is_sure_enough(quantile, confidence, count):
    rank = upper_rank(count, quantile, confidence)
    if rank is None:
        assert 1 - quantile**count < confidence
        return
    assert binom.cdf(rank - 1, count, quantile) >= confidence - 1e-9
    assert rank == 1 or binom.cdf(rank - 2, count, quantile) < confidence


@given(levels, levels, st.integers(1, 2000))
def test_the_lower_rank_is_the_largest_that_is_sure_enough(quantile, confidence, count):
    rank = lower_rank(count, quantile, confidence)
    if rank is None:
        assert binom.sf(0, count, quantile) < confidence + 1e-9
        return
    assert binom.sf(rank - 1, count, quantile) >= confidence - 1e-9
    assert binom.sf(rank, count, quantile) < confidence + 1e-9


@given(levels, levels, st.integers(1, 400))
def test_bound_and_probability_are_inverse(quantile, confidence, count):
    """Waiting at most the bound is at least as probable as asked; one rank lower it is not."""
    rank = upper_rank(count, quantile, confidence)
    if rank is not None:
        assert probability_within(rank, count, confidence) >= quantile - 1e-9
        assert probability_within(rank - 1, count, confidence) < quantile + 1e-9


@pytest.mark.parametrize("bad", [0, 1, -0.5, 1.5, math.nan])
def test_levels_outside_the_unit_interval_are_refused(bad):
    with pytest.raises(InputError):
        rank_table(bad, 0.95, 10)
    with pytest.raises(InputError):
        rank_table(0.95, bad, 10)
    with pytest.raises(InputError):
        probability_within(3, 10, bad)


RUNS = {
    0.50: (3, 4, 4, 4, 5, 5, 6, 7, 9, 15, 27),
    0.75: (3, 4, 4, 4, 5, 6, 6, 8, 11, 19, 34),
    0.90: (3, 4, 4, 5, 5, 6, 7, 9, 12, 21, 39),
    0.95: (3, 4, 4, 5, 5, 6, 7, 9, 12, 23, 42),
    0.99: (3, 4, 4, 5, 5, 6, 7, 10, 13, 25, 47),
}


def test_run_lengths_of_the_facts():
    rhos = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    assert {q: tuple(run_length(q, rho) for rho in rhos) for q in RUNS} == RUNS


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50))
def test_ranks_share_ties(values):
    array = np.array(values, dtype=float)
    assert _ranks(array).tolist() == rankdata(array).tolist()


def test_autocorrelation_of_an_ar1_series():
    draws = stream(1, "ar1").standard_normal(20_000)
    for t in range(1, len(draws)):
        draws[t] += 0.6 * draws[t - 1]
    assert autocorrelation(np.exp(draws)) == pytest.approx(0.6, abs=0.03)
    assert autocorrelation(np.ones(50)) == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.booleans()), max_size=300),
    st.sampled_from([0.5, 0.75]),
)
def test_a_stream_gives_the_bound_of_its_sorted_history(steps, quantile):
    waits = WaitStream(quantile, 0.95)
    for wait_s, missed in steps:
        waits.judge(missed)
        waits.add(float(wait_s))
        waits.check()
        rank = upper_rank(len(waits), quantile, 0.95)
        assert waits.bound == (None if rank is None else waits.sorted_waits[rank - 1])


def test_a_change_point_keeps_the_minimum_and_slides_out_what_is_old():
    waits = WaitStream(0.5, 0.95)  # minimum history 5
    for n in range(100):
        waits.add(float(n % 10))
    longest = 0
    while not waits.judge(True):
        waits.add(1000.0)
        longest += 1
    assert longest < 40
    assert len(waits) == waits.minimum
    for _ in range(waits.minimum):
        waits.add(2000.0)
        assert len(waits) >= waits.minimum
    assert waits.sorted_waits.min() >= 1000.0


def test_a_waiting_job_past_its_bound_is_a_miss_at_once():
    predictor = QueuePredictor(0.5, 0.95)
    for n in range(20):
        predictor.submit(n, float(n))
        predictor.start(n, n + 0.5)
    for n in range(20, 60):  # the queue stalls: nobody starts any more
        predictor.submit(n, float(n))
    predictor.advance(100.0)
    assert predictor.change_points


def test_a_withdrawn_job_is_no_wait():
    predictor = QueuePredictor()
    predictor.submit(1, 0.0)
    predictor.withdraw(1, 5.0)
    assert len(predictor.stream) == 0


def test_the_clock_must_not_run_backwards():
    predictor = QueuePredictor()
    predictor.advance(10.0)
    with pytest.raises(InputError, match="backwards"):
        predictor.submit(1, 9.0)


def test_nothing_later_is_looked_at():
    """Corrupt the future of every job that is still waiting or not yet submitted: no bound changes."""
    log = make_log(800, seed=3)
    cut = float(log.submit_s[500])
    issued = replay(log, QueuePredictor(), cut)
    unknown = log.start_s > cut
    for factor in (0.0, 50.0):
        waits = log.wait_s.copy()
        waits[unknown] = np.maximum(
            waits[unknown] * factor, (cut - log.submit_s[unknown]).clip(min=0) + 1
        )
        twisted = make_log(800, seed=3, waits=waits)
        assert replay(twisted, QueuePredictor(), cut) == issued
    assert sum(b is not None for b in issued) > 300


def test_what_is_learned_up_to_an_instant_is_what_a_shorter_log_teaches():
    log = make_log(500, seed=5)
    cut = float(log.submit_s[300])
    short = log.select(log.start_s <= cut)
    assert learn(log, 0.95, 0.95, cut).stream.sorted_waits.tolist() == pytest.approx(
        learn(short, 0.95, 0.95).stream.sorted_waits.tolist()
    )


def test_coverage_of_independent_waits():
    row = backtest(make_log(20_000, seed=1), "made up")
    assert 0.95 <= row.coverage <= 0.99
    assert row.jobs == row.scored + row.unscored == 20_000
    assert row.worst_window_coverage <= row.coverage


def test_scores():
    waits, bounds = np.array([0.0, 10.0, 20.0]), np.array([10.0, 10.0, 10.0])
    assert pinball(waits, bounds, 0.9) == pytest.approx((0.1 * 10 + 0 + 0.9 * 10) / 3)
    kept = np.array([True] * 500 + [False] * 250 + [True] * 500)
    assert worst_window(kept) == 0.5
    assert worst_window(np.array([True, False])) == 0.5


def test_coverage_on_real_logs(shared):
    row = backtest(read_history(shared / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz"), "KTH-SP2")
    assert row.jobs == 28_476
    assert row.coverage >= 0.95
