"""How time may depend on the size of what a task reads: the laws between which the data choose.

A law is log t = level + log(f + (1 - f) (s / s0)^b): a power of the size over a floor (start-up), whose share at the
middle size s0 is f; b = 0 where size does not matter, b = 1 is the straight line. Beside the law stands a smooth
departure from it (an Ornstein-Uhlenbeck process over log size), which keeps extrapolation from being too sure, and the
noise of single tasks. All are finite grids, so that what is unknown is averaged over and never maximised: with six
observations no single exponent deserves belief.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXPONENTS = {
    0.25: 0.03, 0.5: 0.05, 0.7: 0.06, 0.8: 0.08, 0.9: 0.12, 1.0: 0.24, 1.1: 0.10, 1.25: 0.07, 1.5: 0.05,
}  # fmt: skip
"""Weights before any data: half of what programs do with a file is to read it once."""
FLAT = 0.2
"""Weight of b = 0."""
FLOORS = {0.0: 0.3, 0.01: 0.1, 0.03: 0.1, 0.1: 0.12, 0.2: 0.12, 0.4: 0.1, 0.6: 0.08, 0.8: 0.08}
NOISES = {0.02: 0.1, 0.04: 0.2, 0.08: 0.25, 0.16: 0.2, 0.32: 0.15, 0.64: 0.1}
"""Standard deviation of the logarithm for one task."""
DEPARTURES = {0.0: 0.4, 0.1: 0.3, 0.2: 0.2, 0.4: 0.1}
RANGE = 3.0
"""Over so many e-folds of size a departure is forgotten by a factor e."""


@dataclass(frozen=True)
class Laws:
    """Pooled weights: ``shapes`` (exponent, floor share) and ``noises`` (noise, departure), each summing to 1."""

    shapes: Array
    noises: Array


_SHAPES = [(0.0, 0.0)] + list(itertools.product(EXPONENTS, FLOORS))
EXPONENT, FLOOR = np.array(_SHAPES).T
SPREADS = np.array(list(itertools.product(NOISES, DEPARTURES)))
NOISE, DEPARTURE = SPREADS.T
_SHAPE_PRIOR = np.array([FLAT, *(EXPONENTS[b] * FLOORS[f] for b, f in _SHAPES[1:])])
_NOISE_PRIOR = np.array([NOISES[s] * DEPARTURES[d] for s, d in SPREADS])
PRIOR = Laws(_SHAPE_PRIOR / _SHAPE_PRIOR.sum(), _NOISE_PRIOR / _NOISE_PRIOR.sum())
POOL = 8.0
"""Kinds for which the weights before any data count."""


def curves(offsets: Array, rows: NDArray[np.intp] | slice = slice(None)) -> Array:
    """log(f + (1 - f) e^(b x)) of the laws ``rows``, shape (laws, sizes), at log sizes ``offsets`` from the middle."""
    floor = FLOOR[rows, None]
    return np.asarray(np.log(floor + (1 - floor) * np.exp(EXPONENT[rows, None] * offsets)))


def pooled(shapes: Array, noises: Array) -> Laws:
    """Weights after seeing how much each law was believed by each kind, summed over kinds."""
    shape, noise = POOL * PRIOR.shapes + shapes, POOL * PRIOR.noises + noises
    return Laws(shape / shape.sum(), noise / noise.sum())
