"""The queue of a site is listed rarely, whoever asks, and stored for all who ask."""

import json
import os
import pwd
import threading
import time
from dataclasses import replace

import pytest

from tests.portal.forecasts.listed_site import listed_site
from vgrads.api.queues.site_snapshots import (
    FACTS_S,
    FRESH_S,
    derive_snapshot_file,
    may_list,
    read_snapshot,
    refresh_snapshot,
)
from vgrads.drivers.slurm import Slurm
from vgrads.vgrid.catalog import load_catalog


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    folder = tmp_path / 'my "project" ü'
    folder.mkdir()
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    site = listed_site(folder, monkeypatch, jobs=20)
    return site, load_catalog(site.sites).site("cluster")


def set_back(site, seconds):
    """Make a snapshot, and the attempt that it came from, older."""
    path = derive_snapshot_file(site)
    document = json.loads(path.read_text())
    for name in ("taken_unix_s", "tried_unix_s", "facts_unix_s"):
        document[name] -= seconds
    path.write_text(json.dumps(document))
    then = time.time() - seconds
    os.utime(path.with_suffix(".lock"), (then, then))


def test_many_who_ask_at_once_ask_the_site_once(cluster):
    commands, site = cluster
    answers = []
    askers = [
        threading.Thread(target=lambda: answers.append(refresh_snapshot(site))) for _ in range(8)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert (commands.calls("squeue"), commands.calls("sinfo")) == (1, 2)
    assert {len(answer.jobs) for answer in answers} == {44}
    assert len({answer.taken_unix_s for answer in answers}) == 1


def test_the_queue_is_listed_each_minute_and_the_limits_each_ten(cluster):
    commands, site = cluster
    assert refresh_snapshot(site).limits_of("batch").max_procs == 64
    for minute in range(1, 11):
        set_back(site, FRESH_S)
        commands.put_queue(waiting=minute)
        snapshot = refresh_snapshot(site)
        assert sum(job.left_s is None for job in snapshot.jobs) == minute
        assert refresh_snapshot(site) == snapshot
        assert commands.calls("squeue") == 1 + minute
        assert commands.calls("sinfo") == 2 * (1 + (minute >= FACTS_S / FRESH_S))


def test_what_is_stored_is_what_was_listed_without_names(cluster):
    commands, site = cluster
    commands.put_queue(waiting=2, running=1, user="ann-of-physics")
    assert refresh_snapshot(site) == read_snapshot(site)
    text = derive_snapshot_file(site).read_text()
    assert "ann" not in text
    assert derive_snapshot_file(site).stat().st_mode & 0o077 == 0
    mine = {job.user for job in read_snapshot(site).jobs}
    assert len(mine) == 1


def test_a_site_that_fails_is_asked_less_and_less_and_its_snapshot_remains(cluster):
    commands, site = cluster
    first = refresh_snapshot(site)
    (commands.folder / "failing").touch()
    pauses = []
    for _ in range(6):
        before = read_snapshot(site)
        set_back(site, before.pause_s)
        failed = refresh_snapshot(site)
        assert "Unable to contact" in failed.problem
        assert failed.jobs == first.jobs
        assert failed.taken_unix_s == pytest.approx(
            first.taken_unix_s - sum(pauses) - FRESH_S, abs=1e-3
        )
        pauses.append(failed.pause_s)
    assert pauses == [120, 240, 480, 960, 960, 960]
    (commands.folder / "failing").unlink()
    set_back(site, 960.0)
    again = refresh_snapshot(site)
    assert (again.problem, again.pause_s) == ("", FRESH_S)


def test_own_jobs_alone_are_not_a_queue(cluster):
    """An operator sees all in spite of the setting."""
    commands, site = cluster
    (commands.folder / "config").write_text("PrivateData             = jobs,usage\n")
    commands.put_queue(waiting=2, running=1, user=pwd.getpwuid(os.getuid()).pw_name)
    own = refresh_snapshot(site)
    assert (own.is_hidden, own.jobs) == (True, ())
    set_back(site, FRESH_S)
    assert refresh_snapshot(site).is_hidden  # also where the setting is not read again
    set_back(site, FRESH_S)
    commands.put_queue(waiting=2, running=1, user="ann")
    everybody = refresh_snapshot(site)
    assert (everybody.is_hidden, len(everybody.jobs)) == (False, 3)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 99}', b"\xff"])
def test_a_damaged_snapshot_is_listed_anew(cluster, body):
    _commands, site = cluster
    refresh_snapshot(site)
    set_back(site, FRESH_S)
    derive_snapshot_file(site).write_bytes(body)
    assert read_snapshot(site) is None
    assert len(refresh_snapshot(site).jobs) == 44


def test_a_home_that_cannot_be_written_keeps_to_the_limits(cluster, monkeypatch):
    """A full disk is like a folder that is a file: nothing can be stored, answers go on."""
    commands, site = cluster
    (commands.folder / "full").write_text("")
    monkeypatch.setenv("VGRADS_HOME", str(commands.folder / "full"))
    assert len(refresh_snapshot(site).jobs) == 44
    refresh_snapshot(site)
    assert commands.calls() == 1


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_was_set_delays_a_listing_by_a_minute_at_most(cluster, step_s):
    _, site = cluster
    snapshot = refresh_snapshot(site)
    set_back(site, step_s)
    moved = replace(snapshot, tried_unix_s=snapshot.tried_unix_s - step_s)
    assert may_list(site, moved)
    assert len(refresh_snapshot(site).jobs) == 44
    assert read_snapshot(site).age_s(time.time()) < 60.0


def test_sites_of_the_same_name_are_not_mixed_up(cluster):
    _, site = cluster
    other = replace(site, access=replace(site.access, host="login.example.org"))
    assert derive_snapshot_file(other) != derive_snapshot_file(site)
    strange = replace(site, name="../ü/x y")
    assert derive_snapshot_file(strange).parent == derive_snapshot_file(site).parent


@pytest.mark.parametrize(
    "printed",
    [
        "<html>this node is in maintenance</html>\n",
        "batch|ann|PENDING\n" * 5,
        "JOBID PARTITION NAME USER ST TIME NODES\n12 batch a ann R 1:00 1\n",
    ],
)
def test_an_answer_of_another_form_is_no_empty_queue(cluster, printed):
    commands, site = cluster
    first = refresh_snapshot(site)
    set_back(site, FRESH_S)
    (commands.folder / "queue").write_text(printed)
    wrong = refresh_snapshot(site)
    assert "its answer cannot be read" in wrong.problem
    assert wrong.jobs == first.jobs


def test_what_a_login_prints_before_the_queue_is_no_part_of_it(cluster):
    commands, _ = cluster
    commands.put_queue(waiting=2)
    text = (commands.folder / "queue").read_text()
    jobs = Slurm().listed_jobs(f"Welcome to cluster!\n1700000000\n{text}")
    assert len(jobs) == 6
    assert Slurm().listed_jobs("1700000000\n") == []
