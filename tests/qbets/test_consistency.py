"""An answer and its inverse: the probability of a bound, and the bound of a probability; who gave
it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.qbets.test_asked import ASKED
from tests.qbets.test_state import simulated
from vgrads.qbets.conformal import HIGHEST
from vgrads.qbets.explain import explain
from vgrads.qbets.forecast import QueueForecast
from vgrads.qbets.predictor import Settings
from vgrads.qbets.referee import looser, stricter
from vgrads.qbets.replay import Replay, make_predictor
from vgrads.qbets.state_forecast import LevelCurve, StateForecast, freeze_state

HIGHEST_LEVEL = float(-np.expm1(-HIGHEST))
few_waits = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 600.0, 86_400.0]), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=400,
)
levels_of = st.floats(0.01, 0.999)


def past(waits: list[float], caution: float) -> QueueForecast:
    return QueueForecast(
        edges=(),
        waits_s=(np.sort(np.array(waits)),),
        since_s=0.0,
        settings=Settings(),
        caution=caution,
    )


def check(known: QueueForecast | StateForecast, level: float, within_s: float, most: float) -> None:
    """Both ways, at any level and any wait."""
    chance = float(known.probability(8, 3600.0, within_s))
    if 0.0 < chance < 1.0:
        back_s = float(known.bounds(8, 3600.0, chance))
        assert np.isnan(back_s) or back_s <= within_s * (1 + 1e-6) + 1e-6
    bound_s = float(known.bounds(8, 3600.0, level))
    if not np.isnan(bound_s):
        assert float(known.probability(8, 3600.0, bound_s)) >= min(level, most) - 1e-9


@given(few_waits, st.floats(0.05, 1.0), levels_of, st.floats(0.0, 2e6), st.data())
def test_past_waits_answer_the_same_both_ways(waits, caution, level, within_s, data):
    known = past(waits, caution)
    check(known, level, data.draw(st.sampled_from([*waits, within_s])), 1.0)
    curve = known.probability(8, 3600.0, np.linspace(0, 2e6, 300))
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
    predictor = make_predictor(replace(ASKED, knows_user=True), log)
    Replay(log, predictor).to(at_s)
    calibration = predictor.calibration
    for _ in range(12 if alarmed else 0):
        calibration.judge(0, calibration.issue(0), True)
    known = freeze_state(predictor, at_s, 0.0)
    assert isinstance(known, StateForecast)
    assert known.choice().whose == ("both" if alarmed else "state")
    return known


@given(st.booleans(), st.booleans(), levels_of, st.floats(0.0, 1e6), st.integers(0, 40))
def test_the_state_answers_the_same_both_ways(alarmed, atoms, level, within_s, tens):
    known = frozen(alarmed, atoms)
    for asked_s in (within_s, within_s / 1e3, 600.0 * tens):
        check(known, level, asked_s, HIGHEST_LEVEL)


def test_what_most_waited_less_than_has_a_probability_under_caution():
    """Nine of ten waited less than two hours: misses five times as frequent do not make that
    none."""
    known = past([float(n) for n in range(0, 8000, 8)], caution=0.2)
    calm = replace(known, caution=1.0)
    assert float(calm.probability(8, 3600.0, 7200.0)) > 0.85
    assert 0.5 < float(known.probability(8, 3600.0, 7200.0)) < 0.8
    assert np.all(known.probability(8, 3600.0, np.linspace(100, 8000, 50)) > 0)


@given(st.floats(0.01, 0.99), st.floats(0.01, 1.0), st.floats(0.5, 0.99))
def test_odds_go_there_and_back_and_the_tracked_quantile_keeps_its_share_of_misses(
    level, caution, tracked
):
    assert looser(stricter(level, caution, tracked), caution, tracked) == pytest.approx(level)
    assert stricter(level, caution, tracked) >= level - 1e-12
    asked = stricter(tracked, caution, tracked)
    assert 1 - asked == pytest.approx(caution * (1 - tracked))


def test_every_probability_has_a_score():
    curve = LevelCurve(scores=np.linspace(0.1, 3.0, 60))
    assert curve.score(0.999) == HIGHEST
    assert [curve.score(n / 61) for n in (1, 30, 60)] == pytest.approx(curve.scores[[0, 29, 59]])


def test_nothing_of_the_state_is_credited_where_past_waits_answered():
    known = frozen(True, False)
    levels = np.linspace(0.5, 0.99, 40)
    said = {level: known.bound(1, 600.0, level) for level in levels.tolist()}
    whose = {bound.method for bound in said.values()}
    assert whose == {"state", "qbets"}
    for level, bound in said.items():
        assert bool(explain(known, 1, 600.0, level)) == (bound.method == "state")
        assert bound.bound_s == float(known.bounds(1, 600.0, level))
