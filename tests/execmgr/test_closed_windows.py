"""Closed windows of simulated sites: no slot is planned or runs across one."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.logs import queued_log
from tests.planner.test_planner import chain, make_set
from vgrads.api.plans.execution import run_plan
from vgrads.api.plans.planning import GridSnapshot, list_closure_notes, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.kernel.units import format_instant
from vgrads.planner.make import Options
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import make_forecast
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site

HOUR_S = 3600.0
NOW_S = 1_796_000_000.0
BRIEF = Options(effort=0.0, relax=False)
KEY = ("cluster", "q")


class Record(MemoryJournal):
    """A journal in memory that also takes what a run stores beside it."""

    def __init__(self):
        super().__init__()
        self.executions = {}

    def keep_setup(self, setup):
        self.setup = setup

    def store_execution(self, version, execution):
        self.executions[version] = execution

    def mailbox(self):
        return None

    def alarms(self):
        return None

    def stop_reason(self):
        return ""


@cache
def history():
    log = queued_log(700)
    at_s = float(log.submit_s[500])
    return log, at_s, make_forecast(log, at_s, Settings())


def window(begin_h, length_h):
    return f"{format_instant(NOW_S + begin_h * HOUR_S)}/{length_h * HOUR_S:.0f}s"


def cluster(closed=(), **more):
    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=64, max_walltime_s=9e5, max_jobs=6
    )
    return Site(
        name="cluster",
        kind="batch",
        procs=64,
        queues=(queue,),
        closed=tuple(closed),
        **more,
    )


def cloud(closed=(), **more):
    node = NodeType(name="m", cores=4, price_usd_per_hour=1.0)
    return Site(
        name="cloud",
        kind="cloud",
        procs=16,
        nodes=(node,),
        closed=tuple(closed),
        boot_s=60.0,
        **more,
    )


def grid_of(*sites, forecast=True):
    log, at_s, learned = history()
    return GridSnapshot(
        catalog=Catalog(sites=sites, links={}),
        logs={KEY: log} if forecast else {},
        instants={KEY: at_s} if forecast else {},
        forecasts={KEY: learned} if forecast else {},
        now_s={site.name: NOW_S for site in sites},
    )


def closures(grid, site):
    return [
        c
        for (name, _), availability in grid.availabilities.items()
        if name == site
        for c in availability.closures
    ]


def crossed(grid, slot, start_s, end_s):
    """Return the windows that such a slot would run into."""
    return [
        c
        for c in closures(grid, slot.site)
        if c.left < slot.procs
        and NOW_S + start_s < c.end_s - 1e-3
        and NOW_S + end_s > c.begin_s + 1e-3
    ]


def check_slots(grid, slots):
    """No start that a slot's curve holds possible runs into a window by the slot's wall time."""
    for slot in slots:
        walltime_s = slot.end_s - slot.submit_s
        zero_s = 0.0 if slot.fixed else slot.submit_s
        before = 0.0
        for at_s, chance in zip(
            slot.curve.times_s.tolist(), slot.curve.probabilities.tolist(), strict=True
        ):
            if chance > before + 1e-12 and at_s > 0:
                # ready at this instant at the latest; it started at most a boot time before
                assert not crossed(grid, slot, zero_s + at_s, slot.end_s), (slot.id, at_s)
            before = chance
        assert walltime_s >= 0


def test_a_plan_uses_the_time_before_and_after_a_window_and_names_it():
    """Two workflows of three hours at one small site that closes in between."""
    grid = grid_of(cloud([window(4, 20)]), forecast=False)
    flows = [chain(f"w{n}", 3 * HOUR_S, procs=16) for n in range(2)]
    late = plan_set(make_set(flows, needed=2, deadline_s=30 * HOUR_S), grid, options=BRIEF)
    assert late.plan.feasible
    first, second = sorted(late.plan.placements, key=lambda p: p.start_s)
    assert first.end_s <= 4 * HOUR_S
    assert second.start_s >= 24 * HOUR_S
    assert any(note.startswith("cloud: closed from ") for note in late.plan.notes)
    early = plan_set(make_set(flows, needed=2, deadline_s=23 * HOUR_S), grid, options=BRIEF)
    assert not early.plan.feasible
    assert any(note.startswith("cloud: closed from ") for note in early.plan.notes)


def test_windows_of_every_week_are_named_once_and_many_are_counted():
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    few, many = (
        list_closure_notes(
            grid_of(cloud([f"{day} 02:00/2h" for day in days[:count]])), 30 * 24 * HOUR_S
        )
        for count in (2, 7)
    )
    assert len(few) == 2
    assert all("02:00 to " in note and ", every week" in note for note in few)
    assert (len(many), many[-1]) == (6, "cloud: closed 2 more times")


def test_jobs_for_the_time_after_a_window_wait_in_the_queue_if_it_permits_them():
    grid = grid_of(cluster([window(4, 20)]))
    flows = [chain(f"w{n}", HOUR_S) for n in range(2)]
    snapshot = plan_set(make_set(flows, needed=2, deadline_s=30 * HOUR_S), grid, options=BRIEF)
    before = [slot for slot in snapshot.snapshot.slots if not slot.fixed]
    after = [slot for slot in snapshot.snapshot.slots if slot.fixed]
    assert before
    assert after
    assert len(before) + len(after) <= 6  # of one user at a time
    assert all(slot.end_s <= 4 * HOUR_S for slot in before)
    assert {slot.submit_s for slot in after} == {0.0}
    assert all(slot.curve.by(24 * HOUR_S - 1) == 0 for slot in after)
    assert after[0].curve.by(24 * HOUR_S) > 0.5


def run_and_check(planned, grid, seed):
    """Run a plan at simulated sites; return how often it was planned again."""
    record = Record()
    outcome = run_plan(planned, RunOptions(run_id="r", folder=None, seed=seed), record)
    execution = outcome.execution
    for name, slot in outcome.state.slots.items():
        granted_s = slot.ready_s if slot.granted_s is None else slot.granted_s
        if granted_s is not None:
            end_s = granted_s + execution.slot_duration_s(name)
            assert not crossed(grid, execution.uses[name].slot, granted_s, end_s)
    return len(record.executions) - 1


windows = st.lists(
    st.tuples(st.floats(-3.0, 40.0), st.floats(0.5, 30.0)).map(lambda w: window(*w)),
    min_size=1,
    max_size=3,
)


@pytest.mark.more
@settings(max_examples=examples(80), deadline=None)
@given(
    at_cluster=windows,
    at_cloud=windows,
    lengths=st.lists(st.floats(0.2, 4.0), min_size=1, max_size=3),
    deadline=st.floats(6.0, 60.0),
    seed=st.integers(0, 99),
    up=st.sampled_from([1.0, 0.4]),  # what is lost is planned again
)
def test_nothing_is_planned_submitted_or_run_across_a_window(
    at_cluster, at_cloud, lengths, deadline, seed, up
):
    grid = grid_of(cluster(at_cluster, slot_up=up), cloud(at_cloud, slot_up=up))
    flows = [chain(f"w{n}", *(h * HOUR_S for h in lengths)) for n in range(2)]
    workflow_set = make_set(flows, needed=1, deadline_s=deadline * HOUR_S)
    planned = plan_set(workflow_set, grid, seed, options=BRIEF)
    check_slots(grid, planned.snapshot.slots)
    for use in planned.plan.uses:
        assert not crossed(grid, use.slot, use.start_s, use.end_s)
    if not planned.plan.feasible:
        return
    planned.plan.check(planned.snapshot)
    run_and_check(planned, grid, seed)


@pytest.mark.more
def test_what_is_planned_again_crosses_no_window_either():
    broken = cloud([window(6, 4), window(20, 4)], slot_up=0.5)
    grid = grid_of(broken, forecast=False)
    flows = [chain(f"w{n}", HOUR_S, HOUR_S, procs=16) for n in range(2)]
    workflow_set = make_set(flows, needed=2, deadline_s=40 * HOUR_S, probability=0.05)
    versions = 0
    for seed in range(12):
        planned = plan_set(workflow_set, grid, seed, options=BRIEF)
        versions += run_and_check(planned, grid, seed)
    assert versions > 0
