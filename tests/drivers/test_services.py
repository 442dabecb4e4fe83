"""Drivers at real Slurm and real Grid Engine: the conformance suite, a login node, accounting, a
dead controller."""

import json
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from dataclasses import replace

import pytest

from tests.qbets.test_state import simulated
from tests.services import slurm, ssh
from tests.services.fixtures import there
from tests.waiting import until
from vgrads.api.plans.planning import open_grid
from vgrads.drivers.api import SiteAccess, SlotSpec, SlotState
from vgrads.drivers.batch import BatchDriver
from vgrads.drivers.batch_site import BatchSite
from vgrads.drivers.conformance import REAL_CHECKS, Bench, is_ready, opens_and_releases
from vgrads.drivers.gridengine import GridEngine
from vgrads.drivers.pilot import write_exports, write_slot_script
from vgrads.drivers.shell import Shell
from vgrads.drivers.slurm import Slurm
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import SiteError
from vgrads.traces.swf import write_swf
from vgrads.vgrid.catalog import load_catalog

pytestmark = pytest.mark.services


def batch_site(kind, folder, **access):
    chosen = SiteAccess(folder=str(folder / "the marks"), **access)
    dialect = Slurm() if kind == "slurm" else GridEngine()
    return BatchSite(kind, dialect, Shell(kind, chosen), chosen)


def driver(kind, folder, **access):
    queue = "batch" if kind == "slurm" else "batch.q"
    return BatchDriver(batch_site(kind, folder, **access), WallClock()), queue


@pytest.fixture(autouse=True)
def swept(request, tmp_path):
    """No test leaves jobs to the next."""
    yield
    for kind in ("slurm", "gridengine"):
        if f"{kind}_site" in request.fixturenames:
            site = batch_site(kind, tmp_path)
            site.sweep([reserved.handle for reserved in site.marked_jobs()])


def bench(kind, folder, lose_answer=None, **access):
    def read(name):
        path = folder / name
        return path.read_text() if path.exists() else ""

    queue = driver(kind, folder)[1]
    slot = SlotSpec(id="x", name="x", site=kind, queue=queue, procs=1, duration_s=1.0)
    return Bench(
        open=lambda: driver(kind, folder, **access)[0],
        elapse=time.sleep,
        slot=slot,
        procs=8,
        nodes=4 if kind == "slurm" else 1,
        patience_s=60.0 if kind == "slurm" else 240.0,
        read=read,
        folder=str(folder),
        lose_answer=lose_answer,
    )


def fresh_id():
    """An id that no site remembers."""
    return f"run-{uuid.uuid4().hex[:8]}.a"


def names(checks):
    return [pytest.param(check, id=check.__name__) for check in checks]


@pytest.mark.parametrize("check", names(REAL_CHECKS))
def test_slurm(check, slurm_site, tmp_path):
    def freeze():
        """The controller takes the request, and answers only after the client has given up."""
        process = slurm_site.daemons["slurmctld"]
        process.send_signal(signal.SIGSTOP)
        threading.Timer(6.0, process.send_signal, [signal.SIGCONT]).start()

    check(bench("slurm", tmp_path, lose_answer=freeze, timeout_s=5.0))


@pytest.mark.parametrize("check", names(REAL_CHECKS))
def test_grid_engine(check, gridengine_site, tmp_path):
    check(bench("gridengine", tmp_path))


def test_four_pilots_on_four_nodes(slurm_site, tmp_path):
    """One slot over all of Slurm's nodes; each pilot has all that the job has on its node."""
    site, queue = driver("slurm", tmp_path)
    pilot = f'echo "$SLURMD_NODENAME $VGRADS_NODES" >{tmp_path}/told.$VGRADS_NODE'
    spec = SlotSpec(
        id=fresh_id(),
        name="a",
        site="slurm",
        queue=queue,
        procs=32,
        nodes=4,
        duration_s=120.0,
        pilot=pilot,
        every_node=True,
    )
    site.submit(spec)
    (status,) = bench("slurm", tmp_path).until(site, [spec.id], lambda state: state.ended)
    assert status.state == SlotState.RELEASED, status
    message = [(tmp_path / f"told.{node}").read_text() for node in range(4)]
    assert message == [f"n{node + 1} 4\n" for node in range(4)]


