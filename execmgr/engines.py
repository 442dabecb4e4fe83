"""Several engines as one: each site's tasks run in the engine that reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from execmgr.engine import Engine, TaskOrder
from execmgr.news import News, NewsDesk
from planner.snapshot import CopyKey


class SharingEngine(Engine, Protocol):
    """An engine that puts its news into a queue that it was given."""

    def forget(self, key: CopyKey) -> None:
        """A copy has ended and needs no more looking after."""


class Engines(NewsDesk):
    """``by_site``: the engine of each site; all of them put their news into ``news``."""

    def __init__(self, by_site: Mapping[str, SharingEngine], news: News) -> None:
        super().__init__(news)
        self._by_site = by_site
        self._engines = list({id(engine): engine for engine in by_site.values()}.values())
        self._where: dict[CopyKey, SharingEngine] = {}

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            engine = self._where[order.key] = self._by_site[order.site]
            engine.start([order])

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            self._where[order.key] = self._by_site[order.site]
        for engine in self._engines:
            engine.recover([order for order in orders if self._by_site[order.site] is engine])

    def cancel(self, key: CopyKey) -> None:
        if key in self._where:
            self._where[key].cancel(key)

    def forget(self, key: CopyKey) -> None:
        if key in self._where:
            self._where.pop(key).forget(key)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def abandon(self) -> None:
        for engine in self._engines:
            engine.abandon()
