"""Tasks as processes of this machine, each in its own process group and its own folder.

A copy runs in a scratch folder in which its inputs and the files beside the set are linked. When it
exits with 0 and has written every declared output, these move into the workflow's folder in one
rename each: a result is there whole or not at all.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from execmgr.engine import TaskOrder
from execmgr.states import CopyEnded
from kernel.clock import Clock
from kernel.errors import InputError
from planner.snapshot import CopyKey

_MOST_LINKS = 1000  # files beside the set that are linked into each scratch folder
_GRACE_S = 2.0  # between asking a process group to end and killing it


class ProcessEngine:
    """Runs commands with a shell; news arrives through a queue that :meth:`wait` listens to."""

    def __init__(self, clock: Clock, folder: Path, set_folder: Path) -> None:
        self._clock, self._folder, self._set_folder = clock, folder.resolve(), set_folder.resolve()
        self._news: queue.SimpleQueue[CopyEnded] = queue.SimpleQueue()
        self._held: list[CopyEnded] = []
        self._running: dict[CopyKey, subprocess.Popen[bytes]] = {}
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
        with (
            (scratch / "stdout.txt").open("wb") as out,
            (scratch / "stderr.txt").open("wb") as err,
            _uninterrupted(),
        ):
            process = subprocess.Popen(
                ["/bin/sh", "-c", order.command], cwd=scratch, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
            self._running[order.key] = process
        threading.Thread(target=self._attend, args=(order, process, scratch), daemon=True).start()

    def _scratch(self, order: TaskOrder) -> Path:
        """An empty folder for a copy, with links to what it may read."""
        results = self.results(order.key[0])
        scratch = results.parent / "tasks" / f"{order.key[1]}.{order.key[2]}"
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

    def _attend(self, order: TaskOrder, process: subprocess.Popen[bytes], scratch: Path) -> None:
        """In a thread of its own: wait for the end, commit the outputs, tell."""
        code = process.wait()
        reason = "" if code == 0 else self._explain(code, scratch)
        if not reason:
            reason = self._commit(order, scratch)
        self._news.put(
            CopyEnded(at_s=self._clock.now(), key=order.key, ok=not reason, reason=reason)
        )

    @staticmethod
    def _explain(code: int, scratch: Path) -> str:
        lines = (scratch / "stderr.txt").read_text(errors="replace").strip().splitlines()
        how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
        return f"{how}: {lines[-1][:200]}" if lines else how

    def _commit(self, order: TaskOrder, scratch: Path) -> str:
        for name in order.outputs:
            if not (scratch / name).exists():
                return f"did not write '{name}'"
        for name in order.outputs:
            target = self.results(order.key[0]) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).replace(target)
        return ""

    def cancel(self, key: CopyKey) -> None:
        process = self._running.get(key)
        if process is None or process.poll() is not None:
            return
        _signal_group(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        _signal_group(process, signal.SIGKILL)

    def poll(self) -> list[CopyEnded]:
        ended, self._held = self._held, []
        while not self._news.empty():
            ended.append(self._news.get())
        for event in ended:
            self._running.pop(event.key, None)
        return ended

    def wake_at(self) -> float:
        return float("inf")

    def wait(self, timeout_s: float) -> None:
        with suppress(queue.Empty):
            self._held.append(self._news.get(timeout=max(0.0, timeout_s)))

    def close(self) -> None:
        for key in list(self._running):
            self.cancel(key)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


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
