"""The pool of a simulation: it decides how many workers the manager gets, from the manager's
reported state.

It calls ``vgrads.pool.decide.decide``, the function used in production.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.pool.capacity import Capacity, capacity, compute_capacity_with_think
from vgrads.pool.decide import Decision, PoolPolicy, PoolSnapshot, WorkerView, decide
from vgrads.pool.samples import Meter, TaskTimes, fold
from vgrads.pool.share import ManagerAd
from vgrads.pool.view import RequestView
from vgrads_studies.pools.values import PoolSample, PoolWorker, StudyConfig

OURS = {"d8"}
"""Policies that use our capacity; others use that of the thesis."""
_NAME = "m"
_WINDOW = 10  # tasks in the thesis's estimate: busy workers, at least this


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerLoad:
    """State of a manager: waiting, running and total tasks, and its workers."""

    waiting: int
    running: int
    arrived: int
    workers: tuple[PoolWorker, ...]


class SimulatedPoolDecider:
    """One manager's pool. ``requests``: workers that have not joined, and their request times;
    ``waits_s``: observed waits."""

    def __init__(self, policy: PoolPolicy, config: StudyConfig, waits_s: Sequence[float]) -> None:
        self._policy, self._period_s = policy, config.period_s
        self._waits_s = list(waits_s)
        self._meter = Meter(serial=config.serial)
        self._decision, self._decided_s = Decision(), 0.0
        self._capacity: Capacity | None = None
        self._thesis: float | None = None
        self.requests: dict[str, float] = {}
        self.looks: list[PoolSample] = []

    @property
    def share(self) -> int:
        """Return how many workers the manager may have."""
        return self._decision.shares.get(_NAME, 0)

    def came(self, request: str, now_s: float) -> bool:
        """Record that a worker has joined; return False where it is no longer needed."""
        requested_s = self.requests.pop(request, None)
        if requested_s is not None:
            self._waits_s.append(now_s - requested_s)
        return requested_s is not None

    def decide(
        self, now_s: float, now: ManagerLoad, fresh: list[TaskTimes], last: Sequence[TaskTimes]
    ) -> Decision:
        """Return the decision. ``fresh``: tasks that ended since the last one; ``last``: the latest
        of all."""
        self._meter = fold(self._meter, fresh, now.running)
        self._capacity = capacity(self._meter)
        busy = max(_WINDOW, now.running)
        self._thesis = (
            compute_capacity_with_think(list(last)[-busy:]) if len(last) >= _WINDOW else None
        )
        self._decision = decide(self._view(now_s, now), self._policy)
        self._decided_s = now_s
        for name in self._decision.withdraw:
            del self.requests[name]
        return self._decision

    def note(self, now_s: float, now: ManagerLoad) -> None:
        """Record the state after a decision was carried out."""
        connected = len(now.workers)
        self.looks.append(
            PoolSample(
                at_s=now_s,
                decided=self._decision.shares[_NAME],
                connected=connected,
                target=connected + len(self.requests),
                busy=now.running,
                unfinished=now.waiting + now.running,
                estimate=self._capacity,
                thesis=self._thesis,
            )
        )

    def _ad(self, now_s: float, now: ManagerLoad) -> ManagerAd:
        served = sum(worker.served for worker in now.workers)
        ad = ManagerAd(
            name=_NAME,
            waiting=now.waiting,
            running=now.running,
            workers=served,
            by_pool={"": served},
            at_s=now_s,
            arrived=now.arrived,
            capacity=self._thesis,
            execution_s=float(self._meter.all.means[0]) if self._meter.ended else None,
            cycle_s=self._meter.cycle_s or None,
        )
        if self._policy.sizing not in OURS:
            return ad
        if self._capacity is None:
            return replace(ad, capacity=None)
        interval = self._capacity.workers
        return replace(
            ad, capacity=interval.value, capacity_low=interval.low, capacity_high=interval.high
        )

    def _view(self, now_s: float, now: ManagerLoad) -> PoolSnapshot:
        workers = tuple(
            WorkerView(
                id=worker.id,
                joined_s=worker.joined_s,
                idle_since_s=worker.idle_s,
                manager=_NAME if worker.served else None,
                cache_mib=float(len(worker.files)),
            )
            for worker in now.workers
        )
        low_s, median_s = np.quantile(self._waits_s[-60:], (0.1, 0.5))
        return PoolSnapshot(
            now_s=now_s,
            managers=(self._ad(now_s, now),),
            workers=workers,
            previous=self._decision.shares,
            requests=tuple(
                RequestView(id=name, nodes=1, requested_s=at_s)
                for name, at_s in self.requests.items()
            ),
            elapsed_s=now_s - self._decided_s if self.looks else self._period_s,
            wait_s=float(median_s),
            wait_low_s=float(low_s),
            memory=self._decision.memory,
        )
