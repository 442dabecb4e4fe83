"""A distribution of a wait as five quantiles: conversion from level to wait and back, monotone both
ways.

Levels are scores, −log(1 − level); waits are cube roots of seconds. Linear between knots, falling
to 0 below the first, still rising beyond the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.qbets.conditional import LEVELS

Floats = NDArray[np.float64]
HIGHEST = 9.0
"""Highest score: no level beyond 1 − e⁻⁹ is used."""
SCORES = -np.log1p(-np.array(LEVELS))
_ALL_SCORES = np.concatenate([[0.0], SCORES, [HIGHEST]])
_LEAST_RISE = 0.1  # share of the last knot per unit of score beyond it
_ROUNDING = 1e-9  # of a cube and its root
_LEAST_ROOT = 0.5  # the same in cube roots of seconds


def extend_knots(knots: Floats) -> tuple[Floats, Floats]:
    """Return scores and cube roots with both ends: (0, 0) before, and the highest score after."""
    last = (knots[-1] - knots[-2]) / (SCORES[-1] - SCORES[-2])
    rise = max(last, _LEAST_RISE * knots[-1], _LEAST_ROOT)
    top = knots[-1] + rise * (HIGHEST - SCORES[-1])
    roots = np.zeros(len(_ALL_SCORES))
    roots[1:-1], roots[-1] = knots, top
    return _ALL_SCORES, roots


def _extend_lists(knots: Floats) -> tuple[list[float], list[float]]:
    """Return the same for one wait as Python lists, whose look-up is faster than numpy's."""
    scores, roots = extend_knots(knots)
    return scores.tolist(), roots.tolist()


def wait_at(knots: Floats, score: ArrayLike) -> Floats:
    """Return the waits in seconds at these scores; that of the highest score beyond it. Same
    shape."""
    scores, roots = extend_knots(knots)
    root = np.interp(np.asarray(score, dtype=np.float64), scores, roots)
    return np.asarray(root * root * root, dtype=np.float64)


def wait_of(knots: Floats, score: float) -> float:
    """Return the same for one score and one wait, faster."""
    scores, roots = _extend_lists(knots)
    spot = min(max(bisect_right(scores, score), 1), len(scores) - 1)
    share = min(1.0, (score - scores[spot - 1]) / (scores[spot] - scores[spot - 1]))
    root = roots[spot - 1] + share * (roots[spot] - roots[spot - 1])
    return root * root * root


def score_within(knots: Floats, wait_s: float) -> float:
    """Return the highest score whose wait is at most this: the inverse of :func:`wait_at`."""
    scores, roots = _extend_lists(knots)
    root = float(np.cbrt(wait_s)) * (1 + _ROUNDING)
    spot = min(max(bisect_right(roots, root), 1), len(roots) - 1)
    width = roots[spot] - roots[spot - 1]
    # equal quantiles: the highest score with this wait is the upper end
    share = (root - roots[spot - 1]) / width if width > 0 else 1.0
    return scores[spot - 1] + min(max(share, 0.0), 1.0) * (scores[spot] - scores[spot - 1])


def score_among(knots: Floats, wait_s: float, share: float) -> float:
    """Return the score of a wait; inside a flat stretch, where many scores mean the same wait, the
    one at ``share`` of it.

    With a random share, the scores of waits that follow the distribution are exponential even if it
    has atoms (randomised probability integral transform: Czado, Gneiting and Held 2009,
    doi:10.1111/j.1541-0420.2009.01191.x).
    """
    low, high = score_of(knots, wait_s), score_within(knots, wait_s)
    return low + share * max(0.0, high - low)


def score_of(knots: Floats, wait_s: float) -> float:
    """Return the least score whose wait is at least this."""
    scores, roots = _extend_lists(knots)
    root: float = wait_s ** (1 / 3) * (1 - _ROUNDING)
    spot = bisect_left(roots, root)
    if spot == 0:
        return 0.0
    if spot == len(roots):
        return HIGHEST
    share = (root - roots[spot - 1]) / (roots[spot] - roots[spot - 1])
    return scores[spot - 1] + share * (scores[spot] - scores[spot - 1])
