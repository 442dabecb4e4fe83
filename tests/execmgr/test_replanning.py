"""When the planner is called during a run, and what it decides: late slots, a promise that falls,
running tasks, slots that are requested later."""

from dataclasses import replace

import numpy as np
import pytest
from immutables import Map

from tests.execmgr.test_execmgr import execution_for, ready, simulate
from tests.planner.test_planner import chain, slot
from vgrads.api.config import embedded_data
from vgrads.api.plans.replanners import drop_beyond_capacity
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.journal import event_from_json, event_to_json
from vgrads.execmgr.core.promise_checks import PromiseChecks
from vgrads.execmgr.core.promise_record import judge_promise
from vgrads.execmgr.core.remainder import compute_current_promise, measure_progress, plan_remainder
from vgrads.execmgr.core.states import (
    Cancelled,
    PromiseChecked,
    Replan,
    Replanned,
    SlotUpdate,
    Tick,
)
from vgrads.execmgr.core.step import step
from vgrads.kernel.clock import SimClock
from vgrads.planner.make import Options
from vgrads.planner.outlook import Outlook, compute_promise
from vgrads.planner.replan import replan
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.slot import StartCurve

SLOW = StartCurve(np.array([10.0, 50.0, 200.0]), np.array([0.4, 0.7, 0.9]))


def replans(commands):
    return [c.reason for c in commands if isinstance(c, Replan)]


def late_run():
    """A slot that is three times out of four ready after 50 s, and is not."""
    execution = execution_for([chain("w", 700.0)], [slot("a", curve=SLOW)])
    return execution, simulate(execution, Tick(at_s=0.0))[0]


def test_a_slot_is_late_when_three_of_four_would_be_ready():
    execution, state = late_run()
    assert execution.overdue_s["a"] == pytest.approx(55.0)
    assert state.due_s == pytest.approx(55.0)
    state, commands = step(execution, state, Tick(at_s=54.0))
    assert replans(commands) == []
    _, commands = step(execution, state, Tick(at_s=55.0))
    assert replans(commands) == ["slot a is overdue"]


def test_the_planner_is_called_at_most_once_a_minute():
    execution = execution_for(
        [chain("w", 700.0), chain("v", 700.0)],
        [slot("a", 1, curve=SLOW), slot("b", 1, curve=SLOW)],
        needed=2,
    )
    state, _ = simulate(execution, Tick(at_s=0.0))
    state, commands = step(execution, state, Tick(at_s=56.0))
    assert len(replans(commands)) == 1
    state, _ = step(execution, state, Replanned(at_s=56.0, version=0, reason="no better"))
    assert state.due_s > 116.0
    lost = SlotUpdate(at_s=70.0, slot="b", state=SlotState.FAILED, reason="node down")
    state, commands = step(execution, state, lost)
    assert replans(commands) == []
    assert state.due_s == 116.0
    state, commands = step(execution, state, Tick(at_s=116.0))
    (reason,) = replans(commands)
    assert "1 workflow is left, 2 are needed" in reason
    assert state.due_s > 116.0


def test_a_stopped_run_is_not_planned_again_later():
    execution = execution_for([chain("w", 700.0)], [slot("a", curve=SLOW)])
    state, _ = simulate(execution, Tick(at_s=0.0), Tick(at_s=56.0))
    state, _ = step(execution, state, Replanned(at_s=56.0, version=0, reason="no better"))
    lost = SlotUpdate(at_s=70.0, slot="a", state=SlotState.FAILED, reason="node down")
    state, _ = step(execution, state, lost)
    assert state.due_s == 116.0
    state, _ = step(execution, state, Cancelled(at_s=71.0, reason="by its user"))
    assert state.due_s == float("inf")
    assert replans(step(execution, state, Tick(at_s=116.0))[1]) == []


