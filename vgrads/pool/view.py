"""What the pool sees and what it decides, as frozen values.

Work is counted in *host-loads*: how many hosts it would keep busy at once; whoever asks turns tasks
and processors into that. Times are seconds of the asker's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A host that has joined. ``ends_s``: when its allocation ends; a draining one is given nothing
    more."""

    id: str
    allocation: str
    joined_s: float
    idle_since_s: float | None = None
    busy_since_s: float | None = None
    running: int = 0
    ends_s: float | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """An allocation that was asked for and has not come."""

    id: str
    hosts: int
    asked_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Bounds on how many hosts, and how long an allocation and a host's idling may last at most."""

    least: int = 0
    most: int = 1
    longest_s: float | None = None
    idle_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ValueError(f"least and most do not fit: {self.least}, {self.most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """How things stand. ``arrived``: host-loads submitted since the beginning. ``free``: hosts that
    the site could give at once, None where it does not tell. ``wait_s`` and ``task_s``: how long it
    takes, by what was seen so far, until a host that is asked for has joined, and until a task has
    ended."""

    now_s: float
    queued: int
    running: int
    limits: PoolLimits
    hosts: tuple[HostView, ...] = ()
    asked: tuple[RequestView, ...] = ()
    arrived: int = 0
    free: int | None = None
    wait_s: float = 0.0
    task_s: float = 0.0

    @property
    def staying(self) -> tuple[HostView, ...]:
        """Hosts that are given work."""
        return tuple(host for host in self.hosts if not host.draining)

    @property
    def idle(self) -> tuple[HostView, ...]:
        """Those of them that have none, the longest idle first."""
        idle = [host for host in self.staying if host.idle_since_s is not None]
        return tuple(sorted(idle, key=lambda host: (host.idle_since_s or 0.0, host.id)))

    @property
    def coming(self) -> int:
        """Hosts that were asked for."""
        return sum(request.hosts for request in self.asked)

    @property
    def room(self) -> int:
        """How many more may be asked for; a draining host counts until it has left."""
        return max(0, self.limits.most - len(self.hosts) - self.coming)

    @property
    def wanted(self) -> int:
        """Hosts that the work there is would keep busy, within the bounds."""
        return max(self.limits.least, min(self.limits.most, self.queued + self.running))

    @property
    def need(self) -> int:
        """Hosts to ask for now; below 0: so many too many are there or asked for."""
        return min(self.room, self.wanted - len(self.staying) - self.coming)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDecision:
    """What to do: hosts of each new allocation, requests to take back, hosts to drain, and why."""

    open: tuple[int, ...] = ()
    withdraw: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


NOTHING = PoolDecision()
Decide = Callable[[PoolView], PoolDecision]
"""When how many hosts are asked for, and which go."""


def together(decisions: Iterable[PoolDecision]) -> PoolDecision:
    """Several decisions as one; what two of them say is said once."""
    found = tuple(decisions)
    return PoolDecision(
        open=tuple(hosts for one in found for hosts in one.open),
        withdraw=tuple(dict.fromkeys(request for one in found for request in one.withdraw)),
        drain=tuple(dict.fromkeys(host for one in found for host in one.drain)),
        reasons=tuple(dict.fromkeys(reason for one in found for reason in one.reasons)),
    )
