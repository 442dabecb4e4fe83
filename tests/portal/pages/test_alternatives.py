"""The promise of a set for other values: points one after the other, their place in line, curves
that do not fall."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portal.pages.gallery import STORM
from tests.portal.pages.test_submission import Computations, service_over
from vgrads.portal.records.access import EVERYBODY_HERE
from vgrads.portal.records.sets import Head
from vgrads.portal.web.sets.alternative_curves import curves_of
from vgrads.portal.web.sets.alternatives import (
    MOST_TASKS,
    AlternativeQuestions,
    Alternatives,
    SetPlan,
    Values,
    begun,
)

OWN = Values(deadline_s=7200.0, needed=6, budget_usd=40.0)


def promised(probability, cost_usd=3.0, **others):
    promise = {"probability": probability, "requested": 0.9}
    summary = {"feasible": probability is not None, "promise": promise, "cost_usd": cost_usd}
    return summary | {"needed": 6, "deadline_s": 7200.0, "budget_usd": 40.0} | others


@pytest.fixture
def plan(gallery):
    head = gallery.sets.head(gallery.ids["planned"])
    summary = promised(0.95, counts={"tasks": 24})
    return SetPlan(replace(head, summary=summary), json.dumps(STORM))


def result_of_questions(gallery, plan, values, act):
    """What ``act`` returns, with the computations of questions and a function that asks them."""
    computations = Computations()
    questions = AlternativeQuestions(service_over(computations, gallery.catalog))

    async def ask(page="page", others=values):
        return await questions.ask(EVERYBODY_HERE, page, plan, others, 0.01)

    return asyncio.run(act(computations, ask))


def test_the_answer_comes_first_and_then_one_point_with_each_request(gallery, plan):
    values = replace(OWN, needed=8)

    async def look(computations, ask):
        states = [await ask()]
        for number in range(20):
            if number < len(computations.futures):
                computations.futures[number].set_result(promised(0.5))
            states.append(await ask())
            states.append(await ask())
        return states, len(computations.futures)

    states, computed = result_of_questions(gallery, plan, values, look)
    assert (states[0].here, states[0].done, states[0].ahead) == (None, 0, 0)
    assert states[1].here is not None
    assert [state.done for state in states] == sorted(state.done for state in states)
    assert all(after.done - before.done <= 2 for before, after in pairwise(states))
    assert (states[-1].missing, states[-1].ahead) == (0, None)
    # the chosen values are a point of both curves
    assert computed == states[-1].total - 1


def test_a_question_tells_its_place_in_line_and_a_new_one_replaces_it(gallery, plan):
    async def look(computations, ask):
        before = await computations.enqueue()  # of somebody else
        first = await ask()
        other = await ask(others=replace(OWN, needed=7))
        cancelled = [future.cancelled() for future in computations.futures]
        return first, other, [*cancelled, before.done()]

    first, other, ended = result_of_questions(gallery, plan, replace(OWN, needed=8), look)
    assert (first.ahead, other.ahead) == (1, 2)
    assert ended == [False, True, False, False]


def test_what_the_plan_says_is_not_computed(plan):
    state = begun(plan, OWN)
    assert (state.here, state.done, state.ahead) == (plan.head.summary, 2, None)
    assert begun(plan, replace(OWN, needed=8)).here is None


def test_a_large_set_has_the_answer_only(plan):
    summary = promised(0.95, counts={"tasks": MOST_TASKS + 1})
    large = SetPlan(replace(plan.head, summary=summary), plan.text)
    state = begun(large, OWN)
    assert (state.here, state.total) == (summary, 0)
    assert curves_of(large, state) == []


def test_a_set_at_no_cost_and_without_a_budget_has_budgets_to_choose_from(plan):
    document = json.dumps(STORM | {"budget_usd": None})
    free = SetPlan(replace(plan.head, summary=promised(0.95, 0.0, budget_usd=None)), document)
    assert free.own.budget_usd is None
    assert max(begun(free, free.own).budgets) == free.most_usd > 0


ANSWERS = st.none() | st.builds(promised, st.none() | st.floats(0, 1))


@given(st.lists(ANSWERS, min_size=2, max_size=9))
def test_a_curve_never_falls_and_says_what_it_shows(answers):
    head = Head("", "", None, "", "planned", "", 1, False, 0.0, promised(0.95), None)
    plan = SetPlan(head, json.dumps(STORM))
    points = {1000.0 * n: answer for n, answer in enumerate(answers, start=1)}
    budgets = {float(n): answer for n, answer in enumerate(answers)}
    state = Alternatives(values=OWN, here=None, deadlines=points, budgets=budgets, ahead=0)
    for curve in curves_of(plan, state):
        chances = [point.probability for point in curve.points if point.probability is not None]
        assert chances == sorted(chances)
        assert [point.probability is None for point in curve.points] == [a is None for a in answers]
        assert curve.picture.count("<title>") == len(chances)
        label = curve.picture.partition('aria-label="')[2].partition('"')[0]
        assert all(p.words in label for p in curve.points if p.probability is not None)