def overdue_run():
    """A run whose slot is overdue, which has led to replanning already."""
    execution, state = late_run()
    record = state.slots["a"]._replace(overdue=True)
    return execution, state._replace(slots=state.slots.set("a", record), overdue_s=float("inf"))


class Promises:
    """Promises of a run at the instants of their checks; ``checked``: when."""

    def __init__(self, *values):
        self.values, self.checked = list(values), []

    def __call__(self, execution, state):
        self.checked.append(state.now_s)
        return Outlook(self.values.pop(0))


def test_the_promise_is_compared_with_the_highest_since_the_last_plan():
    execution, state = overdue_run()
    assert execution.plan.promise.probability == pytest.approx(0.9, abs=0.03)
    for at_s, probability in ((60.0, 0.85), (120.0, 0.97), (180.0, 0.89)):
        checked = PromiseChecked(at_s=at_s, probability=probability)
        state, commands = step(execution, state, checked)
        assert not replans(commands)
    checked = PromiseChecked(at_s=240.0, probability=0.86)
    state, commands = step(execution, state, checked)
    assert replans(commands) == ["the promise has fallen from 0.970 to 0.860"]
    assert [p[:2] for p in state.promise.points] == [
        (60.0, 0.85),
        (120.0, 0.97),
        (180.0, 0.89),
        (240.0, 0.86),
    ]


def test_the_promise_is_computed_regularly_and_each_result_is_an_event():
    execution, state = late_run()
    clock, promises = SimClock(), Promises(0.9, 0.8)
    checks = PromiseChecks(promises, clock)
    every_s = execution.plan.deadline_s / 60
    for at_s, result in ((0.0, [0.9]), (every_s / 2, []), (every_s, [0.8])):
        clock.advance_to(at_s)
        events = checks.due(execution, state)
        assert [(e.at_s, e.probability) for e in events] == [(at_s, p) for p in result]
    clock.advance_to(execution.plan.deadline_s)
    assert checks.due(execution, state) == []
    assert checks.again_s == float("inf")


def test_after_a_plan_the_promise_is_compared_with_the_new_one():
    execution, state = overdue_run()
    state, commands = step(execution, state, PromiseChecked(at_s=60.0, probability=0.4))
    assert len(replans(commands)) == 1
    state, _ = step(execution, state, Replanned(at_s=60.0, version=0, reason="no better"))
    for at_s, probability in ((130.0, 0.35), (190.0, 0.31)):
        checked = PromiseChecked(at_s=at_s, probability=probability)
        state, commands = step(execution, state, checked)
        assert not replans(commands)
    state, commands = step(execution, state, PromiseChecked(at_s=250.0, probability=0.29))
    assert replans(commands) == ["the promise has fallen from 0.400 to 0.290"]


def test_a_fall_within_a_minute_of_a_plan_is_planned_again_after_that_minute():
    execution, state = overdue_run()
    state = state._replace(replan_from_s=116.0)
    state, commands = step(execution, state, PromiseChecked(at_s=70.0, probability=0.3))
    assert not replans(commands)
    assert state.due_s == 116.0
    state, commands = step(execution, state, Tick(at_s=116.0))
    assert len(replans(commands)) == 1


def test_a_promise_is_lost_only_after_no_plan_was_found_for_it():
    execution, state = overdue_run()
    impossible = PromiseChecked(at_s=60.0, probability=0.0, possible=False)
    state, commands = step(execution, state, impossible)
    assert len(replans(commands)) == 1
    assert judge_promise(execution, state) == "at risk"
    state, _ = step(execution, state, Replanned(at_s=61.0, version=0, reason="no better"))
    state, commands = step(execution, state, replace(impossible, at_s=62.0))
    assert not replans(commands)
    assert judge_promise(execution, state) == "cannot be met"
    assert state.promise.lost_s == 62.0
    late = SlotUpdate(at_s=300.0, slot="a", state=SlotState.FAILED, reason="node down")
    state, commands = step(execution, state, late)
    assert not replans(commands)
    assert judge_promise(execution, state) == "cannot be met"


