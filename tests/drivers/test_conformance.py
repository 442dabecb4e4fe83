"""Every driver against the suite that ships with the package, each at a site that is as real as can
be had."""

import os
import time
from pathlib import Path

import pytest

from tests.services import dask, pbs_like
from tests.services.run import KEY, SECRET, cloud_service
from vgrads.drivers.api import SiteAccess, SlotSpec, SlotState, mark
from vgrads.drivers.batch import BatchDriver
from vgrads.drivers.batch_site import BatchSite
from vgrads.drivers.cloud import CloudDriver, NodePrice
from vgrads.drivers.conformance import (
    CHECKS,
    PILOT_CHECKS,
    REAL_CHECKS,
    Bench,
    finds_its_slots_again,
    is_ready,
)
from vgrads.drivers.credentials import Credentials, find_credentials
from vgrads.drivers.ec2 import open_ec2, open_eucalyptus
from vgrads.drivers.local import LocalDriver
from vgrads.drivers.pbs import Pbs
from vgrads.drivers.shell import Shell
from vgrads.drivers.simulated import SimulatedBatch, SimulatedCloud, SiteBehaviour
from vgrads.kernel.clock import SimClock, WallClock
from vgrads.kernel.errors import SiteError
from vgrads.simulator.cloud import CloudRegion
from vgrads.simulator.cluster import BatchCluster


def slot(**fields):
    return SlotSpec(
        **{"id": "x", "name": "x", "site": "s", "queue": "q", "procs": 1, "duration_s": 1.0}
        | fields
    )


def pytest_names(checks):
    return [pytest.param(check, id=check.__name__) for check in checks]


def reader(folder: Path):
    def read(name):
        paths = list(folder.rglob(name))
        return paths[0].read_text() if paths else ""

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


@pytest.mark.parametrize("check", pytest_names((*CHECKS, *PILOT_CHECKS)))
def test_local(check, tmp_path):
    driver = LocalDriver(8, WallClock())
    bench = Bench(
        open=lambda: driver,
        elapse=time.sleep,
        slot=slot(),
        procs=8,
        nodes=3,
        read=reader(tmp_path),
        folder=str(tmp_path),
    )
    try:
        check(bench)
    finally:
        driver.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with cloud_service(tmp_path_factory.mktemp("cloud"), boot_s=0.4, capacity=12) as service:
        yield service


def cloud_bench(cloud, kind):
    path = "/services/Eucalyptus" if kind == "eucalyptus" else ""
    access = SiteAccess(
        endpoint=cloud.endpoint + path,
        image="ami-12c6146b",
        timeout_s=20.0,
    )
    make = {"ec2": open_ec2, "eucalyptus": open_eucalyptus}[kind]
    clock = WallClock()

    def fresh():
        api = make(kind, access, Credentials(KEY, SECRET))
        return CloudDriver(kind, api, clock, access, {"m1.small": NodePrice(usd_per_hour=0.1)})

    return Bench(
        open=fresh,
        elapse=time.sleep,
        slot=slot(node_type="m1.small"),
        procs=12,
        nodes=3,
        read=reader(cloud.folder),
        folder=str(cloud.folder),
        many=15,
        lose_answer=lambda: cloud.control("lose=1"),
    )


@pytest.mark.parametrize("kind", ["ec2", "eucalyptus"])
@pytest.mark.parametrize("check", pytest_names(c for c in REAL_CHECKS if c not in PILOT_CHECKS))
def test_cloud(check, kind, cloud):
    check(cloud_bench(cloud, kind))


def pbs_site(folder):
    access = SiteAccess(folder=str(folder / "the marks"), timeout_s=20.0)
    return BatchSite("pbs", Pbs(), Shell("pbs", access), access)


@pytest.fixture(params=["openpbs", "torque"])
def pbs_bench(request, tmp_path, monkeypatch):
    pbs_like.install(tmp_path)
    monkeypatch.setenv("PBS_LIKE", str(tmp_path))
    monkeypatch.setenv("PBS_FLAVOUR", request.param)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    def fresh():
        return BatchDriver(pbs_site(tmp_path), WallClock())

    yield Bench(
        open=fresh,
        elapse=time.sleep,
        slot=slot(queue="batch"),
        procs=8,
        read=reader(tmp_path),
        folder=str(tmp_path),
        many=12,
        nodes=3,
    )
    (tmp_path / "slow").unlink(missing_ok=True)
    driver = fresh()
    driver.sweep([reserved.handle for reserved in driver.marked_jobs()])


