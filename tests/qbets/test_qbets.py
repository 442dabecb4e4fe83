"""Ranks, probabilities, run lengths: the arithmetic of bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, rankdata

from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.qbets.bounds import (
    compute_minimum_history,
    compute_probability_within,
    find_upper_rank,
    rank_table,
)
from vgrads.qbets.changepoint import _compute_ranks, autocorrelation, run_length

levels = st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99])


def test_textbook_ranks():
    facts = {59: 59, 60: 60, 93: 92, 100: 99, 200: 196, 500: 484, 1000: 962, 5000: 4776}
    assert {n: find_upper_rank(n, 0.95, 0.95) for n in facts} == facts
    minima = {
        (0.95, 0.95): 59,
        (0.9, 0.95): 29,
        (0.75, 0.95): 11,
        (0.5, 0.95): 5,
        (0.99, 0.95): 299,
        (0.975, 0.99): 182,
    }
    assert {key: compute_minimum_history(*key) for key in minima} == minima


@given(levels, levels, st.integers(1, 3000))
def test_the_rank_is_the_smallest_that_is_sure_enough(quantile, confidence, count):
    rank = find_upper_rank(count, quantile, confidence)
    if rank is None:
        assert 1 - quantile**count < confidence
        return
    assert binom.cdf(rank - 1, count, quantile) >= confidence - 1e-9
    assert rank == 1 or binom.cdf(rank - 2, count, quantile) < confidence


@given(levels, levels, st.integers(1, 400))
def test_bound_and_probability_are_inverse(quantile, confidence, count):
    """Waiting at most the bound is at least as probable as asked; one rank lower it is not."""
    rank = find_upper_rank(count, quantile, confidence)
    if rank is not None:
        assert compute_probability_within(rank, count, confidence) >= quantile - 1e-9
        assert compute_probability_within(rank - 1, count, confidence) < quantile + 1e-9


@pytest.mark.parametrize("bad", [0, 1, -0.5, 1.5, math.nan])
def test_levels_outside_the_unit_interval_are_refused(bad):
    with pytest.raises(InputError):
        rank_table(bad, 0.95, 10)
    with pytest.raises(InputError):
        rank_table(0.95, bad, 10)
    with pytest.raises(InputError):
        compute_probability_within(3, 10, bad)


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
    assert _compute_ranks(array).tolist() == rankdata(array).tolist()


def test_autocorrelation_of_an_ar1_series():
    draws = stream(1, "ar1").standard_normal(20_000)
    for t in range(1, len(draws)):
        draws[t] += 0.6 * draws[t - 1]
    assert autocorrelation(np.exp(draws)) == pytest.approx(0.6, abs=0.03)
    assert autocorrelation(np.ones(50)) == 0.0


@given(levels, levels)
def test_the_table_of_ranks_is_that_of_single_ranks(quantile, confidence):
    table = rank_table(quantile, confidence, 1500)
    for count in (1, 10, 58, 59, 60, 299, 300, 1000, 1500):
        assert (find_upper_rank(count, quantile, confidence) or count + 1) == table[count]
