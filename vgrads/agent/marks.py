"""Marks of an agent's tasks, and the processes that ended tasks leave behind.

A task may itself be an agent: the marks of its tasks are appended to its own mark, after a slash.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from .containers import container_name, end_container, ending
from .processes import DEATH_S, Orphans, kill_all, kill_marked, marked

if TYPE_CHECKING:
    from .spawner import Spawner

_SWEEP_S = 0.25  # between scans of all processes
_ADOPTION_S = 1.0  # between looks for adopted processes, which must be waited for when they end


def begins(mark: str, prefix: str) -> bool:
    """Return True where a mark, or one nested in it, begins with this."""
    return any(part.startswith(prefix) for part in (mark, *mark.split("/")))


def around(mark: str) -> set[str]:
    """Return a mark with those in which it is nested."""
    return {mark, *(mark[:at] for at, letter in enumerate(mark) if letter == "/")}


class Marks:
    """The marks of an agent's tasks, and those of ended tasks that may have left processes."""

    def __init__(self, mark: str) -> None:
        """``mark``: the agent's own; those of its tasks begin with it."""
        self._mark = mark
        self._suspected: set[str] = set()
        self._ending: dict[str, threading.Thread] = {}  # mark → end of its container
        self._swept_s = self._adopted_s = 0.0
        self.orphans = Orphans()

    def of(self, key: tuple[int, int, int]) -> str:
        """Return the mark of a task."""
        return "{}.{}.{}.{}".format(self._mark, *key)

    def suspect(self, key: tuple[int, int, int]) -> None:
        """Scan for processes left by this task until none is found."""
        self._suspected.add(self.of(key))

    def end_container_of(self, key: tuple[int, int, int], engine: str) -> None:
        """End the container that a task may have left; the engine may take long."""
        mark = self.of(key)
        words = ending(engine, container_name(mark))
        if words:
            thread = threading.Thread(target=end_container, args=(words, os.environ), daemon=True)
            self._ending[mark] = thread
            thread.start()

    def is_suspected(self, key: tuple[int, int, int]) -> bool:
        """Return True while processes or a container of this task may still run."""
        if not self._suspected and not self._ending:
            return False
        mark = self.of(key)
        return mark in self._suspected or mark in self._ending

    def end_orphans(self, spawner: Spawner) -> None:
        """Kill adopted processes that belong to no child of the agent that runs. While a container
        is ended, its engine needs those that watch over it, which have no mark."""
        if self._ending:
            return

        def is_owner(mark: str) -> bool:
            children = spawner.children()
            own = around(mark)
            return children is None or any(self.of(t.key) in own for t in children.values())

        self.orphans.look(spawner.children, is_owner)

    def look(self, now_s: float, spawner: Spawner) -> None:
        """Kill processes that have outlived their task, at intervals."""
        for mark in [m for m, thread in self._ending.items() if not thread.is_alive()]:
            del self._ending[mark]
        if now_s - self._swept_s < _SWEEP_S:
            return
        if self.orphans or now_s - self._adopted_s >= _ADOPTION_S:
            self._swept_s = self._adopted_s = now_s
            self.end_orphans(spawner)
        if self._suspected:
            self._swept_s = now_s
            left = marked(lambda mark: not self._suspected.isdisjoint(around(mark)))
            kill_all(left)
            self._suspected &= {part for mark in left.values() for part in around(mark)}

    def next_look_s(self, now_s: float) -> float:
        """Return how long until :meth:`look` has something to do, in seconds."""
        if self._ending:
            return _SWEEP_S
        due = self._suspected or self.orphans
        return self._swept_s + _SWEEP_S - now_s if due else float("inf")

    def kill_all(self, end_s: float) -> None:
        """Kill the processes of all tasks, until this instant at most."""
        kill_marked(lambda mark: begins(mark, f"{self._mark}."), end_s - time.monotonic())


def end_tasks(prefix: str) -> None:
    """Kill all processes whose mark begins with this; none runs on return."""
    while not kill_marked(lambda mark: begins(mark, prefix), DEATH_S):
        pass
