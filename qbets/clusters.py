"""Clusters of similar jobs: intervals of a job's size, found by merging neighbours under BIC.

QBETS (Nurmi, Brevik, Wolski, JSSPP 2007, doi:10.1007/978-3-540-78699-3_5) groups the jobs of a
queue by their requests, because wide and long jobs wait longer. Values start as separate bins (64
quantiles if there are more); the two neighbours whose merger costs the exponential likelihood least
are merged as long as that lowers BIC = k·ln n − 2·ln L, and any bin with less than the minimum
history is merged at any cost: it borrows from its neighbour.

The size was chosen by backtest (``studies/results/backtest.md``): the **backlog**, processors ×
time × (1 + jobs of the same user already waiting). It differs from QBETS in the last factor: the
k-th job that a user puts into the queue waits like one job of k times the work, and an array of
hundreds is then covered, while every other choice fails.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_MOST_BINS = 64
_THIN = 1e15  # gain of merging a thin bin, above any likelihood difference

Size = Callable[[int, float, int], float]
SIZES: dict[str, Size] = {
    "none": lambda procs, request_s, ahead: 0.0,
    "procs": lambda procs, request_s, ahead: float(procs),
    "time": lambda procs, request_s, ahead: max(request_s, 1.0),
    "product": lambda procs, request_s, ahead: procs * max(request_s, 1.0),
    "backlog": lambda procs, request_s, ahead: procs * max(request_s, 1.0) * (1 + ahead),
}
"""Size of a job by processors, requested time and waiting jobs of the same user."""


def find_edges(
    sizes: NDArray[np.float64], waits_s: NDArray[np.float64], minimum: int
) -> list[float]:
    """Return the upper edges (inclusive) of all bins but the last. O(n log n)."""
    values = _list_first_values(sizes)
    place = np.searchsorted(values, sizes, side="left")
    counts = np.bincount(place, minlength=len(values)).astype(np.float64).tolist()
    # a wait of 0 would make the exponential likelihood infinite
    sums = np.bincount(place, weights=np.maximum(waits_s, 1.0), minlength=len(values)).tolist()
    uppers: list[float] = values.tolist()
    # a bin less lowers BIC by ln n, the most that its merger may cost in 2·ln L
    penalty = float(np.log(len(sizes)))
    while len(uppers) > 1:
        # all costs are computed again after each merger: there are at most 64
        costs = [_compute_cost(counts, sums, i, minimum) for i in range(len(uppers) - 1)]
        best = min(range(len(costs)), key=costs.__getitem__)
        if costs[best] >= penalty:
            break
        counts[best : best + 2] = [counts[best] + counts[best + 1]]
        sums[best : best + 2] = [sums[best] + sums[best + 1]]
        del uppers[best]
    return uppers[:-1]


def _list_first_values(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.unique(sizes)
    if len(values) <= _MOST_BINS:
        return values
    levels = np.linspace(0, 1, _MOST_BINS + 1)[1:]
    # "higher" returns sizes that occur, so that no bin is empty
    quantiles: NDArray[np.float64] = np.unique(np.quantile(sizes, levels, method="higher"))
    return quantiles


def _compute_cost(counts: list[float], sums: list[float], i: int, minimum: int) -> float:
    """Return 2·(ln L apart − ln L together) for exponential waits; very low if either bin is
    thin."""
    apart = _compute_likelihood(counts[i], sums[i]) + _compute_likelihood(
        counts[i + 1], sums[i + 1]
    )
    together = _compute_likelihood(counts[i] + counts[i + 1], sums[i] + sums[i + 1])
    thin = min(counts[i], counts[i + 1]) < minimum
    return 2 * (apart - together) - (_THIN if thin else 0.0)


def _compute_likelihood(count: float, total_s: float) -> float:
    """Return the largest log-likelihood of ``count`` exponential waits that sum to ``total_s``."""
    return -count * (math.log(total_s / count) + 1.0) if count else 0.0


def find_bin(edges: Sequence[float], size: float) -> int:
    """Return the index of the bin of a size. O(log bins)."""
    return bisect_left(edges, size)
