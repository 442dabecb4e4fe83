"""What limits a promise, in words."""

import json

import pytest

from tests.portal.pages.test_page_states import PAGE
from vgrads.kernel.units import format_chance
from vgrads.portal.web.sets.limits import limit_in_words

SLOTS = {"slow": 0.2, "fast": 0.8, "sure": 0.99}


def plan(by_workflow, placements, needed=1):
    """A plan whose slots are each of the site of their name; ``placements``: workflow, task,
    slot."""
    return {
        "needed": needed,
        "promise": {"requested": 0.9, "by_workflow": by_workflow},
        "slots": [{"id": f"{name}-1", "site": name} for name in SLOTS],
        "placements": [
            {"workflow": workflow, "task": task, "slot": f"{slot}-1", "probability": SLOTS[slot]}
            for workflow, task, slot in placements
        ],
    }


@pytest.mark.parametrize(
    ("placements", "words"),
    [
        (
            ["a fast", "b slow"],
            "slow's slot is ready at the planned start of its task 'b' with 20\u202f%, and no",
        ),
        (
            ["a slow", "a fast"],
            "fast's slot is ready at the planned start of its task 'a' with 80\u202f%, the slots "
            "of its replicas, at slow, with at most 20\u202f%",
        ),
        (["a slow", "a sure"], ""),
        ([], ""),
    ],
)
def test_the_task_without_a_probable_slot_is_named(placements, words):
    placed = [("w", *text.split()) for text in placements]
    words_of_it = limit_in_words(plan({"w": 0.5}, placed))
    assert words_of_it.startswith("'w' is in time with 50\u202f%")
    assert words in words_of_it
    assert ("slot" in words_of_it) == bool(words)


def test_the_least_probable_of_those_that_are_needed_is_named():
    words = limit_in_words(plan({"w": 0.5, "v": 0.7, "u": 0.9}, [("v", "a", "slow")], needed=2))
    assert words.startswith("the least probable of the 2 workflows needed, 'v' is in time with 70")
    assert "slow's slot" in words
    assert limit_in_words(plan({}, [])) == ""


def test_a_set_below_its_request_says_what_limits_it(client, gallery):
    set_id = gallery.ids["below"]
    page = client.get(f"/sets/{set_id}", headers=PAGE).text
    by_workflow = json.loads(gallery.sets.text(set_id, "plan"))["promise"]["by_workflow"]
    lowest = format_chance(min(by_workflow.values()))
    assert "What limits it: the least probable of the 8 workflows needed, " in page
    assert f"is in time with {lowest}; " in page
    for other in ("planned", "impossible", "met", "at-risk"):
        assert "What limits it" not in client.get(f"/sets/{gallery.ids[other]}", headers=PAGE).text
