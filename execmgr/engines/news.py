"""How engines of real tasks tell what ended: a queue that threads fill and one loop waits for."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from contextlib import suppress

from vgrads.execmgr.core.states import CopyEnded
from vgrads.planner.snapshot import CopyKey

News = queue.SimpleQueue[CopyEnded]


class NewsDesk(ABC):
    """The part of an engine that is the same for all; engines that share ``news`` are waited for as
    one."""

    def __init__(self, news: News | None = None) -> None:
        self.news: News = news or queue.SimpleQueue()
        self._held: list[CopyEnded] = []

    @abstractmethod
    def forget(self, key: CopyKey) -> None:
        """A copy has ended and needs no more looking after."""

    def poll(self) -> list[CopyEnded]:
        """Copies that ended since the last call."""
        ended, self._held = self._held, []
        while not self.news.empty():
            ended.append(self.news.get())
        for event in ended:
            self.forget(event.key)
        return ended

    def wake_at(self) -> float:
        """Real tasks end when they end."""
        return float("inf")

    def wait(self, timeout_s: float) -> None:
        """Return after ``timeout_s``, or sooner when there is news."""
        with suppress(queue.Empty):
            self._held.append(self.news.get(timeout=max(0.0, timeout_s)))
