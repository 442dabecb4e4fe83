"""What vgrads 0.2 had queued at sites before its code had one import name: its pilots are asked for
anew, its agents work."""

from collections import Counter

import pytest

from tests.portal.stored_02 import (
    QUEUED,
    RUNNING,
    WAITING,
    call,
    home,
    jobs,
    printed,
    ran,
    start,
)
from tests.waiting import until
from vgrads.api.wiring import PILOT
from vgrads.drivers.api import mark
from vgrads.execmgr.core.states import SlotRequestedAgain
from vgrads.execmgr.slot_names import spec_id
from vgrads.portal.jobs.runs import take_over
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

pytestmark = pytest.mark.long  # what 0.2 left changes no more: before a release

__all__ = ["call", "home"]  # fixtures
TASKS = Counter(a=2, b=2, w=1, x=1)


def free_the_site(folder):
    """The job of somebody else that has all processors ends."""
    (other,) = (job for job in jobs(folder) if job["name"] == "other")
    (folder / "pbs" / f"{other['id'].partition('.')[0]}.code").write_text("0\n")


def named(folder, run, again):
    """The job of a run's only slot, as it was asked for so often anew."""
    name = mark(spec_id("queue-batch-1", run, again))
    return next((job for job in jobs(folder) if job["name"] == name), None)


def requested_again(folder, run):
    job = named(folder, run, 1)
    return job is not None and job["state"] != "F"


@pytest.mark.parametrize(
    ("run", "name", "word"),
    [(QUEUED, "queued", "was queued by"), (RUNNING, "running", "has a pilot of")],
)
def test_a_slot_with_a_pilot_of_before_is_requested_again(home, tmp_path, run, name, word):
    """Its own pilot could work no more; nothing that was committed is done again."""
    (tmp_path / "go").touch()
    old = named(tmp_path, run, 0)
    script = (tmp_path / "pbs" / f"{old['id'].partition('.')[0]}.sh").read_text()
    assert "-m execmgr.pilot" in script
    done = ran(tmp_path, name)
    resumed = start(tmp_path, name, "resume", run)
    until(lambda: requested_again(tmp_path, run), lambda: printed(tmp_path, name), 60)
    old = named(tmp_path, run, 0)
    assert old["state"] == "F"  # before the other one was asked for
    new = (tmp_path / "pbs" / f"{named(tmp_path, run, 1)['id'].partition('.')[0]}.sh").read_text()
    assert "VGRADS_HOST_KEY" in new and "-m execmgr.pilot" not in new
    free_the_site(tmp_path)
    assert resumed.wait(120) == 0, printed(tmp_path, name)
    words = f"slot queue-batch-1 {word} an earlier version of vgrads; it is requested again"
    assert printed(tmp_path, name).count(words) == 1
    assert ran(tmp_path, name) == TASKS
    assert done <= TASKS
    assert all(job["state"] == "F" for job in jobs(tmp_path) if job["name"] == old["name"])


def test_it_is_requested_again_once_however_often_the_run_is_resumed(home, tmp_path):
    first = start(tmp_path, "first", "resume", QUEUED)
    until(lambda: requested_again(tmp_path, QUEUED), lambda: printed(tmp_path, "first"), 60)
    first.kill()
    first.wait()
    with Store() as store:
        record = RunRecord(store.engine, QUEUED)
        assert record.setup().pilot == PILOT
        assert record.repeated_requests() == Counter({"queue-batch-1": 1})
    (tmp_path / "go").touch()
    free_the_site(tmp_path)
    again = start(tmp_path, "again", "resume", QUEUED)
    assert again.wait(120) == 0, printed(tmp_path, "again")
    assert "earlier version" not in printed(tmp_path, "again")
    assert ran(tmp_path, "queued") == TASKS
    assert named(tmp_path, QUEUED, 2) is None


def test_a_run_of_before_is_cancelled_with_what_it_has_queued(call, tmp_path):
    assert named(tmp_path, QUEUED, 0)["state"] == "Q"
    assert call("cancel", QUEUED).code == 0
    assert named(tmp_path, QUEUED, 0)["state"] == "F"
    assert named(tmp_path, QUEUED, 1) is None


def test_an_agent_that_was_queued_for_a_bag_works(call, tmp_path):
    """It stands in its job as it was, and says what it said."""
    (script,) = (
        path for path in (tmp_path / "pbs").glob("*.sh") if "VGRADS_HOST_KEY" in path.read_text()
    )
    before = script.stat().st_mtime_ns
    resumed = start(tmp_path, "bag", "bags", "resume", WAITING, "--sites", tmp_path / "pbs.toml")
    free_the_site(tmp_path)
    assert resumed.wait(120) == 0, printed(tmp_path, "bag")
    assert ran(tmp_path, "queued-bag") == Counter(map(str, range(6)))
    (job,) = (job for job in jobs(tmp_path) if job["id"].startswith(f"{script.stem}."))
    assert job["began"] is not None
    assert script.stat().st_mtime_ns == before


def test_what_the_run_came_to_is_read_back(home, tmp_path):
    """The journal with the new event folds to the same state."""
    first = start(tmp_path, "first", "resume", RUNNING)
    until(lambda: requested_again(tmp_path, RUNNING), lambda: printed(tmp_path, "first"), 60)
    first.kill()
    first.wait()
    with Store() as store:
        record = RunRecord(store.engine, RUNNING)
        taken = take_over(store, record)
        assert any(isinstance(event, SlotRequestedAgain) for event in record.events())
        state = taken.begun.state
        slot, progress = state.slots["queue-batch-1"], state.progress["queue-batch-1"]
        assert (slot.again, progress.used, slot.ready_s) == (1, 0, None)
        record.lease.leave()
