"""Engines of real tasks, held to the same expectations: processes here, Dask workers brought by a
pilot, and such workers that share no files with the manager."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from resource import RLIMIT_NOFILE, setrlimit
from uuid import uuid4

import pytest

from tests.conftest import ROOT
from tests.waiting import runs, until
from vgrads.api.wiring import _pilot
from vgrads.drivers.api import Access, SlotSpec
from vgrads.drivers.local import LocalDriver
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.dask import DaskEngine
from vgrads.execmgr.engines.processes import ProcessEngine
from vgrads.execmgr.engines.several import AwayEngine
from vgrads.execmgr.tasks.folder import AWAY, TaskFolder
from vgrads.execmgr.tasks.parcels import Parcel, pack, unpack
from vgrads.execmgr.tasks.process import NOTES, await_end
from vgrads.execmgr.tasks.processes import marked
from vgrads.kernel.clock import WallClock
from vgrads.vgrid.catalog import Site


class Bench:
    """An engine over a run's folder; ``again`` is a manager that comes after this one was
    killed."""

    def __init__(self, kind, folder, own=False, pilot="", engine=None):
        self.kind, self.folder, self.orders = kind, folder, {}
        (folder / "set").mkdir(exist_ok=True)
        self.place = TaskFolder(
            folder / "run", folder / "set", "tasks" if kind == "processes" else AWAY, own
        )
        self.clock = WallClock()
        self.driver = None
        # the local driver takes over what runs on this machine under the name of a slot
        self.slot_id = f"{uuid4().hex}.slot"
        self.apart = frozenset({"here"} if kind == "apart" else ())
        if kind != "processes":
            self.engine = engine or DaskEngine(self.clock, self.place, None, self.apart)
            self.driver = LocalDriver(4, self.clock)
            environment = self.engine.environment("127.0.0.1") | {
                "VGRADS_SLOT_NAME": "slot",
                "PYTHONPATH": str(ROOT),
            }
            self.driver.submit(
                SlotSpec(
                    id=self.slot_id,
                    name="slot",
                    site="here",
                    queue="",
                    procs=4,
                    duration_s=600.0,
                    environment=environment,
                    pilot=pilot or f"exec {sys.executable} -m vgrads.execmgr.pilot",
                )
            )
        else:
            self.engine = ProcessEngine(self.clock, self.place)

    def order(self, task, command, **fields):
        fields = {"site": "here", "slot": "slot", "procs": 1, "runtime_s": 1.0} | fields
        made = TaskOrder(key=("w", task, 0), command=command, **fields)
        self.orders[made.key] = made
        return made

    def ends(self, count, seconds=60.0):
        found, end = [], time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < end, found
            self.engine.wait(0.2)
            for event in self.engine.poll():
                if event.ok and not event.committed:  # as the core does with the first that has run
                    self.engine.commit([self.orders[event.key]])
                else:
                    found.append(event)
        return {event.key[1]: event for event in found}

    def result(self, name):
        return (self.place.results("w") / name).read_text()

    def again(self):
        self.engine.abandon()
        if self.kind == "processes":
            self.engine = ProcessEngine(self.clock, self.place)
        else:
            self.engine = DaskEngine(self.clock, self.place, None, self.apart)

    def close(self):
        self.engine.close()
        if self.driver is not None:
            self.driver.close()


@pytest.fixture(params=["processes", "dask", "apart"])
def bench(request, tmp_path):
    found = Bench(request.param, tmp_path)
    yield found
    found.close()


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


def test_failures_are_told_in_their_own_words(bench):
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


def test_a_command_may_be_longer_than_one_argument(bench):
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
        not ends["huge"].ok and "longer than the system takes: put it into a" in ends["huge"].reason
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


def test_a_lost_worker_is_a_lost_task_and_the_pilot_brings_another(tmp_path):
    bench = Bench("dask", tmp_path)
    try:
        os.mkfifo(tmp_path / "pipe")
        bench.engine.start([bench.order("a", f"echo $PPID > {tmp_path}/pipe; sleep 60")])
        (tmp_path / "pipe").read_text()
        pilot = bench.driver._held[bench.slot_id].pilots[0].pid
        found = subprocess.run(
            ["pgrep", "-P", str(pilot)], capture_output=True, text=True, check=True
        )
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        lost = bench.ends(1)["a"]
        assert (lost.ok, lost.reason) == (False, "the worker of its slot was lost")
        bench.engine.start([bench.order("a", "true", attempt=1)])
        assert bench.ends(1)["a"].ok
        assert not marked(
            lambda mark: mark.startswith(bench.place.marks)
        )  # nothing of the first attempt
    finally:
        bench.close()


def test_a_slot_imports_nothing_from_the_folder_in_which_it_starts(tmp_path, monkeypatch):
    for name in ("drivers", "planner", "pool", "execmgr", "distributed"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('a file of the user was imported')\n"
        )
    monkeypatch.chdir(tmp_path)  # slots of this machine start where the manager stands
    site = Site(name="here", kind="local", procs=4, access=Access(python=sys.executable))
    place = TaskFolder(tmp_path / "run", tmp_path / "set", AWAY)
    engine = AwayEngine(WallClock(), place, SimpleQueue(), frozenset())
    pilot = _pilot(site, engine)
    bench = Bench("dask", tmp_path, pilot=pilot.command, engine=engine.dask())
    try:
        bench.engine.start([bench.order("a", "true")])
        assert bench.ends(1)["a"].ok
    finally:
        bench.close()


def test_a_worker_whose_pilot_was_killed_ends_and_so_do_its_tasks(tmp_path):
    """Nobody would end it with its slot, or remove its folder."""
    bench = Bench("dask", tmp_path)
    try:
        os.mkfifo(tmp_path / "pipe")
        bench.engine.start([bench.order("a", f"echo > {tmp_path}/pipe; sleep 60")])
        (tmp_path / "pipe").read_text()
        pilot = bench.driver._held[bench.slot_id].pilots[0].pid
        found = subprocess.run(
            ["pgrep", "-P", str(pilot)], capture_output=True, text=True, check=True
        )
        (worker,) = map(int, found.stdout.split())
        os.kill(pilot, signal.SIGKILL)
        until(lambda: not runs(worker), "the end of the worker")
        assert not marked(lambda mark: mark.startswith(bench.place.marks))
    finally:
        bench.close()


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


MANY = """
import sys
from queue import SimpleQueue
from threading import Thread
from vgrads.execmgr.tasks.process import TaskProcess
from pathlib import Path

