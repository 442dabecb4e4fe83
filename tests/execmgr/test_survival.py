"""What a run survives: a manager killed at any instant, silent sites, lost slots, failing tasks;
planning anew."""

import itertools
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.execmgr.test_execmgr import ended, execution_for, ready, simulate
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from tests.workflows.test_workflows import dags
from vgrads.api.plans.execution import list_needed_slots
from vgrads.drivers.api import SlotState
from vgrads.drivers.simulated import SimulatedCloud, SiteBehaviour
from vgrads.execmgr.core.completion import find_done_workflows, over
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.execmgr.core.journal import MemoryJournal, event_from_json, event_to_json, fold
from vgrads.execmgr.core.remainder import compute_current_promise, measure_progress, plan_remainder
from vgrads.execmgr.core.states import (
    Cancelled,
    CancelReplica,
    Replan,
    Replanned,
    ReplicaState,
    SiteSilent,
    SlotUpdate,
    Tick,
)
from vgrads.execmgr.core.step import step
from vgrads.execmgr.engines.simulated import FailureModel, SimulatedEngine
from vgrads.execmgr.pilots import SitePolling
from vgrads.execmgr.runner import Runner, RunnerSetup
from vgrads.execmgr.sites import Sites
from vgrads.execmgr.slot_names import spec_id
from vgrads.kernel.clock import SimClock
from vgrads.kernel.errors import SiteError
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options
from vgrads.planner.snapshot import Snapshot
from vgrads.simulator.cloud import CloudRegion
from vgrads.vgrid.slot import make_certain_curve


class Killed(BaseException):
    """The manager is gone: nothing may be tidied up."""


class FragileJournal(MemoryJournal):
    """Kills the manager before or after it writes for the n-th time."""

    def __init__(self, at, before):
        super().__init__()
        self.countdown, self.before = at, before

    def append(self, events):
        self.countdown -= 1
        if self.countdown == 0 and self.before:
            raise Killed
        super().append(events)
        if self.countdown == 0:
            raise Killed


class FlakySite:
    """A driver whose calls now and then get no answer; half of those had their effect all the
    same."""

    def __init__(self, driver, silence, seed):
        self._driver, self._silence, self._draws = driver, silence, stream(seed, "flaky")

    def _perhaps(self, call, *arguments):
        if self._draws.random() >= self._silence:
            return call(*arguments)
        if self._draws.random() < 0.5:
            call(*arguments)
        raise SiteError("no answer", site="flaky", transient=True)

    def submit(self, spec):
        self._perhaps(self._driver.submit, spec)

    def status(self, slots):
        return self._perhaps(self._driver.status, slots)

    def cancel(self, slot):
        self._perhaps(self._driver.cancel, slot)

    def wake_at(self):
        return self._driver.wake_at()

    def close(self):
        self._driver.close()


class World:
    """Sites and tasks that go on whatever becomes of the manager; what was asked of them is
    counted."""

    def __init__(self, execution, behaviour, failures=None, silence=0.0, spare_workflows=0):
        self.clock = SimClock()
        self.executions = [execution]
        sites = {use.slot.site for use in execution.uses.values()} | {"spare"}
        self.inner = {
            name: SimulatedCloud(CloudRegion(99), self.clock, behaviour) for name in sorted(sites)
        }
        self.inner["spare"] = SimulatedCloud(CloudRegion(99), self.clock, SiteBehaviour())
        self.drivers = {
            name: FlakySite(driver, silence, behaviour.seed) if silence else driver
            for name, driver in self.inner.items()
        }
        self.engine = SimulatedEngine(self.clock, failures)
        self.spare_workflows = spare_workflows

    def offers(self, rest):
        return tuple(
            replace(
                slot(f"spare{n}", 6, make_certain_curve(1.0), end_s=rest.deadline_s), site="spare"
            )
            for n in range(self.spare_workflows)
        )

    def replan(self, execution, state):
        plan, reason = plan_remainder(execution, state, self.offers, effort=0.02)
        if plan is not None:
            self.executions.append(plan)
        return plan, reason

    def around(self, journal, stop=lambda: ""):
        return RunnerSetup(
            drivers=self.drivers,
            engine=self.engine,
            clock=self.clock,
            journal=journal,
            replan=self.replan,
            promise_now=compute_current_promise,
            stop_requested=stop,
        )