@pytest.mark.more
@pytest.mark.parametrize("check", pytest_names(REAL_CHECKS))
def test_pbs(check, pbs_bench):
    check(pbs_bench)


def test_pbs_that_does_not_answer(pbs_bench, tmp_path):
    (tmp_path / "down").touch()
    with pytest.raises(SiteError) as silent:
        pbs_bench.open().survey()
    assert silent.value.transient
    (tmp_path / "down").unlink()
    survey = pbs_bench.open().survey()
    assert [(q.name, q.max_walltime_s) for q in survey.queues] == [
        ("batch", 86400.0),
        ("short", 1800.0),
    ]
    (tmp_path / "slow").write_text("5")
    hasty = SiteAccess(timeout_s=1.0)
    begin = time.monotonic()
    with pytest.raises(SiteError) as late:
        BatchSite("pbs", Pbs(), Shell("pbs", hasty), hasty).survey()
    assert (late.value.transient, time.monotonic() - begin < 4.0) == (True, True)


def test_a_slot_whose_submission_never_arrived_can_be_released(pbs_bench, tmp_path):
    driver = pbs_bench.open()
    first, spec = pbs_bench.spec(), pbs_bench.spec()
    driver.submit(first)
    (tmp_path / "down").touch()
    with pytest.raises(SiteError):
        driver.submit(spec)
    (tmp_path / "down").unlink()
    driver.cancel(spec.id)
    (status,) = driver.status([spec.id])
    assert status.state == SlotState.RELEASED, status
    assert [reserved.name for reserved in driver.marked_jobs()] == [mark(first.id)]


@pytest.mark.more
@pytest.mark.parametrize("again", ["looked at again", "closed"])
def test_a_job_that_runs_on_after_its_slot_ended_is_removed(pbs_bench, tmp_path, again):
    """As where a batch system has lost sight of a job's processes: its script has ended, its job
    has not."""
    driver, spec, other = pbs_bench.open(), pbs_bench.spec(), pbs_bench.spec()
    driver.submit(spec)
    driver.submit(other)
    pbs_bench.until(driver, [spec.id, other.id], is_ready)
    with (tmp_path / "the marks" / f"{mark(spec.id)}.state").open("a") as noted:
        noted.write("end 0 \n")
    assert driver.status([spec.id])[0].state == SlotState.RELEASED
    if again == "closed":
        driver.close()
        assert driver.marked_jobs() == []
    else:
        driver.status([other.id])
        assert [reserved.name for reserved in driver.marked_jobs()] == [mark(other.id)]


def test_pbs_tells_of_its_queue_and_refuses(pbs_bench, tmp_path):
    driver = pbs_bench.open()
    driver.submit(pbs_bench.spec(duration_s=1800.0, procs=8))
    driver.submit(pbs_bench.spec(duration_s=600.0, procs=2))
    jobs = pbs_site(tmp_path).listed_jobs()
    assert [(job.procs, job.requested_s, job.left_s is None) for job in jobs] == [
        (8, 1830.0, False),
        (2, 630.0, True),
    ]
    refused = pbs_bench.spec(queue="nowhere")
    driver.submit(refused)
    (status,) = driver.status([refused.id])
    assert (status.state, "Unknown queue" in status.reason) == (SlotState.FAILED, True)


def test_clouds_refuse_what_they_have_not_and_limits_hold(cloud):
    bench = cloud_bench(cloud, "ec2")
    cloud.control("capacity=0")
    driver = bench.open()
    wide = bench.spec(nodes=2)
    driver.submit(wide)
    (status,) = driver.status([wide.id])
    cloud.control("capacity=12")
    assert (status.state, "capacity" in status.reason) == (SlotState.FAILED, True), status

    frugal = SiteAccess(endpoint=cloud.endpoint, image="ami-12c6146b", spend_limit_usd=0.5)
    api = open_ec2("ec2", frugal, Credentials(KEY, SECRET))
    driver = CloudDriver("ec2", api, WallClock(), frugal, {"m1.small": NodePrice(usd_per_hour=0.2)})
    _, before = cloud.control("")
    specs = [
        bench.spec(duration_s=7200.0),
        bench.spec(duration_s=3600.0),
        bench.spec(duration_s=60.0, nodes=2),
    ]
    statuses = []
    for spec in specs:
        driver.submit(spec)
    statuses = driver.status([spec.id for spec in specs])
    assert [s.state == SlotState.FAILED for s in statuses] == [False, True, True]
    assert "$0.40 of $0.50" in statuses[1].reason
    assert cloud.control("")[1] == before + 1
    driver.close()


