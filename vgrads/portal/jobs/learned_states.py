"""What states of queues teach, learned in a process beside the service: no answer waits for it.

Until a history's newest submissions are learned, its questions are answered from past waits.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from vgrads.api.queues.histories import cached_forecast, open_history
from vgrads.portal.jobs.beside import end, processes
from vgrads.portal.jobs.worker import be_a_child
from vgrads.qbets.state_forecast import Known, StateForecast
from vgrads.traces.records import LogQueue

_Key = tuple[str, int, LogQueue]
_MOST = 64  # queues that are kept; each takes some ten megabytes


class LearnedStates:
    """Learned states by history; a changed file is learned anew. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._learning: dict[_Key, Future[Known]] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False

    def find(self, path: str, log_queue: LogQueue) -> StateForecast | None:
        """What is known by now; begins to learn it where nothing is, and answers None."""
        key = (path, Path(path).stat().st_mtime_ns, log_queue)
        with self._lock:
            found = self._learning.get(key)
            if found is None and not self._closed:
                self._begin(key)
        if found is None or not found.done() or found.cancelled() or found.exception():
            return None
        learned = found.result()
        return learned if isinstance(learned, StateForecast) else None

    def settled(self, path: str, log_queue: LogQueue) -> bool:
        """Learning is over, whatever came of it."""
        key = (path, Path(path).stat().st_mtime_ns, log_queue)
        with self._lock:
            found = self._learning.get(key)
        return found is not None and found.done()

    def _begin(self, key: _Key) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=processes, initializer=be_a_child)
        for old in [k for k in self._learning if k[0] == key[0] and k[2] == key[2]]:
            del self._learning[old]
        while len(self._learning) >= _MOST:
            del self._learning[next(iter(self._learning))]
        self._learning[key] = self._pool.submit(_learn, key[0], key[2])

    def close(self) -> None:
        """Learn nothing more."""
        with self._lock:
            self._closed, pool = True, self._pool
        if pool is not None:
            end(pool)


def _learn(path: str, log_queue: LogQueue) -> Known:
    return cached_forecast(path, log_queue, open_history(path).end_s)
