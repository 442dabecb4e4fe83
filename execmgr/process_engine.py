"""Tasks as processes of this machine, each in its own process group and its own folder.

A copy runs in a scratch folder in which its inputs and the files beside the set are linked. When it
exits with 0 and has written every declared output, these move into the workflow's folder in one
rename each: a result is there whole or not at all.

The shell around a task notes its process and its exit code in the scratch folder, so a manager that
comes after one that was killed finds what runs, and what has ended, by looking there.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from execmgr.engine import TaskOrder
from execmgr.states import CopyEnded
from kernel.clock import Clock
from kernel.errors import InputError
from planner.snapshot import CopyKey

_MOST_LINKS = 1000  # files beside the set that are linked into each scratch folder
_ATTENDED = """\
echo $$ >.pid
( [ "$2" = 0 ] || ulimit -v "$2"; exec /bin/sh -c "$1" ) >stdout.txt 2>stderr.txt
code=$?
echo $code >.exit.draft && mv .exit.draft .exit
exit $code
"""
_LOOK_S = 0.2  # between looks at a process that is somebody else's child
_GRACE_S = 2.0  # between asking a process group to end and killing it


class ProcessEngine:
    """Runs commands with a shell; news arrives through a queue that :meth:`wait` listens to."""

    def __init__(self, clock: Clock, folder: Path, set_folder: Path) -> None:
        self._clock, self._folder, self._set_folder = clock, folder.resolve(), set_folder.resolve()
        self._news: queue.SimpleQueue[CopyEnded] = queue.SimpleQueue()
        self._held: list[CopyEnded] = []
        self._running: dict[CopyKey, subprocess.Popen[bytes]] = {}
        self._found: dict[CopyKey, int] = {}  # processes that an earlier manager started
        self._abandoned = False
        self._shared = [p for p in sorted(self._set_folder.iterdir()) if p.is_file()][:_MOST_LINKS]

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            try:
                self._launch(order)
            except OSError as error:
                self._news.put(
                    CopyEnded(at_s=self._clock.now(), key=order.key, ok=False, reason=str(error))
                )

    def _launch(self, order: TaskOrder) -> None:
        if not order.command:
            raise InputError(
                "has no command to run", where=f"task '{order.key[1]}' of {order.key[0]}"
            )
        scratch = self._scratch(order)
        environment = os.environ | {
            "VGRADS_WORKFLOW": order.key[0], "VGRADS_TASK": order.key[1], "VGRADS_SLOT": order.slot,
            "VGRADS_PROCS": str(order.procs), "OMP_NUM_THREADS": str(order.procs),
        }  # fmt: skip
        limit_kib = str(round(order.memory_mib * 1024))
        with _uninterrupted():
            process = subprocess.Popen(
                ["/bin/sh", "-c", _ATTENDED, "vgrads", order.command, limit_kib], cwd=scratch, env=environment,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._running[order.key] = process
        threading.Thread(
            target=self._attend, args=(order, process.wait, scratch), daemon=True
        ).start()

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        wanted = {self._place(order): order for order in orders}
        for pid_file in self._folder.glob("*/tasks/*/.pid"):
            if pid_file.parent not in wanted and (pid := _alive(pid_file.parent)):
                _signal_group(pid, signal.SIGKILL)
        for scratch, order in wanted.items():
            pid = _alive(scratch)
            if pid is None and not (scratch / ".exit").exists():
                self.start([order])
                continue
            if pid is not None:
                self._found[order.key] = pid
            threading.Thread(
                target=self._attend,
                args=(order, lambda s=scratch: _await_end(s), scratch),
                daemon=True,
            ).start()

    def _place(self, order: TaskOrder) -> Path:
        """The scratch folder of one attempt."""
        again = f".again{order.attempt}" if order.attempt else ""
        return self._folder / order.key[0] / "tasks" / f"{order.key[1]}.{order.key[2]}{again}"

    def _scratch(self, order: TaskOrder) -> Path:
        """An empty folder for a copy, with links to what it may read."""
        results = self.results(order.key[0])
        scratch = self._place(order)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        results.mkdir(exist_ok=True)
        sources = {path.name: path for path in self._shared if path.name not in order.outputs}
        sources |= {name: self._input(order, name) for name in order.inputs}
        for name, source in sources.items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
        return scratch

    def _input(self, order: TaskOrder, name: str) -> Path:
        made = self.results(order.key[0]) / name
        found = made if made.exists() else self._set_folder / name
        if not found.exists():
            raise FileNotFoundError(f"input '{name}' is not there")
        return found

    def results(self, workflow: str) -> Path:
        """The folder that a workflow's outputs are committed to."""
        return self._folder / workflow / "results"

    def _attend(self, order: TaskOrder, wait: Callable[[], int], scratch: Path) -> None:
        """In a thread of its own: wait for the end, commit the outputs, tell."""
        code = wait()
        if self._abandoned:
            return
        reason = "" if code == 0 else self._explain(code, scratch)
        if not reason:
            reason = self._commit(order, scratch)
        self._news.put(
            CopyEnded(at_s=self._clock.now(), key=order.key, ok=not reason, reason=reason)
        )

    @staticmethod
    def _explain(code: int, scratch: Path) -> str:
        lines = (scratch / "stderr.txt").read_text(errors="replace").strip().splitlines()
        number = -code if code < 0 else code - 128  # the shell tells of a signal as 128 and more
        killed = number in {one.value for one in signal.Signals}
        how = f"killed by {signal.Signals(number).name}" if killed else f"exit code {code}"
        return f"{how}: {lines[-1][:200]}" if lines else how

    def _commit(self, order: TaskOrder, scratch: Path) -> str:
        """Move the outputs into place. Where an earlier manager was killed in the middle, go on."""
        begun = scratch / ".commit"
        for name in order.outputs:
            if not (scratch / name).exists() and not begun.exists():
                return f"did not write '{name}'"
        begun.touch()
        try:
            for name in order.outputs:
                target = self.results(order.key[0]) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if (scratch / name).exists():
                    (scratch / name).replace(target)
        except OSError as error:
            return f"cannot commit: {error}"
        return ""

    def cancel(self, key: CopyKey) -> None:
        found = self._found.pop(key, None)
        if found is not None:
            _signal_group(found, signal.SIGKILL)
        process = self._running.get(key)
        if process is None or process.poll() is not None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        _signal_group(process.pid, signal.SIGKILL)

    def poll(self) -> list[CopyEnded]:
        ended, self._held = self._held, []
        while not self._news.empty():
            ended.append(self._news.get())
        for event in ended:
            self._running.pop(event.key, None)
            self._found.pop(event.key, None)
        return ended

    def wake_at(self) -> float:
        return float("inf")

    def wait(self, timeout_s: float) -> None:
        with suppress(queue.Empty):
            self._held.append(self._news.get(timeout=max(0.0, timeout_s)))

    def close(self) -> None:
        for key in [*self._running, *self._found]:
            self.cancel(key)

    def abandon(self) -> None:
        self._abandoned = True
        self._running.clear()
        self._found.clear()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _alive(scratch: Path) -> int | None:
    """The process of a scratch folder, if it still runs: its number may be somebody else's by now."""
    try:
        pid = int((scratch / ".pid").read_text())
        if Path(f"/proc/{pid}/cwd").resolve() == scratch.resolve():
            return pid
    except (OSError, ValueError):
        pass
    return None


def _await_end(scratch: Path) -> int:
    """The exit code that the shell notes; −9 where it ends without."""
    while True:
        pid = _alive(scratch)
        with suppress(OSError, ValueError):
            return int((scratch / ".exit").read_text())
        if pid is None:
            return -signal.SIGKILL
        time.sleep(_LOOK_S)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off until the end: between the start of a process and the note of it, it would leak."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