def test_grid_engine_reaches_the_other_hosts(gridengine_site, tmp_path):
    """``qrsh`` for real: the one host there is stands in the job's list of hosts under two names,
    small and capital letters."""
    pilot = f'echo "$VGRADS_NODES $GREETING" >"{tmp_path}"/told.$VGRADS_NODE'
    spec = SlotSpec(
        id=fresh_id(),
        name="a",
        site="gridengine",
        queue="batch.q",
        procs=4,
        nodes=2,
        duration_s=120.0,
        pilot=pilot,
        every_node=True,
        environment={"GREETING": "it's $me"},
    )
    script = write_slot_script(
        spec, str(tmp_path / "marks"), GridEngine().launch(spec, write_exports(spec))
    )
    two = (
        'awk \'{print; $1 = toupper($1); print}\' "$PE_HOSTFILE" >"$TMPDIR/hosts"; '
        'PE_HOSTFILE="$TMPDIR/hosts"'
    )
    job = tmp_path / "job.sh"
    job.write_text(f"{two}\nexport PE_HOSTFILE\n{script}")
    text = tmp_path / "said"
    run(
        "qsub",
        "-terse",
        "-sync",
        "y",
        "-S",
        "/bin/sh",
        "-o",
        str(text),
        "-j",
        "y",
        "-pe",
        "smp",
        "4",
        str(job),
    )
    message = [path.read_text() for path in sorted(tmp_path.glob("told.*"))]
    assert message == ["2 it's $me\n"] * 2, (text.read_text(), list((tmp_path / "marks").iterdir()))
    assert not list((tmp_path / "marks").glob("*.node"))


def test_slurm_over_ssh(slurm_site, tmp_path):
    there(ssh.missing())
    with ssh.ssh_service(tmp_path, slurm_site.environment) as (host, options):
        there_bench = bench("slurm", tmp_path, host=host, ssh_options=options)
        begin = time.monotonic()
        opens_and_releases(there_bench)
        assert there_bench.open().survey().version.startswith("slurm")
        assert time.monotonic() - begin < 60
        unknown, _ = driver("slurm", tmp_path, host="nobody@127.0.0.1", ssh_options=options)
        with pytest.raises(SiteError) as refused:
            unknown.survey()
        assert not refused.value.transient


def test_a_controller_that_dies_and_comes_back(slurm_site, tmp_path):
    site, queue = driver("slurm", tmp_path, timeout_s=5.0)
    spec = SlotSpec(id="run-d.a", name="a", site="slurm", queue=queue, procs=1, duration_s=600.0)
    site.submit(spec)
    bench("slurm", tmp_path).until(site, [spec.id], is_ready)
    slurm.kill_controller(slurm_site)
    other = SlotSpec(id="run-d.b", name="b", site="slurm", queue=queue, procs=1, duration_s=600.0)
    for ask in (lambda: site.status([spec.id]), lambda: site.submit(other)):
        with pytest.raises(SiteError) as silent:
            ask()
        assert silent.value.transient
    slurm.start_controller(slurm_site)
    answers(site)
    assert site.status([spec.id])[0].state == SlotState.READY
    site.submit(other)
    bench("slurm", tmp_path).until(site, [other.id], is_ready)
    assert sorted(h.slot for h in site.marked_jobs()) == ["run-d.a", "run-d.b"]
    site.close()


def answers(site, seconds=30.0):
    end = time.monotonic() + seconds
    while True:
        try:
            return site.marked_jobs()
        except SiteError:
            assert time.monotonic() < end
            time.sleep(0.2)


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        ("slurm", {"queue": "nowhere"}, "partition"),
        ("slurm", {"procs": 4000}, "processors"),
        ("slurm", {"duration_s": 1e8}, "time limit"),
        ("gridengine", {"queue": "nowhere"}, "unknown queue"),
        ("gridengine", {"procs": 4000}, "no suitable queues"),
    ],
)
def test_sites_refuse_in_their_own_words(kind, changes, text, request, tmp_path):
    request.getfixturevalue(f"{kind}_site")
    site, queue = driver(kind, tmp_path)
    fields = {
        "id": fresh_id(),
        "name": "a",
        "site": kind,
        "queue": queue,
        "procs": 1,
        "duration_s": 60.0,
    }
    spec = SlotSpec(**fields | changes)
    site.submit(spec)
    (status,) = site.status([spec.id])
    assert (status.state, text in status.reason.lower()) == (SlotState.FAILED, True), status


@pytest.mark.parametrize("kind", ["slurm", "gridengine"])
def test_begin_times_hold_slots_back(kind, request, tmp_path):
    request.getfixturevalue(f"{kind}_site")
    site, queue = driver(kind, tmp_path)
    spec = SlotSpec(
        id=fresh_id(), name="a", site=kind, queue=queue, procs=2, duration_s=60.0, begin_s=4.0
    )
    site.submit(spec)
    (status,) = bench(kind, tmp_path).until(site, [spec.id], is_ready)
    assert 3.0 <= status.since_s <= 200.0  # a busy Grid Engine looks for due jobs once a minute
    site.close()


