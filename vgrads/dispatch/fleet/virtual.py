"""Agents in virtual time: the same core, an event loop of instants, and agents that join, work,
fail and vanish."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from vgrads.dispatch.core.protocol import AgentReply
from vgrads.dispatch.core.step import Core
from vgrads.exchange.values import AttemptEnd, Hello, Message, Triple

RunTime = Callable[[int, int, str], tuple[float, int]]
"""(bag, task, node) → (run time there in seconds, exit code)."""


@dataclass(slots=True)
class _VirtualAgent:
    id: str
    slot: str
    procs: int
    ends_s: float
    idle_s: float
    incarnation: int = 0
    seq: int = 0
    number: int = 0
    queue: deque[Triple] = field(default_factory=deque)
    running: dict[Triple, float] = field(default_factory=dict)
    ended: list[tuple[int, AttemptEnd]] = field(default_factory=list)
    free: int = 0
    here: bool = True
    greeted: bool = False
    idle_mark: int = 0
    telling: bool = False
    site: str = ""

    def message(
        self, now_s: float, heartbeats: bool, leaving: str = "", returned: tuple[Triple, ...] = ()
    ) -> Message:
        """Return its message: results since the last one, and with heartbeats its running tasks."""
        self.seq += 1
        hello = None
        if not self.greeted:
            left_s = None if self.ends_s == float("inf") else self.ends_s - now_s
            hello = Hello(slot=self.slot, procs=self.procs, left_s=left_s, name=self.id)
            self.greeted = True
        ends, self.ended = self.ended, []
        running = [(t, now_s - at_s) for t, at_s in self.running.items()] if heartbeats else ()
        return Message(
            agent=self.id,
            incarnation=f"{self.id}.{self.incarnation}",
            seq=self.seq,
            hello=hello,
            ends=ends,
            returned=returned,
            leaving=leaving,
            running=running,
        )

    def drop(self, answer: AgentReply, procs_of: Callable[[int], int]) -> None:
        """Drop the tasks that the answer requests back or cancels."""
        for triple in (*answer.evict, *answer.cancel):
            if triple in self.queue:
                self.queue.remove(triple)
        for triple in answer.cancel:
            if self.running.pop(triple, None) is not None:
                self.free += procs_of(triple[0])


class _Timeline:
    """Actions at instants of virtual time, in order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, instant_s: float, what: Callable[[], None]) -> None:
        """Schedule an action at an instant."""
        self._count += 1
        # the count keeps the order of actions at one instant, and functions from being compared
        heapq.heappush(self._events, (instant_s, self._count, what))

    def run(self, until_s: float = float("inf"), over: Callable[[], bool] = lambda: False) -> None:
        """Advance time until no action is left, to an instant, or until a condition holds."""
        while self._events and self._events[0][0] <= until_s and not over():
            self.now_s, _, what = heapq.heappop(self._events)
            what()

    @property
    def next_s(self) -> float:
        """Return the time of the next action; ``inf`` if none."""
        return self._events[0][0] if self._events else float("inf")


