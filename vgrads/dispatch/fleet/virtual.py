"""Hosts in virtual time: the same core, an event loop of instants, and hosts that come, work, fail
and vanish."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from vgrads.dispatch.core.hosts import Hello
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Answer, Message, Triple

RunTime = Callable[[int, int, str], tuple[float, int]]
"""(bag, task, host) → (seconds it runs there, exit code)."""


@dataclass(slots=True)
class _VirtualHost:
    id: str
    slot: str
    procs: int
    ends_s: float
    idle_s: float
    life: int = 0
    seq: int = 0
    number: int = 0
    queue: deque[Triple] = field(default_factory=deque)
    running: dict[Triple, float] = field(default_factory=dict)
    ended: list[tuple[int, End]] = field(default_factory=list)
    free: int = 0
    here: bool = True
    said_hello: bool = False
    idle_mark: int = 0
    telling: bool = False
    site: str = ""

    def message(
        self, now_s: float, beats: bool, leaving: str = "", returned: tuple[Triple, ...] = ()
    ) -> Message:
        """What it says now: what has ended since, and with its heartbeats what it runs."""
        self.seq += 1
        hello = None
        if not self.said_hello:
            left_s = None if self.ends_s == float("inf") else self.ends_s - now_s
            hello = Hello(slot=self.slot, procs=self.procs, left_s=left_s, name=self.id)
            self.said_hello = True
        ends, self.ended = self.ended, []
        running = [(t, now_s - at_s) for t, at_s in self.running.items()] if beats else ()
        return Message(
            host=self.id,
            life=f"{self.id}.{self.life}",
            seq=self.seq,
            hello=hello,
            ends=ends,
            returned=returned,
            leaving=leaving,
            running=running,
        )

    def drop(self, answer: Answer, procs_of: Callable[[int], int]) -> None:
        """Drop what it was to give back, or is not to go on with."""
        for triple in (*answer.recall, *answer.cancel):
            if triple in self.queue:
                self.queue.remove(triple)
        for triple in answer.cancel:
            if self.running.pop(triple, None) is not None:
                self.free += procs_of(triple[0])


class _Timeline:
    """Actions at instants of virtual time, in their order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, instant_s: float, what: Callable[[], None]) -> None:
        """Do something at an instant."""
        self._count += 1
        heapq.heappush(self._events, (instant_s, self._count, what))

    def run(self, until_s: float = float("inf"), over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until nothing happens any more, an instant, or a condition."""
        while self._events and self._events[0][0] <= until_s and not over():
            self.now_s, _, what = heapq.heappop(self._events)
            what()

    @property
    def next_s(self) -> float:
        """When something happens next by itself; ``inf`` if never."""
        return self._events[0][0] if self._events else float("inf")


class VirtualHosts(_Timeline):
    """Simulated hosts around a core. ``delay_s``: how long a message takes each way. ``beat_s``:
    how often a host says that it is there and what it runs, and hears what it is to stop; without,
    one that works is not heard of until it has ended something, and hears nothing."""

    def __init__(
        self, core: Core, run_time: RunTime, delay_s: float = 0.001, beat_s: float = float("inf")
    ) -> None:
        super().__init__()
        self.core, self._run_time, self._delay_s, self._beat_s = core, run_time, delay_s, beat_s
        self.hosts: dict[str, _VirtualHost] = {}
        self.on_left: Callable[[str, float], None] = lambda *_: None
        self._level_due = False
        self._wake_s = float("inf")
        self._listens = False

    def join(
        self,
        id: str,
        slot: str = "",
        procs: int = 1,
        ends_s: float = float("inf"),
        idle_s: float = float("inf"),
        site: str = "",
    ) -> None:
        """A host comes now, or comes back as a new process; it leaves by itself after ``idle_s``
        without a task."""
        before = self.hosts.get(id)
        life = before.life + 1 if before else 0
        host = _VirtualHost(id, slot, procs, ends_s, idle_s, life, free=procs, site=site)
        self.hosts[id] = host
        self._send(host)
        if self._beat_s < float("inf"):
            self.at(self.now_s + self._beat_s, partial(self._beat, host))
            if not self._listens:
                self._listens = True
                self.at(self.now_s + self._beat_s, self._listen)

    def leave(self, id: str, lost: bool = False) -> None:
        """A host goes: at once and without a word where it is ``lost``."""
        host = self.hosts[id]
        if not host.here:
            return
        host.here = False
        if lost:
            known = self.core.state.hosts.get(self.core.state.by_id.get(id, -1))
            if known is not None and known.here:
                self.core.gone(known, self.now_s, lost=True)
            self._push()
        else:
            self._send(host, leaving="left")
        self.on_left(id, self.now_s)

    def vanish(self, id: str) -> None:
        """A host is no more, without a word: what it had is missed by its deadline, its silence, or
        its coming back.

        One that waits for work holds a connection, and that breaks; one that works holds none.
        """
        host = self.hosts[id]
        if not host.here:
            return
        host.here = False
        if not host.running and not host.queue:
            self.core.waiting.pop(self.core.state.by_id.get(id, -1), None)
        self.on_left(id, self.now_s)

    def push(self) -> None:
        """Tell hosts that wait what there is for them now."""
        self._push()

    # inside

    def _send(
        self, host: _VirtualHost, leaving: str = "", returned: tuple[Triple, ...] = ()
    ) -> None:
        message = host.message(self.now_s, self._beat_s < float("inf"), leaving, returned)
        self.at(self.now_s + self._delay_s, lambda: self._hear(host, message))

    def _procs(self, bag: int) -> int:
        return self.core.state.bags[bag].procs

    def _beat(self, host: _VirtualHost) -> None:
        if host.here:
            self._send(host)
            self.at(self.now_s + self._beat_s, partial(self._beat, host))

    def _listen(self) -> None:
        if self.core.lose_silent(self.now_s):
            self._push()
        self.at(self.now_s + self._beat_s, self._listen)

    def _hear(self, host: _VirtualHost, message: Message) -> None:
        if not self.core.hear(message, self.now_s, host.site):
            return
        known = self.core.state.hosts[self.core.state.by_id[host.id]]
        host.number = known.number
        if known.here:
            self._tell(host, self.core.answer(known, self.now_s))
        self._push()

    def _push(self) -> None:
        for known, answer in self.core.due(self.now_s):
            self._tell(self.hosts[known.id], answer)
        next_s = max(self.core.next_s, self.now_s + 1e-3)
        if next_s < self._wake_s or self._wake_s <= self.now_s:
            self._wake_s = next_s
            if next_s < float("inf"):
                self.at(next_s, self._push)
        if not self._level_due:
            self._level_due = True
            self.at(self.now_s + 0.2, self._level)

    def _level(self) -> None:
        self._level_due = False
        self.core.level()
        for known, answer in self.core.due(self.now_s):
            self._tell(self.hosts[known.id], answer)

    def _tell(self, host: _VirtualHost, answer: Answer) -> None:
        if answer:
            self.at(self.now_s + self._delay_s, lambda: self._take(host, answer))
        else:
            self._watch_idle(host)

    def _take(self, host: _VirtualHost, answer: Answer) -> None:
        if not host.here:
            return
        host.idle_mark += 1
        host.queue.extend(answer.give)
        returned = tuple(t for t in answer.recall if t in host.queue)
        host.drop(answer, self._procs)
        if answer.drain:
            returned += tuple(host.queue)
            host.queue.clear()
        if returned or (answer.drain and not host.running):
            self._send(host, "drained" if answer.drain else "", returned)
            if answer.drain and not host.running:
                host.here = False
                self.on_left(host.id, self.now_s)
                return
        self._begin(host)
        self._watch_idle(host)
        if answer.cancel and not host.running and self._beat_s < float("inf"):
            self._send(host)  # free before its time: it asks at once
        elif answer.give and host.free > 0 and not host.queue:
            self._send(host)  # it has room for more, as agents say too

    def _begin(self, host: _VirtualHost) -> None:
        while host.free > 0 and host.queue:
            triple = host.queue.popleft()
            procs = self._procs(triple[0])
            if procs > host.free and host.running:
                host.queue.appendleft(triple)
                return
            runs_s, code = self._run_time(triple[0], triple[1], host.id)
            host.free -= procs
            host.running[triple] = self.now_s
            self.at(self.now_s + runs_s, partial(self._end, host, triple, runs_s, code))

    def _end(self, host: _VirtualHost, triple: Triple, ran_s: float, code: int) -> None:
        if not host.here or host.running.pop(triple, None) is None:
            return
        bag, task, attempt = triple
        host.free += self._procs(bag)
        host.ended.append((bag, End(task, host.number, self.now_s, code, attempt, ran_s)))
        self._begin(host)
        if not host.telling:  # what ends within a moment is told at once
            host.telling = True
            self.at(
                self.now_s + (self._delay_s if host.running else 0.0), lambda: self._report(host)
            )

    def _report(self, host: _VirtualHost) -> None:
        host.telling = False
        if host.here:
            self._send(host)

    def _watch_idle(self, host: _VirtualHost) -> None:
        """A host without a task leaves after its time: distributed release (Falkon, section
        3.1)."""
        if host.idle_s == float("inf") or host.running or host.queue or not host.here:
            return
        host.idle_mark += 1
        mark = host.idle_mark

        def leave() -> None:
            if host.here and host.idle_mark == mark and not host.running and not host.queue:
                self.leave(host.id)

        self.at(self.now_s + host.idle_s, leave)
