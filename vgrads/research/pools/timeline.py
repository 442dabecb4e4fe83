"""Virtual time of a pool's play: what happens when, and what waits until it is served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

_Happens = Callable[..., None]


class Timeline:
    """What will happen, in order of time; at one instant, in the order in which it was added."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._count = 0
        self._events: list[tuple[float, int, _Happens, tuple[Any, ...]]] = []

    def number(self) -> int:
        """Another one each time."""
        self._count += 1
        return self._count

    def at(self, at_s: float, what: _Happens, *about: object) -> None:
        """Something will happen."""
        heappush(self._events, (at_s, self.number(), what, about))

    def after(self, seconds: float, what: _Happens, *about: object) -> None:
        """Something will happen so much later than now."""
        self.at(self.now_s + seconds, what, *about)

    def run(self, until_s: Callable[[], float]) -> None:
        """All that happens up to an instant, which may come nearer meanwhile."""
        while self._events:
            self.now_s, _, what, about = heappop(self._events)
            if self.now_s > until_s():
                self.now_s = until_s()
                break
            what(*about)


@dataclass(slots=True)
class _Server:
    """Serves one at a time."""

    busy: bool = False
    first: deque[Any] = field(default_factory=deque)
    then: deque[Any] = field(default_factory=deque)


class Servers:
    """The links of a manager (``up``, ``down``) and the application's code (``think``), each of
    which serves one after another; all are one where it is ``serial``."""

    def __init__(self, time: Timeline, serial: bool) -> None:
        self._time, one = time, _Server()
        self._servers = {name: one if serial else _Server() for name in ("up", "down", "think")}

    def serve(self, resource: str, seconds: float, what: _Happens, *about: object) -> None:
        """Something happens once a resource has served that; workers get their tasks first, results
        wait in a row."""
        server = self._servers[resource]
        (server.first if resource == "up" else server.then).append((seconds, what, about))
        if not server.busy:
            self._next(server)

    def _next(self, server: _Server) -> None:
        server.busy = bool(server.first or server.then)
        if server.busy:
            seconds, what, about = (server.first or server.then).popleft()
            self._time.after(seconds, self._served, server, what, about)

    def _served(self, server: _Server, what: _Happens, about: tuple[Any, ...]) -> None:
        """What was served goes on; whoever that lets come is served before others who wait."""
        server.busy = True
        what(*about)
        self._next(server)
