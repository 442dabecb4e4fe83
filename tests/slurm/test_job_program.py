"""The program that runs a job on its node: after a lost node, and while the calendar is set."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.chaos.surroundings import Clock, faketime
from tests.services.fixtures import there
from tests.waiting import until
from vgrads.slurm import job_program

STEPPED = """#!/bin/bash
first=$(date +%s); touch begun
while now=$(date +%s); d=$((now - first)); [ ${d#-} -lt 1000 ]; do sleep .1; done
touch stepped
while [ ! -e go ]; do sleep .1; done
"""


def store(folder, script, limit_s=None, environment=None):
    """Store a job as its submission does."""
    files = {name: str(folder / name) for name in ("stdout", "stderr")}
    spec = {
        **{"id": 7, "indices": [], "folder": str(folder), "umask": 0o22, "arguments": []},
        **{"stdin": "/dev/null", **files, "append": False, "limit_s": limit_s},
        **{"requeue": True, "step_program": "", "signal": None},
        "environment": {"PATH": os.environ["PATH"], **(environment or {})},
    }
    (folder / "job.json").write_text(json.dumps(spec))
    (folder / "script").write_text(script)
    (folder / "script").chmod(0o700)


def begin(folder, environment=None):
    """Run the program of a stored job."""
    return subprocess.Popen(
        [sys.executable, "-IS", job_program.__file__, folder, "0", "0"],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
    )


AGAIN = """#!/bin/bash
echo "${SLURM_RESTART_COUNT:-0}"
[ "$SLURM_RESTART_COUNT" ] && exit 0
echo $$ >pid; touch begun; exec sleep 600
"""


def test_a_job_whose_node_was_lost_counts_that_and_keeps_its_output(tmp_path):
    store(tmp_path, AGAIN)
    first = begin(tmp_path)
    until((tmp_path / "begun").exists, "the job")
    for pid in (first.pid, int((tmp_path / "pid").read_text())):  # as a node that loses power
        os.kill(pid, signal.SIGKILL)
    first.communicate()
    outcome = json.loads(begin(tmp_path).communicate(timeout=60)[0])
    assert (outcome["state"], outcome["lost"]) == ("COMPLETED", 1)
    assert (tmp_path / "stdout").read_text() == "0\n1\n"


class SteppedJob:
    """A job that notices a step of the calendar, and its program."""

    def __init__(self, folder, limit_s):
        self.folder, self._calendar = folder, folder / "calendar"
        self.step("+0")
        clock = {
            "LD_PRELOAD": faketime(),
            "FAKETIME_TIMESTAMP_FILE": str(self._calendar),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        store(folder, STEPPED, limit_s, clock)
        self._process = begin(folder, clock)
        until((folder / "begun").exists, "the job")

    def step(self, to):
        draft = self._calendar.with_suffix(".draft")
        draft.write_text(f"{to}\n")
        draft.replace(self._calendar)

    def outcome(self):
        return json.loads(self._process.communicate(timeout=60)[0])


@pytest.mark.more
@pytest.mark.parametrize("to", ["+1h", "-1h"])
def test_a_step_of_the_calendar_ends_no_job_and_lengthens_no_limit(tmp_path, to):
    there(Clock.missing())
    (tmp_path / "long").mkdir()
    (tmp_path / "short").mkdir()
    long, short = SteppedJob(tmp_path / "long", 1800.0), SteppedJob(tmp_path / "short", 3.0)
    for job in (long, short):
        job.step(to)
        until((job.folder / "stepped").exists, "the step")
    ended = short.outcome()
    assert ended["state"] == "TIMEOUT"
    assert 3.0 <= ended["end_s"] - ended["start_s"] < 40.0
    (long.folder / "go").touch()
    ended = long.outcome()
    assert ended["state"] == "COMPLETED"
    assert 0.0 <= ended["end_s"] - ended["start_s"] < 100.0
