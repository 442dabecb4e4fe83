"""Tasks in virtual time: each takes its planned run time with an error, and may fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import Clock
from vgrads.kernel.events import EventQueue
from vgrads.kernel.streams import stream
from vgrads.planner.snapshot import ReplicaKey


@dataclass(frozen=True, kw_only=True)
class FailureModel:
    """Sampled values of each task: its run time over its median (``factor``), and whether it fails.

    ``failures``: slot → P(a task fails there). Replicas of a task have equal run times.
    """

    seed: int = 0
    factor: Callable[[TaskOrder], float] = lambda _: 1.0
    failures: Mapping[str, float] = field(default_factory=dict)

    def runs(self, order: TaskOrder) -> tuple[float, bool]:
        """Return the run time of a replica in seconds, and whether it succeeds."""
        seconds = order.runtime_s * self.factor(order)
        failure = self.failures.get(order.slot, 0.0)
        # each further attempt draws from a stream of its own, and may succeed
        tries = (order.attempt,) if order.attempt else ()
        draws = stream(self.seed, "task", *map(str, order.key), *tries) if failure > 0 else None
        if draws is None or draws.random() >= failure:
            return seconds, True
        # it fails somewhere within its run time
        return seconds * float(draws.random()), False


class SimulatedEngine:
    """Ends replicas after their run time on the injected clock."""

    def __init__(self, clock: Clock, failure_model: FailureModel | None = None) -> None:
        self._clock, self._failures = clock, failure_model or FailureModel()
        self._due: EventQueue[tuple[ReplicaKey, bool]] = EventQueue()
        self._tickets: dict[ReplicaKey, int] = {}
        self._attempts: dict[ReplicaKey, int] = {}  # of those that are not the first
        self._ended: dict[ReplicaKey, ReplicaEnded] = {}
        self._again: list[ReplicaEnded] = []

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """Resume as if the tasks had continued without a manager: they have, on the same clock."""
        needed = {order.key for order in orders}
        for key in [key for key in self._tickets if key not in needed]:
            self.cancel(key)
        running = [order for order in orders if self._knows(order)]
        # ended, but perhaps not journaled by the earlier manager: reported once more
        self._again = [self._ended[order.key] for order in running if order.key in self._ended]
        self.start([order for order in orders if order not in running])

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            seconds, works = self._failures.runs(order)
            due = (order.key, works)
            self._ended.pop(order.key, None)
            if order.attempt:
                self._attempts[order.key] = order.attempt
            self._tickets[order.key] = self._due.push(self._clock.now() + seconds, due)

    def _knows(self, order: TaskOrder) -> bool:
        """True if this attempt was started, and runs or has ended."""
        started = order.key in self._tickets or order.key in self._ended
        return started and self._attempts.get(order.key, 0) == order.attempt

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        """Report the outputs as committed: virtual outputs are in place at once."""

    def cancel(self, key: ReplicaKey) -> None:
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            self._due.cancel(ticket)

    def poll(self) -> list[ReplicaEnded]:
        ended = [
            ReplicaEnded(at_s=at_s, key=key, ok=works, reason="" if works else "the task failed")
            for at_s, (key, works) in self._due.pop_until(self._clock.now())
        ]
        ended, self._again = [*self._again, *ended], []
        for event in ended:
            self._tickets.pop(event.key, None)
            self._ended[event.key] = event
        return ended

    def stored(self) -> None:
        """Do nothing: what ended is nowhere else."""

    def wake_at(self) -> float:
        return self._clock.now() if self._again else self._due.peek_time()

    def wait(self, timeout_s: float) -> None:
        time.sleep(max(0.0, timeout_s))

    def close(self) -> None:
        for key in list(self._tickets):
            self.cancel(key)

    def detach(self) -> None:
        """Do nothing: virtual tasks need no supervision."""
