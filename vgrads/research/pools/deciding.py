"""The pool of a play: it decides how many workers the manager gets, by what that tells of itself.

It asks ``vgrads.pool.decide.decide``, the function that serves real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.pool.capacity import Capacity, capacity, capacity_with_think
from vgrads.pool.decide import Decision, PoolNow, PoolPolicy, WorkerNow, decide
from vgrads.pool.samples import Meter, TaskTimes, fold
from vgrads.pool.share import ManagerAd
from vgrads.pool.view import RequestView
from vgrads.research.pools.values import Host, Look, Setting

OURS = {"d8"}
"""Policies that are told our capacity; others are told that of the thesis."""
_NAME = "m"
_WINDOW = 10  # of the thesis's estimate: the last tasks, as many as workers are busy, and no fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a manager stands: tasks that wait, run and have ever come, and its workers."""

    waiting: int
    running: int
    arrived: int
    workers: tuple[Host, ...]


class PlayedPool:
    """One manager's pool. ``asked``: workers that are to come, and since when; ``waits_s``: how
    long others took to come."""

    def __init__(self, policy: PoolPolicy, setting: Setting, waits_s: Sequence[float]) -> None:
        self._policy, self._period_s = policy, setting.period_s
        self._waits_s = list(waits_s)
        self._meter = Meter(serial=setting.serial)
        self._decision, self._decided_s = Decision(), 0.0
        self._known: Capacity | None = None
        self._thesis: float | None = None
        self.asked: dict[str, float] = {}
        self.looks: list[Look] = []

    @property
    def share(self) -> int:
        """How many workers the manager may have."""
        return self._decision.shares.get(_NAME, 0)

    def came(self, request: str, now_s: float) -> bool:
        """A worker has come; False where it is not wanted any more."""
        asked_s = self.asked.pop(request, None)
        if asked_s is not None:
            self._waits_s.append(now_s - asked_s)
        return asked_s is not None

    def decide(
        self, now_s: float, now: Standing, fresh: list[TaskTimes], last: Sequence[TaskTimes]
    ) -> Decision:
        """What is to be done. ``fresh``: tasks that ended since the last time; ``last``: the latest
        of all."""
        self._meter = fold(self._meter, fresh, now.running)
        self._known = capacity(self._meter)
        busy = max(_WINDOW, now.running)
        self._thesis = capacity_with_think(list(last)[-busy:]) if len(last) >= _WINDOW else None
        self._decision = decide(self._view(now_s, now), self._policy)
        self._decided_s = now_s
        for name in self._decision.withdraw:
            del self.asked[name]
        return self._decision

    def note(self, now_s: float, now: Standing) -> None:
        """Keep how it stands once a decision was carried out."""
        connected = len(now.workers)
        self.looks.append(
            Look(
                at_s=now_s,
                decided=self._decision.shares[_NAME],
                connected=connected,
                target=connected + len(self.asked),
                busy=now.running,
                unfinished=now.waiting + now.running,
                known=self._known,
                thesis=self._thesis,
            )
        )

    def _ad(self, now_s: float, now: Standing) -> ManagerAd:
        served = sum(one.served for one in now.workers)
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
        if self._known is None:
            return replace(ad, capacity=None)
        told = self._known.workers
        return replace(ad, capacity=told.value, capacity_low=told.low, capacity_high=told.high)

    def _view(self, now_s: float, now: Standing) -> PoolNow:
        workers = tuple(
            WorkerNow(
                id=one.id,
                joined_s=one.joined_s,
                idle_since_s=one.idle_s,
                manager=_NAME if one.served else None,
                cache_mib=float(len(one.files)),
            )
            for one in now.workers
        )
        low_s, median_s = np.quantile(self._waits_s[-60:], (0.1, 0.5))
        return PoolNow(
            now_s=now_s,
            managers=(self._ad(now_s, now),),
            workers=workers,
            previous=self._decision.shares,
            asked=tuple(
                RequestView(id=name, hosts=1, asked_s=at_s) for name, at_s in self.asked.items()
            ),
            elapsed_s=now_s - self._decided_s if self.looks else self._period_s,
            wait_s=float(median_s),
            wait_low_s=float(low_s),
            memory=self._decision.memory,
        )
