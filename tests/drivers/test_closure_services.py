"""Announced closures of a real Slurm and a real Grid Engine: they are read, and both systems start
no job that would run into one, as the answers say."""

import re
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.drivers.test_services import batch_site, driver
from tests.waiting import until
from vgrads.drivers.api import SlotSpec
from vgrads.execmgr.closed_site import ClosedSite
from vgrads.kernel.clock import WallClock
from vgrads.kernel.units import format_instant
from vgrads.vgrid.catalog import Queue, Site
from vgrads.vgrid.closures import find_availability

pytestmark = pytest.mark.services
HOUR_S = 3600.0
CLOSE_S = 30.0  # Slurm's reservations begin in whole minutes, commands take their time


def ask(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def reservation(name, *options):
    ask("scontrol", "create", "reservation", f"ReservationName={name}", *options)
    try:
        yield
    finally:
        ask("scontrol", "delete", f"ReservationName={name}")


def cluster(reported, queue="batch", procs=32):
    queues = (
        Queue(
            name=queue,
            history=None,
            log_queue=None,
            max_procs=procs,
            max_walltime_s=9e4,
            max_jobs=9,
        ),
    )
    site = Site(name="s", kind="batch", procs=procs, queues=queues)
    return find_availability(site, queue, time.time(), {"s": reported})


def test_slurm_reports_maintenance_and_reservations(slurm_site, tmp_path):
    site = batch_site("slurm", tmp_path)
    assert site.closures(time.time()) == ()
    maintenance = ("StartTime=now+2hours", "Duration=60", "Users=root", "Flags=MAINT", "Nodes=ALL")
    course = ("StartTime=now+4hours", "Duration=60", "Users=root", "Nodes=n[1-2]")
    with reservation("m1", *maintenance), reservation("course", *course):
        now_s = time.time()
        closures = site.closures(now_s)
        for closure, begin_h, words, left, queues in zip(
            closures,
            (2, 4, 4),
            ("maintenance", "reservation course", "reservation course"),
            (0, 0, 16),
            (set(), {"debug"}, {"batch"}),
            strict=True,
        ):
            assert closure.begin_s == pytest.approx(now_s + begin_h * HOUR_S, abs=CLOSE_S)
            assert closure.end_s == pytest.approx(closure.begin_s + HOUR_S, abs=1)
            assert (closure.words, closure.left, set(closure.queues)) == (words, left, queues)
        own = batch_site("slurm", tmp_path, reservation="course").closures(now_s)
        assert [c.words for c in own] == ["maintenance"]


def test_slurm_starts_jobs_when_the_answer_says(slurm_site, tmp_path):
    """The site's own start estimate, of an empty cluster with two closures, is the answer."""
    site = batch_site("slurm", tmp_path)
    maintenance = ("StartTime=now+2hours", "Duration=60", "Users=root", "Flags=MAINT", "Nodes=ALL")
    course = ("StartTime=now+4hours", "Duration=60", "Users=root", "Nodes=n[1-2]")
    with reservation("m1", *maintenance), reservation("course", *course):
        availability = cluster(site.closures(time.time()))
        for procs, walltime_h, start_h in [
            (32, 1, 0),
            (1, 1, 0),
            (32, 1.5, 0),
            (1, 2.5, 3),
            (16, 5, 3),  # on the other nodes
        ]:
            slot = SlotSpec(
                id="x",
                name="x",
                site="slurm",
                queue="batch",
                procs=procs,
                nodes=-(-procs // 8),
                duration_s=walltime_h * HOUR_S,
            )
            start_s = float(availability.starts(procs, slot.duration_s, 0.0))
            assert start_s == pytest.approx(start_h * HOUR_S, abs=CLOSE_S)
            assert site.start_estimate_s(slot) == pytest.approx(start_s, abs=CLOSE_S)


def test_slurm_gets_begins_and_deadlines_of_windows_that_it_does_not_know(slurm_site, tmp_path):
    """A stated window: a job that would cross it begins after it, the other ends before it."""
    now_s = time.time()
    begin, end = round(now_s + 600), round(now_s + 4200)
    queues = (
        Queue(
            name="batch", history=None, log_queue=None, max_procs=32, max_walltime_s=9e4, max_jobs=9
        ),
    )
    site = Site(
        name="slurm",
        kind="batch",
        procs=32,
        queues=queues,
        closed=(f"{format_instant(begin)}/3600s",),
    )
    inner, _ = driver("slurm", tmp_path)
    closed = ClosedSite(inner, site, WallClock(), time.time())
    try:
        for name, duration_s in (("short", 240.0), ("long", 1200.0)):
            closed.submit(
                SlotSpec(
                    id=f"{name}-{now_s}",
                    name=name,
                    site="slurm",
                    queue="batch",
                    procs=1,
                    duration_s=duration_s,
                )
            )
        short, long = (
            ask("scontrol", "show", "job", inner._jobs[f"{name}-{now_s}"])
            for name in ("short", "long")
        )
        deadline, eligible = (
            float(ask("date", "-d", re.search(rf"{key}=(\S+)", text)[1], "+%s"))
            for key, text in (("Deadline", short), ("StartTime", long))
        )
        assert deadline == pytest.approx(begin, abs=CLOSE_S)
        assert eligible == pytest.approx(end, abs=CLOSE_S)
        assert "JobState=PENDING Reason=BeginTime" in long
        assert "JobState=PENDING" not in short or "BeginTime" not in short
    finally:
        closed.close()


def test_grid_engine_reports_calendars_and_keeps_to_them(gridengine_site, tmp_path):
    site = batch_site("gridengine", tmp_path)
    assert site.closures(time.time()) == ()
    now = ask("date", "+%s", "-d", "+30 minutes").strip()
    day, begin, end = (
        ask("date", "-d", f"@{int(now) + later}", form).strip()
        for later, form in ((0, "+%-d.%-m.%Y"), (0, "+%H:%M:%S"), (1800, "+%H:%M:%S"))
    )
    calendar = tmp_path / "calendar"
    calendar.write_text(f"calendar_name soon\nyear {day}={begin}-{end}=off\nweek NONE\n")
    ask("qconf", "-Acal", str(calendar))
    try:
        ask("qconf", "-mattr", "queue", "calendar", "soon", "batch.q")
        (closure,) = site.closures(time.time())
        assert closure.begin_s == pytest.approx(float(now), abs=2)
        assert (closure.words, closure.queues) == ("calendar soon", {"batch.q"})
        availability = cluster((closure,), "batch.q", 8)
        assert availability.starts(1, 20 * 60.0, 0.0) == 0
        assert availability.starts(1, 40 * 60.0, 0.0) > 0
        short, long = (
            ask(
                "qsub",
                "-terse",
                "-b",
                "y",
                "-o",
                "/dev/null",
                "-j",
                "y",
                "-l",
                f"h_rt={minutes * 60}",
                "/bin/sleep",
                "30",
            )
            for minutes in (20, 40)
        )
        until(lambda: re.search(rf"{short.strip()} .* r ", ask("qstat")), "the start of the short")
        until(lambda: "due to a reservation" in ask("qstat", "-j", long.strip()), "the reason")
        ask("qdel", short.strip(), long.strip())
        until(lambda: not ask("qstat").strip(), "their end")
    finally:
        ask("qconf", "-mattr", "queue", "calendar", "NONE", "batch.q")
        ask("qconf", "-dcal", "soon")