def run_through_crashes(world, positions, before):
    """Run; at each of these positions of the journal the manager is killed and another one goes
    on."""
    journal = FragileJournal(positions[0], before)
    runner = Runner("r", world.executions[0], world.around(journal))
    try:
        return runner.run(), journal
    except Killed:
        events = journal.events
    for position in [*positions[1:], 10**9]:
        retained = [e for e in events]
        del world.executions[
            1 + sum(isinstance(e, Replanned) and e.version > 0 for e in retained) :
        ]
        journal = FragileJournal(position, before)
        journal.events = retained
        try:
            state = fold(world.executions, retained)
            execution = world.executions[state.version]
            return Runner("r", execution, world.around(journal)).resume(state), journal
        except Killed:
            events = journal.events
    raise AssertionError


def check_ended_well(world, state, journal):
    assert over(state)
    assert fold(world.executions, journal.events) == state
    assert all(record.state.settled for record in state.replicas.values())
    assert all(progress.used == 0 for progress in state.progress.values())
    winners = [
        key[:2] for key, record in state.replicas.items() if record.state == ReplicaState.DONE
    ]
    assert len(winners) == len(set(winners)) == len(state.done)
    for key, record in state.replicas.items():
        if record.state == ReplicaState.DONE:
            for parent in world.executions[-1].workflow(key).tasks[key[1]].parents:
                assert state.done[key[0], parent].at_s <= record.start_s + 1e-6
    for name, driver in world.inner.items():
        assert not driver._lifetime.ledger.open_slots(), f"{name} still has slots"


def planned(shapes, count, needed=1, deadline_s=1000.0):
    slots = [slot(f"s{n}", 6, make_certain_curve(10.0 * n, 0.9)) for n in range(count)]
    workflows = [w.renamed(f"w{n}") for n, w in enumerate(shapes)]
    snapshot = Snapshot(
        workflow_set=make_set(workflows, min(needed, len(workflows)), deadline_s=deadline_s),
        slots=tuple(slots),
        scenarios=64,
    )
    plan = make_plan(snapshot, Options(effort=0.0))
    return make_execution(plan, snapshot) if plan.feasible else None


@pytest.fixture(autouse=True)
def no_leaving(monkeypatch):
    """A killed manager leaves everything; one that ends by itself tidies up."""
    leave = Runner._leave

    def only_if_over(self):
        if over(self.state):
            leave(self)

    monkeypatch.setattr(Runner, "_leave", only_if_over)


def test_a_manager_killed_at_every_position_of_its_journal():
    execution = planned([chain("w", 50.0, 70.0), chain("v", 30.0, 40.0, 20.0)], 2, needed=2)
    behaviour, failure_model = (
        SiteBehaviour(boot_s=5.0, seed=3),
        FailureModel(seed=1, failures={"s0": 0.4, "s1": 0.4}),
    )
    world = World(execution, behaviour, failure_model)
    journal = MemoryJournal()
    plain = Runner("r", execution, world.around(journal)).run()
    writes = len(journal.events) + 5
    for before in (True, False):
        for position in range(1, writes):
            world = World(execution, behaviour, failure_model)
            state, journal = run_through_crashes(world, [position], before)
            check_ended_well(world, state, journal)
            assert (
                find_done_workflows(execution, state).keys()
                == find_done_workflows(execution, plain).keys()
            ), (
                position,
                before,
            )


