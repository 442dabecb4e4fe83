"""Tasks in virtual time: each takes what it was planned to take."""

from __future__ import annotations

import time
from collections.abc import Sequence

from execmgr.engine import TaskOrder
from execmgr.states import CopyEnded
from kernel.clock import Clock
from kernel.events import EventQueue
from planner.snapshot import CopyKey


class SimulatedEngine:
    """Ends copies after their run time on the injected clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: EventQueue[CopyKey] = EventQueue()
        self._tickets: dict[CopyKey, int] = {}

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            self._tickets[order.key] = self._due.push(
                self._clock.now() + order.runtime_s, order.key
            )

    def cancel(self, key: CopyKey) -> None:
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            self._due.cancel(ticket)

    def poll(self) -> list[CopyEnded]:
        ended = [
            CopyEnded(at_s=at_s, key=key, ok=True)
            for at_s, key in self._due.pop_until(self._clock.now())
        ]
        for event in ended:
            self._tickets.pop(event.key, None)
        return ended

    def wake_at(self) -> float:
        return self._due.peek_time()

    def wait(self, timeout_s: float) -> None:
        time.sleep(max(0.0, timeout_s))

    def close(self) -> None:
        for key in list(self._tickets):
            self.cancel(key)