def test_the_promise_is_checked_at_once_when_a_slot_fails():
    execution = execution_for([chain("w", 700.0)], [slot("a", curve=SLOW)])
    state, _ = simulate(execution, Tick(at_s=0.0))
    clock, promises = SimClock(), Promises(0.9, 0.9)
    checks = PromiseChecks(promises, clock)
    assert len(checks.due(execution, state)) == 1
    clock.advance_to(5.0)
    for changed, checked in ((SlotState.QUEUED, [0.0]), (SlotState.FAILED, [0.0, 5.0])):
        record = state.slots["a"]._replace(state=changed)
        checks.due(execution, state._replace(slots=Map({"a": record})))
        assert promises.checked == checked


def test_a_run_is_planned_again_when_its_promise_falls():
    """Its slot may still start, too late, and is not overdue."""
    late = StartCurve(np.array([400.0, 600.0]), np.array([0.5, 1.0]))
    execution = execution_for([chain("w", 500.0)], [slot("a", curve=late)])
    state, _ = simulate(execution, Tick(at_s=0.0))
    outlook = compute_current_promise(execution, state._replace(now_s=450.0))
    assert (outlook.probability, outlook.possible) == (0.0, False)
    checked = PromiseChecked(at_s=450.0, probability=0.0, end_s=None, possible=False)
    state, commands = step(execution, state, checked)
    assert replans(commands) == ["the promise cannot be met by the current plan"]
    assert event_from_json(event_to_json(checked)) == checked


def test_a_new_plan_never_promises_less_than_the_present_one():
    execution, state = late_run()
    better, reason = plan_remainder(execution, state._replace(now_s=60.0), lambda _: ())
    assert better is None
    assert "the current plan continues" in reason


def test_a_search_that_the_clock_ends_says_so():
    execution, state = late_run()
    state = state._replace(now_s=60.0)
    arguments = execution.plan, execution.snapshot, measure_progress(execution, state), lambda _: ()
    _, reason = replan(*arguments, Options(within_s=0.0))
    assert reason.count("; the search was ended after 0 s") == 1
    _, reason = replan(*arguments, Options(effort=0.1))
    assert "ended" not in reason


def test_a_running_task_is_counted_where_it_runs():
    """Its successor can be moved, it cannot: a faster slot does not end it earlier."""
    execution = execution_for([chain("w", 600.0, 200.0)], [slot("a")])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 150.0))
    state, _ = step(execution, state, Tick(at_s=300.0))
    fast = replace(slot("fast"), speed=10.0)
    progress = measure_progress(execution, state)
    before = compute_promise(execution.plan, execution.snapshot, progress)
    assert before.end_s == pytest.approx(950.0)
    better, reason = plan_remainder(execution, state, lambda _: (fast,))
    assert better is None
    assert "planned again over 99" in reason


def test_a_running_task_counts_though_less_time_is_left_than_its_plan_reserves():
    execution = execution_for([chain("w", 600.0)], [slot("a")], runtime_spread=0.2)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    outlooks = [
        compute_current_promise(execution, state._replace(now_s=at)) for at in (0.0, 700.0, 980.0)
    ]
    assert outlooks[0].probability > outlooks[1].probability > 0.8
    assert 0.0 < outlooks[2].probability < 0.5 and outlooks[2].possible


def test_what_is_left_of_a_running_task_is_planned_only_where_it_runs():
    """Elsewhere it would begin anew: a slot that is ready at once is no place for its rest."""
    execution = execution_for([chain("w", 600.0)], [slot("a")])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 0.0))
    state, _ = step(execution, state, Tick(at_s=300.0))
    offered = []

    def offers(rest):
        offered.append(rest.workflows[0].tasks["t0"].needs)
        return (slot("b"),)

    plan_remainder(execution, state, offers)
    assert not slot("b").holds(offered[0])