def test_an_impossible_deadline_is_a_failed_slot(slurm_site, tmp_path):
    site, queue = driver("slurm", tmp_path)
    spec = SlotSpec(
        id=fresh_id(),
        name="a",
        site="slurm",
        queue=queue,
        procs=1,
        duration_s=3600.0,
        end_by_s=600.0,
    )
    site.submit(spec)
    (status,) = bench("slurm", tmp_path).until(site, [spec.id], lambda state: state.ended)
    assert (status.state, "deadline" in status.reason) == (SlotState.FAILED, True), status


@pytest.mark.parametrize("kind", ["slurm", "gridengine"])
def test_what_waits_and_what_runs(kind, request, tmp_path):
    request.getfixturevalue(f"{kind}_site")
    site, queue = driver(kind, tmp_path)
    batch = batch_site(kind, tmp_path)
    procs = 32 if kind == "slurm" else 8
    nodes = 4 if kind == "slurm" else 1
    specs = [
        SlotSpec(
            id=fresh_id(),
            name="a",
            site=kind,
            queue=queue,
            procs=procs,
            nodes=nodes,
            duration_s=1800.0,
        )
        for _ in (1, 2)
    ]
    for spec in specs:
        site.submit(spec)
    bench(kind, tmp_path).until(site, [specs[0].id], is_ready)
    jobs = [job for job in batch.listed_jobs() if job.procs == procs]
    assert sorted(job.left_s is None for job in jobs) == [False, True], jobs
    for job in jobs:
        assert 1800.0 <= job.requested_s <= 1860.0
        assert (job.waited_s or 0.0) < 60.0
        assert 1700.0 < (job.left_s or 1800.0) <= 1860.0
    if kind == "slurm":
        forecast = batch.start_estimate_s(specs[0])
        assert forecast is not None
        # Slurm plans ahead in whole minutes (bf_resolution), from the minute after the present.
        assert 1500.0 < forecast <= 2 * 1860.0 + 60.0
    site.close()


def sbatch(*options):
    """Submit a job that runs for a minute, and return its number."""
    command = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=sleep 60"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_tasks_of_an_array_wait_in_slurm_and_ineligible_jobs_do_not(slurm_site, tmp_path):
    """One task at a time of an array; a job that depends on it, a job on hold, one for later."""
    batch = batch_site("slurm", tmp_path)
    array = sbatch("--array=1-200%1", "--time=10")
    others = [
        sbatch(f"--dependency=afterok:{array}", "--time=30", "--cpus-per-task=2"),
        sbatch("--hold", "--time=50"),
        sbatch("--begin=now+5hours", "--time=50"),
    ]
    try:
        until(
            lambda: sum(job.left_s is None and job.eligible for job in batch.listed_jobs()) == 199
        )
        waiting = [job for job in batch.listed_jobs() if job.left_s is None and job.eligible]
        assert sum(job.procs for job in waiting) == 199
        assert {job.requested_s for job in waiting} == {600.0}
        assert sum(not job.eligible for job in batch.listed_jobs()) == 3
    finally:
        subprocess.run(["scancel", array, *others], check=True)


def test_histories_are_collected_and_answer_questions(slurm_site, vgrads, tmp_path):
    """Jobs run, are collected twice without duplicates, and bounds come from them."""
    sites = tmp_path / "sites.toml"
    sites.write_text(
        '[[site]]\nname = "toy"\nkind = "batch"\nprocs = 32\ncores_per_node = 8\ndriver = "slurm"\n'
        '[site.access]\ntimeout = "10s"\n[[site.queue]]\nname = "batch"\nmax_walltime = "24h"\n'
        '[[site.queue]]\nname = "debug"\nmax_procs = 8\nmax_walltime = "30m"\n'
    )
    assert vgrads("sites", "add", sites).code == 0
    submit_many(70, "batch")
    first = vgrads("sites", "collect", "toy", "--since", "1h", "--json").json
    assert first["added"] >= 70
    again = vgrads("sites", "collect", "toy", "--json").json
    assert (again["added"], again["queues"]) == (0, first["queues"])
    submit_many(5, "debug")
    more = vgrads("sites", "collect", "toy", "--json").json
    assert more["added"] == 5
    bound = vgrads(
        "bound", "toy/batch", "--procs", "1", "--walltime", "1m", "--no-arrays", "--json"
    ).json
    assert bound["bound_s"] is not None, bound
    assert 0 <= bound["bound_s"] < 600
    listed = vgrads("sites", "list", "--json").json["sites"][0]["queues"]
    assert [q["history"]["jobs"] for q in listed] == [more["queues"][0]["jobs"], 5]


