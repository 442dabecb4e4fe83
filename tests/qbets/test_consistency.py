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
from vgrads.qbets.adaptive_correction import loosen_level, tighten_level
from vgrads.qbets.bounds import explain_highest_level
from vgrads.qbets.conformal import Calibration, ScoreRing
from vgrads.qbets.explain import explain
from vgrads.qbets.forecast import QueueForecast
from vgrads.qbets.level_curve import LevelCurve
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor
from vgrads.qbets.state_forecast import StateForecast, freeze_state

few_waits = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 600.0, 86_400.0]), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=400,
)
levels_of = st.one_of(st.floats(0.01, 0.999), st.floats(0.99, 0.999_999))


def past(waits: list[float], correction_factor: float) -> QueueForecast:
    return QueueForecast(
        edges=(),
        waits_s=(np.sort(np.array(waits)),),
        since_s=0.0,
        settings=Settings(),
        correction_factor=correction_factor,
    )


def check(existing: QueueForecast | StateForecast, level: float, within_s: float) -> None:
    """Both ways, at any level and any wait; never more than so many outcomes support."""
    chance = float(existing.probability(8, 3600.0, within_s))
    outcomes = len(existing.waits(8, 3600.0))
    assert float(existing.probability(8, 3600.0, 1e12)) <= outcomes / (outcomes + 1)
    answer = existing.bound(8, 3600.0, level)
    assert (answer.bound_s is None) == (answer.reason is not None)
    if 0.0 < chance < 1.0:
        back_s = float(existing.bounds(8, 3600.0, chance))
        assert np.isnan(back_s) or back_s <= within_s * (1 + 1e-6) + 1e-6
    bound_s = float(existing.bounds(8, 3600.0, level))
    if not np.isnan(bound_s):
        assert float(existing.probability(8, 3600.0, bound_s)) >= level - 1e-9
    else:
        assert answer.bound_s is None


@given(few_waits, st.sampled_from([1, 59, 217]), st.floats(0.01, 0.99), levels_of)
def test_no_confidence_makes_more_of_past_waits_than_they_support(waits, most, confidence, level):
    forecast, outcomes = past(waits[:most], 1.0), len(waits[:most])
    assert float(forecast.probability(8, 3600.0, 2e6, confidence)) <= outcomes / (outcomes + 1)
    bound = forecast.bound(8, 3600.0, level, confidence)
    assert (bound.bound_s is None) == (bound.reason is not None)
    if bound.bound_s is not None:
        chance = forecast.probability(8, 3600.0, bound.bound_s, confidence)
        assert level - 1e-9 <= float(chance)
    elif level > outcomes / (outcomes + 1):
        assert bound.reason.endswith((" known", f"at most {most_of(outcomes)}"))


def most_of(outcomes: int) -> str:
    return explain_highest_level(outcomes, "wait").rpartition(" ")[2]


@given(few_waits, st.floats(0.05, 1.0), levels_of, st.floats(0.0, 2e6), st.data())
def test_past_waits_answer_the_same_both_ways(waits, correction_factor, level, within_s, data):
    forecast = past(waits, correction_factor)
    check(forecast, level, data.draw(st.sampled_from([*waits, within_s])))
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
        check(forecast, level, requested_s)


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
    assert loosen_level(
        tighten_level(level, correction_factor, tracked), correction_factor, tracked
    ) == pytest.approx(level)
    assert tighten_level(level, correction_factor, tracked) >= level - 1e-12
    requested = tighten_level(tracked, correction_factor, tracked)
    assert 1 - requested == pytest.approx(correction_factor * (1 - tracked))


def test_a_probability_beyond_what_the_outcomes_support_has_no_score():
    curve = LevelCurve(scores=np.linspace(0.1, 3.0, 60), levels=np.arange(1, 61) / 61)
    assert np.isnan(curve.score(0.999))
    assert np.isnan(curve.score(60 / 61 + 1e-9))
    assert [curve.score(n / 61) for n in (1, 30, 60)] == pytest.approx(curve.scores[[0, 29, 59]])


def test_217_outcomes_support_at_most_995_in_a_thousand():
    """And say so in words; explanations of a bound that is not stated do not exist."""
    whole = frozen(False, False)
    few = replace(whole, calibration=with_outcomes(whole, 217))
    assert len(few.curve(8, 3600.0).scores) == 217
    assert float(few.probability(8, 3600.0, 1e12)) == 217 / 218
    assert float(few.bounds(8, 3600.0, 0.995)) > 0
    bound = few.bound(8, 3600.0, 0.999)
    assert (bound.bound_s, bound.jobs) == (None, 217)
    assert bound.reason == "217 outcomes support at most 0.995"
    assert explain(few, 8, 3600.0, 0.999) is None


def with_outcomes(forecast: StateForecast, count: int) -> Calibration:
    """The calibration of a forecast with fewer outcomes."""
    calibration = forecast.calibration.frozen()
    group = calibration.groups[forecast.job_class(8, 3600.0).group]
    kept = group.scores.newest(count, 0)
    group.scores, group.ordered = ScoreRing(), None
    for score in kept.tolist():
        group.scores.put(-1, score, score)
    return calibration


def test_nothing_of_the_state_is_credited_where_past_waits_answered():
    forecast = frozen(True, False)
    levels = np.linspace(0.5, 0.99, 40)
    bounds = {level: forecast.bound(1, 600.0, level) for level in levels.tolist()}
    whose = {bound.method for bound in bounds.values()}
    assert whose == {"state", "qbets"}
    for level, bound in bounds.items():
        assert (explain(forecast, 1, 600.0, level) is None) == (bound.method == "qbets")
        assert bound.bound_s == float(forecast.bounds(1, 600.0, level))
