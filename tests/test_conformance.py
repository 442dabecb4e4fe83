"""Every driver against the suite that ships with the package, each at a site that is as real as can be had."""

import time
from pathlib import Path

import pytest

from drivers.api import Access, SlotSpec
from drivers.cloud import CloudDriver, Price
from drivers.conformance import CHECKS, REAL_CHECKS, Bench, tells_of_a_failing_pilot
from drivers.credentials import Credentials
from drivers.ec2 import open_ec2, open_eucalyptus
from drivers.local import LocalDriver
from drivers.simulated import SimulatedBatch, SimulatedCloud, SiteBehaviour
from kernel.clock import SimClock, WallClock
from simulator.cloud import CloudRegion
from simulator.cluster import BatchCluster
from tests.services.ec2_like import KEY, SECRET
from tests.services.run import cloud_service


def slot(**fields):
    return SlotSpec(
        **{"id": "x", "name": "x", "site": "s", "queue": "q", "procs": 1, "duration_s": 1.0}
        | fields
    )


def pytest_names(checks):
    return [pytest.param(check, id=check.__name__) for check in checks]


def reader(folder: Path):
    def read(name):
        found = list(folder.rglob(name))
        return found[0].read_text() if found else ""

    return read


def simulated(make):
    clock = SimClock()
    driver = make(clock)
    return Bench(
        open=lambda: driver,
        elapse=lambda s: clock.advance_to(clock.now() + s),
        slot=slot(),
        procs=8,
    )


@pytest.mark.parametrize("check", pytest_names(CHECKS))
def test_simulated_batch(check):
    check(
        simulated(lambda clock: SimulatedBatch(BatchCluster(8), clock, SiteBehaviour(boot_s=1.0)))
    )


@pytest.mark.parametrize("check", pytest_names(CHECKS))
def test_simulated_cloud(check):
    check(simulated(lambda clock: SimulatedCloud(CloudRegion(8), clock, SiteBehaviour(boot_s=1.0))))


@pytest.mark.parametrize("check", pytest_names((*CHECKS, tells_of_a_failing_pilot)))
def test_local(check, tmp_path):
    driver = LocalDriver(8, WallClock())
    bench = Bench(
        open=lambda: driver, elapse=time.sleep, slot=slot(), procs=8, read=reader(tmp_path), folder=str(tmp_path),
    )  # fmt: skip
    try:
        check(bench)
    finally:
        driver.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with cloud_service(tmp_path_factory.mktemp("cloud"), boot_s=0.4, capacity=30) as service:
        yield service


def cloud_bench(cloud, kind):
    path = "/services/Eucalyptus" if kind == "eucalyptus" else ""
    access = Access(
        endpoint=cloud.endpoint + path,
        image="ami-12c6146b",
        timeout_s=20.0,
    )
    make = {"ec2": open_ec2, "eucalyptus": open_eucalyptus}[kind]
    clock = WallClock()

    def fresh():
        api = make(kind, access, Credentials(KEY, SECRET))
        return CloudDriver(kind, api, clock, access, {"m1.small": Price(usd_per_hour=0.1)})

    return Bench(
        open=fresh, elapse=time.sleep, slot=slot(node_type="m1.small"), procs=30, read=reader(cloud.folder),
        folder=str(cloud.folder), many=40, lose_answer=lambda: cloud.control("lose=1"),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["ec2", "eucalyptus"])
@pytest.mark.parametrize(
    "check", pytest_names(c for c in REAL_CHECKS if c is not tells_of_a_failing_pilot)
)
def test_cloud(check, kind, cloud):
    check(cloud_bench(cloud, kind))
