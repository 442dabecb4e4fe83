"""Rules for the instant of a reservation, chosen by their record."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.research.waits.varq_rules import (
    RECORD,
    RULE_LEVELS,
    Practice,
    Rule,
    latest,
    practised,
)
from vgrads.vgrid.varq import Trajectory

LEVELS = np.array(RULE_LEVELS)
CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def path(chances):
    values = np.array(chances)
    return Trajectory(
        submit_s=np.arange(len(values)) * 60.0,
        probabilities=values,
        walltimes_s=np.full(len(values), 600.0),
        chosen=None,
    )


def practice(best=0.97, from_level=0.0, idle=100.0, at_once=1000.0):
    """A question that runs by T under rules that require at least this probability."""
    return Practice(
        best=best,
        in_time=(from_level <= LEVELS).astype(float),
        idle=np.full(len(LEVELS), idle),
        at_once=at_once,
    )


@given(CHANCES, st.floats(0, 1), st.floats(0, 1))
def test_a_rule_refuses_what_is_too_improbable_and_else_waits_for_the_latest(
    chances, accept, level
):
    index = Rule(accept=accept, enough=level).choose(path(chances))
    assert (index is None) == (max(chances) < accept)
    if index is None:
        return
    assert index == latest(path(chances), level)
    assert all(chance < level for chance in chances[index + 1 :])
    assert chances[index] >= min(level, max(chances))


@given(CHANCES, st.floats(0, 1), st.floats(0, 1))
def test_a_stricter_rule_never_submits_later_nor_accepts_more(chances, one, other):
    low, high = sorted((one, other))
    enough = [chance >= high for chance in chances]
    if any(enough):
        assert latest(path(chances), high) <= latest(path(chances), low)
    if Rule(accept=low, enough=0.5).choose(path(chances)) is None:
        assert Rule(accept=high, enough=0.5).choose(path(chances)) is None


def test_the_forecast_is_trusted_until_there_is_a_record():
    assert practised([practice()] * 9, 0.9) == Rule(accept=0.9, enough=0.9)


@pytest.mark.parametrize("needed", [0.5, 0.8, 0.96])
def test_of_a_forecast_too_confident_higher_probabilities_are_required(needed):
    rule = practised([practice(from_level=needed)] * 40, 0.9)
    assert rule is not None
    assert rule.enough >= needed


def test_nothing_is_promised_where_no_rule_succeeded_until_one_has():
    broken = [practice(from_level=2.0)] * RECORD
    assert practised(broken, 0.5) is None
    assert practised([*broken, *[practice()] * RECORD], 0.5) is not None


def test_of_rules_that_succeeded_the_one_with_little_idle_time_is_chosen():
    idle = np.where(LEVELS < 0.8, 300.0, 900.0)
    rule = practised([replace(practice(), idle=idle)] * 40, 0.75)
    assert rule is not None
    assert rule.enough < 0.8
    costly = practised([practice(idle=900.0)] * 40, 0.75)
    assert costly is not None  # half the idle time is an aim, not a condition


def test_questions_without_a_similar_job_count_neither_way():
    empty = Practice(
        best=0.97,
        in_time=np.full(len(LEVELS), np.nan),
        idle=np.full(len(LEVELS), np.nan),
        at_once=np.nan,
    )
    record = [practice(from_level=0.7)] * 40
    assert practised([*record, *[empty] * 40], 0.9) == practised(record, 0.9)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e5), st.floats(0, 1e5)),
        min_size=10,
        max_size=60,
    ),
    st.sampled_from([0.5, 0.75, 0.9, 0.95]),
)
def test_a_rule_would_have_succeeded_as_often_as_required(questions, probability):
    record = [practice(*item) for item in questions]
    rule = practised(record, probability)
    if rule is None:
        return
    column = RULE_LEVELS.index(rule.enough)
    outcomes = [item.in_time[column] for item in record if item.best >= rule.accept]
    assert np.mean(outcomes) >= probability
