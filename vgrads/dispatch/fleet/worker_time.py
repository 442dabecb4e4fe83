"""How long workers are occupied by a task, with the time between two tasks, and whether more of
them do more tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_LEAST = 20
_ROUNDS, _MORE, _EQUAL = 10, 1.5, 1.1


@dataclass
class WorkerTime:
    """Measured while more tasks wait than there are workers, and while their number is constant.

    The tasks that run at the end of the measurement count as done, for each worker one: otherwise
    the time of the first ones, of which none has ended, would count as time between tasks."""

    _measured: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Number of workers → seconds, and the tasks that ended."""
    _last: tuple[float, int, int, bool] | None = None

    def look(self, now_s: float, workers: int, done: int, waiting: bool) -> None:
        """Record how many workers there are, and how many tasks they have done so far."""
        if self._last is not None and waiting and self._last[3] and workers == self._last[1]:
            at_s, _, before, _ = self._last
            seconds, tasks = self._measured.get(workers, (0.0, 0))
            self._measured[workers] = (seconds + now_s - at_s, tasks + done - before)
        self._last = (now_s, workers, done, waiting)

    def overhead_s(self, each_s: float) -> float:
        """Return the time that a worker does not run a task, for each task."""
        tasks = sum(ended for _, ended in self._measured.values())
        if tasks < _LEAST:
            return 0.0
        occupied_s = sum(workers * seconds for workers, (seconds, _) in self._measured.items())
        return max(0.0, occupied_s / (tasks + max(self._measured)) - each_s)

    @property
    def rate(self) -> float:
        """Return how many tasks in a second the dispatcher can start at most; ``inf`` unless more
        workers, by a half at least, did not do more tasks, over ten rounds of tasks."""
        rates = [
            (workers, tasks / seconds)
            for workers, (seconds, tasks) in sorted(self._measured.items())
            if tasks >= max(_LEAST, _ROUNDS * workers) and seconds > 0.0
        ]
        limited = any(
            more >= _MORE * fewer and faster <= _EQUAL * slower
            for n, (fewer, slower) in enumerate(rates)
            for more, faster in rates[n + 1 :]
        )
        return max(rate for _, rate in rates) if limited else math.inf