def test_no_running_task_is_placed_again():
    execution = execution_for([chain("w", 600.0, 200.0)], [slot("a", up=0.5)])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 0.0))
    state, _ = step(execution, state, Tick(at_s=300.0))
    better, reason = plan_remainder(execution, state, lambda _: (slot("b"),))
    assert better is not None, reason
    added = [key for key in better.placements if key not in execution.placements]
    assert {key[:2] for key in added} == {("w", "t1")}


def test_a_slot_that_is_not_requested_yet_may_be_requested_earlier():
    execution = execution_for([chain("w", 700.0)], [slot("a")])
    use = replace(execution.uses["a"], submit_s=350.0)
    execution = replace(execution, plan=replace(execution.plan, uses=(use,)), uses={"a": use})
    state, _ = simulate(execution, Tick(at_s=0.0))
    assert [use.slot.id for use in measure_progress(execution, state).coming] == ["a"]
    better, reason = plan_remainder(execution, state._replace(now_s=20.0), lambda _: ())
    assert better is not None, reason
    assert better.uses.keys() == {"a"}
    assert 20.0 <= better.uses["a"].submit_s <= 300.0


@pytest.mark.parametrize(("lost_s", "again"), [(400.0, True), (1000.0, False)])
def test_an_open_slot_is_planned_for_no_more_hours_than_are_paid(lost_s, again):
    """What was lost elsewhere ends there before its first hour does, or after."""
    execution = execution_for(
        [chain("w", 3300.0, procs=2), chain("v", 3000.0)],
        [slot("a", 3, price_usd_per_hour=1.0, end_s=7200.0), slot("b", 1, end_s=7200.0)],
        needed=2,
        deadline_s=7200.0,
        budget_usd=1.0,
    )
    assert execution.slot_of(("v", "t0", 0)) == "b"
    assert execution.uses["a"].cost_usd == 1.0
    lost = SlotUpdate(at_s=lost_s, slot="b", state=SlotState.FAILED, reason="node down")
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 0.0), ready("b", 0.0), lost)
    better, reason = plan_remainder(execution, state, lambda _: ())
    assert (better is not None) == again, reason
    assert better is None or better.slot_of(("v", "t0", 1)) == "a"


def test_offers_leave_out_what_the_own_open_slots_occupy():
    catalog = load_catalog(embedded_data() / "sites.toml")
    cloud = replace(slot("utkeuca-1", 16), site="utkeuca", queue="")
    queue = replace(slot("mercury-1", 16), site="mercury", queue="default")
    execution = execution_for([chain("w", 100.0)], [cloud])
    state, _ = simulate(execution, Tick(at_s=0.0))
    again = (replace(cloud, id="utkeuca-1"), queue)
    assert drop_beyond_capacity(again, catalog, execution, state) == (queue,)
    lost = SlotUpdate(at_s=5.0, slot="utkeuca-1", state=SlotState.FAILED, reason="no capacity")
    ended_state, _ = step(execution, state, lost)
    assert drop_beyond_capacity(again, catalog, execution, ended_state) == again


def test_of_several_running_replicas_the_one_that_is_furthest_counts():
    execution = execution_for(
        [chain("w", 600.0)], [slot("a", up=0.9), slot("b", up=0.9)], probability=0.98
    )
    assert len(execution.replicas["w", "t0"]) == 2
    first, second = sorted({p.slot for p in execution.plan.placements})
    state, _ = simulate(execution, Tick(at_s=0.0), ready(first, 10.0), ready(second, 200.0))
    assert [r.state for r in state.replicas.values()] == ["running", "running"]
    state, _ = step(execution, state, Tick(at_s=300.0))
    outlook = compute_promise(
        execution.plan, execution.snapshot, measure_progress(execution, state)
    )
    assert outlook.end_s == pytest.approx(610.0)
