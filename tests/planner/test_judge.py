"""The yardstick itself, held against what can be reckoned by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.planner.plan_judge import Future, Futures, judge, simulate
from tests.planner.test_planner import chain, make_set, slot
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.planner.plan import Placement, Plan, Promise, SlotUse
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import StartCurve, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import Task

SIMULATIONS = 1500


def put(task, where, start_s, end_s, workflow="w", replica=0):
    return Placement(
        workflow=workflow,
        task=task,
        replica=replica,
        slot=where,
        start_s=start_s,
        end_s=end_s,
        procs=1,
    )


def plan_of(workflows, slots, placed, needed=1, submits=None, **more):
    """A plan written by hand, with what it was made for."""
    snapshot = Snapshot(workflow_set=make_set(workflows, needed, **more), slots=tuple(slots))
    uses = []
    for s in slots:
        mine = [p for p in placed if p.slot == s.id]
        uses.append(
            SlotUse(
                slot=s,
                submit_s=(submits or {}).get(s.id, 0.0),
                start_s=min(p.start_s for p in mine),
                end_s=max(p.end_s for p in mine),
                probability=1.0,
                cost_usd=0.0,
            )
        )
    plan = Plan(
        set_name="s",
        deadline_s=snapshot.workflow_set.deadline_s,
        needed=needed,
        requested_probability=0.9,
        feasible=True,
        lacking="",
        promise=Promise(probability=1.0, standard_error=0.0, by_workflow={}),
        placements=tuple(placed),
        uses=tuple(uses),
        phases=(),
    )
    plan.check(snapshot)
    return snapshot, plan


def near(judged, truth):
    """Within three standard errors; a sure thing exactly."""
    return judged.probability == pytest.approx(truth, abs=3 * judged.standard_error)


def test_what_is_certain_is_certain_and_its_hours_are_exact():
    placed = [put("t0", "a", 60.0, 160.0), put("t1", "a", 160.0, 210.0)]
    judged = judge(
        *plan_of([chain("w", 100.0, 50.0)], [slot("a", 4, make_certain_curve(60.0))], placed),
        count=20,
    )
    assert (judged.probability, judged.end_s) == (1.0, 210.0)
    assert judged.hours == pytest.approx(150.0 * 4 / 3600)  # from when it is ready to its last task
    assert judged.useful_hours == pytest.approx(150.0 / 3600)
    assert judged.further_hours == judged.lost_hours == judged.usd == 0.0


def test_a_single_slot_is_as_sure_as_it_comes():
    a = slot("a", 1, make_certain_curve(0.0, 0.7))
    assert near(judge(*plan_of([chain()], [a], [put("t0", "a", 0, 100)]), count=SIMULATIONS), 0.7)


def test_a_slot_that_breaks_takes_its_task_with_it():
    """It breaks in 4 of 10 cases, somewhere in its 1,000 s: in a tenth of these while the task
    runs."""
    a = slot("a", 1, up=0.6)
    assert near(judge(*plan_of([chain()], [a], [put("t0", "a", 0, 100)]), count=SIMULATIONS), 0.96)


def test_replicas_in_two_slots_fail_only_together_and_in_a_single_queue_always_do():
    placed = [put("t0", "a", 0, 100), put("t0", "b", 0, 100, replica=1)]
    apart = [slot(name, 1, make_certain_curve(0.0, 0.7)) for name in "ab"]
    together = [replace(slot, shared="q") for slot in apart]
    assert near(judge(*plan_of([chain()], apart, placed), count=SIMULATIONS), 0.91)
    assert near(judge(*plan_of([chain()], together, placed), count=SIMULATIONS), 0.7)


def test_a_late_slot_is_late_by_when_it_was_requested_unless_that_is_fixed():
    curve = StartCurve(np.array([0.0, 300.0]), np.array([0.5, 1.0]))
    for fixed, truth in ((False, 0.5), (True, 1.0)):
        a = slot("a", 1, curve, fixed=fixed, submit_s=650.0 if fixed else 0.0)
        placed = [put("t0", "a", 700.0, 800.0)]
        values = plan_of([chain()], [a], placed, submits={"a": 650.0})
        assert near(judge(*values, count=SIMULATIONS), truth)


def test_tasks_of_no_length_hold_nobody_up():
    tasks = [Task(id="z", runtime_s=0.0), Task(id="a", runtime_s=0.0, parents=("z",))]
    tasks.append(Task(id="b", runtime_s=50.0, parents=("a",)))
    placed = [put("b", "s", 0, 50), put("a", "s", 0, 0), put("z", "s", 0, 0)]
    judged = judge(*plan_of([make_workflow("w", tasks)], [slot("s", 1)], placed), count=20)
    assert (judged.probability, judged.end_s) == (1.0, 50.0)


def test_money_is_by_the_started_hour_from_ready_to_closed():
    a = slot("a", 1, make_certain_curve(120.0), end_s=9000.0, price_usd_per_hour=2.0)
    for length_s, usd in ((3600.0, 2.0), (3601.0, 4.0)):
        values = plan_of(
            [chain("w", length_s)],
            [a],
            [put("t0", "a", 120.0, 120.0 + length_s)],
            deadline_s=9000.0,
        )
        judged = judge(*values, count=10)
        assert (judged.probability, judged.usd, judged.dearest_usd) == (1.0, usd, usd)
    never = replace(a, curve=make_certain_curve(0.0, 0.0))
    values = plan_of([chain()], [never], [put("t0", "a", 120.0, 220.0)])
    assert judge(*values, count=10).usd == 0.0  # nobody pays for what never came


def test_a_replica_is_stopped_and_counts_as_lost():
    placed = [put("t0", "a", 0, 100), put("t0", "b", 40, 140, replica=1)]
    slots = [slot("a", 1), slot("b", 1, make_certain_curve(40.0))]
    judged = judge(*plan_of([chain()], slots, placed), count=5)
    assert judged.useful_hours * 3600 == pytest.approx(100.0)
    assert judged.lost_hours * 3600 == pytest.approx(60.0)


def test_a_task_that_fails_tries_once_more_where_there_is_time():
    a = slot("a", 1, task_failure=0.4)
    values = plan_of([chain()], [a], [put("t0", "a", 0, 100)])
    assert near(judge(*values, count=SIMULATIONS), 1 - 0.4**2)


def test_run_times_spread_as_the_set_says_and_equal_copies_run_equally_long():
    """Planned for 100 s times the room that places have; the deadline leaves that and no more."""
    padding = RuntimeSpread(own=0.5).factor(0.99)
    placed = [put("t0", "a", 0, 100 * padding), put("t0", "b", 0, 100 * padding, replica=1)]
    slots = [slot(name, 1, end_s=100.0 * padding) for name in "ab"]
    values = plan_of([chain()], slots, placed, runtime_spread=0.5, deadline_s=100.0 * padding)
    assert near(judge(*values, count=SIMULATIONS), 0.99)  # what the padding is for


def test_what_ends_with_its_slot_has_ended_and_what_is_refused_may_be_reported():
    a = slot("a", 1, make_certain_curve(0.0), end_s=100.0)
    snapshot, plan = plan_of([chain()], [a], [put("t0", "a", 0, 100)])
    assert judge(snapshot, plan, count=5).probability == 1.0
    placed = [put("t0", "a", 0, 100), put("t0", "b", 0, 100, replica=1)]
    snapshot, plan = plan_of([chain()], [slot("a", 1), slot("b", 1)], placed)
    future = Future(
        fates={"a": (float("inf"),) * 2, "b": (5.0, float("inf"))}, stretch={}, failing={}
    )
    for message in (False, True):
        assert simulate(make_execution(plan, snapshot), future, message).done_s == {"w": 105.0}


def test_the_same_seed_draws_the_same_futures():
    a = slot("a", 1, make_certain_curve(0.0, 0.7), task_failure=0.2)
    snapshot, plan = plan_of([chain()], [a], [put("t0", "a", 0, 100)])
    futures, again, other = (Futures(snapshot, plan, 50, seed) for seed in (1, 1, 2))
    assert [futures[n] for n in range(50)] == [again[n] for n in range(50)]
    assert [futures[n] for n in range(50)] != [other[n] for n in range(50)]


def test_a_slot_released_before_it_is_ready_is_never_used():
    placed = [put("t0", "a", 0, 100), put("t0", "b", 500, 600, replica=1)]
    late = slot("b", 8, make_certain_curve(500.0), price_usd_per_hour=1.0)
    judged = judge(*plan_of([chain()], [slot("a", 1), late], placed), count=5)
    assert (judged.probability, judged.usd, judged.lost_hours) == (1.0, 0.0, 0.0)
    assert judged.hours * 3600 == pytest.approx(100.0)
