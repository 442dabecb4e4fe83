"""Models of queue states, trained in a process of the service: no request waits for them.

Until a history's newest submissions are learned, its queries are answered from past waits.
"""

from __future__ import annotations

import threading
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import end_pool
from vgrads.portal.jobs.forkserver import be_a_child, processes
from vgrads.qbets.views import BEST
from vgrads.traces.log_queue import LogQueue

if TYPE_CHECKING:
    from vgrads.qbets.state_forecast import AnyForecast, StateForecast

_Key = tuple[str, int, LogQueue, str]
_RETRIES = 2  # of a history whose process was killed
_MOST = 64  # queues in memory; each takes some ten megabytes


def _was_killed(future: Future[AnyForecast]) -> bool:
    """True if the process that learned has ended, as by a kill for lack of memory."""
    return (
        future.done() and not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
    )


def _read_changed_ns(path: str) -> int:
    """Return when a history changed; 0 for a file that is not there, which readers report."""
    with suppress(OSError):
        return Path(path).stat().st_mtime_ns
    return 0


def learn(path: str, log_queue: LogQueue, view: str) -> AnyForecast:
    """Learn the states of a history in a view; in a process of the service."""
    # imported late: the service starts without histories
    from vgrads.api.queues.histories import AS_QUESTION, cached_forecast

    return cached_forecast(path, log_queue, None, replace(AS_QUESTION, view=view))


class LearnedStates:
    """Learned states by history; a changed file is learned again. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._learning: dict[_Key, Future[AnyForecast]] = {}
        self._retries: dict[_Key, int] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False

    def find(self, path: str, log_queue: LogQueue, view: str = BEST) -> StateForecast | None:
        """Return the state learned in a view; where there is none, start learning and return
        None."""
        key = (path, _read_changed_ns(path), log_queue, view)
        with self._lock:
            future = self._learning.get(key)
            if future is not None and _was_killed(future) and self._retries.get(key, 0) < _RETRIES:
                self._retries[key] = self._retries.get(key, 0) + 1
                future = None
            if future is None and not self._closed:
                self._begin(key)
        if future is None or not future.done() or future.cancelled() or future.exception():
            return None
        # imported late: nothing is learned yet when the service starts
        from vgrads.qbets.state_forecast import StateForecast

        learned = future.result()
        return learned if isinstance(learned, StateForecast) else None

    def settled(self, path: str, log_queue: LogQueue, view: str = BEST) -> bool:
        """Return True where learning has finished, with any result."""
        key = (path, _read_changed_ns(path), log_queue, view)
        with self._lock:
            future = self._learning.get(key)
        return future is not None and future.done()

    def problem(self, path: str, log_queue: LogQueue, view: str = BEST) -> str:
        """Return why a history could not be learned; empty if it was, or still is being learned."""
        with self._lock:
            future = self._learning.get((path, _read_changed_ns(path), log_queue, view))
        if future is None or not future.done() or future.cancelled():
            return ""
        error = future.exception()
        if error is None or isinstance(error, InputError):  # that is reported to whoever asks
            return ""
        return f"the state of the queue could not be learned ({type(error).__name__})"

    def _begin(self, key: _Key) -> None:
        # only the newest state of a history is kept
        for old in [k for k in self._learning if (k[0], *k[2:]) == (key[0], *key[2:])]:
            del self._learning[old]
        while len(self._learning) >= _MOST:
            del self._learning[next(iter(self._learning))]
        self._learning[key] = self._submit(key)

    def _submit(self, key: _Key) -> Future[AnyForecast]:
        """Learn a history in the pool; in a new one where there is none, or its process was
        killed, whatever it was learning."""
        if self._pool is not None:
            with suppress(BrokenExecutor):
                return self._pool.submit(learn, key[0], *key[2:])
        self._pool = ProcessPoolExecutor(1, mp_context=processes, initializer=be_a_child)
        return self._pool.submit(learn, key[0], *key[2:])

    def close(self) -> None:
        """Stop learning."""
        with self._lock:
            self._closed, pool = True, self._pool
        if pool is not None:
            end_pool(pool)
