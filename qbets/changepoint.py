"""Change points of history: runs of misses, judged by the correlation of the waits.

A bound on the q-quantile is missed by a share 1 − q of jobs. Independent waits would hardly ever be
missed several times in a row; correlated ones are. The run length that is "too many" is the
smallest r for which r misses in a row have probability at most (1 − q)³ in a stationary Gaussian
AR(1) series with the lag-1 autocorrelation of the waits' normal scores (BMBP, PPoPP 2006,
doi:10.1145/1122971.1122989, which found its table by simulation; here it is integrated).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

WINDOW = 100  # waits over which the autocorrelation is measured (BMBP's figure)
_NODES = 96
_LONGEST = 200


@lru_cache(maxsize=4096)
def run_length(quantile: float, autocorrelation: float) -> int:
    """Return the misses in a row that mean a change point, for an autocorrelation in [0, .95].

    >>> [run_length(0.95, rho) for rho in (0.0, 0.5, 0.9)]
    [3, 6, 23]
    """
    rho = min(max(autocorrelation, 0.0), 0.95)
    limit = (1 - quantile) ** 3
    for length, chance in enumerate(_run_chances(quantile, rho), 1):
        # without correlation three misses have exactly this probability: rounding must not decide
        if chance <= limit * (1 + 1e-9):
            return length
    return _LONGEST


def _run_chances(quantile: float, rho: float) -> Iterator[float]:
    """Return P(r misses in a row) for r = 1, 2, …: the AR(1) kernel applied to the part above the
    quantile.

    Gauss–Legendre over [z_q, z_q + 12]; f₁ = φ on it, f_{r+1}(y) = ∫ f_r(x) φ((y − ρx)/s)/s dx.
    """
    from scipy.special import ndtri  # noqa: PLC0415 late: as in vgrads.qbets.bounds

    threshold = float(ndtri(quantile))
    nodes, weights = _make_gauss_legendre()
    # maps [−1, 1] to [z_q, z_q + 12]; the density beyond is below double precision
    x = threshold + 6.0 * (nodes + 1)
    w = 6.0 * weights
    spread = np.sqrt(1 - rho * rho)
    kernel = _compute_density((x[:, None] - rho * x[None, :]) / spread) / spread * w[None, :]
    mass = _compute_density(x)
    for _ in range(_LONGEST):
        yield float(mass @ w)
        mass = kernel @ mass


@cache
def _make_gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _compute_density(z: NDArray[np.float64]) -> NDArray[np.float64]:
    density: NDArray[np.float64] = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return density


def autocorrelation(waits: NDArray[np.float64]) -> float:
    """Return the lag-1 autocorrelation of the normal scores of a series of waits; 0 if it has no
    spread.

    Ranks with ties shared, scores Φ⁻¹((rank − ½)/n): the marginal distribution does not matter.
    """
    if len(waits) < 3:
        return 0.0
    from scipy.special import ndtri  # noqa: PLC0415 late: as in vgrads.qbets.bounds

    scores = ndtri((_compute_ranks(waits) - 0.5) / len(waits))
    centred = scores - scores.mean()
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0


def _compute_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1-based ranks; ties share their mean rank (as in ``scipy.stats.rankdata``, whose
    import is slow)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[inverse]


def change_run(quantile: float, recent_waits: NDArray[np.float64]) -> int:
    """Return the run length that means a change point, given the most recent waits (rounded to .01
    of ρ)."""
    rho = autocorrelation(recent_waits[-WINDOW:])
    # rounded, so that the integral is computed for few values and then found in the cache
    return run_length(quantile, round(min(max(rho, 0.0), 0.95), 2))
