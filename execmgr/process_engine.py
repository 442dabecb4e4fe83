"""Tasks as processes of this machine (:mod:`execmgr.task_folder`), each looked after by a thread."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from execmgr.engine import TaskOrder
from execmgr.folder_engine import FolderEngine
from execmgr.news import News
from execmgr.processes import kill_marked
from execmgr.task_folder import TaskFolder
from execmgr.task_process import TaskProcess, alive, await_end, has_ended
from kernel.clock import Clock
from planner.snapshot import CopyKey

_GRACE_S = 2.0  # between asking tasks to end and killing them
_PATIENCE_S = 15.0  # with threads whose tasks were killed


class ProcessEngine(FolderEngine):
    """Runs commands with a shell."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: News | None = None) -> None:
        super().__init__(clock, folder, news)
        self._running: dict[CopyKey, TaskProcess] = {}
        self._found: dict[CopyKey, str] = {}  # marks of copies that an earlier manager began
        self._unwanted: set[CopyKey] = set()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._abandoned = False

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            if self._done_before(order):
                continue
            if not order.command:
                self._tell(order, "has no command to run")
                continue
            self._unwanted.discard(order.key)
            try:
                with _uninterrupted():
                    process = self._running[order.key] = self._folder.launch(order)
            except OSError as error:
                self._tell(order, str(error))
                continue
            self._look_after(order, partial(process.attend, order.memory_mib))

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        wanted = {self._folder.mark(order): order for order in orders}
        places = {mark: self._folder.place(order) for mark, order in wanted.items()}
        going_on = {mark for mark, place in places.items() if alive(place) is not None}
        ours = self._folder.marks
        kill_marked(lambda mark: mark.startswith(ours) and mark not in going_on)
        for mark, order in wanted.items():
            if mark not in going_on and not has_ended(places[mark]):
                self.start([order])
                continue
            if mark not in going_on and self._done_before(order):
                continue
            self._found[order.key] = mark
            self._look_after(order, partial(await_end, places[mark], mark))

    def _look_after(self, order: TaskOrder, wait: Callable[[], int]) -> None:
        """In a thread of its own: wait until nothing of the copy is left, then tell."""

        def work() -> None:
            try:
                reason = self._folder.judge(order, wait())
            except OSError as error:
                reason = str(error)
            with self._lock:
                self._running.pop(order.key, None)
                self._found.pop(order.key, None)
                told = not self._abandoned and order.key not in self._unwanted
                self._threads.discard(threading.current_thread())
            if told:
                self._tell(order, reason)

        thread = threading.Thread(target=work, daemon=True)
        with _uninterrupted():  # a thread that is known and has not begun could not be waited for
            with self._lock:
                self._threads.add(thread)
            thread.start()

    def cancel(self, key: CopyKey) -> None:
        with self._lock:
            process, mark = self._running.get(key), self._found.get(key)
            if process is None and mark is None:
                return
            self._unwanted.add(key)
        if process is not None:
            process.signal(signal.SIGTERM)
        if not self._abandoned:
            later = threading.Timer(_GRACE_S, partial(self._kill, process, mark))
            later.daemon = True
            later.start()

    def _kill(self, process: TaskProcess | None, mark: str | None) -> None:
        if process is not None:
            process.signal(signal.SIGKILL)
        elif mark is not None:
            kill_marked(lambda one: one == mark)

    def forget(self, key: CopyKey) -> None:
        """The thread that looked after a copy has done so."""

    def close(self) -> None:
        if self._abandoned:
            return
        with self._lock:
            running, threads = dict(self._running), set(self._threads)
            self._unwanted |= running.keys() | self._found.keys()
        for process in running.values():
            process.signal(signal.SIGTERM)
        _join(threads, _GRACE_S if running else 0.0)
        for process in running.values():
            process.signal(signal.SIGKILL)
        ours = self._folder.marks
        kill_marked(lambda mark: mark.startswith(ours))
        _join(threads, _PATIENCE_S)
        self._committer.close()

    def abandon(self) -> None:
        self._abandoned = True


def _join(threads: set[threading.Thread], patience_s: float) -> None:
    end_s = time.monotonic() + patience_s
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))


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
