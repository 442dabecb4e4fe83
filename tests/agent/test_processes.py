"""Marked processes are found although they start others and end while they are searched."""

import os
import subprocess
import sys

import pytest

from vgrads.agent.processes import MARK, kill_marked

MOVING = """
import os, time
end_s = time.monotonic() + 20.0
while time.monotonic() < end_s:
    time.sleep(0.004)
    if os.fork():
        os._exit(0)
"""
"""One process at a time: each starts the next and ends."""
ROUNDS = 12


@pytest.fixture
def moving(tmp_path):
    """The mark of such processes, and a pipe of which they alone have the writing end."""
    reading, writing = os.pipe()
    mark = f"moving.{os.getpid()}.{tmp_path.name}"
    command = [sys.executable, "-c", MOVING]
    first = subprocess.Popen(command, env={MARK: mark}, pass_fds=[writing])
    os.close(writing)
    first.wait(30)
    os.set_blocking(reading, False)
    yield mark, reading
    while not kill_marked(mark.__eq__):
        pass
    os.close(reading)


@pytest.mark.parametrize("_", range(ROUNDS))
def test_none_runs_after_all_were_killed(moving, _):
    mark, reading = moving
    while not kill_marked(mark.__eq__):
        pass
    assert os.read(reading, 1) == b""  # BlockingIOError while one of them runs
