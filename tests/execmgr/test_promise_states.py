"""States of a run's promise: failing commands, a promise that is lost, and what is still paid."""

from dataclasses import replace

import pytest

from tests.execmgr.test_execmgr import execution_for, ready, simulate
from tests.planner.test_planner import chain, slot
from vgrads.execmgr.core.promise_record import (
    describe_failure,
    estimate_repetition,
    find_failing_tasks,
    judge_promise,
    promise_json,
    status_of,
)
from vgrads.execmgr.core.remainder import compute_current_promise
from vgrads.execmgr.core.states import (
    CancelReplica,
    PromiseChecked,
    ReleaseSlot,
    Replan,
    Replanned,
    ReplicaEnded,
    RequestSlot,
    Tick,
)
from vgrads.execmgr.core.step import step
from vgrads.kernel.promise_state import PromiseState, promise_state

TYPO = "exit code 2: line 1: computee: command not found"


def exit_2(key, at_s, code=2):
    return ReplicaEnded(at_s=at_s, key=key, ok=False, reason=TYPO, code=code, ended=code)


def lose(execution, state, at_s):
    """Let the manager find that the promise cannot be met, and that no plan is better."""
    impossible = PromiseChecked(at_s=at_s, probability=0.0, possible=False)
    state, _ = step(execution, state, impossible)
    state, _ = step(execution, state, Replanned(at_s=at_s, version=0, reason="no better"))
    return step(execution, state, replace(impossible, at_s=at_s + 1.0))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.9, {}), PromiseState.ON_TRACK),
        ((0.86, {}), PromiseState.ON_TRACK),
        ((0.84, {}), PromiseState.AT_RISK),
        ((0.0, {}), PromiseState.AT_RISK),
        ((None, {}), PromiseState.ON_TRACK),
        ((0.0, {"possible": False}), PromiseState.CANNOT_BE_MET),
        ((0.0, {"possible": False, "failing": True}), PromiseState.FAILING),
        ((0.5, {"failing": True}), PromiseState.FAILING),
        ((0.9, {"failing": True}), PromiseState.ON_TRACK),  # enough is left without it
        ((0.9, {"past_due": True}), PromiseState.MISSED),
        ((0.0, {"past_due": True, "is_met": True}), PromiseState.MET),
    ],
)
def test_the_state_follows_from_probability_and_failures(values, expected):
    probability, facts = values
    assert promise_state(probability, 0.9, **facts) == expected


def test_a_command_that_fails_in_two_slots_makes_the_run_failing():
    execution = execution_for(
        [chain("w", 100.0)], [slot("a", up=0.9), slot("b", up=0.9)], probability=0.98
    )
    keys = execution.replicas["w", "t0"]
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), ready("b"))
    running = [key for key in keys if state.replicas[key].state == "running"]
    state, _ = step(execution, state, exit_2(running[0], 10.0))
    assert not dict(find_failing_tasks(state))
    assert estimate_repetition(state)["w", "t0"] == pytest.approx(0.5)
    before = compute_current_promise(execution, state).probability
    assert 0.2 < before < 0.8
    again = next(key for key in keys if state.replicas[key].state == "running")
    state, _ = step(execution, state, exit_2(again, 20.0))
    ((task, failures),) = find_failing_tasks(state)
    assert (task, failures.status, failures.times) == (("w", "t0"), 2, 2)
    outlook = compute_current_promise(execution, state)
    state, _ = step(
        execution,
        state,
        PromiseChecked(at_s=21.0, probability=outlook.probability, possible=outlook.possible),
    )
    assert judge_promise(execution, state) == "failing"
    assert (
        describe_failure(dict(find_failing_tasks(state))) == f"your command of w/t0 fails: {TYPO}"
    )
    shown = promise_json(execution, state, 25.0)
    assert (shown["promise_state"], shown["promise_age_s"]) == ("failing", 4.0)


def test_a_command_that_is_tried_again_does_not_lead_to_another_plan():
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), exit_2(("w", "t0", 0), 10.0))
    state, commands = step(execution, state, PromiseChecked(at_s=11.0, probability=0.5))
    assert not [c for c in commands if isinstance(c, Replan)]
    assert judge_promise(execution, state) == "at risk"
    done = ReplicaEnded(at_s=110.0, key=("w", "t0", 0), ok=True)
    state, _ = step(execution, state, done)
    assert not state.promise.fallen


