"""Engines of real tasks, held to the same expectations: processes here, agents in a slot, and agents
that share no files with the manager."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from resource import RLIMIT_NOFILE, setrlimit
from uuid import uuid4

import pytest

from tests.conftest import ROOT
from tests.waiting import runs, until
from vgrads.agent.processes import marked
from vgrads.agent.scratch import sweep
from vgrads.drivers.api import SlotSpec, SlotState
from vgrads.drivers.local import LocalDriver
from vgrads.exchange.agent_file import write_agent_command
from vgrads.execmgr.engines.agents import AgentEngine
from vgrads.execmgr.engines.completion_queue import CompletionQueue
from vgrads.execmgr.engines.processes import ProcessEngine
from vgrads.execmgr.pilots import Pilot
from vgrads.execmgr.tasks.folder import AWAY, TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.process import NOTES, find_process, read_exit_code
from vgrads.kernel.clock import WallClock


class Bench:
    """An engine over a run's folder; ``again`` is a manager that comes after this one was
    killed."""

    def __init__(self, kind, folder, own=False, pilot=None):
        self.kind, self.folder, self.orders = kind, folder, {}
        (folder / "set").mkdir(exist_ok=True)
        self.place = TaskFolder(
            folder / "run",
            folder / "set",
            "tasks" if kind == "processes" else AWAY,
            own,
            patience_s=0.0,
        )
        self.clock = WallClock()
        self.driver = None
        # the local driver takes over what runs on this machine under the name of a slot
        self.run = uuid4().hex
        self.slot_id = f"{self.run}.slot"
        self.apart = frozenset({"here"} if kind == "apart" else ())
        self.engine = self.make()
        if kind != "processes":
            self.driver = LocalDriver(4, self.clock)
            pilot = pilot or Pilot(
                command=write_agent_command(sys.executable),
                environment=self.engine.environment("127.0.0.1"),
                of_slot=self.engine.key_for,
            )
            self.driver.submit(
                SlotSpec(
                    id=self.slot_id,
                    name="slot",
                    site="here",
                    queue="",
                    procs=4,
                    duration_s=600.0,
                    environment={**pilot.environment, **pilot.of_slot("slot", self.slot_id)},
                    pilot=pilot.command,
                )
            )

    def make(self):
        if self.kind == "processes":
            return ProcessEngine(self.clock, self.place)
        return AgentEngine(self.run, self.clock, self.place, None, self.apart)

    def order(self, task, command, **fields):
        fields = {"site": "here", "slot": "slot", "procs": 1, "runtime_s": 1.0} | fields
        created = TaskOrder(key=("w", task, 0), command=command, **fields)
        self.orders[created.key] = created
        return created

    def ends(self, count, seconds=60.0):
        results, end = [], time.monotonic() + seconds
        while len(results) < count:
            assert time.monotonic() < end, results
            self.engine.wait(0.2)
            events = self.engine.poll()
            self.engine.stored()
            for event in events:
                if event.ok and not event.committed:  # as the core does with the first that has run
                    self.engine.commit([self.orders[event.key]])
                else:
                    results.append(event)
        return {event.key[1]: event for event in results}

    def result(self, name):
        return (self.place.results("w") / name).read_text()

    def again(self):
        self.engine.detach()
        self.engine = self.make()

    def close(self):
        self.engine.close()
        if self.driver is not None:
            self.driver.close()


@pytest.fixture(params=["processes", "agents", "apart"])
def bench(request, tmp_path):
    result = Bench(request.param, tmp_path)
    yield result
    result.close()


def test_tasks_run_read_and_commit(bench, tmp_path):
    (tmp_path / "set" / "beside.txt").write_text("beside\n")
    bench.engine.start(
        [bench.order("a", "cat beside.txt > a.txt; echo $VGRADS_SLOT >> a.txt", outputs=("a.txt",))]
    )
    assert bench.ends(1)["a"].ok
    bench.engine.start(
        [bench.order("b", "cat a.txt a.txt > b.txt", inputs=("a.txt",), outputs=("b.txt",))]
    )
    assert bench.ends(1)["b"].ok
    assert bench.result("b.txt") == "beside\nslot\nbeside\nslot\n"


def test_what_a_task_prints_is_here_while_it_runs(bench, tmp_path):
    """Also where its files are elsewhere: whole lines, each once."""
    go_on = tmp_path / "go on"
    order = bench.order(
        "a", f"echo one; echo no >&2; until [ -e '{go_on}' ]; do sleep .1; done; echo two; exit 3"
    )
    bench.engine.start([order])
    printed = bench.place.place(order) / "stdout.txt"
    until(lambda: printed.exists() and printed.read_text(), "the first line", 30)
    assert printed.read_text() == "one\n"
    assert not bench.engine.poll()
    go_on.touch()
    assert bench.ends(1)["a"].reason == "exit code 3: no"
    assert printed.read_text() == "one\ntwo\n"
    assert printed.with_name("stderr.txt").read_text() == "no\n"


def test_failures_are_reported_in_their_own_words(bench):
    bench.engine.start(
        [
            bench.order("code", "echo the disk is full >&2; exit 3"),
            bench.order("signal", "kill -9 $$"),
            bench.order("unwritten", "true", outputs=("never.txt",)),
            bench.order("missing", "true", inputs=("nowhere.txt",)),
            bench.order("half", "echo x > one.txt; exit 1", outputs=("one.txt",)),
        ]
    )
    ends = bench.ends(5)
    assert not any(event.ok for event in ends.values())
    assert ends["code"].reason == "exit code 3: the disk is full"
    assert "SIGKILL" in ends["signal"].reason
    assert ends["unwritten"].reason == "did not write 'never.txt'"
    assert "nowhere.txt" in ends["missing"].reason
    assert not (bench.place.results("w") / "one.txt").exists()


def test_a_command_may_be_longer_than_a_single_argument(bench):
    """Linux takes 128 KiB an argument; 2 MiB for all of them: what is longer is told in plain
    words."""
    letters = "ä" * 150_000
    bench.engine.start(
        [
            bench.order(
                "long", f"printf %s '{letters}' $# \"${{IFS- }}x\" > l.txt", outputs=("l.txt",)
            ),
            bench.order("simple", f"true {letters}"),
            bench.order("huge", f"true {letters * 12}"),
        ]
    )
    ends = bench.ends(3)
    assert ends["long"].ok and ends["simple"].ok
    assert bench.result("l.txt") == f"{letters}0 x"
    assert (
        not ends["huge"].ok
        and "longer than the system allows: put it into a" in ends["huge"].reason
    )


def test_memory_that_is_stated_is_a_limit(bench):
    hungry = f"{sys.executable} -c 'x = bytearray(300_000_000); import time; time.sleep(30)'"
    bench.engine.start(
        [
            bench.order("hungry", hungry, memory_mib=60.0),
            bench.order("modest", "true", memory_mib=60.0),
        ]
    )
    ends = bench.ends(2)
    assert ends["modest"].ok
    assert "out of memory" in ends["hungry"].reason
    assert "60 MiB are stated" in ends["hungry"].reason


def test_cancelled_tasks_stop_and_bring_no_news(bench, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    order = bench.order(
        "long", f"echo $$ > {tmp_path}/pipe; sleep 60; echo late > late.txt", outputs=("late.txt",)
    )
    bench.engine.start([order])
    pid = int((tmp_path / "pipe").read_text())
    bench.engine.cancel(order.key)
    bench.engine.cancel(order.key)
    until(lambda: not runs(pid))
    bench.engine.start([bench.order("next", "true")])
    assert {event.key[1] for event in bench.ends(1).values() if event.ok} <= {"next"}
    assert not (bench.place.results("w") / "late.txt").exists()


def test_a_later_manager_finds_what_runs_and_what_has_ended_and_begins_the_rest(bench, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    log = tmp_path / "log"
    running = bench.order(
        "running",
        f"echo running >> {log}; echo x > {tmp_path}/pipe; sleep 2; echo r > r.txt",
        outputs=("r.txt",),
    )
    ended = bench.order("ended", f"echo ended >> {log}; echo e > e.txt", outputs=("e.txt",))
    unwanted = bench.order("unwanted", f"echo $$ > {tmp_path}/pipe; sleep 60")
    bench.engine.start([ended])
    bench.ends(1)
    bench.engine.start([running])
    (tmp_path / "pipe").read_text()
    bench.engine.start([unwanted])
    pid = int((tmp_path / "pipe").read_text())
    bench.again()
    never = bench.order("never", f"echo never >> {log}; echo n > n.txt", outputs=("n.txt",))
    bench.engine.recover([running, ended, never])
    ends = bench.ends(3)
    assert all(event.ok for event in ends.values()), ends
    assert sorted(log.read_text().split()) == ["ended", "never", "running"]
    assert [bench.result(name) for name in ("r.txt", "e.txt", "n.txt")] == ["r\n", "e\n", "n\n"]
    until(lambda: not runs(pid))


def children(pid):
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(number) for number in listed.stdout.split()]


def begin_long(bench, tmp_path):
    """The pilot of a slot in which a long task runs."""
    os.mkfifo(tmp_path / "pipe")
    bench.engine.start([bench.order("a", f"echo > {tmp_path}/pipe; sleep 60")])
    (tmp_path / "pipe").read_text()
    return bench.driver._holds[bench.slot_id].pilots[0].pid


def test_a_slot_whose_agent_was_killed_ends_with_its_tasks(tmp_path):
    bench = Bench("agents", tmp_path)
    try:
        pilot = begin_long(bench, tmp_path)
        sleeping = [pid for child in children(pilot) for pid in children(child)]
        for pid in children(pilot):
            os.kill(pid, signal.SIGKILL)
        until(lambda: bench.driver.status([bench.slot_id])[0].state == SlotState.FAILED)
        assert sleeping and not any(runs(pid) for pid in sleeping)
    finally:
        bench.close()


def test_a_slot_imports_nothing_from_the_folder_in_which_it_starts(tmp_path, monkeypatch):
    for name in ("drivers", "planner", "pool", "execmgr", "json"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('a file of the user was imported')\n"
        )
    monkeypatch.chdir(tmp_path)  # slots of this machine start where the manager stands
    bench = Bench("agents", tmp_path)
    try:
        bench.engine.start([bench.order("a", "true")])
        assert bench.ends(1)["a"].ok
    finally:
        bench.close()


def test_an_agent_whose_guardian_was_killed_ends_with_its_tasks(tmp_path):
    """Nobody would end it with its slot; what is left of it is removed by the next agent there."""
    bench = Bench("agents", tmp_path)
    try:
        pilot = begin_long(bench, tmp_path)
        (agent,) = children(pilot)
        sleeping = children(agent)
        os.kill(pilot, signal.SIGKILL)
        until(lambda: not runs(agent), "the end of the agent")
        assert sleeping and not any(runs(pid) for pid in sleeping)
    finally:
        bench.close()
        sweep(None)


def test_ctrl_c_while_a_task_begins_is_an_interruption_and_no_error(tmp_path):
    """It comes when the thread that looks after the task is known and has not begun."""
    bench = Bench("processes", tmp_path)

    def interrupt(frame, event, _):
        if event == "call" and frame.f_code is threading.Thread.start.__code__:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sys.setprofile(interrupt)
        bench.engine.start([bench.order("a", "sleep 60")])
    bench.close()
    assert not marked(lambda mark: mark.startswith(bench.place.marks))


def limited(files, *command, **options):
    """A command that may open so many files, run to its end."""
    return subprocess.run(
        command,
        preexec_fn=partial(setrlimit, RLIMIT_NOFILE, (files, files)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **options,
    )


FULL = """
import os, sys
from pathlib import Path
from vgrads.agent.descriptors import explain_limit
from vgrads.agent.spawner import Spawner
from vgrads.execmgr.tasks.process import TaskProcess

