"""What the page of a bag answers first."""

from dataclasses import replace

import pytest

from tests.portal.pages.test_states import read, text_of
from vgrads.portal.records.bags import new_bag
from vgrads.portal.web.bags.answer import answer_of

MEASURED = {
    "done": 30,
    "failed": 0,
    "running": 4,
    "waiting": 66,
    "tasks": 100,
    "typical_s": 0.00697,
    "rate": 2.0,
    "left_s": 35.0,
    "came_s": 10.0,
}
GOAL = {
    "state": "at risk",
    "promise": 0.42,
    "requested": 0.9,
    "required": 90,
    "due_s": 610.0,
    "reached_s": None,
    "due": "2026-11-29T18:00:00+00:00",
    "spent_usd": 1.5,
    "budget_usd": 4.0,
}


def answer(state, **status):
    row = replace(new_bag("bag-1", "bag-1", 0, "sweep", "ann", 100), state=state)
    return answer_of(row, MEASURED | status)


def test_a_bag_with_a_goal_is_answered_as_a_set():
    result = answer("running", goal=GOAL)
    assert (result.word, result.tone, result.due) == ("at risk", "warn", GOAL["due"])
    assert result.chance == "42\u202f% now"
    assert result.goal == "the probability that 90 of 100 tasks are done"
    assert result.requested == "90\u202f%"
    assert result.words == (
        "30 are done so far; at 2 a second the rest takes 35s; $1.50 spent of $4.00"
    )
    assert result.in_danger
    assert ("$1.50 of $4.00", "spent") in result.facts
    met = answer("done", done=100, goal=GOAL | {"state": "met", "reached_s": 130.0})
    assert (met.word, met.tone, met.due) == ("met", "good", None)
    assert (met.chance, met.goal, met.in_danger) == ("", "", False)
    assert met.words == "100 of 100 tasks done, 90 needed within 10m; that took 2m"


def test_a_goal_without_a_promise_yet_says_what_is_requested():
    result = answer("running", goal=GOAL | {"state": "on track", "promise": None}, left_s=None)
    assert (result.word, result.chance, result.due) == ("on track", "", GOAL["due"])
    assert result.goal == "90 of 100 tasks are to be done"
    missed = answer("failed", goal=GOAL | {"state": "missed"})
    assert missed.words == "30 of 100 tasks done, 90 needed within 10m"


def test_numbers_have_two_digits_and_none_is_shown_without_a_meaning():
    result = answer("running")
    assert (result.word, result.tone) == ("running", "good")
    assert result.words == "30 of 100 tasks done; at 2 a second the rest takes 35s"
    assert result.facts == (
        ("30", "of 100 tasks done"),
        ("4", "on agents"),
        ("66", "waiting"),
        ("7 ms", "a task, about"),
    )


@pytest.mark.parametrize(
    ("typical_s", "words"), [(0.5, "0.5 s"), (4.26, "4.3 s"), (90.0, "1m 30s"), (None, None)]
)
def test_the_time_of_a_task_is_in_its_own_unit(typical_s, words):
    shown = [
        number for number, name in answer("done", typical_s=typical_s).facts if "task," in name
    ]
    assert shown == ([words] if words else [])


def test_an_ended_bag_does_not_ask_why_its_tasks_wait(gallery, client):
    page = read(client, f"/bags/{gallery.bags['sweep']}")
    assert "Why is a task not assigned?" not in page and "agents are connected" not in page
    assert "Failed: 30 of 31 tasks done, 1 failed." in text_of(page)
    met = text_of(read(client, f"/bags/{gallery.bags['nightly']}"))
    assert "Met: 60 of 60 tasks done, 60 needed within 10m; that took" in met
