"""Explanations: numbers of one moment, workflows that were dropped, replicas that add little."""

import re
from dataclasses import replace

import pytest

from tests.conftest import DATA
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from vgrads.api.plans.answers import plan_json
from vgrads.kernel.errors import InputError
from vgrads.planner.evidence import add_evidence, draft_of
from vgrads.planner.explain import explain, explain_text
from vgrads.planner.make import Options
from vgrads.planner.plan import Done
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import make_certain_curve

BRIEF = Options(effort=0.1)


def planned(flows, slots, **more):
    snapshot = Snapshot(workflow_set=make_set(flows, **more), slots=tuple(slots))
    return snapshot, add_evidence(snapshot, make_plan(snapshot, BRIEF))


def text_of(plan, task):
    return explain_text(explain(plan_json(plan), task))


def weak(name, share, **more):
    return slot(name, 1, make_certain_curve(0.0, share), **more)


@pytest.fixture(scope="module")
def mixed():
    slots = [weak(f"s{n}", 0.5 + n / 20) for n in range(4)]
    return planned([chain("v", 200.0, 200.0), chain("w", 300.0)], slots, probability=0.99)


def test_what_a_replica_adds_is_the_promise_without_it(mixed):
    snapshot, plan = mixed
    whole = draft_of(snapshot, plan.placements, plan.uses)
    assert len(plan.placements) > 4
    for p in plan.placements:
        rest = draft_of(snapshot, [q for q in plan.placements if q is not p], plan.uses)
        assert plan.reasons[p.key]["adds"] == pytest.approx(whole.promise - rest.promise)
    assert any(plan.reasons[p.key]["adds"] > 0.01 for p in plan.placements)


def test_the_probability_in_the_plan_is_the_one_that_other_slots_are_compared_with(mixed):
    _, plan = mixed
    for p in plan.placements:
        text = text_of(plan, f"{p.workflow}/{p.task}")
        stated = re.findall(r"succeeds with probability ([.\d]+)", text)
        assert set(re.findall(r"against ([.\d]+)", text)) <= set(stated)
        slots = re.findall(r"slot (\S+),", text)
        assert not set(slots) & set(re.findall(r"Not (\S+):", text))


def test_a_more_probable_slot_has_a_reason_against_it():
    """The paid slot is surer, but it is not needed."""
    slots = [weak("free", 0.95), slot("paid", price_usd_per_hour=1.0)]
    _, plan = planned([chain("w")], slots)
    text = text_of(plan, "w/t0")
    assert "Not paid: from 0s to 1m 40s its probability is 1.000" in text
    assert "but it would cost $1.00 more" in text


def test_a_replica_that_adds_nothing_is_explained():
    snapshot, plan = planned([chain("w")], [slot("a"), slot("b")])
    first, use = plan.placements[0], plan.uses[0]
    other = next(s for s in snapshot.slots if s.id != first.slot)
    doubled = replace(
        plan,
        placements=(first, replace(first, replica=1, slot=other.id)),
        uses=(use, replace(use, slot=other)),
    )
    text = text_of(add_evidence(snapshot, doubled), "w/t0")
    assert text.count("The promise would be the same without it") == 2


def test_a_dropped_workflow_is_answered_with_its_limit():
    flows = [chain("w", 100.0), chain("wide", 100.0, procs=9), chain("long", 2000.0)]
    _, plan = planned(flows, [slot("a")])
    assert set(plan.dropped) == {"wide", "long"}
    assert "wide is not in the plan: room: task 't0' needs 9 processors" in text_of(plan, "wide/t0")
    assert "long is not in the plan: time: 'long' takes 33m 20s" in text_of(plan, "long")


def test_a_workflow_that_is_not_needed_says_what_is_reached_without_it():
    flows = [chain("v", 900.0), chain("w", 950.0)]
    _, plan = planned(flows, [slot("a", 1), slot("p", 1, price_usd_per_hour=1.0)], budget_usd=0.5)
    assert "money: the budget is $0.50, with it the plan would cost $1.00" in text_of(plan, "w")
    _, plan = planned(flows, [slot("a", 1), slot("p", 1, price_usd_per_hour=1.0)])
    assert "the request is met without it: 1 for the 1 needed" in text_of(plan, "w/t0")
    _, plan = planned(flows, [slot("a", 1)])
    assert "room: the slots that the plan leaves hold no further workflow" in text_of(plan, "w")


def test_an_impossible_plan_explains_the_workflows_that_it_lacks():
    _, plan = planned([chain("w", 2000.0)], [slot("a")])
    assert not plan.placements
    assert "w is not in the plan: time: " in text_of(plan, "w/t0")


def test_a_task_that_an_earlier_run_completed_is_no_mistake():
    _, plan = planned([chain("w")], [slot("a")])
    done = replace(plan, done=(Done(workflow="w", task="before", run="run-1", folder="/x"),))
    assert text_of(done, "w/before") == "w/before need not run: run-1 has done it."
    with pytest.raises(InputError, match="no task 'w/other'"):
        text_of(done, "w/other")


def test_a_plan_that_an_earlier_version_wrote_is_explained():
    """Its numbers are those of the phases, at different moments: they are not compared."""
    plan = plan_json(planned([chain("w")], [slot("a"), slot("b")])[1])
    del plan["dropped"]
    for entry in plan["reasons"]:
        del entry["adds"], entry["slot_needed_until_s"]
        other = {"slot": "b", "start_s": 0.0, "end_s": 100.0, "probability": 0.949}
        entry |= {"phase": "minimal", "rule": "most probable", "probability": 0.9}
        entry |= {"considered": 2, "latest_end_s": 9.0, "others": [other]}
    text = explain_text(explain(plan, "w/t0"))
    assert "Phase minimal: most probable, of 2 mappings." in text
    assert "0.949" not in text
    with pytest.raises(InputError, match="no task 'v/t0'"):
        explain(plan, "v/t0")


def test_the_json_of_a_plan_states_each_figure_once(vgrads):
    plan = vgrads("plan", DATA / "lead.yaml", "--json").json
    assert set(plan["promise"]) == {
        "probability",
        "standard_error",
        "cautious",
        "requested",
        "meets_request",
        "by_workflow",
    }
    assert {phase["name"] for phase in plan["phases"]} <= set(plan["seconds"])
    assert all("seconds" not in phase for phase in plan["phases"])
    assert not any("probability" in entry for entry in plan["reasons"])


def test_a_page_shows_the_same_reasons_as_the_command(vgrads, tmp_path):
    vgrads("plan", DATA / "lead.yaml", "--gantt", tmp_path / "plan.html")
    assert "Without it the promise would be lower by" in (tmp_path / "plan.html").read_text()
