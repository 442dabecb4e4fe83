"""The reason of a plan that is impossible or falls short names the limit that binds."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from vgrads.api.plans.planning import open_grid, take_slots
from vgrads.planner.effort import UNIT, Effort
from vgrads.planner.make import Options, first_plan
from vgrads.planner.obstacles import explain_shortfall
from vgrads.planner.relax import relaxations
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.vgrid.slot import StartCurve, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task

BRIEF = Options(effort=0.1)


def paid(name, usd=1.0, **more):
    return slot(name, price_usd_per_hour=usd, **more)


def several(count, length_s=900.0, **more):
    return [chain(f"w{n}", length_s, **more) for n in range(count)]


def reason(flows, slots, **more):
    snapshot = Snapshot(workflow_set=make_set(flows, **more), slots=tuple(slots))
    plan = make_plan(snapshot, BRIEF)
    assert not plan.feasible
    return plan.lacking


MONEY = {
    "a budget of one cent": (several(1), [paid("p")], {"budget_usd": 0.01}),
    "one machine for more hours": (
        several(3, 3000.0),
        [paid("p", procs=1, end_s=12_000.0)],
        {"needed": 3, "budget_usd": 1.0, "deadline_s": 12_000.0},
    ),
    "the free slot is too slow": (
        several(1),
        [slot("f", speed=0.5), paid("p")],
        {"budget_usd": 0.5},
    ),
    "one that may be dropped is too wide": (
        [chain("wide", 90.0, procs=9), *several(2)],
        [slot("f", procs=1), paid("p", procs=1)],
        {"needed": 2, "budget_usd": 0.5},
    ),
}
TIME = {
    "a deadline of one second": (several(1), [slot("s", end_s=1.0)], {"deadline_s": 1.0}),
    "the slot is ready late": (several(1), [slot("s", curve=make_certain_curve(200.0))], {}),
    "longer than every slot": (
        [chain("w", 90.0, 90.0, 90.0)],
        [slot("s", end_s=200.0), slot("t", end_s=150.0)],
        {},
    ),
    "two wide tasks one after the other": (
        [make_workflow("w", [Task(id=f"t{n}", runtime_s=600.0, procs=4) for n in range(3)])],
        [slot("s"), slot("t", curve=make_certain_curve(500.0))],
        {"budget_usd": 0.01},
    ),
}
ROOM = {
    "a wide task": ([chain("w", 90.0, procs=9)], [slot("s")], {}),
    "full": (several(2), [slot("s", procs=1)], {"needed": 2}),
    "full whatever it costs": (
        several(4),
        [slot("s", procs=1), paid("p", procs=1)],
        {"needed": 4, "budget_usd": 0.5},
    ),
    "the paid slot is too late for a second": (
        several(2),
        [slot("s", procs=1), paid("p", procs=1, curve=make_certain_curve(500.0))],
        {"needed": 2, "budget_usd": 0.5},
    ),
    "never ready": (several(1), [slot("s", curve=make_certain_curve(0.0, 0.0))], {}),
    "nothing on offer": (several(1), [], {}),
}


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        *((name, "money") for name in MONEY),
        *((name, "time") for name in TIME),
        *((name, "room") for name in ROOM),
    ],
)
def test_the_limit_that_binds_is_named(name, limit):
    flows, slots, more = {**MONEY, **TIME, **ROOM}[name]
    text = reason(flows, slots, **more)
    assert f"cannot be placed: {limit}: " in text


def test_the_reasons_state_figures():
    flows, slots, more = MONEY["one machine for more hours"]
    assert "the budget is $1.00, with them the plan would cost $3.00" in reason(
        flows, slots, **more
    )
    flows, slots, more = ROOM["full whatever it costs"]
    assert "no other workflow fits into the 2 slots on offer" in reason(flows, slots, **more)
    flows, slots, more = TIME["longer than every slot"]
    assert "would be done after 4m 30s" in reason(flows, slots, **more)


SMALL = st.fixed_dictionaries(
    {
        "flows": st.lists(
            st.tuples(st.sampled_from([300.0, 700.0, 1100.0]), st.integers(1, 5)),
            min_size=1,
            max_size=3,
        ),
        "slots": st.lists(
            st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 400.0])),
            min_size=1,
            max_size=3,
        ),
        "budget_usd": st.sampled_from([0.01, 1.0, None]),
    }
)


@given(SMALL)
@settings(max_examples=examples(40), deadline=None)
def test_with_more_of_all_limits_but_the_named_one_the_request_stays_impossible_or_it_suffices(
    small,
):
    """Either more of the named limit alone suffices, or it is necessary: more of the others does
    not."""
    flows = [chain(f"w{n}", length, procs=p) for n, (length, p) in enumerate(small["flows"])]
    slots = [
        slot(
            f"s{n}",
            procs,
            make_certain_curve(ready_s),
            price_usd_per_hour=float(costs),
        )
        for n, (procs, costs, ready_s) in enumerate(small["slots"])
    ]
    workflow_set = make_set(flows, len(flows), budget_usd=small["budget_usd"])
    snapshot = Snapshot(workflow_set=workflow_set, slots=tuple(slots), scenarios=64)
    plan = first_plan(snapshot)
    if plan.feasible:
        assert not plan.lacking
        return
    limit = plan.lacking.split("cannot be placed: ")[1].split(":")[0]
    others = {"money", "time", "room"} - {limit}
    assert others < {"money", "time", "room"}
    alone = first_plan(_with_more(snapshot, {limit}))
    rest = first_plan(_with_more(snapshot, others))
    assert alone.feasible or not rest.feasible, plan.lacking


def _with_more(snapshot, limits):
    workflow_set, slots = snapshot.workflow_set, snapshot.slots
    if "money" in limits:
        workflow_set = replace(workflow_set, budget_usd=None)
    if "time" in limits:
        workflow_set = replace(workflow_set, deadline_s=1e5)
        slots = tuple(replace(s, end_s=1e5) for s in slots)
    if "room" in limits:
        more = [
            replace(s, id=f"{s.id}-{n}", shared=f"{s.id}-{n}", procs=8)
            for s in slots
            for n in range(4)
        ]
        slots = (*slots, *more)
    return replace(snapshot, workflow_set=workflow_set, slots=slots)


# plans that fall short


def short(flows, slots, **more):
    snapshot = Snapshot(workflow_set=make_set(flows, **more), slots=tuple(slots))
    plan = make_plan(snapshot, BRIEF)
    assert plan.feasible
    assert not plan.meets_request

    def later(changed):
        ends = tuple(replace(s, end_s=changed.deadline_s) for s in snapshot.slots)
        return replace(snapshot, workflow_set=changed, slots=ends)

    changes = relaxations(snapshot, plan, later, Effort(UNIT / 4))
    return explain_shortfall(snapshot, replace(plan, relaxations=changes))


def test_a_promise_that_money_limits_says_so():
    slots = [slot("weak", curve=make_certain_curve(0, 0.6)), paid("p")]
    text = short([chain("w")], slots, budget_usd=0.5)
    assert text == "money (the budget is $0.50)"


@pytest.mark.more
def test_a_promise_that_time_limits_says_so():
    curve = StartCurve(np.array([0.0, 990.0]), np.array([0.6, 1.0]))
    text = short([chain("w")], [slot("s", curve=curve)], budget_usd=0.5)
    assert text == "time (the deadline is 16m 40s away)"


@pytest.mark.more
def test_a_promise_that_the_slots_limit_says_so():
    slots = [slot("s", curve=make_certain_curve(0.0, 0.5))]
    text = short([chain("w")], slots)
    assert text.startswith("room (1 slot is on offer; that any is ready in time has a probability")
    probability = float(text.rstrip(")").rsplit(" ", 1)[1])
    assert probability == pytest.approx(0.5, abs=0.03)


@pytest.mark.more
def test_a_plan_that_falls_short_states_the_limit(vgrads, write):
    sites = write(
        "m.toml",
        '[[site]]\nname = "weak"\nkind = "dedicated"\nprocs = 1\nslot_up = 0.6\n'
        '[[site]]\nname = "cloud"\nkind = "cloud"\nprocs = 8\ncores_per_node = 1\n'
        'price_usd_per_hour = 1.0\nboot = "1m"\n',
    )
    document = {
        "name": "x",
        "deadline": "2h",
        "budget_usd": 0.01,
        "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 3600}]}],
    }
    answer = vgrads("plan", write("s.json", json.dumps(document)), "--sites", sites, "--json")
    assert (answer.code, answer.json["feasible"]) == (0, True)
    assert answer.json["lacking"].startswith("money (the budget is $0.01)")
    text = vgrads("plan", write("s.json", json.dumps(document)), "--sites", sites).out
    assert "Limit: money (the budget is $0.01)" in " ".join(text.split())


# requests that nothing can meet, from the command line


CLOUD = (
    '[[site]]\nname = "cloud"\nkind = "cloud"\nprocs = 8\ncores_per_node = 1\n'
    'price_usd_per_hour = 1.0\nboot = "1m"\n'
)


@pytest.mark.parametrize(
    ("changes", "sites", "words"),
    [
        ({"budget_usd": 0.01}, CLOUD, "money: the budget is $0.01"),
        ({"deadline": "1s"}, CLOUD, "time: 'w-1' takes 1m on the fastest site"),
        ({"deadline": "50s"}, CLOUD.replace("1m", "0s"), "the deadline is 50s away"),
    ],
)
def test_the_error_of_an_impossible_request_names_the_limit(vgrads, write, changes, sites, words):
    document = {
        "name": "x",
        "deadline": "2h",
        "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 60}]}],
    }
    path = write("s.json", json.dumps({**document, **changes}))
    answer = vgrads("plan", path, "--sites", write("m.toml", sites))
    assert answer.code == 3
    [line] = [line for line in answer.err.splitlines() if "lacking: " in line]
    assert words in line
    assert "Traceback" not in answer.err


@pytest.mark.more
def test_ten_thousand_slots_are_planned_with_few_of_them():
    """The slots that are most likely ready early, and those of the first plan."""
    slots = tuple(
        slot(f"s{n}", site="x", shared=f"s{n}", curve=make_certain_curve(n / 20))
        for n in range(10_000)
    )
    snapshot = Snapshot(workflow_set=make_set(several(2, 90.0)), slots=slots, scenarios=64)
    plan = make_plan(snapshot, BRIEF)
    assert plan.meets_request
    assert {int(use.slot.id[1:]) for use in plan.uses} <= set(range(500))


def test_many_small_workflows_do_not_request_two_slots_each():
    site = Site(name="x", kind="dedicated", procs=20_000, nodes=(NodeType(name="n", cores=1),))
    grid = open_grid(Catalog(sites=(site,), links={}))
    brief = make_set(several(5_000, 60.0), 4_000, deadline_s=7200.0)
    long = make_set(several(5_000, 7000.0), 4_000, deadline_s=7200.0)
    assert len(take_slots(brief, grid)) == 500
    assert len(take_slots(long, grid)) > 9_000