@pytest.mark.more
@settings(max_examples=int(os.environ.get("VGRADS_SCHEDULES", "200")))
@given(
    st.lists(dags(5), min_size=1, max_size=3),
    st.integers(1, 3),
    st.floats(0, 1),
    st.floats(0.3, 1),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.lists(st.integers(1, 12), max_size=3),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 999),
)
def test_no_schedule_of_faults_loses_or_doubles_anything(
    shapes, count, up, acquire, silence, failure, kills, before, spare_workflows, seed
):
    """Slots refused and lost, sites silent, tasks failing, the manager killed and killed again."""
    execution = planned(shapes, count, needed=2)
    if execution is None:
        return
    behaviour = SiteBehaviour(
        slot_up=up, slot_acquire=acquire, boot_s=20.0, boot_spread=0.3, seed=seed
    )
    names = [*execution.uses, *(f"spare{n}~{v}" for n in range(3) for v in range(20))]
    world = World(
        execution,
        behaviour,
        FailureModel(seed=seed, failures=dict.fromkeys(names, failure)),
        silence,
        spare_workflows,
    )
    state, journal = run_through_crashes(world, [*kills, 10**9], before)
    check_ended_well(world, state, journal)
    assert world.clock.now() <= 4 * execution.plan.deadline_s


def test_the_rest_is_planned_anew_when_too_few_workflows_are_left():
    execution = execution_for(
        [chain("w", 100.0, 100.0)], [slot("a", curve=make_certain_curve(0.0, 1.0))]
    )
    world = World(execution, SiteBehaviour(slot_acquire=0.0), spare_workflows=1)
    journal = MemoryJournal()
    state = Runner("r", execution, world.around(journal)).run()
    check_ended_well(world, state, journal)
    replanned = [e for e in journal.events if isinstance(e, Replanned)]
    assert [e.version for e in replanned] == [1]
    assert "the current plan promises under 1\u202f%, planned again" in replanned[0].reason
    assert find_done_workflows(execution, state).keys() == {"w"}
    again = [
        key
        for key in state.replicas
        if key[2] > 0 and world.executions[-1].slot_of(key).startswith("spare")
    ]
    assert again
    lost_task = [key for key, r in state.replicas.items() if r.reason.startswith("slot lost")]
    assert lost_task


def test_a_resumed_run_finds_what_it_holds_before_it_asks_for_more():
    """A site that knows only its own process's slots would give away what the run's tasks run
    on."""
    execution = execution_for(
        [chain("w", 100.0), chain("v", 100.0)], [slot("z", 1), slot("a", 1)], needed=2
    )
    later = replace(execution.uses["a"], submit_s=50.0)
    execution = replace(execution, uses={**execution.uses, "a": later})
    world, requested = World(execution, SiteBehaviour()), []

    class Noting(FlakySite):
        def submit(self, spec):
            requested.append(spec.name)
            super().submit(spec)

    world.drivers = {name: Noting(site, 0.0, 0) for name, site in world.inner.items()}
    world.clock.advance_to(60.0)
    journal = MemoryJournal()
    journal.append([Tick(at_s=0.0), ready("z", 1.0)])
    Runner("r", execution, world.around(journal)).resume(fold([execution], journal.events))
    assert requested == ["z", "a"]


def test_a_slot_that_has_ended_is_needed_no_more():
    """Its job may run on at a site that has not noticed: whoever resumes the run gives it back."""
    execution = execution_for([chain("w", 100.0)], [slot("a"), slot("b")])
    events = [Tick(at_s=0.0), ready("a")]
    assert list_needed_slots(execution, fold([execution], events), "r") == {
        spec_id(name, "r") for name in execution.uses
    }
    events.append(
        SlotUpdate(at_s=5.0, slot="a", state=SlotState.RELEASED, reason="the pilot ended")
    )
    assert spec_id("a", "r") not in list_needed_slots(execution, fold([execution], events), "r")