spawner = Spawner()
process = TaskProcess("true", Path(sys.argv[1]), {"PATH": "/usr/bin:/bin"})
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    os.close(held.pop())
try:
    process.begin(spawner, "")
except OSError as error:
    print(explain_limit(error), flush=True)
"""


def test_a_task_that_no_descriptor_is_left_for_tells_the_limit(tmp_path):
    done = limited(64, sys.executable, "-c", FULL, str(tmp_path), cwd=ROOT)
    assert done.stdout.startswith("too many open files: the limit is 64; raise it"), done
    assert "ulimit -n" in done.stdout


@pytest.mark.more
@pytest.mark.parametrize(("files", "tasks"), [(64, 60), (24, 1)])
def test_a_run_waits_for_free_descriptors(tmp_path, files, tasks):
    rows = "".join(
        f"      - {{id: t{n}, runtime_s: 30, command: 'echo {n} >> {tmp_path}/ran; sleep .2'}}\n"
        for n in range(tasks)
    )
    (tmp_path / "set.yaml").write_text(
        f"name: many\ndeadline: 70s\nworkflows:\n  - name: w\n    tasks:\n{rows}"
    )
    (tmp_path / "sites.toml").write_text(
        '[[site]]\nname = "here"\nkind = "local"\nprocs = 60\ndriver = "local"\n'
    )
    command = [sys.executable, "-m", "vgrads", "run", tmp_path / "set.yaml", "--sites"]
    done = limited(
        files,
        *command,
        tmp_path / "sites.toml",
        cwd=ROOT,
        env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == sorted(str(n) for n in range(tasks))
    assert "failed" not in done.stdout + done.stderr


def test_keys_are_not_for_everybody(tmp_path):
    bench = Bench("agents", tmp_path)
    try:
        for name in ("key.pem", "secret"):
            assert (tmp_path / "run" / ".agents" / name).stat().st_mode & 0o077 == 0
    finally:
        bench.close()


def test_a_number_that_is_somebody_elses_by_now_is_not_our_task(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / NOTES).write_text(f"{os.getpid()}\n")
    assert find_process(scratch) is None and read_exit_code(scratch) == -signal.SIGKILL


def test_programs_stay_programs_where_files_are_sent(tmp_path):
    bench = Bench("apart", tmp_path)
    try:
        (tmp_path / "set" / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (tmp_path / "set" / "run.sh").chmod(0o755)
        order = bench.order("a", "./run.sh >deep/out; cp run.sh made", outputs=("deep/out", "made"))
        bench.engine.start([order])
        assert bench.ends(1)["a"].ok
        assert bench.result("deep/out") == "ran\n"
        assert os.access(bench.place.results("w") / "made", os.X_OK)
    finally:
        bench.close()


class _Quiet(CompletionQueue):
    """Completions of no tasks."""

    def forget(self, key):
        raise AssertionError(f"nothing ended, not {key}")


@pytest.mark.timeout(30)
def test_a_wait_that_is_over_before_it_begins_ends():
    """The manager waits for microseconds while a site is about to answer. ``SimpleQueue`` hangs
    there only about once in 100,000 times, so its absence is checked as well."""
    engine = _Quiet()
    assert not isinstance(engine.news, queue.SimpleQueue)
    for _ in range(2000):
        engine.wait(1e-6)
