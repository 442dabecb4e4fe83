"""Quantiles of a wait given the state of the queue: a base that extrapolates, and boosted trees for
its residuals.

Trees (:mod:`vgrads.qbets.boosting`) do not extrapolate, and a queue can become longer than ever
before. So a non-negative least-squares fit on work ahead, simulated starts and ages comes first,
and the trees learn the quantiles of its residuals. All in cube roots of seconds: a compromise
between seconds, where few long waits dominate, and logarithms, where the difference between one
second and ten counts like that between one day and ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vgrads.kernel.arrays import Floats
from vgrads.qbets.boosting import Growth, Trees, grow
from vgrads.qbets.state.queue_features import FEATURES, USUAL

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MODELS = 2
"""Newest models whose mean answers."""
LEAST = 200  # minimum number of rows to learn a model
_GROWTH = Growth(trees=50, leaves=15, rate=0.1, per_leaf=60)
_RIDGE = 0.03
_LOGS = np.array(
    [
        FEATURES.index(name)
        for name in (
            "own work waiting",
            "work waiting",
            "expected work waiting",
            "work of smaller jobs waiting",
            "work left running",
            "expected work left running",
            "room by request",
            "room by expectation",
            "start by FCFS",
            "start by EASY",
            "start by conservative",
            "start by expected runs",
            "longest wait of like jobs",
            "oldest waiting",
            "oldest as small waiting",
            "queue's waits",
            "user's waits",
        )
    ]
)
_OWN = FEATURES.index("own jobs waiting")
_MOST_LOG = 25.0  # no time is longer than e^25 seconds


@dataclass(frozen=True, kw_only=True)
class ConditionalModel:
    """Base weights and trees; ``typical`` is a usual job, for explanations."""

    weights: Floats
    trees: Trees
    typical: Floats

    def knots(self, features: Floats) -> Floats:
        """Return cube roots of the waits at :data:`LEVELS`, ascending, for each row of features."""
        rows = clean(np.atleast_2d(features))
        # levels are learned apart: they may cross, and fall below zero
        result = self.trees.of(rows) + (base_columns(rows) @ self.weights)[:, None]
        return np.maximum.accumulate(np.maximum(result, 0.0), axis=1)


def average_knots(
    models: Sequence[ConditionalModel], features: Floats, newest: ArrayLike = 1.0
) -> Floats:
    """Return the mean answer of the newest :data:`MODELS` of these models, the newest last: rows ×
    levels. ``newest``: for each row or for all, how far the newest model has replaced the oldest
    one, from 0 to 1; below 1 the mean without it has the rest of the weight."""
    share = np.asarray(newest, dtype=np.float64)[..., None]
    if len(models) == 1 or bool((share >= 1.0).all()):
        return np.asarray(np.mean([model.knots(features) for model in models[-MODELS:]], axis=0))
    answers = [model.knots(features) for model in models]
    before, after = (np.mean(part[-MODELS:], axis=0) for part in (answers[:-1], answers))
    return np.asarray(share * after + (1.0 - share) * before)


def clean(features: Floats) -> Floats:
    """Replace unknown values by −1, as in logs; trees distinguish it from every value."""
    rows = features.astype(np.float64)
    rows[np.isnan(rows)] = USUAL
    return rows


def base_columns(rows: Floats) -> Floats:
    """Return the inputs of the base, in cube roots of seconds (one column a constant)."""
    seconds = np.expm1(np.minimum(np.maximum(rows[:, _LOGS], 0.0), _MOST_LOG))
    # the user's waits, multiplied by the user's jobs
    seconds[:, -1] *= np.maximum(rows[:, _OWN], 0.0)
    result = np.ones((len(rows), len(_LOGS) + 1), order="F")
    np.cbrt(seconds, out=result[:, :-1])
    return result


def fit(features: Floats, waits_s: Floats) -> ConditionalModel:
    """Learn from rows of features and the waits that followed."""
    rows, target = clean(features), np.cbrt(waits_s)
    columns = base_columns(rows)
    scale = columns.std(axis=0)
    # the constant, and features that all rows share, have no spread to divide by
    scale[scale < 1e-9] = 1.0
    scaled = columns / scale
    # the ridge also keeps every pivot above zero
    gram = scaled.T @ scaled + _RIDGE**2 * len(rows) * np.eye(columns.shape[1])
    weights = _solve_non_negative(gram, scaled.T @ target) / scale
    rest = target - columns @ weights
    trees = grow(rows, rest, LEVELS, _GROWTH)
    return ConditionalModel(weights=weights, trees=trees, typical=np.median(rows, axis=0))


def _solve_non_negative(gram: Floats, target: Floats) -> Floats:
    """Return the non-negative weights nearest to the normal equations, by coordinate descent to
    convergence."""
    weights, values = np.zeros(len(target)), [0.0] * len(target)
    # single numbers are read from lists, which is faster; the array serves the products
    goals, pivots, rows = target.tolist(), gram.diagonal().tolist(), list(gram)
    for _ in range(10_000):
        moved = 0.0
        for n, row in enumerate(rows):
            # the exact minimum along this weight alone, cut at zero
            new = max(0.0, values[n] + (goals[n] - float(row.dot(weights))) / pivots[n])
            moved = max(moved, abs(new - values[n]))
            weights[n] = values[n] = new
        if moved <= 1e-9 * (1.0 + max(values)):
            break
    return weights
