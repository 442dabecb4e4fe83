"""Marked processes are found although they start others and end while they are searched; new
sessions have the priority of what started them."""

import os
import subprocess
import sys
from pathlib import Path

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


SESSIONS = """
import os, sys
from pathlib import Path
from vgrads.agent.launcher import Launcher
from vgrads.drivers.api import SlotSpec
from vgrads.drivers.local import LocalDriver
from vgrads.kernel.clock import SimClock
os.nice(int(sys.argv[1]))
streams = [os.open(os.devnull, os.O_RDWR)] * 3
for native in (True, False):
    pid = Launcher(native).begin("sleep 60", {}, streams, "")
    print(Path(f"/proc/{pid}/autogroup").read_text().strip())
    os.killpg(pid, 9)
os.mkfifo("go")
os.mkfifo("read")
pilot = "cat go; cat /proc/self/autogroup > read"
driver = LocalDriver(1, SimClock())
driver.submit(SlotSpec(id="a", name="a", site="s", queue="q", procs=1, duration_s=9.0, pilot=pilot))
Path("go").write_text("")
print(Path("read").read_text().strip())
driver.close()
"""


@pytest.mark.parametrize("nice", [0, 7])
@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="this kernel does not group by session"
)
def test_the_sessions_of_tasks_and_pilots_have_the_priority_of_what_started_them(nice, tmp_path):
    command = [sys.executable, "-c", SESSIONS, str(nice)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    text = subprocess.check_output(command, text=True, timeout=60, cwd=tmp_path, env=environment)
    groups, _, values = zip(*map(str.split, text.splitlines()), strict=True)
    assert len(set(groups)) == 3, text
    assert set(values) == {str(nice)} if os.geteuid() == 0 else str(nice) in values
