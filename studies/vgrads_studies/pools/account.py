"""Results of a pool's simulation: ended tasks, and worker time, which is paid for in cycles."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vgrads_studies.pools.values import PoolSample, PoolWorker, SimulatedPool

_CYCLE_S = 1200.0
_BEFORE_S = 30.0  # before its next cycle begins, when a worker leaves


def paid_until(worker: PoolWorker, at_s: float) -> float:
    """Return when a worker that leaves at the end of a cycle leaves, at this instant or after
    it."""
    paid = math.ceil((at_s + _BEFORE_S - worker.joined_s) / _CYCLE_S)
    return worker.joined_s + paid * _CYCLE_S - _BEFORE_S


@dataclass(slots=True)
class Account:
    """The sums of one simulation."""

    workers: int = 0
    worker_s: float = 0.0
    execution_s: float = 0.0
    cycles: int = 0
    useless: int = 0
    ends_s: list[float] = field(default_factory=list)

    def ended(self, now_s: float, execution_s: float) -> None:
        """Record the end of a task."""
        self.execution_s += execution_s
        self.ends_s.append(now_s)

    def left(self, worker: PoolWorker, now_s: float) -> None:
        """Record the departure of a worker."""
        duration_s = now_s - worker.joined_s
        self.worker_s += duration_s
        self.cycles += max(1, math.ceil(duration_s / _CYCLE_S - 1e-9))
        self.useless += not worker.ran

    def simulated(self, looks: tuple[PoolSample, ...]) -> SimulatedPool:
        """Return the results, with the state at each decision."""
        return SimulatedPool(
            turnaround_s=self.ends_s[-1] if self.ends_s else math.inf,
            worker_s=self.worker_s,
            execution_s=self.execution_s,
            cycles=self.cycles,
            workers=self.workers,
            useless=self.useless,
            looks=looks,
            ends_s=tuple(self.ends_s),
        )
