"""The end of a slot that a run releases: its pilot ends by itself, so that its job exits with 0; a
pilot that does not is cancelled."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.execmgr.test_execmgr import execution_for
from tests.planner.test_planner import chain, slot
from tests.waiting import until
from vgrads.drivers.api import SlotState
from vgrads.drivers.ledger import LedgerDriver
from vgrads.execmgr.pilots import SitePolling
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock

SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 1
cores_per_node = 8
driver = "slurm"
[site.access]
folder = "{folder}/slots"
poll = "0.5s"
contact = "127.0.0.1"
[[site.queue]]
name = "batch"
max_walltime = "1h"
max_jobs = 1
stated_probability = 0.95
stated_wait = "5s"
"""
SET = {
    "name": "kept",
    "deadline": "5m",
    "fraction": 1,
    "probability": 0.5,
    "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 2, "command": "sleep 1"}]}],
}


class Recorded(LedgerDriver):
    """A site whose slots are ready at once; it records what is cancelled."""

    def __init__(self, clock):
        super().__init__(clock)
        self.cancelled = []

    def submit(self, spec):
        self._ledger.move(spec.id, SlotState.READY, self._clock.now())

    def status(self, slots):
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, name):
        self.cancelled.append(name)
        self._ledger.move(name, SlotState.RELEASED, self._clock.now(), "released")

    def end(self, name, state=SlotState.RELEASED):
        self._ledger.move(name, state, self._clock.now(), "the pilot ended")


def ready_slot(dismiss):
    execution, clock = execution_for([chain("w", 100.0)], [slot("a")]), SimClock()
    driver, site = Recorded(clock), execution.uses["a"].slot.site
    sites = Sites("r", {site: driver}, clock, {site: SitePolling(dismiss=dismiss)})
    sites.open(execution, "a")
    (event,) = sites.news(execution)
    assert event.state == SlotState.READY
    return execution, clock, driver, sites


@pytest.mark.parametrize("state", [SlotState.RELEASED, SlotState.FAILED])
def test_a_pilot_that_ends_by_itself_is_not_cancelled(state):
    dismissed = []
    execution, clock, driver, sites = ready_slot(lambda name: dismissed.append(name) or True)
    sites.close(execution, "a")
    clock.advance_to(2.0)
    assert sites.news(execution) == []
    driver.end("r.a", state)
    (event,) = sites.news(execution)
    assert (event.state, event.reason) == (SlotState.RELEASED, "released")
    clock.advance_to(60.0)
    assert sites.news(execution) == []
    assert (dismissed, driver.cancelled) == (["a"], [])


def test_a_pilot_that_does_not_end_is_cancelled():
    execution, clock, driver, sites = ready_slot(lambda _: True)
    sites.close(execution, "a")
    clock.advance_to(9.0)
    assert sites.news(execution) == []
    assert driver.cancelled == []
    clock.advance_to(11.0)
    (event,) = sites.news(execution)
    assert event.state == SlotState.RELEASED
    assert driver.cancelled == ["r.a"]


def test_a_pilot_that_cannot_be_told_is_cancelled_at_once():
    execution, _, driver, sites = ready_slot(lambda _: False)
    sites.close(execution, "a")
    assert driver.cancelled == ["r.a"]


@pytest.mark.services
def test_the_job_of_a_kept_promise_is_completed_in_slurms_accounting(slurm_site, tmp_path):
    (tmp_path / "sites.toml").write_text(SITES.format(folder=tmp_path))
    (tmp_path / "set.json").write_text(json.dumps(SET))
    environment = os.environ | {"VGRADS_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "vgrads", "run", str(tmp_path / "set.json")),
            *("--sites", str(tmp_path / "sites.toml"), "--json"),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    accounted = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode"]

    def states():
        return subprocess.run(accounted, capture_output=True, text=True, check=True).stdout.split()

    # the accounting has a job's start and its end later than the job
    until(lambda: states() and not re.search("PENDING|RUNNING", "".join(states())), states)
    assert states() == ["COMPLETED|0:0"]
