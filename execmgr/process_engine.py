"""Tasks as processes of this machine (:mod:`execmgr.task_folder`), each looked after by a thread."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from execmgr.engine import TaskOrder
from execmgr.news import News, NewsDesk
from execmgr.states import CopyEnded
from execmgr.task_folder import TaskFolder, alive, attend, await_end, has_ended, signal_group
from kernel.clock import Clock
from kernel.errors import InputError
from planner.snapshot import CopyKey

_GRACE_S = 2.0  # between asking a process group to end and killing it


class ProcessEngine(NewsDesk):
    """Runs commands with a shell."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: News | None = None) -> None:
        super().__init__(news)
        self._clock, self._folder = clock, folder
        self._running: dict[CopyKey, subprocess.Popen[bytes]] = {}
        self._found: dict[CopyKey, int] = {}  # processes that an earlier manager started
        self._abandoned = False

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            if not order.command:
                raise InputError(
                    "has no command to run", where=f"task '{order.key[1]}' of {order.key[0]}"
                )
            try:
                with _uninterrupted():
                    process = self._running[order.key] = self._folder.launch(order)
            except OSError as error:
                self._tell(order, str(error))
                continue
            place = self._folder.place(order)
            self._look_after(order, partial(attend, process, place, order.memory_mib))

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        wanted = {self._folder.place(order): order for order in orders}
        for notes in self._folder.noted():
            if notes.parent not in wanted and (pid := alive(notes.parent)):
                signal_group(pid, signal.SIGKILL)
        for scratch, order in wanted.items():
            pid = alive(scratch)
            if pid is None and not has_ended(scratch):
                self.start([order])
                continue
            if pid is not None:
                self._found[order.key] = pid
            self._look_after(order, partial(await_end, scratch))

    def _look_after(self, order: TaskOrder, wait: Callable[[], int]) -> None:
        """In a thread of its own: wait for the end, commit the outputs, tell."""

        def work() -> None:
            code = wait()
            if not self._abandoned:
                self._tell(order, self._folder.finish(order, code))

        threading.Thread(target=work, daemon=True).start()

    def _tell(self, order: TaskOrder, reason: str) -> None:
        self.news.put(
            CopyEnded(at_s=self._clock.now(), key=order.key, ok=not reason, reason=reason)
        )

    def cancel(self, key: CopyKey) -> None:
        found = self._found.pop(key, None)
        if found is not None:
            signal_group(found, signal.SIGKILL)
        process = self._running.get(key)
        if process is None or process.poll() is not None:
            return
        signal_group(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        signal_group(process.pid, signal.SIGKILL)

    def forget(self, key: CopyKey) -> None:
        self._running.pop(key, None)
        self._found.pop(key, None)

    def close(self) -> None:
        for key in [*self._running, *self._found]:
            self.cancel(key)

    def abandon(self) -> None:
        self._abandoned = True
        self._running.clear()
        self._found.clear()


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
