"""What a dispatcher's fleet sees of each site: what is there, how it has answered lately, and both
as the deciders of ``pool`` are told it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.fleet.supply import Grid, Work
from vgrads.pool.overlay import GridRoom
from vgrads.pool.view import Decide, HostView, PoolLimits, PoolView, RequestView

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0
_GIVE_UP = 3
"""So many requests in a row that a site refuses for good, and nothing more is asked of it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A site where hosts may come from. ``procs``: of one host; ``longest_s`` and ``widest``
    (hosts): of one request; ``requests``: how many its queue takes of us at once; ``price``: of a
    host, dollars an hour."""

    site: str
    queue: str
    node_type: str
    procs: int
    limits: PoolLimits
    longest_s: float
    decide: Decide
    boot_s: float = 180.0
    widest: int = 1 << 30
    requests: int = 1 << 30
    price: float = 0.0


@dataclass
class SiteHealth:
    """How a site has answered lately. ``late_s``: how long an agent was waited for in vain since
    one last came; ``wait_s``: how long one is waited for on average; ``words``: what the site last
    said."""

    refused: int = 0
    failed: int = 0
    late_s: float = 0.0
    next_s: float = 0.0
    backoff_s: float = _FIRST_PAUSE_S
    wait_s: float = 0.0
    came: int = 0
    words: str = ""

    @property
    def given_up(self) -> bool:
        """True where the site refused so often that nothing more is asked of it."""
        return self.refused >= _GIVE_UP

    def closed(self, now_s: float) -> bool:
        """True while nothing may be asked of it."""
        return now_s < self.next_s or self.given_up

    def expected_s(self, boot_s: float) -> float:
        """How long an agent is waited for, by what was seen; before any has come, its boot time."""
        return max(self.wait_s if self.came else boot_s, self.late_s)

    def record_failure(self, now_s: float, permanent: bool) -> None:
        """A request came to nothing: the next one waits, longer each time; what is refused for
        good, not often."""
        self.refused += 1 if permanent else 0
        self.failed += 1
        self.next_s = now_s + self.backoff_s
        self.backoff_s = min(_LONGEST_PAUSE_S, self.backoff_s * 2)

    def record_arrival(self, waited_s: float) -> None:
        """An agent of a request came."""
        self.refused, self.backoff_s, self.words, self.late_s = 0, _FIRST_PAUSE_S, "", 0.0
        self.came += 1
        self.wait_s += (waited_s - self.wait_s) / self.came


@dataclass
class Present:
    """What a site has: hosts that are here, requests of which some are to come, slots that have
    not ended."""

    hosts: list[Host] = field(default_factory=list)
    asked: list[RequestView] = field(default_factory=list)
    held: int = 0

    @property
    def busy(self) -> int:
        return sum(bool(host.held) for host in self.hosts)


class BusySince:
    """Since when each agent has been busy with what it has: seen by the ends that are counted of
    it."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def look(self, hosts: Iterable[Host], now_s: float) -> None:
        """Take in what has ended meanwhile."""
        before, self._seen = self._seen, {}
        for host in hosts:
            if host.here and host.held:
                ended = host.done + host.failed
                known = before.get(host.number)
                self._seen[host.number] = known if known and known[0] == ended else (ended, now_s)

    def of(self, host: Host) -> float | None:
        """The instant; None for one that is not busy."""
        found = self._seen.get(host.number)
        return None if found is None else found[1]


def grid_of(where: Place, known: Present, health: SiteHealth, now_s: float) -> Grid:
    """A place as the overlay sees it: what is there may stay; more only where something may be
    asked for."""
    hosts, busy, most = len(known.hosts), known.busy, where.limits.most
    idle = sum(not host.held and not host.leaving for host in known.hosts)
    coming = sum(one.hosts for one in known.asked)
    shut = health.closed(now_s)
    more = 0 if shut else max(0, where.requests - known.held) * where.widest
    expected_s = health.expected_s(where.boot_s)
    left_s = sum(_going_on(now_s - one.asked_s, expected_s) * one.hosts for one in known.asked)
    errors = health.failed / max(1, health.failed + health.came)
    room = GridRoom(
        procs=where.procs,
        room=max(0, min(most - (hosts - busy - idle), busy + idle + coming + more)),
        busy=busy,
        idle=idle,
        coming=coming,
        coming_s=left_s / max(1, coming),
        wait_s=expected_s,
        price=where.price,
        error_rate=errors,
    )
    ad = {
        "Name": where.site,
        "Limit": most,
        "Free": max(0, most - hosts - coming),
        "Queued": coming,
        "Running": hosts,
        "MeanWait": health.wait_s,
        "ErrorRate": errors,
        "Price": where.price,
    }
    return Grid(site=where.site, room=room, most=most, ad=ad)


def pool_view(
    where: Place, work: Work, known: Present, health: SiteHealth, busy: BusySince, now_s: float
) -> PoolView:
    """A site as the decider of its pool sees it."""
    return PoolView(
        now_s=now_s,
        queued=max(0, work.loads - known.busy),
        running=known.busy,
        limits=where.limits,
        asked=tuple(known.asked),
        hosts=tuple(_host_view(host, busy) for host in known.hosts),
        arrived=work.arrived,
        task_s=work.task_s,
        wait_s=health.wait_s,
    )


def _host_view(host: Host, busy: BusySince) -> HostView:
    return HostView(
        id=str(host.number),
        allocation=host.slot,
        joined_s=host.joined_s,
        running=len(host.held),
        idle_since_s=None if host.held else host.idle_since_s,
        busy_since_s=busy.of(host),
        ends_s=None if host.ends_s == float("inf") else host.ends_s,
        draining=bool(host.leaving),
    )


def _going_on(passed_s: float, expected_s: float) -> float:
    """What is left of a wait; what is late is believed to be late by as much again."""
    return abs(expected_s - passed_s)