def attend(number):
    folder = Path(sys.argv[1], f"alone{number}")
    folder.mkdir()
    try:
        codes.put(TaskProcess("sleep .2; exit 3", folder, {"PATH": "/usr/bin:/bin", "VGRADS_COPY": str(folder)}).attend())
    except OSError as error:
        codes.put(str(error))

codes = SimpleQueue()
threads = [Thread(target=attend, args=(number,)) for number in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print({codes.get() for _ in threads})
"""


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


def test_threads_attend_to_more_tasks_than_there_are_descriptors_for(tmp_path):
    done = limited(64, sys.executable, "-c", MANY, str(tmp_path), cwd=ROOT)
    assert done.stdout == "{3}\n", done


FULL = """
import os, sys
from pathlib import Path
from vgrads.execmgr.tasks.process import TaskProcess

process = TaskProcess("true", Path(sys.argv[1]), {"PATH": "/usr/bin:/bin"})
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    os.close(held.pop())
try:
    process.attend()
except OSError as error:
    print(error, flush=True)
"""


def test_a_task_that_no_descriptor_is_left_for_tells_the_limit(tmp_path):
    done = limited(64, sys.executable, "-c", FULL, str(tmp_path), cwd=ROOT)
    assert done.stdout.startswith("too many open files: the limit is 64; raise it"), done
    assert "ulimit -n" in done.stdout


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
    bench = Bench("dask", tmp_path)
    try:
        assert (tmp_path / "run" / "contact.json").stat().st_mode & 0o077 == 0
    finally:
        bench.close()


def test_a_number_that_is_somebody_elses_by_now_is_not_our_task(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / NOTES).write_text(f"{os.getpid()}\n")
    assert await_end(scratch, "nobody:w/a/0/0") == -signal.SIGKILL


def test_parcels_arrive_whole_or_not_at_all(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    parcel = pack({"run.sh": tmp_path / "run.sh", "deep/copy.sh": tmp_path / "run.sh"})
    unpack(parcel, tmp_path / "there")
    assert (tmp_path / "there" / "deep" / "copy.sh").read_text() == "#!/bin/sh\n"
    assert os.access(tmp_path / "there" / "run.sh", os.X_OK)
    damaged = Parcel(tuple(replace(file, content=b"other") for file in parcel.files))
    with pytest.raises(OSError, match="damaged"):
        unpack(damaged, tmp_path / "damaged")
    assert not list((tmp_path / "damaged").rglob("*.sh"))
    for name in ("../out.txt", "/tmp/out.txt"):
        with pytest.raises(OSError, match="leads out"):
            unpack(Parcel((replace(parcel.files[0], name=name),)), tmp_path / "there")
    unpack(parcel, tmp_path / "some", only=["run.sh"])
    assert [path.name for path in (tmp_path / "some").rglob("*.sh")] == ["run.sh"]
    with pytest.raises(OSError):
        pack({"x": tmp_path / "nowhere"})
