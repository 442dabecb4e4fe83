"""Laws of run time by input size, weighted by the data.

A law is log t = level + log(f + (1 - f) v^b), v = (s - o) / (s0 - o): a power of the size over a
floor (start-up), whose share at the middle size s0 is f; b = 0 where size does not matter, b = 1 is
the straight line. The offset o is 0, or the smallest observed size, for tasks that read a constant
part (a reference) in addition to a varying one: with b = 1 and this offset the law is the line of
plain regression. A smooth departure is added to the law (an Ornstein-Uhlenbeck process over log
size), which keeps the uncertainty of extrapolation from being too small, and the noise of single
tasks. All are finite grids, so that unknown parameters are averaged over and never maximised: six
observations do not determine a single exponent.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXPONENTS = {0.5: 0.04, 0.7: 0.05, 0.8: 0.07, 0.9: 0.1, 1.0: 0.5, 1.1: 0.1, 1.25: 0.05, 1.5: 0.03}
"""Weights before any data: half of all programs read a file once."""
FLAT = 0.2
"""Weight of b = 0."""
FLOORS = {
    0.0: 0.2,
    0.01: 0.1,
    0.03: 0.1,
    0.1: 0.12,
    0.2: 0.12,
    0.35: 0.1,
    0.5: 0.08,
    0.65: 0.06,
    0.8: 0.05,
    0.9: 0.04,
    0.95: 0.02,
    0.98: 0.01,
}
"""Fine where start-up dominates: a small run carries little information about a large one, and the
result should show that."""
OFFSET = 0.25
"""Weight of an offset at the smallest size; requires a floor."""
NOISES = {
    0.01: 0.02,
    0.02: 0.04,
    0.04: 0.08,
    0.08: 0.15,
    0.15: 0.22,
    0.3: 0.24,
    0.6: 0.16,
    1.5: 0.09,
}
"""Standard deviation of the logarithm for one task, of the longest ones."""
GROWTHS = {0.0: 0.6, 0.4: 0.4}
"""Noise is (longest / this)^growth times as large for shorter ones, of which start-up is a larger
part."""
DEPARTURES = {0.0: 0.4, 0.1: 0.35, 0.3: 0.15, 1.0: 0.1}
REPEATS = {0.05: 0.45, 0.3: 0.3, 1.0: 0.17, 2.5: 0.08}
"""Standard deviation of the logarithm of the part common to the tasks of a kind in one run of a
workflow."""
RANGE = 10.0
"""E-folds of size over which a departure decays by a factor e: observations at the largest sizes
count most for larger ones."""
JOBS_RANGE = 3.0
"""The same for jobs, in jobs of the name: the latest count most."""


@dataclass(frozen=True)
class Laws:
    """Pooled weights: ``shapes`` (exponent, floor, offset) and ``noises`` (noise, growth,
    departure, repeat), each summing to 1."""

    shapes: Array
    noises: Array


_PLAIN = [(b, f, 0.0, (1 - OFFSET) * EXPONENTS[b] * FLOORS[f]) for b in EXPONENTS for f in FLOORS]
_ABOVE = [
    (b, f, 1.0, OFFSET * EXPONENTS[b] * FLOORS[f]) for b in (0.9, 1.0, 1.1) for f in FLOORS if f
]
EXPONENT, FLOOR, SHIFTED, _WEIGHT = np.array([(0.0, 0.0, 0.0, FLAT), *_PLAIN, *_ABOVE]).T
NOISE, GROWTH, DEPARTURE, REPEAT = np.array(
    list(itertools.product(NOISES, GROWTHS, DEPARTURES, REPEATS))
).T
_NOISE_PRIOR = np.prod(
    list(itertools.product(*(grid.values() for grid in (NOISES, GROWTHS, DEPARTURES, REPEATS)))),
    axis=1,
)
PRIOR = Laws(_WEIGHT / _WEIGHT.sum(), _NOISE_PRIOR / _NOISE_PRIOR.sum())
POOL = 8.0
"""Number of kinds that the weights before any data count as."""


def ratios(x: Array, least: float) -> Array:
    """Return log v of sizes, shape (2, sizes): without and with the offset; ``x`` and ``least``
    (the smallest size) are log sizes from the middle. At and below the offset almost nothing is
    left."""
    # sizes that hardly differ say nothing of an offset
    if least > -_LEAST_SPREAD:
        return np.array([x, x])
    over = np.maximum(np.expm1(x - least), 1e-9)
    return np.array([x, np.log(over) - np.log(np.expm1(-least))])


_LEAST_SPREAD = 1e-4


def curves(ratio: Array, rows: NDArray[np.intp] | slice = slice(None)) -> Array:
    """Return log(f + (1 - f) v^b) of the laws ``rows``, shape (laws, sizes), of ``ratio`` (2,
    sizes) from :func:`ratios`."""
    floor, which = FLOOR[rows, None], SHIFTED[rows].astype(int)
    return np.asarray(np.log(floor + (1 - floor) * np.exp(EXPONENT[rows, None] * ratio[which])))


def pool_weights(shapes: Array, noises: Array) -> Laws:
    """Return weights updated by the posterior weight of each law in each kind, summed over
    kinds."""
    shape, noise = POOL * PRIOR.shapes + shapes, POOL * PRIOR.noises + noises
    return Laws(shape / shape.sum(), noise / noise.sum())
