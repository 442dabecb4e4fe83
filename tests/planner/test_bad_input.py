"""Requests that cannot be planned: each has a clear answer."""

import json

import pytest

from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import make_certain_curve
from vgrads.workflows.sets import MAX_TASKS

SITE = '[[site]]\nname = "m"\nkind = "dedicated"\nprocs = 16\n'
CLOUD = (
    '[[site]]\nname = "cloud"\nkind = "cloud"\nprocs = 8\ncores_per_node = 1\n'
    'price_usd_per_hour = 1.0\nboot = "1m"\n'
)


def document(**changes):
    task = {"id": "a", "runtime_s": 60}
    base = {"name": "x", "deadline": "2h", "workflows": [{"name": "w", "tasks": [task]}]}
    return json.dumps({**base, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline: '2020-01-01T00:00:00Z' is in the past"),
        ({"deadline": 0}, "deadline: must be above 0"),
        ({"workflows": []}, "workflows: needs at least 1 entry"),
        ({"workflows": [{"name": "w", "tasks": []}]}, "workflows.0: give either"),
        ({"budget_usd": -1}, "budget_usd"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_its_field(vgrads, write, changes, words):
    answer = vgrads("plan", write("s.json", document(**changes)), "--sites", write("m.toml", SITE))
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err


def test_a_budget_of_zero_permits_free_slots_and_nothing_else(vgrads, write):
    path = write("s.json", document(budget_usd=0))
    free = vgrads("plan", path, "--sites", write("m.toml", SITE + CLOUD), "--json")
    assert free.code == 0, free.err
    assert json.loads(free.out)["cost_usd"] == 0
    paid = vgrads("plan", path, "--sites", write("c.toml", CLOUD))
    assert paid.code != 0
    assert "the budget is $0.00" in paid.err


def test_slots_that_are_shorter_than_a_task_are_named():
    short = slot("a", curve=make_certain_curve(50.0), end_s=250.0)
    snapshot = Snapshot(workflow_set=make_set([chain("w", 400.0)]), slots=(short,))
    plan = make_plan(snapshot)
    assert not plan.feasible
    assert "takes 6m 40s, the longest slot on offer that holds it lasts 3m 20s" in plan.lacking


@pytest.mark.parametrize("count", [50_000, pytest.param(1, marks=pytest.mark.more)])
def test_a_set_with_too_many_tasks_is_refused(vgrads, write, count):
    each = MAX_TASKS // count + 1
    tasks = [{"id": f"t{n}", "runtime_s": 60} for n in range(each)]
    workflows = [{"name": "w", "count": count, "tasks": tasks}]
    path = write("s.json", document(workflows=workflows))
    answer = vgrads("plan", path, "--sites", write("m.toml", SITE))
    assert answer.code == 2
    assert "s.json: workflows: more than 200,000 tasks" in answer.err
