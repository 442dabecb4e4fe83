"""Starts of tasks that take long, because the machine is busy: made by threads, while the agent's
loop continues."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.agent.reference_manager import PATIENCE_S
from tests.waiting import until
from vgrads.agent.bags import BagRegistry, Visible
from vgrads.agent.processes import runs
from vgrads.agent.spawner import ParallelStarts, Spawner
from vgrads.agent.tasks import AgentTask, TaskQueue


class StoppedSpawner(Spawner):
    """A spawner whose starts wait until they are let go: before the child is started, or after it
    has ended."""

    def __init__(self, after=False):
        super().__init__()
        self.proceed, self.entered, self._after = threading.Event(), threading.Event(), after

    def spawn(self, *arguments, **options):
        self.entered.set()
        assert self._after or self.proceed.wait(PATIENCE_S)
        return super().spawn(*arguments, **options)

    def watch(self, pid, token):
        if self._after:
            until(lambda: not runs(pid), "the end of the child")
        super().watch(pid, token)


def by_threads(queue):
    """Make a queue's starts as on a busy machine."""
    starts = queue.starts.parallel
    starts._by_threads, starts._mean_s = True, 1.0


@pytest.fixture
def queue_of(tmp_path, monkeypatch):
    """A queue of two processors, and a function that gives it tasks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    queues = []

    def make(spawner, *commands):
        mark = f"test.{os.getpid()}.{tmp_path.name}"
        inputs = str(tmp_path / "cache")
        queue = TaskQueue(2, str(tmp_path / "here"), inputs, mark, spawner, lambda: None)
        queues.append((queue, spawner))
        by_threads(queue)
        visible = Visible(dict(os.environ), True, (), {})
        bags = BagRegistry(visible, str(tmp_path / "here"), str(tmp_path))
        for n, command in enumerate(commands):
            values = [0, n, 1, command]
            queue.waiting.append(AgentTask(values, bags.of(values), time.monotonic()))
        return queue

    yield make
    for queue, spawner in queues:
        queue.kill_all(PATIENCE_S)
        spawner.close()


def ends(queue, count):
    """Reap tasks, and start the waiting ones, until this many have ended."""
    outcomes = []

    def enough():
        now_s = time.monotonic()
        outcomes.extend(queue.ends_of(queue.reap(now_s), now_s))
        outcomes.extend(queue.begin(now_s))
        return len(outcomes) >= count

    until(enough, f"{count} ended tasks")
    return {end.task.key[1]: end for end in outcomes}


@pytest.mark.parametrize("descriptors", [True, False], ids=["descriptors", "looking"])
def test_tasks_started_by_threads_end_as_others_do(queue_of, descriptors):
    queue = queue_of(
        Spawner(descriptors), "echo one", "exit 3", "no-such-program-here", "echo four >&2"
    )
    outcomes = ends(queue, 4)
    assert [outcomes[n].code for n in range(4)] == [0, 3, 127, 0]
    assert (outcomes[0].out, outcomes[3].err) == ("one\n", "four\n")
    assert queue.free == 2 and not queue.running


def test_a_task_that_ends_before_its_start_is_recorded(queue_of):
    queue = queue_of(StoppedSpawner(after=True), "echo quick", "exit 5")
    outcomes = ends(queue, 2)
    assert (outcomes[0].code, outcomes[0].out, outcomes[1].code) == (0, "quick\n", 5)


@pytest.mark.parametrize(("hard", "number"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_a_task_cancelled_while_it_is_being_started_is_ended(queue_of, hard, number):
    spawner = StoppedSpawner()
    queue = queue_of(spawner, "exec sleep 600")
    assert queue.begin(time.monotonic()) == [] and spawner.entered.wait(PATIENCE_S)
    queue.end((0, 0, 1), "cancel", hard)
    spawner.proceed.set()
    (outcome,) = ends(queue, 1).values()
    assert outcome.task.signal == number and outcome.code == -signal.SIGTERM


def test_all_tasks_are_killed_also_those_that_are_being_started(queue_of):
    spawner = StoppedSpawner()
    queue = queue_of(spawner, "exec sleep 600", "exec sleep 600")
    queue.begin(time.monotonic())
    tasks = list(queue.running.values())
    assert spawner.entered.wait(PATIENCE_S)
    threading.Thread(target=spawner.proceed.set).start()
    queue.kill_all(PATIENCE_S)
    assert not queue.running and not any(runs(task.pid) for task in tasks if task.pid)


def test_a_task_that_cannot_be_started_is_reported_by_the_loop(queue_of):
    spawner = Spawner()
    queue = queue_of(spawner, "echo \0", "echo two")
    outcomes = ends(queue, 2)
    assert outcomes[0].code is None and "null byte" in outcomes[0].err
    assert outcomes[1].out == "two\n" and queue.free == 2


LOOK_WHILE_A_TASK_IS_BEING_STARTED = """
import json, os, sys, time
from tests.agent.test_parallel_starts import StoppedSpawner, by_threads, ends
from vgrads.agent.bags import BagRegistry, Visible
from vgrads.agent.tasks import AgentTask, TaskQueue

