"""What has delayed a run, in words."""

import pytest

from tests.execmgr.test_execmgr import ended, execution_for, ready, simulate
from tests.planner.test_planner import chain, slot
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.delays import describe_delays
from vgrads.execmgr.core.states import SlotUpdate, Tick

FIRST = ("w", "t0", 0)


@pytest.fixture
def execution():
    return execution_for([chain("w", 100.0, 100.0)], [slot("a", 1, site="x")])


def lost(at_s, reason=""):
    return SlotUpdate(at_s=at_s, slot="a", state=SlotState.FAILED, reason=reason)


def after(execution, *events):
    return describe_delays(execution, simulate(execution, Tick(at_s=0.0), *events)[0])


def test_a_run_that_goes_as_planned_has_none(execution):
    assert after(execution) == []
    assert after(execution, ready("a"), ended(FIRST, 100.0)) == []


def test_a_lost_slot_is_named_with_its_reason(execution):
    (line, failed) = after(execution, ready("a"), lost(50.0, "the node failed"))
    assert line == "slot a of x was lost after 50s: the node failed"
    assert failed.startswith("w/t0 and 1 more cannot be done: ")


def test_a_slot_that_still_waits_is_late_by_now(execution):
    assert after(execution, Tick(at_s=300.0)) == [
        "slot a of x still waits, 5m after its planned start"
    ]
    assert after(execution, ready("a", 300.0)) == ["slot a of x started 5m after its planned start"]


def test_tasks_that_take_longer_than_expected_are_compared(execution):
    lines = ["tasks take 4 × as long as expected (1 so far), one of them 5m longer"]
    assert after(execution, ready("a"), ended(FIRST, 400.0)) == lines
    assert after(execution, ready("a"), Tick(at_s=400.0)) == lines  # it still runs


def test_what_is_less_than_a_hundredth_of_the_deadline_is_no_delay(execution):
    short_s = execution.plan.deadline_s / 200
    assert after(execution, ready("a", short_s), ended(FIRST, 2 * short_s + 100.0)) == []
