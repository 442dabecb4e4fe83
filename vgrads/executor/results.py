"""Futures of calls, and the thread that fills them with values and exceptions."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any

from vgrads.api.bags.open_calls import Ended
from vgrads.executor.encoding import TaskFailed, outcome, parts_of_value
from vgrads.executor.keyed import ResultKey


class CallFuture(Future[Any]):
    """The future of a call. ``stdout``, ``stderr``: the ends of what it printed, when it is done;
    ``parts``: its packed value; ``key``: that its result is stored under."""

    stdout = stderr = ""
    ran_s = 0.0
    parts: Sequence[memoryview] = ()
    key: ResultKey | None = None
    bag: BagFutures | None = None
    task = -1

    def cancel(self) -> bool:
        """Cancel the call, unless it runs or has ended."""
        if self.bag is not None and self.task >= 0 and not self.done():
            return self.bag.cancel(self)
        return super().cancel()

    def running(self) -> bool:
        """Return True while a node has the call."""
        if self.bag is not None and self.task >= 0 and not self.done():
            return self.bag.is_running(self.task)
        return super().running()

    def complete(self, parts: Sequence[memoryview]) -> None:
        """Complete it with a stored value."""
        self.parts = parts
        good, value = outcome(parts, 0, "")
        if good:
            self.set_result(value)
        else:
            self.set_exception(value)

    def finish(self, ended: Ended) -> None:
        """Complete it with the end of its call."""
        self.stdout, self.stderr, self.ran_s = ended.out, ended.err, ended.ran_s
        try:
            self.parts = parts_of_value(ended.value, ended.file)
            good, value = outcome(self.parts, ended.code, ended.err or ended.how)
        except Exception as error:
            good, value = False, TaskFailed(f"its value cannot be read: {error!r}")
        if ended.temporary and ended.file is not None:  # mapped parts stay
            ended.file.unlink(missing_ok=True)
        if good and self.key is not None:
            # stored before anybody sees the result: a program that has it may end at once
            self.key.returned(self.parts)
        with suppress(InvalidStateError):  # cancelled meanwhile
            if good:
                self.set_result(value)
            else:
                self.set_exception(value)


class BagFutures:
    """The futures of an open bag, by the number of their task."""

    def __init__(self, deliver: Callable[[Callable[[], None]], None]) -> None:
        self._deliver = deliver
        self.waiting: dict[int, CallFuture] = {}
        self.calls: Any = None
        self.lock = threading.Lock()
        self.problem = ""

    def on_ends(self, ends: Sequence[Ended]) -> None:
        """Receive ends, in the dispatcher's thread."""
        self._deliver(lambda: self._finish(ends))

    def _finish(self, ends: Sequence[Ended]) -> None:
        for ended in ends:
            if ended.task < 0:
                self._abandon(ended)
                continue
            future = self.waiting.pop(ended.task, None)
            if future is not None:
                future.finish(ended)

    def _abandon(self, ended: Ended) -> None:
        with self.lock:
            self.problem = ended.how
            left, self.waiting = list(self.waiting.values()), {}
        for future in left:
            future.finish(ended)

    def is_running(self, task: int) -> bool:
        """Return True while an agent has the task."""
        return bool(self.calls.is_running(task))

    def cancel(self, future: CallFuture) -> bool:
        """Cancel a call that no agent has."""
        return self.cancel_all([future]) == [future]

    def cancel_all(self, futures: Sequence[CallFuture]) -> list[CallFuture]:
        """Cancel the calls that no agent has; return their futures."""
        by_task = {future.task: future for future in futures if not future.done()}
        cancelled = []
        for task in self.calls.cancel(list(by_task)) if by_task else ():
            self.waiting.pop(task, None)
            future = by_task[task]
            if Future.cancel(future):
                # wakes whoever waits for several futures
                future.set_running_or_notify_cancel()
                cancelled.append(future)
        return cancelled


class Deliverer:
    """A thread that reads values and completes futures: their callbacks delay no agent."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="vgrads-results", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        """Do this soon."""
        self._work.put(work)

    def end(self) -> None:
        """Do what was put, and end."""
        self._work.put(None)

    def join(self) -> None:
        """Wait for the end."""
        # a callback of a future may shut the executor down: that runs in this thread
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


__all__ = ["BagFutures", "CallFuture", "CancelledError", "Deliverer"]
