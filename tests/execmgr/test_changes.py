"""A request that changes while its run goes on: applied once, whatever becomes of the manager."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.execmgr.test_execmgr import ended, execution_for, ready, simulate
from tests.execmgr.test_survival import FragileJournal, Killed, World, check_ended_well
from tests.planner.test_planner import chain, slot
from vgrads.drivers.simulated import SiteBehaviour
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.journal import MemoryJournal, event_from_json, event_to_json, fold
from vgrads.execmgr.core.promise_record import judge_promise
from vgrads.execmgr.core.remainder import (
    check_change,
    find_sufficient_changes,
    plan_request,
)
from vgrads.execmgr.core.states import (
    PromiseChecked,
    Replanned,
    RequestChange,
    RequestChanged,
    Tick,
)
from vgrads.execmgr.core.step import step
from vgrads.execmgr.mailbox import Mail
from vgrads.execmgr.runner import ChangedPlan, Runner
from vgrads.kernel.errors import InputError
from vgrads.vgrid.slot import make_certain_curve


class Box:
    """A mailbox whose messages can be read from an instant on."""

    def __init__(self, clock, messages):
        self.clock, self.messages = clock, messages

    def take(self, after):
        now_s = self.clock.now()
        rows = [
            (number, change)
            for number, (at_s, change) in enumerate(self.messages, start=1)
            if number > after and at_s <= now_s
        ]
        return Mail(upto=rows[-1][0], changes=tuple(rows)) if rows else None

    def answer(self, answers):
        raise AssertionError("nobody releases the tasks of this run")


class ChangingWorld(World):
    """The same with changes of the request; managers read them from the same mailbox."""

    def __init__(self, execution, behaviour, messages, spare_workflows=2):
        super().__init__(execution, behaviour, spare_workflows=spare_workflows)
        self.box = Box(self.clock, messages)

    def change(self, execution, state, change):
        plan, promise, lacking = plan_request(execution, state, self.offers, change, 0.02)
        if plan is None:
            return ChangedPlan(refused=lacking)
        self.executions.append(plan)
        return ChangedPlan(execution=plan, promise=promise)

    def around(self, journal, stop=lambda: ""):
        return replace(super().around(journal, stop), mailbox=self.box, change_request=self.change)

    def run(self, kills=(), before=False):
        """Run; the manager is killed at each of these positions of its journal."""
        events = []
        for position in (*kills, 10**9):
            versions = [e.version for e in events if isinstance(e, Replanned | RequestChanged)]
            del self.executions[1 + max(versions, default=0) :]
            journal = FragileJournal(position, before)
            journal.events = list(events)
            state = fold(self.executions, events)
            runner = Runner("r", self.executions[state.version], self.around(journal))
            try:
                return (runner.resume(state) if events else runner.run()), journal
            except Killed:
                events = journal.events
        raise AssertionError


def late_and_more():
    """Two workflows of which one is needed, then both, later, for more money."""
    return [
        (20.0, RequestChange(needed=2, deadline_s=1500.0, by="ann")),
        (40.0, RequestChange(probability=0.5, budget_usd=40.0)),
        (40.0, RequestChange(deadline_s=10.0)),  # before now: refused
    ]


def two_chains():
    return execution_for(
        [chain("v", 60.0, 70.0), chain("w", 80.0, 40.0)], [slot("a", 1), slot("b", 1)]
    )


def check_changes(world, state, journal):
    check_ended_well(world, state, journal)
    applied = [event for event in journal.events if isinstance(event, RequestChanged)]
    assert [event.message for event in applied] == [1, 2, 3]
    assert [bool(event.refused) for event in applied] == [False, False, True]
    assert "deadline: is before now" in applied[2].refused
    execution = world.executions[state.version]
    assert (execution.plan.deadline_s, execution.plan.needed) == (1500.0, 2)
    assert execution.plan.requested_probability == 0.5
    assert [record.by for record in state.requests] == ["ann", "", ""]
    assert find_done_workflows(execution, state).keys() == {"v-1", "w-1"} or len(state.done) == 4


def test_changes_are_applied_once_and_what_is_done_stays():
    world = ChangingWorld(two_chains(), SiteBehaviour(), late_and_more())
    state, journal = world.run()
    check_changes(world, state, journal)
    for event in journal.events:
        if isinstance(event, RequestChanged):
            assert event_from_json(event_to_json(event)) == event


@pytest.mark.more  # the same for others
def test_a_manager_killed_at_every_write_applies_each_change_once():
    world = ChangingWorld(two_chains(), SiteBehaviour(), late_and_more())
    _, journal = world.run()
    writes = len(journal.events) + 3
    for before, position in itertools.product((True, False), range(1, writes)):
        world = ChangingWorld(two_chains(), SiteBehaviour(), late_and_more())
        state, journal = world.run([position], before)
        check_changes(world, state, journal)


CHANGES = st.builds(
    RequestChange,
    deadline_s=st.none() | st.floats(1.0, 3000.0),
    needed=st.none() | st.integers(0, 3),
    budget_usd=st.none() | st.floats(0.0, 50.0),
    probability=st.none() | st.floats(0.01, 0.99),
    drop_sites=st.sampled_from(((), ("a",), ("b",))),
)


@pytest.mark.more
@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 200.0), CHANGES), min_size=1, max_size=4),
    st.lists(st.integers(1, 9), max_size=4),
    st.booleans(),
    st.integers(0, 999),
)
def test_no_schedule_of_kills_loses_or_doubles_a_change(messages, kills, before, seed):
    messages.sort(key=lambda message: message[0])
    world = ChangingWorld(two_chains(), SiteBehaviour(slot_up=0.7, seed=seed), messages)
    state, journal = world.run(kills, before)
    check_ended_well(world, state, journal)
    applied = [event.message for event in journal.events if isinstance(event, RequestChanged)]
    assert applied == list(range(1, len(applied) + 1))
    ended_s = world.clock.now()
    assert len(applied) >= sum(at_s < min(ended_s - 1.0, 0.0) for at_s, _ in messages)


def test_a_lost_promise_is_given_again_after_a_change():
    execution = execution_for([chain("w", 600.0)], [slot("a")])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 10.0))
    impossible = PromiseChecked(at_s=500.0, probability=0.0, possible=False)
    state, _ = step(execution, state, impossible)
    state, _ = step(execution, state, Replanned(at_s=500.0, version=0, reason="no better"))
    state, _ = step(execution, state, replace(impossible, at_s=501.0))
    assert judge_promise(execution, state) == "cannot be met"
    change = RequestChange(deadline_s=3000.0)
    spare = replace(slot("spare", 6, make_certain_curve(1.0), end_s=2000.0), site="spare")
    better, promise, _ = plan_request(execution, state, lambda _: (spare,), change)
    event = RequestChanged(at_s=510.0, message=1, version=1, change=change, promise=promise)
    state, _ = step(better, state, event)
    assert promise > 0.9
    assert judge_promise(better, state) == "on track"
    (record,) = state.requests
    assert (record.deadline_s, record.promise) == (3000.0, promise)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (RequestChange(deadline_s=90.0), "deadline: is before now"),
        (RequestChange(needed=2), "2 of them are requested, 1 workflow is there"),
        (RequestChange(budget_usd=0.0), "\\$0.00 is below the \\$1.00 that are spent"),
        (RequestChange(add_sites=("a",), drop_sites=("a",)), "'a' is both added and dropped"),
        (RequestChange(add_sites=("a",)), "add-site: 'a' is in use: it was not dropped"),
    ],
)
def test_a_change_that_contradicts_what_happened_is_refused(change, words):
    paid = slot("a", price_usd_per_hour=1.0)
    execution = execution_for([chain("w", 600.0)], [paid], budget_usd=9.0)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 10.0), Tick(at_s=100.0))
    with pytest.raises(InputError, match=words):
        check_change(execution, state, change)


def sufficient_now(execution, state, *offered):
    changes = find_sufficient_changes(execution, state, lambda _: offered, 0.1)
    assert all(change.probability >= 0.9 for change in changes)
    return {change.change: change for change in changes}


def late_slot():
    """Two workflows, both needed, of which one is done; the slot of the other was never ready."""
    slots = [slot("a", 1, price_usd_per_hour=1.0), slot("b", 1, end_s=2000.0)]
    execution = execution_for([chain("v", 700.0), chain("w", 700.0)], slots, 2, budget_usd=2.0)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    state, _ = step(execution, state, ended(execution.order["a"][0], 700.0))
    return execution, state._replace(now_s=700.0)


def test_the_changes_that_suffice_now_are_those_for_what_remains():
    execution, state = late_slot()
    spare = slot("spare", 1, make_certain_curve(1.0), end_s=2000.0)
    changes = sufficient_now(execution, state, spare)
    assert set(changes) == {"fewer workflows", "a later deadline"}
    fewer, later = changes["fewer workflows"], changes["a later deadline"]
    assert (fewer.amount, fewer.cost_usd) == (1, later.cost_usd)
    assert later.amount == pytest.approx(400.0, rel=0.2) and later.amount >= 400.0
    change = RequestChange(deadline_s=1000.0 + later.amount)
    _, promise, _ = plan_request(execution, state, lambda _: (spare,), change, 0.1)
    assert promise >= 0.9


def test_what_suffices_now_costs_what_is_spent_and_more():
    execution, state = late_slot()
    fast = slot("fast", 1, make_certain_curve(1.0), speed=9.0, price_usd_per_hour=36.0, end_s=300.0)
    dearer = sufficient_now(execution, state, fast)["a larger budget"]
    assert dearer.amount == pytest.approx(dearer.cost_usd - 2.0, abs=0.01)
    change = RequestChange(budget_usd=2.0 + dearer.amount)
    _, promise, lacking = plan_request(execution, state, lambda _: (fast,), change, 0.1)
    assert promise >= 0.9, lacking


def test_no_change_helps_a_command_that_fails():
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    failed = replace(ended(("w", "t0", 0), 50.0, ok=False), code=2, ended=2)
    state, _ = step(execution, state, failed)
    assert sufficient_now(execution, state) == {}


def test_changes_of_a_large_set_are_not_tried():
    workflows = [chain(f"w{n}", *[1.0] * 101) for n in range(6)]
    execution = execution_for(workflows, [slot("a", 8)])
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    assert find_sufficient_changes(execution, state, lambda _: ()) is None


def test_what_a_smaller_request_does_not_need_is_released():
    workflows = [chain("v", 60.0), chain("w", 400.0)]
    execution = execution_for(workflows, [slot("a", 1), slot("b", 1)], needed=2)
    world = ChangingWorld(execution, SiteBehaviour(), [(100.0, RequestChange(needed=1))])
    state, journal = world.run()
    check_ended_well(world, state, journal)
    assert len(state.done) == 1
    assert world.clock.now() < 300.0


def test_dropped_sites_get_no_more_tasks():
    execution = execution_for(
        [chain("v", 60.0, 70.0), chain("w", 80.0, 40.0)],
        [slot("a", 1), slot("b", 1)],
        needed=2,
    )
    world = ChangingWorld(
        execution, SiteBehaviour(), [(20.0, RequestChange(drop_sites=("b",)))], spare_workflows=1
    )
    state, journal = world.run()
    check_ended_well(world, state, journal)
    assert state.dropped == {"b"}
    assert len(state.done) == 4
    check_change(world.executions[state.version], state, RequestChange(add_sites=("b",)))
    assert isinstance(journal, MemoryJournal)
