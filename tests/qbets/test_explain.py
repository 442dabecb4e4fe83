"""Explanations of bounds: no line contradicts itself."""

import re
from functools import cache

import numpy as np
import pytest

from tests.logs import queued_log
from vgrads.kernel.units import parse_duration
from vgrads.qbets import explain as explaining
from vgrads.qbets.explain import SIDES, TOGETHER, explain
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.state.queue_features import FEATURES, USUAL
from vgrads.qbets.state_forecast import freeze_state
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.qbets.views import ENDED, FULL, STARTED

SHAPES = ((1, 600.0), (8, 3600.0), (60, 20_000.0))
INSTANTS = 40
EITHER = (
    "processors: ",
    "requested time ",
    "time of day",
    "day of the log's weeks",
    "time since the last ",
    "jobs started within the last hour",
    "jobs submitted within the last hour",
    "jobs ended within the last hour",
)


@cache
def explanations(view):
    """Explanations at instants of the second half of a log."""
    log = queued_log(3000, seed=3)
    predictor = StatePredictor(log, Settings(method="state", view=view))
    result = []
    for at_s in np.linspace(log.submit_s[1500], log.submit_s[-1], INSTANTS):
        predictor.to(at_s)
        user = int(log.user[np.searchsorted(log.submit_s, at_s) - 1])
        forecast = freeze_state(predictor, at_s, 0.0, JobArrival(queue=1, user=user))
        answers = [explain(forecast, *shape, 0.9) for shape in SHAPES]
        result += [answer for answer in answers if answer is not None]
    return result


def lines(view):
    return [reason for explanation in explanations(view) for reason in explanation.reasons]


def values_of(text):
    """The printed values of a feature, now and usually."""
    present, usual = re.fullmatch(r"(.+?),? usually (.+)", text).groups()
    value = re.search(r": ([\d:,]+)$|(\d+%)|((?:\d+[dhms] ?)+)$", present)
    return next(filter(None, value.groups())), usual


def as_number(text):
    """A printed count, share or time as a number."""
    if re.fullmatch(r"[\d,]+%?", text):
        return float(text.rstrip("%").replace(",", ""))
    return parse_duration(text)


def direction_of(text):
    """The sign that a reader expects of the part: 0 where either makes sense."""
    if text.startswith(EITHER) or re.match(r"\d+% of the machine, usually", text):
        return 0
    present, usual = map(as_number, values_of(text))
    return np.sign(usual - present if re.search("% of .* free", text) else present - usual)


@pytest.mark.more
@pytest.mark.parametrize("view", [FULL, STARTED, ENDED])
def test_no_line_contradicts_itself(view):
    effective = [reason for reason in lines(view) if round(reason.moved_s)]
    named = [reason for reason in effective if reason.text != TOGETHER]
    assert len(named) > len(effective) / 2 > 100
    directions = [direction_of(reason.text) for reason in named]
    assert {-1, 0, 1} <= set(directions)
    wrong = [
        (reason.text, reason.moved_s)
        for reason, direction in zip(named, directions, strict=True)
        if direction * reason.moved_s < 0
    ]
    assert wrong == []


@pytest.mark.parametrize("view", [FULL, STARTED, ENDED])
def test_each_line_names_an_unusual_value_or_says_that_none_explains_it(view):
    for reason in lines(view):
        if not round(reason.moved_s):
            assert reason.text is None
        elif reason.text != TOGETHER:
            present, usual = values_of(reason.text)
            assert present != usual


def test_some_sides_move_a_bound_against_each_of_their_features():
    assert any(reason.text == TOGETHER for reason in lines(FULL))


def test_parts_add_up():
    for explanation in explanations(FULL):
        total = explanation.usual_bound_s + sum(r.moved_s for r in explanation.reasons)
        assert total == pytest.approx(explanation.bound_s, abs=1e-6)


def test_values_that_print_alike_or_are_not_known_are_no_reason():
    text = explaining._describe_feature
    assert text("free share", 0.271, 0.068) == "27% of the machine is free, usually 7%"
    assert text("free share", 0.271, 0.274) is None
    assert text("own jobs waiting", 0.0, 0.3) is None
    assert text("last 10 waits", np.log1p(3600.2), np.log1p(3600.0)) is None
    assert text("user's last wait", np.nan, np.log1p(60.0)) is None
    assert text("user's last wait", np.log1p(60.0), USUAL) is None


def test_each_direction_is_that_of_a_described_feature():
    described = {name for names in SIDES.values() for name in names}
    described = {name for name in described if explaining._describe_feature(name, 1.0, 3.0)}
    assert {*explaining._SHORTEN, *explaining._EITHER} <= described
    assert described <= set(FEATURES)