def test_what_is_done_stays_done_and_what_runs_goes_on():
    execution = execution_for(
        [chain("w", 100.0, 100.0), chain("v", 300.0)], [slot("a", 1), slot("b", 1)], needed=2
    )
    where = {key: execution.slot_of(key) for key in execution.placements}
    w_slot, v_slot = where["w", "t0", 0], where["v", "t0", 0]
    assert w_slot != v_slot
    lost = SlotUpdate(at_s=150.0, slot=w_slot, state=SlotState.FAILED, reason="node down")
    events = [Tick(at_s=0.0), ready(w_slot), ready(v_slot), ended(("w", "t0", 0), 100.0), lost]
    state, commands = simulate(execution, *events)
    assert isinstance(commands[-1], Replan)
    progress = measure_progress(execution, state)
    assert progress.done == {("w", "t0")}
    assert progress.running == {("v", "t0", 0): 0.0}  # since when
    spare_workflows = replace(slot("spare", 4, make_certain_curve(5.0), end_s=900.0), site="spare")
    fresh, reason = plan_remainder(execution, state, lambda rest: (spare_workflows,))
    assert fresh is not None, reason
    new = [p for p in fresh.plan.placements if p.key not in execution.placements]
    assert {p.task_key for p in new} == {("w", "t1")}
    assert all(p.start_s >= 150.0 for p in new)
    after, commands = step(fresh, state, Replanned(at_s=151.0, version=1, reason=reason))
    assert after.replicas["v", "t0", 0].state == ReplicaState.RUNNING
    assert CancelReplica(("v", "t0", 0)) not in commands
    assert ("w", "t1") not in after.lost


def test_a_slot_that_is_overdue_is_cause_to_think_again():
    curve = make_certain_curve(10.0, 0.99)
    execution = execution_for([chain("w", 100.0)], [slot("a", curve=curve)])
    state, commands = simulate(execution, Tick(at_s=0.0), Tick(at_s=10.0))
    assert not [c for c in commands if isinstance(c, Replan)]
    assert state.wake_s == execution.overdue_s["a"] < 100.0
    state, commands = simulate(execution, Tick(at_s=0.0), Tick(at_s=execution.overdue_s["a"]))
    assert [c.reason for c in commands if isinstance(c, Replan)] == ["slot a is overdue"]
    state, commands = step(execution, state, Replanned(at_s=40.0, version=0, reason="no better"))
    assert commands == []  # once is enough


def test_cancelling_stops_everything_and_gives_everything_back():
    execution = execution_for([chain("w", 100.0, 100.0)], [slot("a"), slot("b")])
    world = World(execution, SiteBehaviour())
    journal = MemoryJournal()
    stop = lambda: "told to" if world.clock.now() >= 100.0 else ""  # noqa: E731
    state = Runner("r", execution, world.around(journal, stop)).run()
    check_ended_well(world, state, journal)
    assert state.cancelled == "told to"
    assert [e.reason for e in journal.events if isinstance(e, Cancelled)] == ["told to"]
    assert {r.state for r in state.replicas.values()} <= {
        ReplicaState.DONE,
        ReplicaState.CANCELLED,
        ReplicaState.SKIPPED,
    }
    assert world.clock.now() < 150.0


def test_a_cancelled_run_waits_for_no_plan_that_was_requested_with_it():
    """The slot is refused and the run cancelled in one look: nothing is planned anew, nothing
    opened."""
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    world = World(execution, SiteBehaviour(slot_acquire=0.0), spare_workflows=1)
    journal = MemoryJournal()
    state = Runner("r", execution, world.around(journal, lambda: "told to")).run()
    check_ended_well(world, state, journal)
    assert not [e for e in journal.events if isinstance(e, Replanned)]
    assert world.executions == [execution]


def test_a_silent_site_is_reported_once_and_polled_less_and_less_often():
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    world = World(execution, SiteBehaviour())
    requested = []

    class Dead(FlakySite):
        def submit(self, spec):
            requested.append(world.clock.now())
            if world.clock.now() < 100.0:
                raise SiteError("no answer", site="x", transient=True)
            self._driver.submit(spec)

    world.drivers = {name: Dead(d, 0.0, 0) for name, d in world.inner.items()}
    journal = MemoryJournal()
    state = Runner("r", execution, world.around(journal)).run()
    check_ended_well(world, state, journal)
    assert find_done_workflows(execution, state).keys() == {"w"}
    assert len([e for e in journal.events if isinstance(e, SiteSilent)]) == 1
    gaps = [b - a for a, b in itertools.pairwise(requested)]
    assert gaps == sorted(gaps)
    assert len(requested) < 12


