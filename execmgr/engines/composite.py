"""Several engines as one: each site's tasks run in the engine that reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from vgrads.execmgr.engines.base import Engine
from vgrads.execmgr.engines.completion_queue import CompletionQueue, Completions
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.planner.snapshot import ReplicaKey


class SharingEngine(Engine, Protocol):
    """An engine that puts its events into a shared queue."""

    def forget(self, key: ReplicaKey) -> None:
        """Forget a replica that has ended."""


class Engines(CompletionQueue):
    """``by_site``: the engine of each site; all put their events into ``news``."""

    def __init__(self, by_site: Mapping[str, SharingEngine], news: Completions) -> None:
        super().__init__(news)
        self._by_site = by_site
        # one engine may serve several sites, and is called once for all of them
        self._engines = list({id(engine): engine for engine in by_site.values()}.values())
        self._where: dict[ReplicaKey, SharingEngine] = {}

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            engine = self._where[order.key] = self._by_site[order.site]
            engine.start([order])

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            self._where[order.key] = self._by_site[order.site]
        for engine in self._engines:
            engine.recover([order for order in orders if self._by_site[order.site] is engine])

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            self._by_site[order.site].commit([order])

    def cancel(self, key: ReplicaKey) -> None:
        if key in self._where:
            self._where[key].cancel(key)

    def forget(self, key: ReplicaKey) -> None:
        if key in self._where:
            self._where.pop(key).forget(key)

    def stored(self) -> None:
        for engine in self._engines:
            engine.stored()

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def detach(self) -> None:
        for engine in self._engines:
            engine.detach()
