"""Quantiles of a wait given the state of the queue: a base that extrapolates, and boosted trees on it.

Trees (scikit-learn's histogram gradient boosting with the quantile loss) know nothing beyond what they
have seen, and a queue keeps getting longer than ever before. So a non-negative least-squares fit on
work ahead, simulated starts and ages comes first, and the trees learn the quantiles of what it leaves.
All in cube roots of seconds: between seconds, where few long waits rule, and logarithms, where the
difference between one second and ten counts like that between one day and ten.

A fitted model is a handful of arrays; walking its trees is compiled here, because one question asked
of the library takes longer than everything else together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from qbets.queue_state import FEATURES, USUAL

Floats = NDArray[np.float64]
LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)
LEAST = 200  # rows that a model can be learned from
_TREES, _LEAVES, _RATE, _PER_LEAF = 50, 15, 0.1, 20
_RIDGE = 0.03
_LOGS = tuple(FEATURES.index(name) for name in (
    "own work waiting", "work waiting", "expected work waiting", "work of smaller jobs waiting",
    "work left running", "expected work left running", "room by request", "room by expectation",
    "start by FCFS", "start by EASY", "start by conservative", "start by expected runs",
    "longest wait of like jobs", "oldest waiting", "oldest as small waiting",
))  # fmt: skip
_OWN, _USER = FEATURES.index("own jobs waiting"), FEATURES.index("user's waits")
_MOST_LOG = 25.0  # no time is longer than e^25 seconds


@dataclass(frozen=True, kw_only=True)
class Trees:
    """All trees of all levels as columns; ``roots`` has a row of first nodes for each level."""

    feature: NDArray[np.int64]
    threshold: Floats
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Floats
    leaf: NDArray[np.bool_]
    roots: NDArray[np.int64]
    start: Floats


@dataclass(frozen=True, kw_only=True)
class ConditionalModel:
    """Base weights and trees; ``typical`` is a job as usual, for explanations."""

    weights: Floats
    trees: Trees
    typical: Floats

    def knots(self, features: Floats) -> Floats:
        """Cube roots of the waits at :data:`LEVELS`, ascending, for each row of features."""
        rows = clean(np.atleast_2d(features))
        found = _walk(
            rows,
            base_columns(rows) @ self.weights,
            self.trees.roots,
            _columns(self.trees),
            self.trees.start,
        )
        return np.maximum.accumulate(np.maximum(found, 0.0), axis=1)  # fmt: skip


def clean(features: Floats) -> Floats:
    """What is unknown is −1, as everywhere in logs; trees tell it apart from every value."""
    return np.nan_to_num(features, nan=USUAL).astype(np.float64)


def base_columns(rows: Floats) -> Floats:
    """What the base rests on, in cube roots of seconds (one column a constant)."""
    seconds = np.expm1(np.clip(rows[:, _LOGS], 0.0, _MOST_LOG))
    usual = np.expm1(np.clip(rows[:, _USER], 0.0, _MOST_LOG))
    own = np.maximum(rows[:, _OWN], 0.0) * usual
    return np.column_stack([np.cbrt(seconds), np.cbrt(own), np.ones(len(rows))])


def fit(features: Floats, waits_s: Floats) -> ConditionalModel:
    """Learn from rows of features and the waits that followed."""
    from scipy.optimize import nnls  # noqa: PLC0415 late: who asks what was learned before does not wait for it

    rows, target = clean(features), np.cbrt(waits_s)
    columns = base_columns(rows)
    scale = columns.std(axis=0)
    scale[scale < 1e-9] = 1.0
    width = columns.shape[1]
    ridge = np.eye(width) * _RIDGE * np.sqrt(len(rows))
    weights, _ = nnls(
        np.vstack([columns / scale, ridge]), np.concatenate([target, np.zeros(width)])
    )
    weights = weights / scale
    rest = target - columns @ weights
    return ConditionalModel(
        weights=weights, trees=_grow(rows, rest), typical=np.median(rows, axis=0)
    )


def _grow(rows: Floats, target: Floats) -> Trees:
    # imported here: who never asks for the state does not wait for the library
    from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    forests = []
    # one thread: threads that wait for each other busily, in several processes on a few cores, took a
    # hundred times as long; histories are learned in parallel instead
    with threadpool_limits(limits=1, user_api="openmp"):
        for level in LEVELS:
            model = HistGradientBoostingRegressor(
                loss="quantile", quantile=level, max_iter=_TREES, max_leaf_nodes=_LEAVES,
                learning_rate=_RATE, min_samples_leaf=_PER_LEAF, early_stopping=False,
            )  # fmt: skip
            forests.append(model.fit(rows, target))
    return flatten(forests)


def flatten(forests: Sequence[Any]) -> Trees:
    """The fitted regressors of all levels as one table of nodes; a test holds it to their answers."""
    nodes, roots, count = [], [], 0
    for forest in forests:
        first = []
        for (tree,) in forest._predictors:  # no public way to the nodes; pinned, and tested
            table = tree.nodes
            nodes.append((table, count))
            first.append(count)
            count += len(table)
        roots.append(first)
    joined = {name: np.concatenate([table[name] for table, _ in nodes])
              for name in ("feature_idx", "num_threshold", "value", "is_leaf")}  # fmt: skip
    sides = {side: np.concatenate([table[side].astype(np.int64) + at for table, at in nodes])
             for side in ("left", "right")}  # fmt: skip
    return Trees(
        feature=joined["feature_idx"].astype(np.int64), threshold=joined["num_threshold"].astype(np.float64),
        left=sides["left"], right=sides["right"], value=joined["value"].astype(np.float64),
        leaf=joined["is_leaf"].astype(np.bool_), roots=np.array(roots, dtype=np.int64),
        start=np.array([np.ravel(forest._baseline_prediction)[0] for forest in forests]),
    )  # fmt: skip


def _columns(trees: Trees) -> Any:
    return trees.feature, trees.threshold, trees.left, trees.right, trees.value, trees.leaf


@njit(cache=True)
def _walk(rows: Any, base: Any, roots: Any, columns: Any, start: Any) -> Any:
    feature, threshold, left, right, value, leaf = columns
    found = np.empty((len(rows), len(roots)))
    for row in range(len(rows)):
        for level in range(len(roots)):
            total = base[row] + start[level]
            for root in roots[level]:
                node = root
                while not leaf[node]:
                    below = rows[row, feature[node]] <= threshold[node]
                    node = left[node] if below else right[node]
                total += value[node]
            found[row, level] = total
    return found