def test_a_site_that_refuses_for_good_fails_its_slot():
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    world = World(execution, SiteBehaviour())

    class Refusing(FlakySite):
        def submit(self, spec):
            raise SiteError("credentials are refused", site="x", transient=False)

    world.drivers = {name: Refusing(d, 0.0, 0) for name, d in world.inner.items()}
    journal = MemoryJournal()
    state = Runner("r", execution, world.around(journal)).run()
    assert over(state)
    assert "credentials are refused" in state.slots["a"].reason


def test_new_events_survive_json():
    events = [
        Cancelled(at_s=1.0, reason="x"),
        Replanned(at_s=2.0, version=3, reason="y"),
        SiteSilent(at_s=3.0, site="s", reason="z"),
    ]
    assert [event_from_json(event_to_json(event)) for event in events] == events


def test_real_sites_are_polled_no_more_often_than_they_want():
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    clock, requested = SimClock(), []

    class Counting(FlakySite):
        def status(self, slots):
            requested.append(clock.now())
            return self._driver.status(slots)

    inner = SimulatedCloud(CloudRegion(9), clock, SiteBehaviour(boot_s=40.0))
    site = execution.uses["a"].slot.site
    sites = Sites("r", {site: Counting(inner, 0.0, 0)}, clock, {site: SitePolling(poll_s=10.0)})
    sites.open(execution, "a")
    results = []
    for second in range(100):
        clock.advance_to(float(second))
        results += sites.news(execution)
    assert [event.state for event in results] == [SlotState.GRANTED, SlotState.READY]
    assert requested == [float(second) for second in range(0, 100, 10)]
    sites.close(execution, "a")
    assert requested[-1] == 90.0
    clock.advance_to(100.0)
    (ended_event,) = sites.news(execution)
    assert ended_event.state == SlotState.RELEASED


def test_a_slot_whose_pilot_reports_before_its_site_is_asked_is_described_by_the_site_first():
    execution, clock = execution_for([chain("w", 100.0)], [slot("a")]), SimClock()
    inner = SimulatedCloud(CloudRegion(9), clock, SiteBehaviour(boot_s=40.0))
    site = execution.uses["a"].slot.site
    sites = Sites("r", {site: inner}, clock, {site: SitePolling(reports={"a"}.__contains__)})
    sites.open(execution, "a")
    states = [event.state for event in sites.news(execution)]
    assert states == [SlotState.GRANTED, SlotState.READY]


def test_so_is_one_that_was_requested_just_after_its_site_was_asked():
    pair = [chain("v", 600.0, procs=4), chain("w", 600.0, procs=4)]
    execution = execution_for(pair, [slot("a"), slot("b", site="a")], needed=2)
    clock = SimClock()
    inner = SimulatedCloud(CloudRegion(9), clock, SiteBehaviour(boot_s=40.0))
    site, reporting = execution.uses["a"].slot.site, {"b"}
    polling = SitePolling(poll_s=10.0, reports=reporting.__contains__)
    sites = Sites("r", {site: inner}, clock, {site: polling})
    sites.open(execution, "a")
    sites.news(execution)
    clock.advance_to(0.2)
    sites.open(execution, "b")
    states = [(event.slot, event.state) for event in sites.news(execution)]
    assert states == [("b", SlotState.GRANTED), ("b", SlotState.READY)]


def test_a_slot_is_ready_as_soon_as_its_pilot_reports():
    """Its site is polled every ten seconds, and would say so much later."""
    execution, clock = execution_for([chain("w", 100.0)], [slot("a")]), SimClock()
    inner = SimulatedCloud(CloudRegion(9), clock, SiteBehaviour(boot_s=40.0))
    site, reporting = execution.uses["a"].slot.site, set()
    polling = SitePolling(poll_s=10.0, reports=reporting.__contains__)
    sites = Sites("r", {site: inner}, clock, {site: polling})
    sites.open(execution, "a")
    results = []
    for second in range(100):
        clock.advance_to(float(second))
        if second == 13:
            reporting.add("a")
        results += sites.news(execution)
    assert [(event.state, event.at_s) for event in results] == [
        (SlotState.GRANTED, 0.0),
        (SlotState.READY, 13.0),
    ]
