"""Why a set's promise is another one than that of its last plan."""

from dataclasses import replace

import pytest

from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from vgrads.api.plans.answers import plan_json
from vgrads.planner.snapshot import Snapshot
from vgrads.portal.records.reading.learned_since import describe_learned_since
from vgrads.portal.records.store import Store
from vgrads.vgrid.acquisition import Acquisition


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as store:
        yield store


def plan_of(probability, observations=0):
    plan = make_plan(Snapshot(workflow_set=make_set([chain()]), slots=(slot("a"),)))
    entry = {"kind": "k", "tasks": 1, "source": "learned", "observations": observations}
    return replace(plan, promise=replace(plan.promise, probability=probability), run_times=(entry,))


def put(store, plan, slots=0):
    """Store a plan as that of a set, with a run that learned from its slots."""
    run_id = store.add_run(store.add_set(plan.set_name, {}, plan_json(plan), {}))
    acquired = Acquisition(site="m", queue="q", procs=1, requested_s=0.0)
    store.add_acquisitions(run_id, [acquired] * slots)


@pytest.mark.parametrize(
    ("records", "slots", "text"),
    [
        (4, 0, "3 run times were learned"),
        (2, 0, "1 run time was learned"),
        (2, 12, "1 run time and 12 slot starts were learned"),
        (1, 1, "1 slot start was learned"),
    ],
)
def test_a_plan_names_what_was_learned_since_the_last_one(store, records, slots, text):
    put(store, plan_of(0.5, 1))
    put(store, plan_of(0.993, 1), slots)
    note = describe_learned_since(store.reader, plan_of(0.967, records))
    assert note == f"since the last plan of this set, which promised 0.993, {text}"


def test_nothing_is_noted_of_another_request_or_the_same_promise_or_without_anything_new(store):
    assert describe_learned_since(store.reader, plan_of(0.9)) == ""
    put(store, plan_of(0.99301, 1), 3)
    other = plan_of(0.967, 2)
    assert describe_learned_since(store.reader, other) != ""
    assert describe_learned_since(store.reader, plan_of(0.99299, 2)) == ""
    for changed in (
        replace(other, deadline_s=other.deadline_s + 1),
        replace(other, requested_probability=0.5),
        replace(other, set_name="another"),
        replace(other, run_times=(other.run_times[0] | {"tasks": 2},)),
        replace(other, feasible=False),
    ):
        assert describe_learned_since(store.reader, changed) == ""
    put(store, plan_of(0.993, 2))
    assert describe_learned_since(store.reader, other) == ""
