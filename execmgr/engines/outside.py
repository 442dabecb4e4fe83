"""Tasks that an outside workflow engine runs: it announces each, gets its site and start permit,
and reports the end.

The method of the paper (SC'09 §3.3): the portal's own engine walks the workflows; the order in the
slots is kept here. When a replica may start, a start permit is *offered*; the outside engine that
announces its task gets the permit, runs the task in that slot by its own means, and reports how it
ended. A permit that is not fetched expires after a while, so that it blocks no other replica.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain

from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.execmgr.engines.completion_queue import CompletionQueue, Completions
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import ReplicaKey, TaskKey

PATIENCE_S = 600.0


@dataclass(slots=True)
class _Permit:
    order: TaskOrder
    since_s: float
    taken: bool = False


class OutsideEngine(CompletionQueue):
    """Offers start permits and accepts reports; both may come from any thread. ``patience_s``:
    lifetime of an unfetched permit."""

    def __init__(
        self, clock: Clock, patience_s: float = PATIENCE_S, news: Completions | None = None
    ) -> None:
        super().__init__(news)
        self.clock, self._patience_s = clock, patience_s
        self._permits: dict[ReplicaKey, _Permit] = {}
        self._waiting: dict[TaskKey, list[Future[None]]] = {}
        self._lock = threading.Lock()

    # calls of the outside engine

    def announce(self, task: TaskKey) -> list[TaskOrder]:
        """Take the start permits of a task; empty: not yet, or no longer."""
        with self._lock:
            mine = [t for key, t in self._permits.items() if key[:2] == task]
            for permit in mine:
                permit.taken = True
            return [permit.order for permit in mine]

    def offered(self, task: TaskKey) -> Future[None]:
        """Return a future that completes when a start permit of the task is next offered, or none
        will be. Cancel it after use."""
        result: Future[None] = Future()
        with self._lock:
            # callers that have given up are dropped here, so that they do not accumulate
            waiting = [f for f in self._waiting.get(task, ()) if not f.cancelled()]
            self._waiting[task] = [*waiting, result]
        return result

    def report(self, key: ReplicaKey, ok: bool, reason: str = "") -> bool:
        """Report the end of a replica; return False if it has no permit (it was cancelled)."""
        with self._lock:
            if key not in self._permits:
                return False
            del self._permits[key]
        self.news.put(ReplicaEnded(at_s=self.clock.now(), key=key, ok=ok, reason=reason))
        return True

    # calls of the core

    def start(self, orders: Sequence[TaskOrder]) -> None:
        with self._lock:
            for order in orders:
                self._permits[order.key] = _Permit(order, self.clock.now())
            waiting = [self._waiting.pop(order.key[:2], ()) for order in orders]
        # without the lock: callbacks of these futures may call this engine
        _is_complete(waiting)

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """Offer the permits again: an outside engine that kept running the tasks announces them
        again and reports."""
        self.start(orders)

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        """Do nothing: outputs of the outside engine stay in place."""

    def cancel(self, key: ReplicaKey) -> None:
        with self._lock:
            self._permits.pop(key, None)

    def poll(self) -> list[ReplicaEnded]:
        late_s = self.clock.now() - self._patience_s
        with self._lock:
            missed = [
                key for key, t in self._permits.items() if not t.taken and t.since_s <= late_s
            ]
        for key in missed:
            self.report(key, False, "no engine requested its start permit")
        return super().poll()

    def forget(self, key: ReplicaKey) -> None:
        """Do nothing: nothing is stored about ended replicas."""

    def close(self) -> None:
        self.detach()

    def detach(self) -> None:
        with self._lock:
            self._permits.clear()
            waiting = list(self._waiting.values())
            self._waiting = {}
        _is_complete(waiting)


def _is_complete(waiting: Iterable[Iterable[Future[None]]]) -> None:
    for future in chain.from_iterable(waiting):
        if future.set_running_or_notify_cancel():
            future.set_result(None)
