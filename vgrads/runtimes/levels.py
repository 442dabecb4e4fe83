"""How long kinds take at all: their levels as draws of one distribution with heavy tails.

A scale mixture of normals about one mean stands for Student's t (Andrews and Mallows, 1974,
doi:10.1111/j.2517-6161.1974.tb00989.x), with the weights of the scales in place of its degrees of
freedom. They are expected values (EM) that include what is not known about each level, with a prior
that counts as a few kinds. So a thousand short kinds make other short ones certain, and a kind far
from all of them keeps what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vgrads.runtimes.laws import Array

SCALES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
MEAN = float(np.log(8.0))
"""Before any data eight seconds for ten megabytes on one processor: half of the kinds of recorded
workflows (WfInstances, Lotaru's traces) are shorter."""
_PRIOR = np.array([0.02, 0.08, 0.2, 0.6, 0.1])
_COUNT = 3.0
_OTHERS = 1.0
"""Kinds that all those of other sources count as, for a source without any."""
_TURNS = 30
_POINTS, _NARROW = 48, 0.05


@dataclass(frozen=True)
class Levels:
    """Logarithms of seconds (or bytes) of the kinds of one source, at the middle size on the
    reference machine: ``weights`` of ``SCALES``, summing to 1, about ``mean``."""

    mean: float
    weights: tuple[float, ...]
    kinds: int = 0
    points: tuple[float, ...] = ()
    """Quantiles, in equal steps, of one task of every kind."""

    def spread_of(self, level: float, var: float) -> float:
        """Return the standard deviation that the level of a kind has before its records, which
        have this mean and variance: that of the scales by which they are explained, and at least
        their distance. So no kind is moved by more than half the deviation of its records."""
        off = level - self.mean
        belief = _compute_beliefs(np.array([off]), np.array([var]), self.weights)[0]
        return max(float((belief @ SCALES**-2.0) ** -0.5), abs(off))

    def unseen(self, noise: float, shift: float = 0.0) -> Array:
        """Return a task of a kind without records, (3, parts): weights, means, variances. It is
        near a task of another kind, or anywhere, with the variance ``noise``, at this distance from
        the mean."""
        count, many = len(self.points), self.kinds / (self.kinds + _COUNT)
        anywhere = [(1 - many) * _PRIOR, np.full(len(SCALES), self.mean + shift), SCALES**2 + noise]
        if not count:
            return np.array(anywhere)
        points = np.array(self.points)
        gaps = np.diff(points, prepend=points[0], append=points[-1])
        widths = np.maximum(_NARROW, np.minimum(gaps[:-1], gaps[1:]))
        near = [np.full(count, many / count), points, widths**2]
        return np.concatenate([anywhere, near], axis=1)


BEFORE = Levels(MEAN, tuple(_PRIOR))


def fit_levels(levels: Array, variances: Array, tasks: Array, mean: float = MEAN) -> Levels:
    """Return the distribution of ``levels`` (n,), of which each is known up to its variance;
    ``tasks`` (n,) has one of each kind."""
    prior, centre = _COUNT * _PRIOR, mean
    weights = _PRIOR
    for _ in range(_TURNS):
        belief = _compute_beliefs(levels - centre, variances, weights)
        precision = belief / (SCALES**2 + variances[:, None])
        about = _COUNT * float(_PRIOR @ SCALES**-2.0)
        centre = float(
            (about * mean + float(precision.sum(1) @ levels)) / (about + float(precision.sum()))
        )
        weights = (prior + belief.sum(0)) / (_COUNT + len(levels))
    points = np.quantile(tasks, (np.arange(_POINTS) + 0.5) / _POINTS)
    return Levels(centre, tuple(map(float, weights)), len(levels), tuple(map(float, points)))


def before(others: Sequence[Levels], mean: float = MEAN) -> float:
    """Return the mean that a source is supposed to have before its own kinds: other sources
    together count as little."""
    many = [levels.mean for levels in others if levels.kinds]
    if not many:
        return mean
    return (_COUNT * mean + _OTHERS * float(np.mean(many))) / (_COUNT + _OTHERS)


def _compute_beliefs(offs: Array, variances: Array, weights: Array | tuple[float, ...]) -> Array:
    """Return how probable each scale is (n, scales)."""
    total = SCALES**2 + variances[:, None]
    score = np.log(np.array(weights)) - (np.log(total) + offs[:, None] ** 2 / total) / 2
    # relative to the largest, so that not all of them round to zero
    belief = np.exp(score - score.max(1, keepdims=True))
    return np.asarray(belief / belief.sum(1, keepdims=True))
