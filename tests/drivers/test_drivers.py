"""Drivers that can run anywhere: local and simulated, the same expectations for each."""

import os
import signal
import tempfile
from dataclasses import replace

import pytest

from tests.waiting import until
from vgrads.agent.scratch import make_scratch
from vgrads.api.wiring import Wiring, make_drivers
from vgrads.drivers.api import SiteAccess, SlotSpec, SlotState
from vgrads.drivers.cloud import CloudDriver, Instance, NodePrice
from vgrads.drivers.ledger import SlotLedger
from vgrads.drivers.local import LocalDriver
from vgrads.drivers.simulated import SimulatedBatch, SimulatedCloud, SiteBehaviour
from vgrads.kernel.clock import SimClock
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cloud import CloudRegion
from vgrads.simulator.cluster import BatchCluster, Outage
from vgrads.vgrid.catalog import load_catalog

PROCS = 8


def batch(clock, **behaviour):
    return SimulatedBatch(BatchCluster(PROCS), clock, SiteBehaviour(**behaviour))


def cloud(clock, **behaviour):
    return SimulatedCloud(CloudRegion(PROCS), clock, SiteBehaviour(**behaviour))


def local(clock, **_):
    return LocalDriver(PROCS, clock)


KINDS = [pytest.param(kind, id=kind.__name__) for kind in (batch, cloud, local)]


def spec(name, procs=4, duration_s=100.0):
    return SlotSpec(id=name, name=name, site="s", queue="q", procs=procs, duration_s=duration_s)


def states(driver, *names):
    return [status.state for status in driver.status(names)]


@pytest.mark.parametrize("make", KINDS)
def test_a_slot_becomes_ready_and_expires_at_its_end(make):
    clock = SimClock()
    driver = make(clock)
    driver.submit(spec("a"))
    assert states(driver, "a") == [SlotState.READY]
    clock.advance_to(99.0)
    assert states(driver, "a") == [SlotState.READY]
    clock.advance_to(101.0)
    (status,) = driver.status(["a"])
    assert status.state == SlotState.EXPIRED


@pytest.mark.parametrize("make", KINDS)
def test_released_slots_give_their_processors_back_and_stay_released(make):
    clock = SimClock()
    driver = make(clock)
    driver.submit(spec("a", procs=PROCS))
    driver.cancel("a")
    driver.cancel("a")
    driver.submit(spec("b", procs=PROCS))
    assert states(driver, "a", "b") == [SlotState.RELEASED, SlotState.READY]
    clock.advance_to(1000.0)
    assert states(driver, "a", "b") == [SlotState.RELEASED, SlotState.EXPIRED]


@pytest.mark.parametrize("make", KINDS)
def test_asking_twice_is_asking_once_and_unknown_ids_have_failed(make):
    driver = make(SimClock())
    driver.submit(spec("a", procs=5))
    driver.submit(spec("a", procs=5))
    assert states(driver, "a", "nobody") == [SlotState.READY, SlotState.FAILED]
    driver.cancel("nobody")
    driver.close()
    assert states(driver, "a") == [SlotState.RELEASED]


@pytest.mark.parametrize("make", [pytest.param(k, id=k.__name__) for k in (cloud, local)])
def test_what_does_not_fit_is_refused(make):
    driver = make(SimClock())
    driver.submit(spec("a", procs=6))
    driver.submit(spec("b", procs=6))
    (status,) = driver.status(["b"])
    assert (status.state, bool(status.reason)) == (SlotState.FAILED, True)


def test_a_site_with_a_scheduling_cycle_starts_slots_only_then(write):
    path = write(
        "sites.toml",
        (
            '[[site]]\nname = "s"\nkind = "batch"\nprocs = 8\ncycle = "1m"\ncycle_phase = '
            '"10s"\n[[site.queue]]\nname = "q"\n'
        ),
    )
    clock = SimClock()
    around = Wiring(seed=0, until_s=1000.0, logs={}, instants={})
    driver = make_drivers(load_catalog(path), ["s"], clock, around)["s"]
    clock.advance_to(20.0)
    driver.submit(spec("a"))
    assert (states(driver, "a"), driver.wake_at()) == ([SlotState.QUEUED], 70.0)
    clock.advance_to(75.0)
    (status,) = driver.status(["a"])
    assert (status.state, status.since_s) == (SlotState.READY, 70.0)


def test_a_batch_slot_waits_its_turn_and_late_expiry_counts_from_its_start():
    clock, cluster = SimClock(), BatchCluster(PROCS)
    cluster.submit(BatchJob("other", PROCS, 50.0, 50.0), 0.0)
    driver = SimulatedBatch(cluster, clock, SiteBehaviour())
    clock.advance_to(1.0)
    driver.submit(spec("a"))
    assert states(driver, "a") == [SlotState.QUEUED]
    clock.advance_to(60.0)
    (status,) = driver.status(["a"])
    assert (status.state, status.since_s) == (SlotState.READY, 50.0)
    assert driver.wake_at() == 150.0


def test_clouds_boot_and_slots_break():
    clock = SimClock()
    driver = cloud(clock, boot_s=30.0, boot_spread=0.2, slot_up=0.0, seed=4)
    driver.submit(spec("a"))
    assert states(driver, "a") == [SlotState.GRANTED]
    clock.advance_to(100.0)
    (status,) = driver.status(["a"])
    assert status.state == SlotState.FAILED
    assert 10 < status.since_s < 100


