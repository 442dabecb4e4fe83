"""Several engines as one: each site's tasks run in the engine that reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from vgrads.execmgr.core.states import CopyEnded
from vgrads.execmgr.engines.base import Engine, TaskOrder
from vgrads.execmgr.engines.news import News, NewsDesk
from vgrads.execmgr.tasks.folder import CONTACT, TaskFolder
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import CopyKey

if TYPE_CHECKING:
    from vgrads.execmgr.engines.dask import DaskEngine


class SharingEngine(Engine, Protocol):
    """An engine that puts its news into a queue that it was given."""

    def forget(self, key: CopyKey) -> None:
        """A copy has ended and needs no more looking after."""


class AwayEngine:
    """The Dask engine, begun when a slot somewhere else first needs it: a run that stays here opens
    no port."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: News, apart: frozenset[str]) -> None:
        self._made_of = (clock, folder, news, apart)
        self._dask: DaskEngine | None = None

    def dask(self) -> DaskEngine:
        """The engine, begun now if it was not before."""
        from vgrads.execmgr.engines.dask import DaskEngine  # noqa: PLC0415 half a second

        if self._dask is None:
            self._dask = DaskEngine(*self._made_of)
        return self._dask

    def reports(self, slot: str) -> bool:
        """True where the worker of a slot is there for tasks."""
        return self.dask().reports(slot)

    def start(self, orders: Sequence[TaskOrder]) -> None:
        self.dask().start(orders)

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """The port is opened again at once where an earlier manager had one: workers look for
        it."""
        if orders or (self._made_of[1].run_folder / CONTACT).is_file():
            self.dask().recover(orders)

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        self.dask().commit(orders)

    def cancel(self, key: CopyKey) -> None:
        if self._dask is not None:
            self._dask.cancel(key)

    def forget(self, key: CopyKey) -> None:
        if self._dask is not None:
            self._dask.forget(key)

    def poll(self) -> list[CopyEnded]:
        """News goes to the common desk."""
        return []

    def wake_at(self) -> float:
        return float("inf")

    def wait(self, timeout_s: float) -> None:
        """The common desk waits."""

    def close(self) -> None:
        if self._dask is not None:
            self._dask.close()

    def abandon(self) -> None:
        if self._dask is not None:
            self._dask.abandon()


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

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            self._by_site[order.site].commit([order])

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
