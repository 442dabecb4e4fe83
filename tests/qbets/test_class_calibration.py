"""Probabilities by class of job, and what replaces earlier answers at an anchor."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.qbets.test_state import STATE, simulated
from vgrads.kernel.streams import stream
from vgrads.qbets.class_calibration import BLOCK, GRID, ClassCalibration, ClassCorrection, corrected
from vgrads.qbets.conformal import BURSTS, Calibration, derive_class_marks
from vgrads.qbets.knots import HIGHEST
from vgrads.qbets.level_curve import LevelCurve, list_levels
from vgrads.qbets.state_forecast import forecast_state, freeze_state
from vgrads.qbets.state_predictor import StatePredictor, compute_replacement, list_anchors

LEVELS = (0.5, 0.75, 0.9)
JOBS = 8000


def shares(factors: tuple[float, ...], group: int = 0) -> np.ndarray:
    """Coverage on the second half, queues × levels: the scores of each queue are longer than those
    of calibrated jobs by its factor."""
    calibration, draws = Calibration(0.95), stream(3, f"{factors}{group}")
    queues = draws.integers(len(factors), size=JOBS)
    scores = np.minimum(draws.exponential(size=JOBS) * np.take(factors, queues), HIGHEST)
    covered = np.zeros((JOBS, len(LEVELS)))
    for row, (queue, score) in enumerate(zip(queues.tolist(), scores.tolist(), strict=True)):
        issued = calibration.issue(group, derive_class_marks(0.01, 3600.0, queue))
        if row >= JOBS / 2:
            curve = calibration.curve(group, issued)
            covered[row] = [score <= curve.score(level) for level in LEVELS]
        calibration.judge(group, issued, score > issued.score)
        calibration.learn(group, issued, score)
    late = np.arange(JOBS) >= JOBS / 2
    return np.array([covered[late & (queues == n)].mean(axis=0) for n in range(len(factors))])


def test_each_queue_gets_its_own_probabilities():
    assert shares((0.5, 2.0)) == pytest.approx(np.tile(LEVELS, (2, 1)), abs=0.04)


def test_queues_that_do_not_differ_are_left_alone():
    assert shares((1.0, 1.0, 1.0)) == pytest.approx(np.tile(LEVELS, (3, 1)), abs=0.03)


def test_jobs_of_long_bursts_are_not_corrected_by_class():
    apart = np.abs(shares((0.5, 2.0), group=len(BURSTS)) - LEVELS)
    assert apart.max() > 0.1


def test_a_burst_that_is_submitted_at_once_is_no_evidence_for_itself():
    """Its deviation has not been known to any of its jobs."""
    classes = ClassCalibration(0.9, 0.95)
    usual, draws = derive_class_marks(0.01, 60.0, 1), stream(4, "burst")
    for level in draws.random(600).tolist():
        classes.learn(level, classes.applied(usual))
    burst = derive_class_marks(0.01, 60.0, 2)
    applied = classes.applied(burst)
    for _ in range(20 * BLOCK):
        classes.learn(0.97, applied)
    outcomes = classes.outcomes[burst[-1]]
    assert outcomes.share == 0.0
    assert np.abs(np.mean(outcomes.blocks, axis=0)).max() > 0.3
    later = classes.applied(burst)
    for level in draws.random(20 * BLOCK).tolist():
        classes.learn(level, classes.applied(usual))
        classes.learn(0.97, later)
    assert outcomes.share > 0.5


@pytest.mark.parametrize("level", [0.02, 0.4, 0.97])
def test_the_tail_is_the_same_for_all_classes(level):
    """However far a class deviates below: the bound at .95 is corrected by its misses alone."""
    classes, draws = ClassCalibration(0.9, 0.95), stream(5, "tail")
    usual, other = derive_class_marks(0.01, 60.0, 1), derive_class_marks(0.5, 1e6, 2)
    for drawn in draws.random(4000).tolist():
        classes.learn(drawn, classes.applied(usual))
        classes.learn(level, classes.applied(other))
    applied = classes.applied(other)
    assert all(correction.corrected is not None for _, _, correction in applied)
    tail = np.array([0.95, 0.96, 0.99])
    assert corrected(tail, applied) == pytest.approx(tail)
    below = np.linspace(0.0, 0.9499, 100)
    assert (corrected(below, applied) < 0.95).all()
    assert np.abs(corrected(below, applied) - below).max() > 0.02


@given(
    st.lists(st.floats(-1.0, 1.0), min_size=len(GRID), max_size=len(GRID)),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
)
def test_corrected_levels_stay_probabilities_in_their_order(deviation, levels):
    inner = np.maximum.accumulate(np.clip(GRID + np.array(deviation), 1e-4, 1 - 1e-4))
    correction = ClassCorrection(np.array(deviation), np.concatenate([[0.0], inner, [1.0]]))
    applied = ((0, 1, correction), (1, 11, None), (2, 101, correction))
    result = corrected(np.sort(np.array([0.0, *levels, 1.0])), applied)
    assert (np.diff(result) >= 0.0).all()
    assert (result[0], result[-1]) == (0.0, 1.0)


curves = st.lists(st.floats(0.0, 9.0), min_size=30, max_size=200).map(
    lambda scores: LevelCurve(scores=np.sort(scores), levels=list_levels(len(scores)))
)


@given(curves, curves, st.floats(0.0, 1.0), st.sampled_from([0.1, 0.5, 0.9, 0.95]))
def test_a_curve_replaces_another_by_degrees(new, old, share, level):
    mixed = new.replacing(old, share)
    assert (np.diff(mixed.scores) >= 0.0).all()
    low, high = sorted((new.score(level), old.score(level)))
    # the levels of the new curve are used, so the old one is read at the next of these
    above = float(new.levels[np.searchsorted(new.levels, level * (1 - 1e-12))])
    assert (
        low - 1e-9 <= mixed.score(level) <= max(high, old.score(min(above, old.levels[-1]))) + 1e-9
    )
    assert new.replacing(old, 1.0) is new
    assert new.replacing(LevelCurve(scores=np.empty(0), levels=np.empty(0)), 0.0) is new


@pytest.mark.more
@pytest.mark.parametrize("number", [-3, -2, -1])
def test_learning_alone_does_not_move_an_answer(number):
    """Just before and just after an anchor, for the same state of the queue."""
    log = simulated(6000)
    anchor = list_anchors(5900)[number]
    before, after = (
        forecast_state(log, float(log.submit_s[n - 1]), STATE) for n in (anchor - 1, anchor)
    )
    assert (before.replaced, after.replaced) == (1.0, 0.0)
    assert len(after.models) == 3
    assert after.models[:2] == after.models[-3:-1]
    same = replace(before, state=after.state, at_s=after.at_s)
    for shape in ((1, 600.0), (8, 3600.0), (60, 20_000.0)):
        bounds_s = [f.bounds(*shape, [0.5, 0.75, 0.95]) for f in (same, after)]
        assert np.allclose(*bounds_s, rtol=0.05, atol=2.0)


@pytest.mark.more  # replays a history
def test_an_answer_while_models_are_replaced_is_that_of_a_replay_of_the_whole_history():
    log = simulated(6000)
    whole = StatePredictor(log, STATE)
    anchors = list_anchors(5900)
    for row in (anchors[-2] + 10, anchors[-2] + 40, anchors[-1] + 25):
        at_s = float(np.nextafter(log.submit_s[row], -np.inf))
        whole.to(at_s)
        expected = freeze_state(whole, at_s, float(log.submit_s[0]))
        single = forecast_state(log, at_s, STATE)
        assert 0.0 < single.replaced < 1.0
        assert single.replaced == compute_replacement(max(a for a in anchors if a <= row), row)
        for shape in ((1, 600.0), (8, 3600.0)):
            bounds_s = [f.bounds(*shape, [0.5, 0.95]) for f in (single, expected)]
            assert np.allclose(*bounds_s, rtol=1e-9, atol=1e-9)
