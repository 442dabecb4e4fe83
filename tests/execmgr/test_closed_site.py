"""A site that states closed windows, around a driver that knows nothing of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.drivers.api import SlotSpec, SlotState, SlotStatus
from vgrads.drivers.simulated import SimulatedBatch, SimulatedCloud, SiteBehaviour
from vgrads.execmgr.closed_site import ClosedSite
from vgrads.kernel.clock import SimClock
from vgrads.kernel.units import format_instant
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cloud import CloudRegion
from vgrads.simulator.cluster import BatchCluster
from vgrads.vgrid.catalog import Queue, Site
from vgrads.vgrid.closures import find_closures

HOUR_S = 3600.0
NOW_S = 1_796_000_000.0
LOOK_S = 300.0


class Patient(SimulatedBatch):
    """A batch system that knows begin times, as real ones do: it lets jobs in when they begin."""

    def __init__(self, cluster, clock):
        super().__init__(cluster, clock, SiteBehaviour())
        self.clock, self.later, self.started = clock, [], {}

    def submit(self, spec):
        if (spec.begin_s or 0.0) > self.clock.now():
            self.later.append(spec)
        else:
            super().submit(spec)

    def status(self, slots):
        for spec in [s for s in self.later if s.begin_s <= self.clock.now()]:
            self.later.remove(spec)
            super().submit(spec)
        waiting = {spec.id for spec in self.later}
        statuses = super().status([slot for slot in slots if slot not in waiting])
        for status in statuses:
            if status.state in (SlotState.GRANTED, SlotState.READY):
                self.started.setdefault(status.id, status.since_s)
        by_id = {status.id: status for status in statuses}
        return [
            by_id.get(slot) or SlotStatus(id=slot, state=SlotState.QUEUED, since_s=0.0)
            for slot in slots
        ]

    def cancel(self, slot):
        self.later = [spec for spec in self.later if spec.id != slot]
        super().cancel(slot)


def spec(name="a", hours=2.0, procs=4, queue="q"):
    return SlotSpec(
        id=name, name=name, site="s", queue=queue, procs=procs, duration_s=hours * HOUR_S
    )


def window(begin_h, length_h):
    return f"{format_instant(NOW_S + begin_h * HOUR_S)}/{length_h * HOUR_S:.0f}s"


def batch(closed, busy_h=0.0):
    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=8, max_walltime_s=9e5, max_jobs=9
    )
    site = Site(name="s", kind="batch", procs=8, queues=(queue,), closed=tuple(closed))
    clock, cluster = SimClock(), BatchCluster(8)
    if busy_h:
        cluster.place(BatchJob("other", 8, busy_h * HOUR_S, busy_h * HOUR_S), 0.0)
    driver = Patient(cluster, clock)
    return ClosedSite(driver, site, clock, NOW_S), clock, site, driver


def cloud(closed):
    site = Site(name="s", kind="cloud", procs=8, closed=tuple(closed))
    clock = SimClock()
    driver = SimulatedCloud(CloudRegion(8), clock, SiteBehaviour())
    return ClosedSite(driver, site, clock, NOW_S), clock, site


def play(site, clock, name, until_h):
    """Poll every minute; return the states as they came."""
    states = []
    while clock.now() < until_h * HOUR_S:
        status = site.status([name])[0]
        if not states or states[-1].state != status.state:
            states.append(status)
        clock.advance_to(clock.now() + 60.0)
    return states


def test_a_job_that_would_cross_is_held_back_until_the_end():
    site, clock, _, driver = batch([window(1, 3)])
    site.submit(spec(hours=2.0))
    play(site, clock, "a", 5)
    assert driver.started["a"] == 4 * HOUR_S


def test_a_job_that_ends_before_is_submitted_at_once():
    site, clock, _, driver = batch([window(3, 3)])
    site.submit(spec(hours=2.0))
    play(site, clock, "a", 1)
    assert driver.started["a"] == 0.0


def test_a_job_that_waits_until_it_would_cross_is_withdrawn():
    site, clock, _, driver = batch([window(3, 3)], busy_h=2.0)
    site.submit(spec(hours=2.0))
    assert HOUR_S - 120.0 <= site.wake_at() < HOUR_S  # then it is withdrawn, not at a later look
    end = play(site, clock, "a", 8)[-1]
    assert end.state == SlotState.FAILED
    assert site.wake_at() > HOUR_S
    assert "did not start early enough before the maintenance of" in end.reason
    assert not end.permanent
    assert "a" not in driver.started


def test_a_job_longer_than_windows_of_every_week_allow_is_refused_for_good():
    site, *_ = batch(["Fri 18:00/62h"])
    site.submit(spec(hours=120.0))
    (status,) = site.status(["a"])
    assert (status.state, status.permanent) == (SlotState.FAILED, True)
    assert "never fits: closed from" in status.reason


def test_a_machine_ends_with_the_time_that_is_left_and_is_refused_while_closed():
    site, clock, _ = cloud([window(1, 3)])
    site.submit(spec(hours=2.0, queue=""))
    end = play(site, clock, "a", 2)[-1]
    assert (end.state, end.since_s) == (SlotState.EXPIRED, HOUR_S)
    assert "closed from" in end.reason
    site.submit(spec("b", queue=""))
    (status,) = site.status(["b"])
    assert (status.state, status.permanent) == (SlotState.FAILED, False)
    assert status.reason.startswith("closed from")
    play(site, clock, "b", 4)
    site.submit(spec("c", queue=""))
    assert site.status(["c"])[0].state == SlotState.READY


@settings(max_examples=examples(80), deadline=None)
@given(
    closed=st.lists(
        st.tuples(st.floats(-2, 20), st.floats(0.5, 8)).map(lambda w: window(*w)), max_size=3
    ),
    jobs=st.lists(st.tuples(st.floats(0.1, 9), st.integers(1, 8)), min_size=1, max_size=4),
    busy=st.floats(0, 6),
)
def test_no_slot_runs_across_a_window(closed, jobs, busy):
    site, clock, described, driver = batch(closed, busy)
    for n, (hours, procs) in enumerate(jobs):
        site.submit(spec(f"a{n}", hours, procs))
    names = [f"a{n}" for n in range(len(jobs))]
    while clock.now() < 60 * HOUR_S:
        site.status(names)
        clock.advance_to(clock.now() + LOOK_S)
    for n, (hours, _) in enumerate(jobs):
        if f"a{n}" in driver.started:
            start_s = NOW_S + driver.started[f"a{n}"]
            for closure in find_closures(described, NOW_S):
                # a job that has just become too late is withdrawn at the next look
                ends_before = start_s + hours * HOUR_S <= closure.begin_s + LOOK_S
                assert ends_before or start_s >= closure.end_s - 1e-3