def test_the_availability_of_a_slot_depends_on_seed_and_id_only():
    def fates(names):
        driver = cloud(SimClock(), slot_acquire=0.5, seed=1)
        for name in names:
            driver.submit(spec(name, procs=1))
        return dict(zip(names, states(driver, *names), strict=True))

    forward = fates(list("abcdefgh"))
    assert fates(list("hgfedcba")) == forward
    assert set(forward.values()) == {SlotState.READY, SlotState.FAILED}


def test_late_news_is_dropped():
    ledger = SlotLedger()
    assert ledger.move("a", SlotState.READY, 1.0)
    assert not ledger.move("a", SlotState.QUEUED, 2.0)
    assert ledger.move("a", SlotState.FAILED, 3.0)
    assert not ledger.move("a", SlotState.EXPIRED, 4.0)
    assert ledger.state("a") == SlotState.FAILED


@pytest.mark.parametrize("polled", [[], [SlotState.QUEUED], [SlotState.QUEUED, SlotState.GRANTED]])
def test_an_open_slot_names_its_job_whatever_states_its_polls_have_seen(polled):
    ledger, told = SlotLedger(), []
    ledger.move("a", SlotState.QUEUED, 1.0, "job 12")
    for state in (SlotState.QUEUED, SlotState.GRANTED, SlotState.READY):
        ledger.move("a", state, 2.0)
        if state in (*polled, SlotState.READY):
            told += [status.reason for status in ledger.status(["a"], 3.0)]
    assert told == ["job 12"] * (len(polled) + 1)
    ledger.move("a", SlotState.EXPIRED, 4.0)
    assert ledger.status(["a"], 4.0)[0].reason == ""


def test_a_node_failure_fails_the_slot_that_runs_there():
    clock, cluster = SimClock(), BatchCluster(PROCS)
    driver = SimulatedBatch(cluster, clock, SiteBehaviour())
    cluster.break_down(Outage(at_s=50.0, procs=1, length_s=10.0, position=0.0))
    driver.submit(spec("a", PROCS, 100.0))
    clock.advance_to(50.0)
    [status] = driver.status(["a"])
    assert (status.state, status.since_s, status.reason) == (
        SlotState.FAILED,
        50.0,
        "a node failed",
    )


def test_the_spot_market_takes_slots_back_and_has_a_quota_of_its_own():
    clock = SimClock()
    behaviour = SiteBehaviour(spot_interruptions_per_hour=1000.0)
    driver = SimulatedCloud(CloudRegion(PROCS), clock, behaviour)
    driver.submit(spec("steady", PROCS, 7200.0))
    driver.submit(replace(spec("cheap", PROCS, 7200.0), queue="spot"))
    clock.advance_to(3600.0)
    steady, cheap = driver.status(["steady", "cheap"])
    assert steady.state == SlotState.READY
    assert (cheap.state, cheap.reason) == (SlotState.FAILED, "interrupted by the spot market")


def test_a_local_slot_ends_with_all_processes_of_its_pilot(tmp_path):
    """Also with those that take a moment to end and whose leader was killed."""
    driver = LocalDriver(PROCS, SimClock())
    pilot = (
        f"trap '' TERM; (trap 'sleep .5; touch {tmp_path}/cleaned; exit' TERM;"
        f" touch {tmp_path}/begun; while :; do sleep .05; done) & echo $$ >{tmp_path}/leader; wait"
    )
    driver.submit(replace(spec("a"), pilot=pilot))
    until(lambda: (tmp_path / "begun").exists() and (tmp_path / "leader").exists())
    os.kill(int((tmp_path / "leader").read_text()), signal.SIGKILL)
    driver.close()
    assert (tmp_path / "cleaned").exists()


def test_a_local_slot_leaves_no_folder_of_a_killed_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    driver = LocalDriver(PROCS, SimClock())
    driver.submit(replace(spec("a"), pilot="sleep 60"))
    child = os.fork()
    if child == 0:  # an agent that is killed before its guardian looks after it
        make_scratch(str(tmp_path), "nobody")
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    driver.close()
    assert not list(tmp_path.iterdir())


class ListedCloud:
    """A cloud whose list of instances is empty as often as it is told to be."""

    def __init__(self):
        self.bought, self.hidden = [], 0

    def buy(self, purchase):
        self.bought = [
            Instance(id=f"i-{n}", state="running", ok=True, tags=purchase.tags)
            for n in range(purchase.nodes)
        ]
        return [instance.id for instance in self.bought]

    def instances(self):
        self.hidden -= 1
        return [] if self.hidden >= 0 else self.bought

    def terminate(self, ids):
        self.bought = [instance for instance in self.bought if instance.id not in ids]


def test_instances_that_a_cloud_lists_again_are_not_lost():
    api = ListedCloud()
    prices = {"small": NodePrice(usd_per_hour=0.1)}
    driver = CloudDriver("s", api, SimClock(), SiteAccess(), prices)
    driver.submit(replace(spec("run.a", duration_s=3600.0), node_type="small"))
    for _ in range(3):
        api.hidden = 4
        for _ in range(4):
            assert states(driver, "run.a") != [SlotState.FAILED]
        assert states(driver, "run.a") == [SlotState.READY]
    api.hidden = 5
    assert [states(driver, "run.a") for _ in range(5)][-1] == [SlotState.FAILED]