def test_a_live_queue_moves_the_bound(slurm_site, vgrads, tmp_path):
    """A history of 1,500 jobs, and the queue as Slurm tells it at this moment."""
    log = simulated(1500)
    past = replace(log, unix_start_s=round(time.time() - 2 * log.end_s))
    (tmp_path / "past.swf").write_text(write_swf(past))
    sites = tmp_path / "sites.toml"
    sites.write_text(
        '[[site]]\nname = "toy"\nkind = "batch"\nprocs = 32\ncores_per_node = 8\ndriver = "slurm"\n'
        '[site.access]\ntimeout = "10s"\n[[site.queue]]\nname = "batch"\nhistory = "past.swf"\n'
    )
    assert vgrads("sites", "add", sites).code == 0
    slurm.wait_until_empty()
    question = (
        "bound",
        "toy/batch",
        "--procs",
        8,
        "--walltime",
        "1h",
        "--explain",
        "--json",
    )
    quiet = vgrads(*question).json
    jobs = [
        run(
            "sbatch",
            "--parsable",
            "-o",
            "/dev/null",
            "-p",
            "batch",
            "-n",
            "32",
            "-t",
            "60",
            "--wrap",
            "sleep 300",
        ).strip()
        for _ in range(6)
    ]
    try:
        shutil.rmtree(tmp_path / "home" / "queues")  # as if a minute had passed
        busy = vgrads(*question).json
        planned = open_grid(load_catalog(sites)).forecasts["toy", "batch"]
    finally:
        run("scancel", *jobs)
    assert len(planned.state.waiting) in (5, 6)
    assert float(planned.bounds(8, 3600.0, 0.95)) == pytest.approx(busy["bound_s"], rel=0.3)
    assert (quiet["method"], busy["method"]) == ("state", "state")
    assert busy["bound_s"] > 2 * quiet["bound_s"]
    payload = {side["side"]: side["reason"] for side in busy["explanation"]["moved"]}
    named = (
        r"waiting jobs( as \w+)?(: [56]| request \d+% of the machine| would fill the machine.*),"
    )
    assert re.match(f"{named} usually", payload["waiting jobs"])


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def submit_many(count, queue):
    """Run short jobs and wait until the accounting database has the end of each."""

    def listed():
        states = run(
            "sacct",
            "-n",
            "-X",
            "-r",
            queue,
            "-s",
            "CD",
            "-S",
            "now-1hour",
            "-E",
            "now",
            "-o",
            "State",
        )
        return states.count("COMPLETED")

    before = listed()
    for _ in range(count):
        run("sbatch", "--parsable", "-o", "/dev/null", "-t", "1", "-p", queue, "--wrap", "true")
    until(lambda: listed() >= before + count, "the accounting", 90.0)


def test_sites_are_reached_looked_into_and_swept(slurm_site, gridengine_site, vgrads, tmp_path):
    sites = tmp_path / "sites.toml"
    text = (
        '[[site]]\nname = "{0}"\nkind = "batch"\nprocs = 8\ncores_per_node = 8\ndriver = '
        '"{0}"\n[[site.queue]]\nname = "{1}"\n'
    )
    sites.write_text(text.format("slurm", "batch") + text.format("gridengine", "batch.q"))
    checked = vgrads("sites", "check", sites, "--json")
    assert checked.code == 0, checked
    assert [row["usable"] for row in checked.json["sites"]] == [True, True]
    assert "slurm" in vgrads("sites", "check", sites).out
    site, queue = driver("slurm", tmp_path)
    slurm.wait_until_empty()
    site.submit(
        SlotSpec(id="run-lost.a", name="a", site="slurm", queue=queue, procs=1, duration_s=600.0)
    )
    looked = vgrads("sites", "queue", "slurm", "--sites", sites, "--procs", "1", "--json").json
    assert (
        len(looked["running"]) + len(looked["waiting"]),
        looked["forecast_start_in_s"] < 600,
    ) == (1, True)
    assert "batch" in vgrads("sites", "queue", "slurm", "--sites", sites).out
    result = vgrads("sites", "sweep", sites, "--json").json
    assert [(row["slot"], row["orphan"]) for row in result["leftovers"]] == [("run-lost.a", True)]
    assert vgrads("sites", "sweep", sites, "--yes", "--json").json["swept"] == 1
    assert json.loads(vgrads("sites", "sweep", sites, "--json").out)["leftovers"] == []
    bad = tmp_path / "bad.toml"
    bad.write_text(text.format("slurm", "no-such-queue"))
    refused = vgrads("sites", "check", bad)
    assert (refused.code, "no-such-queue" in refused.out) == (4, True)