def test_a_failure_that_does_not_repeat_lowers_the_expected_share():
    execution = execution_for([chain("v", 100.0), chain("w", 100.0)], [slot("a")], needed=2)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    for name in ("v", "w"):
        state, _ = step(execution, state, exit_2((name, "t0", 0), 10.0))
    assert set(estimate_repetition(state).values()) == {0.5}
    done = ReplicaEnded(at_s=100.0, key=("v", "t0", 0), ok=True)
    state, _ = step(execution, state, done)
    assert estimate_repetition(state) == {("w", "t0"): pytest.approx(1 / 3)}


def test_lost_nodes_are_not_the_commands_fault():
    killed = ReplicaEnded(at_s=10.0, key=("w", "t0", 0), ok=False, reason="signal 9", ended=137)
    assert status_of(killed) is None
    assert status_of(replace(killed, reason="signal 11", ended=139)) == 139
    assert status_of(exit_2(("w", "t0", 0), 10.0)) == 2
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), killed)
    assert not state.failures


def test_after_a_loss_paid_slots_end_with_the_unit_that_has_begun():
    paid, free = slot("paid", procs=1, price_usd_per_hour=1.0), slot("free", procs=1)
    workflows = [chain("v", 700.0), chain("w", 700.0)]
    execution = execution_for(workflows, [paid, free], needed=2, budget_usd=9.0)
    execution = _billed(execution, 300.0)
    assert {p.slot for p in execution.plan.placements} == {"paid", "free"}
    state, _ = simulate(execution, Tick(at_s=0.0), ready("paid", 10.0), ready("free", 10.0))
    state, commands = lose(execution, state, 100.0)
    assert not [c for c in commands if isinstance(c, ReleaseSlot | CancelReplica)]
    assert judge_promise(execution, state) == "cannot be met"
    assert state.slots["paid"].paid_until_s == pytest.approx(310.0 - 3.0)
    state, commands = step(execution, state, Tick(at_s=307.0))
    assert [c.slot for c in commands if isinstance(c, ReleaseSlot)] == ["paid"]
    assert [c.key[0] for c in commands if isinstance(c, CancelReplica)] == [
        execution_key(execution, "paid")
    ]
    assert state.replicas[execution_key(execution, "free"), "t0", 0].state == "running"


def _billed(execution, billing_s):
    uses = {
        name: replace(use, slot=replace(use.slot, billing_s=billing_s))
        for name, use in execution.uses.items()
    }
    return replace(execution, uses=uses)


def execution_key(execution, slot_id):
    (workflow,) = {p.workflow for p in execution.plan.placements if p.slot == slot_id}
    return workflow


def paid_run():
    paid = slot("a", price_usd_per_hour=1.0)
    return execution_for([chain("w", 700.0)], [paid], budget_usd=9.0)


@pytest.mark.parametrize(("rule", "ends"), [("continue", False), ("stop", True)])
def test_a_set_may_state_what_is_done_after_a_loss(rule, ends):
    execution = execution_for(
        [chain("w", 700.0)], [slot("a", price_usd_per_hour=1.0)], budget_usd=9.0
    )
    workflow_set = replace(execution.snapshot.workflow_set, when_lost=rule)
    execution = replace(execution, snapshot=replace(execution.snapshot, workflow_set=workflow_set))
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 10.0))
    state, commands = lose(execution, state, 100.0)
    assert bool(state.cancelled) == ends
    assert bool([c for c in commands if isinstance(c, CancelReplica)]) == ends
    assert state.slots["a"].paid_until_s is None


def test_a_paid_slot_that_is_not_requested_yet_never_is():
    execution = execution_for(
        [chain("w", 700.0)], [slot("a", price_usd_per_hour=1.0)], budget_usd=9.0
    )
    later = {"a": replace(execution.uses["a"], submit_s=200.0)}
    execution = replace(execution, uses=later)
    state, _ = simulate(execution, Tick(at_s=0.0))
    state, commands = lose(execution, state, 100.0)
    _, more = step(execution, state, Tick(at_s=250.0))
    assert not [c for c in (*commands, *more) if isinstance(c, RequestSlot)]