class VirtualAgents(_Timeline):
    """Simulated agents around a core. ``delay_s``: latency of a message in each direction.
    ``heartbeat_s``: interval of heartbeats, which report running tasks and return cancellations;
    without them, a working agent sends and receives nothing until a task has ended."""

    def __init__(
        self,
        core: Core,
        run_time: RunTime,
        delay_s: float = 0.001,
        heartbeat_s: float = float("inf"),
    ) -> None:
        super().__init__()
        self.core, self._run_time, self._delay_s, self._heartbeat_s = (
            core,
            run_time,
            delay_s,
            heartbeat_s,
        )
        self.agents: dict[str, _VirtualAgent] = {}
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
        """Add an agent now, or restart it as a new process; it leaves after ``idle_s`` without a
        task."""
        before = self.agents.get(id)
        incarnation = before.incarnation + 1 if before else 0
        agent = _VirtualAgent(id, slot, procs, ends_s, idle_s, incarnation, free=procs, site=site)
        self.agents[id] = agent
        self._send(agent)
        if self._heartbeat_s < float("inf"):
            self.at(self.now_s + self._heartbeat_s, partial(self._heartbeat, agent))
            if not self._listens:
                self._listens = True
                self.at(self.now_s + self._heartbeat_s, self._listen)

    def leave(self, id: str, lost: bool = False) -> None:
        """Remove an agent: at once and without a message where it is ``lost``."""
        agent = self.agents[id]
        if not agent.here:
            return
        agent.here = False
        if lost:
            registered = self.core.state.agents.get(self.core.state.by_id.get(id, -1))
            if registered is not None and registered.here:
                self.core.gone(registered, self.now_s, lost=True)
            self._push()
        else:
            self._send(agent, leaving="left")
        self.on_left(id, self.now_s)

    def vanish(self, id: str) -> None:
        """Remove an agent without a message: its tasks are detected as lost by their deadline, its
        silence, or its return.

        An agent that waits for work has an open connection, which breaks; one that works has none.
        """
        agent = self.agents[id]
        if not agent.here:
            return
        agent.here = False
        if not agent.running and not agent.queue:
            self.core.waiting.pop(self.core.state.by_id.get(id, -1), None)
        self.on_left(id, self.now_s)

    def push(self) -> None:
        """Send waiting agents the work that there is for them now."""
        self._push()

    # inside

    def _send(
        self, agent: _VirtualAgent, leaving: str = "", returned: tuple[Triple, ...] = ()
    ) -> None:
        message = agent.message(self.now_s, self._heartbeat_s < float("inf"), leaving, returned)
        self.at(self.now_s + self._delay_s, lambda: self._receive(agent, message))

    def _procs(self, bag: int) -> int:
        return self.core.state.bags[bag].procs

    def _heartbeat(self, agent: _VirtualAgent) -> None:
        if agent.here:
            self._send(agent)
            self.at(self.now_s + self._heartbeat_s, partial(self._heartbeat, agent))

    def _listen(self) -> None:
        if self.core.lose_silent(self.now_s):
            self._push()
        self.at(self.now_s + self._heartbeat_s, self._listen)

    def _receive(self, agent: _VirtualAgent, message: Message) -> None:
        if not self.core.receive(message, self.now_s, agent.site):
            return
        registered = self.core.state.agents[self.core.state.by_id[agent.id]]
        agent.number = registered.number
        if registered.here:
            self._report(agent, self.core.answer(registered, self.now_s))
        self._push()

    def _push(self) -> None:
        for agent, answer in self.core.due(self.now_s):
            self._report(self.agents[agent.id], answer)
        # a check that stays due must not stop time
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
        for agent, answer in self.core.due(self.now_s):
            self._report(self.agents[agent.id], answer)

    def _report(self, agent: _VirtualAgent, answer: AgentReply) -> None:
        if answer:
            self.at(self.now_s + self._delay_s, lambda: self._take(agent, answer))
        else:
            self._watch_idle(agent)

    def _take(self, agent: _VirtualAgent, answer: AgentReply) -> None:
        if not agent.here:
            return
        agent.idle_mark += 1
        agent.queue.extend(answer.give)
        returned = tuple(t for t in answer.evict if t in agent.queue)
        agent.drop(answer, self._procs)
        if answer.drain:
            returned += tuple(agent.queue)
            agent.queue.clear()
        if returned or (answer.drain and not agent.running):
            self._send(agent, "drained" if answer.drain else "", returned)
            if answer.drain and not agent.running:
                agent.here = False
                self.on_left(agent.id, self.now_s)
                return
        self._begin(agent)
        self._watch_idle(agent)
        if answer.cancel and not agent.running and self._heartbeat_s < float("inf"):
            self._send(agent)  # free before its time: it requests work at once
        elif answer.give and agent.free > 0 and not agent.queue:
            self._send(agent)  # it has room for more, which real agents report too

    def _begin(self, agent: _VirtualAgent) -> None:
        while agent.free > 0 and agent.queue:
            triple = agent.queue.popleft()
            procs = self._procs(triple[0])
            if procs > agent.free and agent.running:
                agent.queue.appendleft(triple)
                return
            runs_s, code = self._run_time(triple[0], triple[1], agent.id)
            agent.free -= procs
            agent.running[triple] = self.now_s
            self.at(self.now_s + runs_s, partial(self._end, agent, triple, runs_s, code))

    def _end(self, agent: _VirtualAgent, triple: Triple, ran_s: float, code: int) -> None:
        if not agent.here or agent.running.pop(triple, None) is None:
            return
        bag, task, attempt = triple
        agent.free += self._procs(bag)
        agent.ended.append((bag, AttemptEnd(task, agent.number, self.now_s, code, attempt, ran_s)))
        self._begin(agent)
        if not agent.telling:  # ends within a moment are reported at once
            agent.telling = True
            self.at(
                self.now_s + (self._delay_s if agent.running else 0.0),
                lambda: self._send_ends(agent),
            )

    def _send_ends(self, agent: _VirtualAgent) -> None:
        agent.telling = False
        if agent.here:
            self._send(agent)

    def _watch_idle(self, agent: _VirtualAgent) -> None:
        """Let an agent leave after its idle time: distributed release (Falkon, section 3.1)."""
        if agent.idle_s == float("inf") or agent.running or agent.queue or not agent.here:
            return
        agent.idle_mark += 1
        mark = agent.idle_mark

        def leave() -> None:
            # a changed mark means that there were tasks in between, which ended before this instant
            if agent.here and agent.idle_mark == mark and not agent.running and not agent.queue:
                self.leave(agent.id)

        self.at(self.now_s + agent.idle_s, leave)
