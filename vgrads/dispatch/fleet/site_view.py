"""The view of each site for a dispatcher's fleet: its resources, its recent answers, and both in
the form that the deciders of ``pool`` use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from vgrads.dispatch.core.state import AgentState, name_source
from vgrads.dispatch.fleet.supply import SiteDemand, SupplySite
from vgrads.kernel.backoff import Backoff
from vgrads.pool.overlay import GridRoom
from vgrads.pool.view import Decide, NodeView, PoolLimits, PoolView, RequestView

_BACKOFF = Backoff(5.0, 300.0)
_GIVE_UP = 3
"""Number of consecutive permanent refusals after which no request is sent to a site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestStay:
    """How long nodes that are requested now may stay: ``length_s``, 0 while the site is closed;
    ``reason``: the closed window that limits it; ``opens_s``: when the site is open again."""

    length_s: float
    reason: str = ""
    opens_s: float = 0.0

    def at(self, where: FleetSite) -> FleetSite:
        """Return the source for requests that are made now."""
        return replace(where, longest_s=self.length_s)


@dataclass(frozen=True, kw_only=True)
class FleetSite:
    """A source of nodes at a site. ``procs``: of one node; ``longest_s`` and ``widest`` (nodes): of
    one request; ``requests``: how many of ours its queue accepts at once; ``price``: of a node,
    dollars per hour, started periods of ``billing_s`` are paid in full; ``market``: empty, or that
    of a cloud's spot nodes; ``waits_s``: expected waits, ascending quantiles, where they are
    forecast; ``limit``: how long nodes may stay, by the time and the expected wait of their
    request, at a site with closed windows."""

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
    billing_s: float = 0.0
    cloud: bool = False
    market: str = ""
    waits_s: tuple[float, ...] = ()
    limit: Callable[[float, float], LongestStay] | None = None

    @property
    def starts_at_once(self) -> bool:
        """Return True where a node is a process that is started, without a queue or a boot."""
        return not self.queue and not self.cloud

    @property
    def name(self) -> str:
        """Return the name of the source."""
        return name_source(self.site, self.market)

    def longest_stay(self, now_s: float, wait_s: float) -> LongestStay:
        """Return how long nodes may stay that are requested now and wait as long as this."""
        if self.limit is None:
            return LongestStay(length_s=self.longest_s)
        return self.limit(now_s, wait_s)


@dataclass
class SiteHealth:
    """Recent answers of a site. ``late_s``: how long an agent was waited for in vain since the last
    arrival; ``wait_s``: mean wait for an agent; ``words``: the site's last message."""

    refused: int = 0
    failed: int = 0
    late_s: float = 0.0
    next_s: float = 0.0
    backoff_s: float = _BACKOFF.first_s
    wait_s: float = 0.0
    came: int = 0
    words: str = ""

    @property
    def is_abandoned(self) -> bool:
        """Return True where the site refused so often that no request is sent to it any more."""
        return self.refused >= _GIVE_UP

    def closed(self, now_s: float) -> bool:
        """Return True while no request may be sent to it."""
        return now_s < self.next_s or self.is_abandoned

    def expected_s(self, boot_s: float) -> float:
        """Return the expected wait for an agent from observations; before the first arrival, its
        boot time."""
        # an agent that is overdue shows that waits are longer now
        return max(self.wait_s if self.came else boot_s, self.late_s)

    def record_failure(self, now_s: float, permanent: bool, most_s: float = math.inf) -> None:
        """Record a failed request: the next one waits, longer each time, at most ``most_s``;
        permanent refusals are limited in number."""
        self.refused += 1 if permanent else 0
        self.failed += 1
        self.next_s = now_s + min(self.backoff_s, most_s)
        self.backoff_s = _BACKOFF.after(self.backoff_s)

    def record_arrival(self, waited_s: float) -> None:
        """Record the arrival of an agent."""
        # an arrival shows that the site accepts requests again
        self.refused, self.backoff_s, self.words, self.late_s = 0, _BACKOFF.first_s, "", 0.0
        self.came += 1
        self.wait_s += (waited_s - self.wait_s) / self.came