assert os.getsid(0) == 0
folder, spawner = sys.argv[1], StoppedSpawner()
queue = TaskQueue(2, folder, folder, f"test.{os.getpid()}", spawner, lambda: None)
by_threads(queue)
bags = BagRegistry(Visible(dict(os.environ), True, (), {}), folder, folder)
values = [0, 0, 1, "echo began", {}, [], {"memory_mib": 4.0}]
queue.waiting.append(AgentTask(values, bags.of(values), time.monotonic()))
queue.begin(time.monotonic())
assert spawner.entered.wait(60.0)
queue.look(time.monotonic())
spawner.proceed.set()
outcome = ends(queue, 1)[0]
print(json.dumps([outcome.code, outcome.out, outcome.err]))
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare (util-linux)")
def test_a_task_that_is_being_started_uses_no_memory_of_others(tmp_path):
    """Where the agent has session 0, as whatever is begun in a container from outside."""
    namespace = ["unshare", "--map-root-user", "--mount-proc", "--pid", "--fork"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody make process numbers of his own")
    done = subprocess.run(
        [*namespace, sys.executable, "-c", LOOK_WHILE_A_TASK_IS_BEING_STARTED, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, "began\n", ""]


def test_a_start_that_waits_holds_up_no_other_start():
    """Two starts that each wait for the other one, as two children on a busy machine."""
    both, ended = threading.Barrier(2), []

    def start(token):
        if token:
            both.wait(PATIENCE_S)
        ended.append(token)

    starts = ParallelStarts(2, start, lambda token, error: ended.append(error))
    starts._by_threads, starts._mean_s = True, 1.0
    starts.add("a")
    starts.add("b")
    until(lambda: len(ended) == 2, "both starts")
    assert sorted(ended) == ["a", "b"]


def test_one_processor_needs_no_threads():
    names = []
    starts = ParallelStarts(1, lambda _: names.append(threading.current_thread().name), print)
    starts._mean_s = 1.0
    for token in range(3):
        starts.add(token)
    assert names == [threading.main_thread().name] * 3


_BEING_STARTED = """
import os, threading
from vgrads.agent.scratch import await_starts, make_scratch
scratch, lock = make_scratch(os.environ["FOLDER"], "a")
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.read(read_end, 1)
    os.execve("/bin/sleep", ["sleep", "600"], {"VGRADS_COPY": "a.mark"})
os.close(lock)
threading.Timer(0.3, os.write, (write_end, b"!")).start()
await_starts(scratch)
with open(f"/proc/{child}/cmdline") as file:
    print(file.read().split("\\0")[0])
os.kill(child, 9)
"""


def test_a_guardian_waits_for_tasks_that_its_killed_agent_was_starting(tmp_path):
    """They have no mark yet, by which it finds and ends them."""
    own = {**os.environ, "FOLDER": str(tmp_path)}
    words = [sys.executable, "-c", _BEING_STARTED]
    done = subprocess.run(words, capture_output=True, text=True, env=own, check=True)
    assert done.stdout == "sleep\n"
