"""The model under the state of a queue: trees that all levels share, on a base that
extrapolates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from vgrads.kernel.streams import stream
from vgrads.qbets.backtest import pinball
from vgrads.qbets.boosting import Growth, grow
from vgrads.qbets.conditional import LEVELS, _solve_non_negative, base_columns, fit
from vgrads.qbets.state.queue_state import FEATURES


@pytest.mark.long
def test_trees_for_all_levels_foretell_no_worse_than_a_library_s_forest_for_each():
    from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415 half a second

    draws = stream(0, "trees")
    rows = draws.normal(size=(6000, 5))
    target = rows[:, 0] * draws.normal(size=6000) + np.maximum(rows[:, 1], 0.0) * rows[:, 2]
    learnt, requested = slice(0, 4000), slice(4000, None)
    growth = Growth(trees=50, leaves=15, rate=0.1, per_leaf=60)
    result = grow(rows[learnt], target[learnt], LEVELS, growth).of(rows[requested])
    for number, level in enumerate(LEVELS):
        forest = HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=50, max_leaf_nodes=15, min_samples_leaf=60
        ).fit(rows[learnt], target[learnt])
        ours, theirs = (
            pinball(target[requested], message, level)
            for message in (result[:, number], forest.predict(rows[requested]))
        )
        assert ours <= 1.05 * theirs
        assert (target[requested] <= result[:, number]).mean() == pytest.approx(level, abs=0.04)


def test_trees_keep_to_their_limits():
    """A step in one column is found where it is; no leaf is smaller than allowed; what is constant
    tells nothing."""
    rows = np.column_stack([np.arange(1000.0), np.zeros(1000)])
    target = np.where(rows[:, 0] < 700.0, 1.0, 5.0)
    growth = Growth(trees=200, leaves=2, rate=0.1, per_leaf=60)
    trees = grow(rows, target, (0.5,), growth)
    assert set(trees.feature[trees.feature >= 0].tolist()) <= {0}
    assert trees.of(np.array([[0.0, 0.0], [999.0, 0.0]]))[:, 0] == pytest.approx(
        [1.0, 5.0], abs=0.3
    )
    even = grow(np.zeros((100, 3)), np.arange(100.0), (0.5, 0.9), growth)
    assert (even.feature < 0).all()
    assert even.of(np.ones((2, 3))) == pytest.approx(
        np.tile(np.quantile(np.arange(100.0), (0.5, 0.9)), (2, 1))
    )
    few = grow(rows[:100], target[600:700], (0.5,), growth)  # two leaves of sixty there cannot be
    assert (few.feature < 0).all()


def test_a_model_extrapolates_where_trees_end():
    draws = stream(0, "base")
    rows = np.zeros((2000, len(FEATURES)))
    column = FEATURES.index("work waiting")
    work_s = draws.uniform(0, 10_000.0, 2000)
    rows[:, column] = np.log1p(work_s)
    model = fit(rows, work_s * draws.uniform(0.9, 1.1, 2000))
    far = np.zeros(len(FEATURES))
    far[column] = np.log1p(80_000.0)
    median_s = model.knots(far)[0][0] ** 3
    assert 50_000.0 < median_s < 110_000.0
    assert base_columns(far[None, :]).min() >= 0


@given(st.integers(1, 6), st.integers(0, 1000))
def test_weights_of_the_base_are_those_of_least_squares_that_may_not_be_negative(width, seed):
    draws = np.random.default_rng(seed)
    columns, target = draws.normal(size=(60, width)), draws.normal(size=60)
    theirs, _ = nnls(columns, target)
    assert _solve_non_negative(columns.T @ columns, columns.T @ target) == pytest.approx(
        theirs, abs=1e-5
    )