@dataclass
class SiteInventory:
    """Resources of a site: connected agents, requests with agents still to join, slots that have
    not ended."""

    agents: list[AgentState] = field(default_factory=list)
    requests: list[RequestView] = field(default_factory=list)
    occupied: int = 0

    @property
    def busy(self) -> int:
        return sum(bool(agent.assigned) for agent in self.agents)

    @property
    def staying(self) -> int:
        """Return the agents that get work."""
        return sum(not agent.leaving for agent in self.agents)

    @property
    def busy_leaving(self) -> int:
        """Return the busy agents that get no more work."""
        return sum(bool(agent.assigned and agent.leaving) for agent in self.agents)


class BusySince:
    """Since when each agent has been busy with its tasks, as seen from its number of counted
    ends."""

    def __init__(self) -> None:
        self._last_ends: dict[int, tuple[int, float]] = {}

    def look(self, agents: Iterable[AgentState], now_s: float) -> None:
        """Update with the tasks that have ended."""
        before, self._last_ends = self._last_ends, {}
        for agent in agents:
            if agent.here and agent.assigned:
                ended = agent.done + agent.failed
                last = before.get(agent.number)
                self._last_ends[agent.number] = (
                    last if last and last[0] == ended else (ended, now_s)
                )

    def of(self, agent: AgentState) -> float | None:
        """Return the instant; None for an agent that is not busy."""
        entry = self._last_ends.get(agent.number)
        return None if entry is None else entry[1]


def make_supply_site(
    where: FleetSite, present: SiteInventory, health: SiteHealth, now_s: float
) -> SupplySite:
    """Return a site as the overlay's grid: its current agents may stay; more only where requests
    are allowed."""
    agents, busy, most = len(present.agents), present.busy, where.limits.most
    idle = sum(not agent.assigned and not agent.leaving for agent in present.agents)
    coming = sum(request.nodes for request in present.requests)
    shut = health.closed(now_s) or not where.longest_stay(now_s, 0.0).length_s
    more = 0 if shut else max(0, where.requests - present.occupied) * where.widest
    expected_s = health.expected_s(where.boot_s)
    left_s = sum(
        _estimate_remaining(now_s - request.requested_s, expected_s) * request.nodes
        for request in present.requests
    )
    errors = health.failed / max(1, health.failed + health.came)
    # agents that leave without a task still count towards the limit
    room = GridRoom(
        procs=where.procs,
        room=max(0, min(most - (agents - busy - idle), busy + idle + coming + more)),
        busy=busy,
        idle=idle,
        coming=coming,
        coming_s=left_s / max(1, coming),
        wait_s=expected_s,
        price=where.price,
        error_rate=errors,
    )
    ad = {
        "Name": where.name,
        "Limit": most,
        "Free": max(0, most - agents - coming),
        "Queued": coming,
        "Running": agents,
        "MeanWait": health.wait_s,
        "ErrorRate": errors,
        "Price": where.price,
    }
    return SupplySite(site=where.site, room=room, most=most, ad=ad)


def make_pool_view(
    where: FleetSite,
    work: SiteDemand,
    present: SiteInventory,
    health: SiteHealth,
    busy: BusySince,
    now_s: float,
) -> PoolView:
    """Return a site as the decider of its pool uses it."""
    return PoolView(
        now_s=now_s,
        queued=max(0, work.loads - present.busy),
        running=present.busy - present.busy_leaving,
        limits=where.limits,
        requests=tuple(present.requests),
        nodes=tuple(_make_agent_view(agent, busy) for agent in present.agents),
        arrived=work.arrived,
        task_s=work.task_s,
        wait_s=health.wait_s,
    )


def _make_agent_view(agent: AgentState, busy: BusySince) -> NodeView:
    return NodeView(
        id=str(agent.number),
        allocation=agent.slot,
        joined_s=agent.joined_s,
        running=len(agent.assigned),
        idle_since_s=None if agent.assigned else agent.idle_since_s,
        busy_since_s=busy.of(agent),
        ends_s=None if agent.ends_s == float("inf") else agent.ends_s,
        draining=bool(agent.leaving),
    )


def _estimate_remaining(elapsed_s: float, expected_s: float) -> float:
    """Return the remaining wait; a late arrival is expected to be late by as much again."""
    return abs(expected_s - elapsed_s)
