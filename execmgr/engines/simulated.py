"""Tasks in virtual time: each takes what it was planned to take, give or take, and may fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.execmgr.core.states import CopyEnded
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.kernel.clock import Clock
from vgrads.kernel.events import EventQueue
from vgrads.kernel.streams import stream
from vgrads.planner.snapshot import CopyKey


@dataclass(frozen=True, kw_only=True)
class Luck:
    """What is drawn for each task: its run time over its median (``factor``), and whether it fails.

    ``failures``: slot → P(a task fails there). Equal copies of a task run equally long.
    """

    seed: int = 0
    factor: Callable[[TaskOrder], float] = lambda _: 1.0
    failures: Mapping[str, float] = field(default_factory=dict)

    def runs(self, order: TaskOrder) -> tuple[float, bool]:
        """Seconds that a copy runs, and whether it succeeds."""
        seconds = order.runtime_s * self.factor(order)
        failure = self.failures.get(order.slot, 0.0)
        tries = (order.attempt,) if order.attempt else ()
        draws = stream(self.seed, "task", *map(str, order.key), *tries) if failure > 0 else None
        if draws is None or draws.random() >= failure:
            return seconds, True
        return seconds * float(draws.random()), False


class SimulatedEngine:
    """Ends copies after their run time on the injected clock."""

    def __init__(self, clock: Clock, luck: Luck | None = None) -> None:
        self._clock, self._luck = clock, luck or Luck()
        self._due: EventQueue[tuple[CopyKey, bool]] = EventQueue()
        self._tickets: dict[CopyKey, int] = {}
        self._attempts: dict[CopyKey, int] = {}
        self._ended: dict[CopyKey, CopyEnded] = {}
        self._again: list[CopyEnded] = []

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """As if the tasks had gone on while nobody looked: they have, on the same clock."""
        wanted = {order.key for order in orders}
        for key in [key for key in self._tickets if key not in wanted]:
            self.cancel(key)
        known = [order for order in orders if self._attempts.get(order.key) == order.attempt]
        self._again = [self._ended[order.key] for order in known if order.key in self._ended]
        self.start([order for order in orders if order not in known])

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            seconds, works = self._luck.runs(order)
            due = (order.key, works)
            self._ended.pop(order.key, None)
            self._attempts[order.key] = order.attempt
            self._tickets[order.key] = self._due.push(self._clock.now() + seconds, due)

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        """Virtual outputs are where they belong as soon as they are made."""

    def cancel(self, key: CopyKey) -> None:
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            self._due.cancel(ticket)

    def poll(self) -> list[CopyEnded]:
        ended = [
            CopyEnded(at_s=at_s, key=key, ok=works, reason="" if works else "the task failed")
            for at_s, (key, works) in self._due.pop_until(self._clock.now())
        ]
        ended, self._again = [*self._again, *ended], []
        for event in ended:
            self._tickets.pop(event.key, None)
            self._ended[event.key] = event
        return ended

    def wake_at(self) -> float:
        return self._clock.now() if self._again else self._due.peek_time()

    def wait(self, timeout_s: float) -> None:
        time.sleep(max(0.0, timeout_s))

    def close(self) -> None:
        for key in list(self._tickets):
            self.cancel(key)

    def abandon(self) -> None:
        """Virtual tasks need nobody to look after them."""
