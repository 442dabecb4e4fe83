"""An answer and its inverse: the probability of a bound, and the bound of a probability; who gave
it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.qbets.test_questions import AS_QUESTION
from tests.qbets.test_state import simulated
from vgrads.qbets.adaptive_correction import looser, stricter
from vgrads.qbets.conformal import HIGHEST
from vgrads.qbets.explain import explain
from vgrads.qbets.forecast import QueueForecast
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor
from vgrads.qbets.state_forecast import LevelCurve, StateForecast, freeze_state

HIGHEST_LEVEL = float(-np.expm1(-HIGHEST))
few_waits = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 600.0, 86_400.0]), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=400,
)
levels_of = st.floats(0.01, 0.999)


def past(waits: list[float], correction_factor: float) -> QueueForecast:
    return QueueForecast(
        edges=(),
        waits_s=(np.sort(np.array(waits)),),
        since_s=0.0,
        settings=Settings(),
        correction_factor=correction_factor,
    )


def check(
    existing: QueueForecast | StateForecast, level: float, within_s: float, most: float
) -> None:
    """Both ways, at any level and any wait."""
    chance = float(existing.probability(8, 3600.0, within_s))
    if 0.0 < chance < 1.0:
        back_s = float(existing.bounds(8, 3600.0, chance))
        assert np.isnan(back_s) or back_s <= within_s * (1 + 1e-6) + 1e-6
    bound_s = float(existing.bounds(8, 3600.0, level))
    if not np.isnan(bound_s):
        assert float(existing.probability(8, 3600.0, bound_s)) >= min(level, most) - 1e-9


@given(few_waits, st.floats(0.05, 1.0), levels_of, st.floats(0.0, 2e6), st.data())
def test_past_waits_answer_the_same_both_ways(waits, correction_factor, level, within_s, data):
    forecast = past(waits, correction_factor)
    check(forecast, level, data.draw(st.sampled_from([*waits, within_s])), 1.0)
    curve = forecast.probability(8, 3600.0, np.linspace(0, 2e6, 300))
    assert np.all(np.diff(curve) >= 0)


@cache
def frozen(alarmed: bool, atoms: bool) -> StateForecast:
    """A queue whose waits have atoms (of none, and of ten minutes), or not; with misses piling up,
    or not."""
    log = simulated(3000)
    if atoms:
        rounded = np.where(log.wait_s < 600.0, 0.0, np.round(log.wait_s / 600.0) * 600.0)
        log = replace(log, wait_s=rounded)
    at_s = float(log.submit_s[2500])
    predictor = make_predictor(replace(AS_QUESTION, knows_user=True), log)
    HistoryReplay(log, predictor).to(at_s)
    calibration = predictor.correction.calibration
    for _ in range(12 if alarmed else 0):
        calibration.judge(0, calibration.issue(0), True)
    existing = freeze_state(predictor, at_s, 0.0)
    assert isinstance(existing, StateForecast)
    assert existing.choice().whose == ("both" if alarmed else "state")
    return existing


@given(st.booleans(), st.booleans(), levels_of, st.floats(0.0, 1e6), st.integers(0, 40))
def test_the_state_answers_the_same_both_ways(alarmed, atoms, level, within_s, tens):
    forecast = frozen(alarmed, atoms)
    for requested_s in (within_s, within_s / 1e3, 600.0 * tens):
        check(forecast, level, requested_s, HIGHEST_LEVEL)


def test_what_most_waited_less_than_has_a_probability_under_caution():
    """Nine of ten waited less than two hours: misses five times as frequent do not make that
    none."""
    forecast = past([float(n) for n in range(0, 8000, 8)], correction_factor=0.2)
    calm = replace(forecast, correction_factor=1.0)
    assert float(calm.probability(8, 3600.0, 7200.0)) > 0.85
    assert 0.5 < float(forecast.probability(8, 3600.0, 7200.0)) < 0.8
    assert np.all(forecast.probability(8, 3600.0, np.linspace(100, 8000, 50)) > 0)


@given(st.floats(0.01, 0.99), st.floats(0.01, 1.0), st.floats(0.5, 0.99))
def test_odds_go_there_and_back_and_the_tracked_quantile_keeps_its_share_of_misses(
    level, correction_factor, tracked
):
    assert looser(
        stricter(level, correction_factor, tracked), correction_factor, tracked
    ) == pytest.approx(level)
    assert stricter(level, correction_factor, tracked) >= level - 1e-12
    requested = stricter(tracked, correction_factor, tracked)
    assert 1 - requested == pytest.approx(correction_factor * (1 - tracked))


def test_every_probability_has_a_score():
    curve = LevelCurve(scores=np.linspace(0.1, 3.0, 60))
    assert curve.score(0.999) == HIGHEST
    assert [curve.score(n / 61) for n in (1, 30, 60)] == pytest.approx(curve.scores[[0, 29, 59]])


def test_nothing_of_the_state_is_credited_where_past_waits_answered():
    forecast = frozen(True, False)
    levels = np.linspace(0.5, 0.99, 40)
    bounds = {level: forecast.bound(1, 600.0, level) for level in levels.tolist()}
    whose = {bound.method for bound in bounds.values()}
    assert whose == {"state", "qbets"}
    for level, bound in bounds.items():
        assert (explain(forecast, 1, 600.0, level) is None) == (bound.method == "qbets")
        assert bound.bound_s == float(forecast.bounds(1, 600.0, level))
