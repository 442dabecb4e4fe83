"""Completion reports of engines for real tasks: a queue that threads fill and one loop reads."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from contextlib import suppress

from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.planner.snapshot import ReplicaKey

Completions = queue.Queue[ReplicaEnded | None]
"""Ends of replicas; None only ends a wait. Not a ``SimpleQueue``: its ``get`` never returns if its
timeout passes before it has begun to wait (CPython 3.11)."""


class CompletionQueue(ABC):
    """Common part of engines; engines that share ``news`` are waited for together."""

    def __init__(self, news: Completions | None = None) -> None:
        self.news: Completions = news or queue.Queue()
        self._postponed: list[ReplicaEnded] = []

    @abstractmethod
    def forget(self, key: ReplicaKey) -> None:
        """Forget a replica that has ended."""

    def poll(self) -> list[ReplicaEnded]:
        """Return the replicas that ended since the last call."""
        ended, self._postponed = self._postponed, []
        while not self.news.empty():
            self._postpone(self.news.get(), ended)
        for event in ended:
            self.forget(event.key)
        return ended

    def stored(self) -> None:
        """Do nothing: what ended is nowhere else."""
        return

    def wake_at(self) -> float:
        """Return ``inf``: ends of real tasks are not known in advance."""
        return float("inf")

    def wait(self, timeout_s: float) -> None:
        """Return after ``timeout_s``, or sooner if there is an event."""
        with suppress(queue.Empty):
            self._postpone(self.news.get(timeout=max(0.0, timeout_s)), self._postponed)

    @staticmethod
    def _postpone(news: ReplicaEnded | None, ended: list[ReplicaEnded]) -> None:
        if news is not None:
            ended.append(news)