def test_an_instance_that_dies_fails_its_slot_and_its_replica_is_released(cloud):
    bench = cloud_bench(cloud, "ec2")
    driver = bench.open()
    spec = bench.spec(nodes=2)
    driver.submit(spec)
    bench.until(driver, [spec.id], is_ready)
    handles = [reserved.handle for reserved in driver.marked_jobs() if reserved.slot == spec.id]
    alive, _ = cloud.control(f"kill={handles[0]}")
    (status,) = driver.status([spec.id])
    assert (status.state, handles[0] in status.reason) == (SlotState.FAILED, True)
    assert cloud.control("")[0] == alive - 1


def test_a_cloud_that_denies_and_another_that_is_down(cloud, monkeypatch, tmp_path):
    access = SiteAccess(endpoint=cloud.endpoint, image="ami-12c6146b", timeout_s=5.0)
    with pytest.raises(SiteError) as denied:
        open_ec2("ec2", access, Credentials("wrong", "very-secret")).survey([])
    assert not denied.value.transient
    assert (
        "very-secret"
        not in f"{denied.value} {denied.value.__cause__!r} {Credentials('k', 'very-secret')}"
    )
    cloud.control("down=1")
    with pytest.raises(SiteError) as down:
        open_ec2("ec2", access, Credentials(KEY, SECRET)).instances()
    cloud.control("down=0")
    assert down.value.transient
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "EC2_ACCESS_KEY", "EC2_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with pytest.raises(SiteError, match="no credentials"):
        find_credentials("ec2")
    file.write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n[p]\n"
        "aws_access_key_id = c\naws_secret_access_key = d%\n"
    )
    assert find_credentials("ec2", "p") == Credentials("c", "d%")


def test_a_cloud_from_the_command_line(cloud, vgrads, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    sites = tmp_path / "sites.toml"
    text = (
        '[[site]]\nname = "cloud"\nkind = "cloud"\nprocs = 16\nnode_type = "{0}"\n'
        "price_usd_per_hour = 0.1\n"
        'driver = "ec2"\n[site.access]\nendpoint = "{1}"\nimage = "ami-12c6146b"\n'
        'price_currency = "USD"\n'
        "price_date = 2026-11-01\n"
    )
    sites.write_text(text.format("m3.large", cloud.endpoint))
    checked = vgrads("sites", "check", sites, "--json")
    assert checked.code == 0, checked
    bench = cloud_bench(cloud, "ec2")
    driver = bench.open()
    spec = bench.spec()
    driver.submit(spec)
    result = vgrads("sites", "sweep", sites, "--json").json["leftovers"]
    assert [(row["slot"], row["orphan"]) for row in result if row["slot"] == spec.id] == [
        (spec.id, True)
    ]
    assert vgrads("sites", "sweep", sites, "--yes", "--json").json["swept"] == len(result)
    assert cloud.control("")[0] == 0
    sites.write_text(text.format("no.such-type", cloud.endpoint))
    refused = vgrads("sites", "check", sites)
    assert (refused.code, "no.such-type" in refused.out) == (4, True)
    sites.write_text(text.format("m3.large", "http://127.0.0.1:9"))
    unreached = vgrads("sites", "check", sites, "--json")
    assert (unreached.code, unreached.json["sites"][0]["transient"]) == (4, True)


@pytest.fixture(scope="module")
def dask_cluster():
    """Somebody's Dask cluster: four workers, each a process of its own."""
    with dask.dask_cluster(4, threads=2) as cluster:
        yield cluster


@pytest.mark.more
@pytest.mark.parametrize("check", pytest_names((*CHECKS, *PILOT_CHECKS, finds_its_slots_again)))
def test_dask_cluster(check, dask_cluster, tmp_path):
    from vgrads.drivers.dask_cluster import DaskCluster  # noqa: PLC0415 it loads Dask

    opened = []

    def open_driver():
        opened.append(
            DaskCluster("dask", SiteAccess(endpoint=dask_cluster.scheduler_address), WallClock())
        )
        return opened[-1]

    bench = Bench(
        open=open_driver,
        elapse=time.sleep,
        slot=slot(),
        procs=4,
        nodes=3,
        read=reader(tmp_path),
        folder=str(tmp_path),
        many=6,
    )
    try:
        check(bench)
    finally:
        for driver in opened:
            driver.close()
