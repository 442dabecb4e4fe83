"""Virtual time of a pool's simulation: scheduled events, and servers with queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

_Happens = Callable[..., None]


class Timeline:
    """Scheduled events, in order of time; at one instant, in the order of insertion."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._count = 0
        self._events: list[tuple[float, int, _Happens, tuple[Any, ...]]] = []

    def number(self) -> int:
        """Return a new number at each call."""
        self._count += 1
        return self._count

    def at(self, at_s: float, what: _Happens, *about: object) -> None:
        """Schedule an event at an instant."""
        heappush(self._events, (at_s, self.number(), what, about))

    def after(self, seconds: float, what: _Happens, *about: object) -> None:
        """Schedule an event after a delay."""
        self.at(self.now_s + seconds, what, *about)

    def run(self, until_s: Callable[[], float]) -> None:
        """Run all events up to an instant, which may be moved earlier during the run."""
        while self._events:
            self.now_s, _, what, about = heappop(self._events)
            if self.now_s > until_s():
                self.now_s = until_s()
                break
            what(*about)


@dataclass(slots=True)
class _Server:
    """A server of one request at a time."""

    busy: bool = False
    first: deque[Any] = field(default_factory=deque)
    then: deque[Any] = field(default_factory=deque)


class Servers:
    """The links of a manager (``up``, ``down``) and the application's code (``think``), each of
    which serves one at a time; all are one where it is ``serial``."""

    def __init__(self, time: Timeline, serial: bool) -> None:
        self._time, server = time, _Server()
        self._servers = {name: server if serial else _Server() for name in ("up", "down", "think")}

    def serve(self, resource: str, seconds: float, what: _Happens, *about: object) -> None:
        """Run an event once a resource has served it; tasks for workers have priority, results wait
        in order."""
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
        """Run the event of a served request; requests that it causes are served before waiting
        ones."""
        server.busy = True
        what(*about)
        self._next(server)
