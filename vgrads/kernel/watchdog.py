"""A watchdog: it ends a process whose event loop makes no progress, so that another one can
continue its work."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vgrads.kernel.errors import INTERNAL_ERROR

_STEP_S = 1.0
_LONGEST_STEP_S = 3.0
_WRITING_S = 5.0  # for the report of a hung process; then it ends without


class SilentTime:
    """Time without progress in which this process could have made some.

    Pure: instants are passed in, in seconds of a monotonic clock. A step between two calls that is
    far longer than the interval of calls is not counted: the process was stopped (SIGSTOP), or its
    machine slept.
    """

    def __init__(self, now_s: float) -> None:
        self._last_s, self._beats, self.silent_s = now_s, 0, 0.0

    def update(self, now_s: float, beats: int) -> float:
        """Return the seconds without progress; ``beats``: how often progress was reported."""
        step_s, self._last_s = now_s - self._last_s, now_s
        if beats != self._beats:
            self._beats, self.silent_s = beats, 0.0
        elif step_s <= _LONGEST_STEP_S:
            self.silent_s += step_s
        return self.silent_s


def _end_process(message: Callable[[], str]) -> None:
    """Exit at once, since the loop cannot; before, print the message and what each thread was
    doing, where that is possible: the disk may be full, the terminal closed, a pipe unread."""
    try:
        # the report below may block, on a full pipe or a dead disk
        late = threading.Timer(_WRITING_S, os._exit, [INTERNAL_ERROR])
        late.daemon = True
        late.start()
        sys.stderr.write(f"{message()}\n")
        sys.stderr.flush()
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
    finally:
        # without exit handlers, which could wait for the hung loop
        os._exit(INTERNAL_ERROR)


class Watchdog:
    """Watches an event loop from a thread of its own, which must be able to run: code that holds
    the interpreter's lock for good also stops the heartbeats of the process's lease.

    ``patience_s``: longest time without progress, in seconds; ``message``: printed before the end.
    """

    def __init__(
        self,
        patience_s: float,
        message: Callable[[], str],
        end: Callable[[Callable[[], str]], None] = _end_process,
    ) -> None:
        self._patience_s, self._message, self._end = patience_s, message, end
        self._beats, self._paused = 0, False
        self._stopped = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running event loop."""
        beating = asyncio.ensure_future(self._beat())
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            beating.cancel()
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not watch: work that may take long, as reading a long journal."""
        self._paused = True
        try:
            yield
        finally:
            # the time of the pause counts as progress
            self._beats += 1
            self._paused = False

    async def _beat(self) -> None:
        while True:
            self._beats += 1
            await asyncio.sleep(_STEP_S)

    def _watch(self) -> None:
        silent = SilentTime(time.monotonic())
        # a hung loop is noticed at most a quarter of the patience too late
        while not self._stopped.wait(min(_STEP_S, self._patience_s / 4)):
            silent_s = silent.update(time.monotonic(), self._beats)
            if silent_s >= self._patience_s and not self._paused:
                self._end(self._message)
                return
