"""Binomial confidence bounds on quantiles of waits, exact for every number of observations.

Of n past waits the count below the true q-quantile is Binomial(n, q). The k-th smallest (1-based)
with the smallest k such that P(Bin(n, q) ≤ k−1) ≥ C is an upper confidence bound on that quantile;
it exists only if 1 − qⁿ ≥ C. (Brevik, Nurmi, Wolski, "Predicting bounds on queuing delay for
batch-scheduled parallel machines", PPoPP 2006, doi:10.1145/1122971.1122989.) The inverse, the
probability that a job waits at most d, is the lower Clopper–Pearson limit (Biometrika 1934,
doi:10.1093/biomet/26.4.404).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.units import format_count, parse_probability

ROUNDING = 1e-12
"""Relative error of a probability that is computed as a share of outcomes."""
_SLACK = 1e-12  # rounding of the incomplete beta; far below rank steps


def find_upper_rank(count: int, quantile: float, confidence: float) -> int | None:
    """Return the 1-based rank of the upper bound among ``count`` sorted waits; None if there are
    too few.

    >>> [find_upper_rank(count, 0.95, 0.95) for count in (59, 58, 1000)]
    [59, None, 962]
    """
    return (
        _find_upper_rank(count, quantile, confidence)
        if count >= compute_minimum_history(quantile, confidence)
        else None
    )


@lru_cache(maxsize=65536)
def _find_upper_rank(count: int, quantile: float, confidence: float) -> int:
    """Bisect over k as in :func:`rank_table`, for one n."""
    from scipy.special import betainc  # noqa: PLC0415 late: see _compute_binomial_cdf

    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        # P(Bin(n, q) ≤ k − 1) = 1 − I_q(k, n − k + 1)
        if 1.0 - betainc(middle, count - middle + 1, quantile) >= confidence - _SLACK:
            high = middle
        else:
            low = middle + 1
    return low


def find_upper_rank_of_misses(count: int, chance: float, confidence: float) -> int:
    """Return the smallest m with P(Bin(count, chance) ≤ m) ≥ confidence: more misses than m are not
    chance.

    >>> find_upper_rank_of_misses(100, 0.05, 0.999)
    13
    """
    misses = np.arange(count + 1)
    enough = _compute_binomial_cdf(misses, np.full_like(misses, count), chance) >= confidence
    return int(np.argmax(enough))


def compute_minimum_history(quantile: float, confidence: float) -> int:
    """Return the fewest waits for which an upper bound exists: the smallest n with 1 − qⁿ ≥ C.

    >>> [compute_minimum_history(q, 0.95) for q in (0.5, 0.75, 0.9, 0.95, 0.99)]
    [5, 11, 29, 59, 299]
    """
    parse_probability(quantile, "quantile")
    parse_probability(confidence, "confidence")
    # one less than the logarithms say: their rounding may be above; the loop decides
    estimate = max(1, int(np.log1p(-confidence) / np.log(quantile)) - 1)
    while 1 - quantile**estimate < confidence - _SLACK:
        estimate += 1
    return estimate


def compute_highest_level(count: int) -> float:
    """Return the highest probability that so many outcomes support: that with which a further one
    is no larger than the largest of them.

    >>> compute_highest_level(0), round(compute_highest_level(217), 4)
    (0.0, 0.9954)
    """
    return count / (count + 1)


def explain_highest_level(count: int, noun: str) -> str:
    """Say why there is no bound at a higher probability; rounded down to the digits that matter.

    >>> explain_highest_level(217, "outcome"), explain_highest_level(1, "wait")
    ('217 outcomes support at most 0.995', '1 wait supports at most 0.5')
    """
    digits = len(str(count + 1))
    most = math.floor(compute_highest_level(count) * 10**digits) / 10**digits
    return f"{format_count(count, noun, 'support')} at most {most:g}"


def rank_table(quantile: float, confidence: float, count: int) -> NDArray[np.int64]:
    """Return the ranks for 0 … at least ``count`` waits (rank n + 1 means: none). Grown by
    doubling, cached."""
    parse_probability(quantile, "quantile")
    parse_probability(confidence, "confidence")
    # powers of two, so that a growing history needs few tables of the cache
    size = 1024
    while size <= count:
        size *= 2
    return _rank_table(quantile, confidence, size)


@lru_cache(maxsize=256)
def _rank_table(quantile: float, confidence: float, size: int) -> NDArray[np.int64]:
    """Bisect over k for all n at once: P(Bin(n, q) ≤ k−1) rises with k. O(size · log size)."""
    counts = np.arange(size, dtype=np.int64)
    low, high = np.ones(size, dtype=np.int64), counts + 1
    while np.any(low < high):
        middle = (low + high) // 2
        enough = _compute_binomial_cdf(middle - 1, counts, quantile) >= confidence - _SLACK
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    lacking = counts < compute_minimum_history(quantile, confidence)
    ranks = np.where(lacking, counts + 1, low)
    # the cache gives the same array to every stream
    ranks.flags.writeable = False
    return ranks


def _compute_binomial_cdf(
    successes: NDArray[np.int64], trials: NDArray[np.int64], chance: float
) -> NDArray[np.float64]:
    """Return P(Bin(n, q) ≤ k) = I_{1−q}(n−k, k+1); 1 where k ≥ n."""
    from scipy.special import betainc  # noqa: PLC0415 late: a sixth of a second, and a kept forecast needs none

    # the incomplete beta function is undefined for n − k = 0
    inside = successes < trials
    k, n = np.where(inside, successes, 0), np.where(inside, trials, 1)
    return np.where(inside, betainc(n - k, k + 1.0, 1 - chance), 1.0)


def compute_probability_within(
    array_like: ArrayLike, total: int, confidence: float
) -> NDArray[np.float64]:
    """Return the lower confidence limit on P(wait ≤ d) when ``array_like`` of ``total`` past waits
    were ≤ d.

    GETPROB in closed form: Beta⁻¹(1−C; m, n−m+1), 0 where m = 0. Any shape; the result has the same
    shape.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 late: see _compute_binomial_cdf

    parse_probability(confidence, "confidence")
    m = np.asarray(array_like, dtype=np.float64)
    limit = (
        # a parameter of 0 is undefined: computed for 1 there, and replaced by 0 below
        betaincinv(np.maximum(m, 1), total - np.maximum(m, 1) + 1, 1 - confidence)
        if total
        else m * 0.0
    )
    return np.where(m > 0, limit, 0.0)
