"""Tasks that an outside workflow engine runs: it announces each, is told where and when, and tells
the end.

The way of the paper (SC'09 §3.3): the portal's own engine walks the workflows; the order in the
slots is kept here. A copy whose turn has come is *offered*; whoever announces its task is given the
turn, runs it in that slot by its own means, and reports how it ended. A turn for which nobody comes
is given up after a while, so that it holds up nobody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.execmgr.core.states import CopyEnded
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.news import News, NewsDesk
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import CopyKey, TaskKey

PATIENCE_S = 600.0


@dataclass(slots=True)
class _Turn:
    order: TaskOrder
    since_s: float
    taken: bool = False


class OutsideEngine(NewsDesk):
    """Offers turns and takes reports; both may come from any thread. ``patience_s``: how long a
    turn waits."""

    def __init__(
        self, clock: Clock, patience_s: float = PATIENCE_S, news: News | None = None
    ) -> None:
        super().__init__(news)
        self.clock, self._patience_s = clock, patience_s
        self._turns: dict[CopyKey, _Turn] = {}
        self._changed = threading.Condition()

    # what the outside says

    def announce(self, task: TaskKey, wait_s: float = 0.0) -> list[TaskOrder]:
        """The turns of a task, at once or within ``wait_s`` of real time; empty: not yet, or not
        any more."""
        end_s = time.monotonic() + wait_s
        with self._changed:
            while not (mine := [t for key, t in self._turns.items() if key[:2] == task]):
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return []
                self._changed.wait(left_s)
            for turn in mine:
                turn.taken = True
            return [turn.order for turn in mine]

    def report(self, key: CopyKey, ok: bool, reason: str = "") -> bool:
        """How a copy ended; False where it has no turn (it was cancelled meanwhile: nobody needs
        it)."""
        with self._changed:
            if key not in self._turns:
                return False
            del self._turns[key]
        self.news.put(CopyEnded(at_s=self.clock.now(), key=key, ok=ok, reason=reason))
        return True

    # what the core says

    def start(self, orders: Sequence[TaskOrder]) -> None:
        with self._changed:
            for order in orders:
                self._turns[order.key] = _Turn(order, self.clock.now())
            self._changed.notify_all()

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """Offered again: who ran them meanwhile announces them anew and reports."""
        self.start(orders)

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        """What the outside made stays where the outside put it."""

    def cancel(self, key: CopyKey) -> None:
        with self._changed:
            self._turns.pop(key, None)

    def poll(self) -> list[CopyEnded]:
        late_s = self.clock.now() - self._patience_s
        with self._changed:
            missed = [key for key, t in self._turns.items() if not t.taken and t.since_s <= late_s]
        for key in missed:
            self.report(key, False, "nobody came for its turn")
        return super().poll()

    def forget(self, key: CopyKey) -> None:
        """Nothing is kept of what has ended."""

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        with self._changed:
            self._turns.clear()
