"""How time may depend on the size of what a task reads: the laws between which the data choose.

A law is log t = level + log(f + (1 - f) v^b), v = (s - o) / (s0 - o): a power of the size over a
floor (start-up), whose share at the middle size s0 is f; b = 0 where size does not matter, b = 1 is
the straight line. The offset o is 0, or the smallest size seen, for tasks that read something
constant (a reference) besides what varies: with b = 1 and this offset the law is the line that
plain regression fits. Beside the law stands a smooth departure from it (an Ornstein-Uhlenbeck
process over log size), which keeps extrapolation from being too sure, and the noise of single
tasks. All are finite grids, so that what is unknown is averaged over and never maximised: with six
observations no single exponent deserves belief.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXPONENTS = {0.5: 0.04, 0.7: 0.05, 0.8: 0.07, 0.9: 0.1, 1.0: 0.5, 1.1: 0.1, 1.25: 0.05, 1.5: 0.03}
"""Weights before any data: half of what programs do with a file is to read it once."""
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
"""Fine where starting up is nearly all: a small run says little of a large one, and should say
so."""
OFFSET = 0.25
"""Weight of an offset at the smallest size; a floor must then be there."""
NOISES = {0.02: 0.1, 0.04: 0.15, 0.08: 0.2, 0.15: 0.2, 0.3: 0.15, 0.5: 0.1, 0.9: 0.1}
"""Standard deviation of the logarithm for one task, of those that take longest."""
GROWTHS = {0.0: 0.6, 0.4: 0.4}
"""Noise is (longest / this)^growth times as large for shorter ones, of which starting up is a
larger part."""
DEPARTURES = {0.0: 0.4, 0.1: 0.4, 0.3: 0.2}
REPEATS = {0.05: 0.7, 0.3: 0.3}
"""Standard deviation of the logarithm of what is common to the tasks of a kind in one run of a
workflow."""
RANGE = 10.0
"""Over so many e-folds of size a departure is forgotten by a factor e: what is learned at the
largest sizes counts most for larger ones."""


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
"""Kinds for which the weights before any data count."""


def ratios(x: Array, least: float) -> Array:
    """log v of sizes, shape (2, sizes): without and with the offset; ``x`` and ``least`` (the
    smallest size) are log sizes from the middle. At and below the offset almost nothing is left."""
    if least > -_LEAST_SPREAD:
        return np.array([x, x])
    over = np.maximum(np.expm1(x - least), 1e-9)
    return np.array([x, np.log(over) - np.log(np.expm1(-least))])


_LEAST_SPREAD = 1e-4


def curves(ratio: Array, rows: NDArray[np.intp] | slice = slice(None)) -> Array:
    """log(f + (1 - f) v^b) of the laws ``rows``, shape (laws, sizes), of ``ratio`` (2, sizes) as
    :func:`ratios` gives."""
    floor, which = FLOOR[rows, None], SHIFTED[rows].astype(int)
    return np.asarray(np.log(floor + (1 - floor) * np.exp(EXPONENT[rows, None] * ratio[which])))


def pooled(shapes: Array, noises: Array) -> Laws:
    """Weights after seeing how much each law was believed by each kind, summed over kinds."""
    shape, noise = POOL * PRIOR.shapes + shapes, POOL * PRIOR.noises + noises
    return Laws(shape / shape.sum(), noise / noise.sum())
