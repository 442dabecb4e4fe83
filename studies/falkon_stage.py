"""A small play of stages with a barrier between them, on hosts that a pool asks for: virtual time, next-available dispatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernel.events import EventQueue
from pool.view import HostView, PoolDecision, PoolLimits, PoolView, RequestView

_LATEST = 32  # ends of tasks from which their mean run time is told
_GUESS_S = 60.0  # of run times and waits, before any has been seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A batch site that starts jobs in cycles; hosts join ``boot_s`` later. ``turn_s``: from a stage's last end
    to the next stage's submission."""

    cycle_s: float = 60.0
    phase_s: float = 0.0
    boot_s: float = 5.0
    turn_s: float = 0.0

    def joins_s(self, asked_s: float) -> float:
        """When hosts asked for at an instant join; a cycle at that very instant has passed already."""
        cycles = math.floor((asked_s - self.phase_s) / self.cycle_s) + 1
        return self.phase_s + cycles * self.cycle_s + self.boot_s


@dataclass(slots=True)
class Ran:
    """What happened: (submitted, begun, ended) of tasks, (joined, left) of hosts, allocations that were asked for."""

    tasks: list[tuple[float, float, float]] = field(default_factory=list)
    hosts: list[tuple[float, float]] = field(default_factory=list)
    allocations: int = 0
    end_s: float = 0.0


@dataclass(slots=True)
class _Host:
    id: str
    allocation: str
    joined_s: float
    idle_since_s: float | None
    submitted_s: float = 0.0
    began_s: float | None = None


class _Play:
    """The state of one play; every event is followed by hand-outs, then by a look of the pool."""

    def __init__(
        self, stages: Sequence[tuple[int, float]], site: Site, most: int, poll_s: float
    ) -> None:
        self.stages, self.site, self.limits, self.poll_s = (
            stages,
            site,
            PoolLimits(most=most),
            poll_s,
        )
        self.events: EventQueue[tuple[str, str]] = EventQueue()
        self.hosts: dict[str, _Host] = {}
        self.asked: dict[str, RequestView] = {}
        self.runs_s: list[float] = []
        self.waits_s: list[float] = []
        self.ran = Ran()
        self.stage, self.open, self.queued, self.arrived, self.names = -1, 0, 0, 0, 0

    def submit(self, now_s: float) -> bool:
        """The next stage; False after the last."""
        self.stage += 1
        if self.stage == len(self.stages):
            return False
        self.submitted_s = now_s
        self.open = self.queued = self.stages[self.stage][0]
        self.arrived += self.open
        return True

    def happen(self, kind: str, what: str, now_s: float) -> None:
        if kind == "join" and what in self.asked:
            request = self.asked.pop(what)
            self.waits_s.append(now_s - request.asked_s)
            for _ in range(request.hosts):
                self.add(what, now_s)
        elif kind == "end":
            host = self.hosts[what]
            assert host.began_s is not None
            self.ran.tasks.append((host.submitted_s, host.began_s, now_s))
            self.runs_s.append(now_s - host.began_s)
            host.began_s, host.idle_since_s = None, now_s
            self.open -= 1
            if not self.open:
                self.events.push(now_s + self.site.turn_s, ("stage", ""))

    def add(self, allocation: str, now_s: float) -> None:
        self.names += 1
        name = f"h{self.names:04}"
        self.hosts[name] = _Host(name, allocation, now_s, now_s)

    def hand_out(self, now_s: float) -> None:
        """The next task to the next idle host."""
        for host in self.hosts.values():
            if self.queued and host.began_s is None:
                host.began_s, host.submitted_s, host.idle_since_s = now_s, self.submitted_s, None
                self.queued -= 1
                self.events.push(now_s + self.stages[self.stage][1], ("end", host.id))

    def look(self, now_s: float) -> PoolView:
        """What the pool is told: means of what was seen, nothing of what will come."""
        hosts = tuple(
            HostView(
                id=h.id, allocation=h.allocation, joined_s=h.joined_s, idle_since_s=h.idle_since_s,
                busy_since_s=h.began_s, running=int(h.began_s is not None),
            )
            for h in self.hosts.values()
        )  # fmt: skip
        runs = self.runs_s[-_LATEST:] or [_GUESS_S]
        waits = self.waits_s or [_GUESS_S]
        return PoolView(
            now_s=now_s, queued=self.queued, running=sum(h.running for h in hosts), limits=self.limits, hosts=hosts,
            asked=tuple(self.asked.values()), arrived=self.arrived, wait_s=sum(waits) / len(waits),
            task_s=sum(runs) / len(runs),
        )  # fmt: skip

    def carry_out(self, decision: PoolDecision, now_s: float) -> None:
        for request in decision.withdraw:
            del self.asked[request]
            self.ran.allocations -= 1
        for size in decision.open:
            self.names += 1
            name = f"a{self.names:04}"
            self.asked[name] = RequestView(id=name, hosts=size, asked_s=now_s)
            self.ran.allocations += 1
            self.events.push(self.site.joins_s(now_s), ("join", name))
        for name in decision.drain:
            if self.hosts[name].began_s is None:
                self.ran.hosts.append((self.hosts.pop(name).joined_s, now_s))


def play(stages: Sequence[tuple[int, float]], decide: Callable[[PoolView], PoolDecision], site: Site, most: int,
         held: int = 0, poll_s: float = 1.0) -> Ran:  # fmt: skip
    """From the first stage's submission at 0 to the last task's end; ``held`` hosts are there from the beginning."""
    one = _Play(stages, site, most, poll_s)
    for _ in range(held):
        one.add("held", 0.0)
    one.submit(0.0)
    now_s, more = 0.0, True
    one.events.push(0.0, ("poll", ""))
    while more:
        now_s = one.events.peek_time()
        for _, (kind, what) in one.events.pop_until(now_s):
            one.happen(kind, what, now_s)
            if kind == "poll":
                one.events.push(now_s + poll_s, ("poll", ""))
            if kind == "stage":
                more = one.submit(now_s)
        if more:
            one.hand_out(now_s)
            one.carry_out(decide(one.look(now_s)), now_s)
    one.ran.end_s = now_s - site.turn_s
    one.ran.hosts += [(host.joined_s, now_s) for host in one.hosts.values()]
    return one.ran
