"""Requested nodes: the overlay constructor and the fleet over simulated sites, as a bag's tail runs
out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from vgrads.api.wiring import Wiring, make_drivers
from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import AttemptsEnded, Record
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.site_view import FleetSite
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.fleet.world import World
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.kernel.streams import stream
from vgrads.pool.acquire import acquire
from vgrads.pool.release import distributed
from vgrads.pool.view import PoolDecision, PoolLimits, PoolView, merge_decisions
from vgrads.vgrid.catalog import Catalog, Site
from vgrads_studies.gridbot.grid import HOUR_S, same

IDLE_S = 15.0
_LONGEST_S = 12 * HOUR_S
_GRIDS = (
    ("Madison", 460, 60.0, 120.0),
    ("OSG", 230, 300.0, 300.0),
    ("EGEE", 368, 600.0, 600.0),
    ("Technion", 115, 0.0, 20.0),
)
"""Nodes at once by the throughput of Figure 6(c), seconds of a scheduling cycle, seconds until a
node is up."""


@dataclass(frozen=True, kw_only=True)
class FleetResult:
    """``most``: nodes at once; ``idle``: of their time, %; ``beyond_s``: the longest uninterrupted
    period with more nodes than tasks left, until the end; ``hours``: until done."""

    most: int
    idle: float
    beyond_s: float
    hours: float


def _decide(view: PoolView) -> PoolDecision:
    return merge_decisions((acquire(view, "all-at-once"), distributed(view, IDLE_S)))


@dataclass
class _FleetRecord:
    """Arrivals and departures of nodes, and ends of tasks."""

    came: dict[str, float] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    ends: list[float] = field(default_factory=list)
    busy_s: float = 0.0

    def note(self, record: Record) -> None:
        if isinstance(record, AttemptsEnded):
            self.ends += [end.at_s for end in record.ends if end.code == 0]
            self.busy_s += sum(end.ran_s for end in record.ends)


def play_fleet(seed: int, scale: float, vanish: bool) -> FleetResult:
    """Simulate a bag of jobs of 20 to 40 minutes, ten for each node; ``vanish``: a tenth of nodes'
    jobs is preempted."""
    draws = stream(seed, "gridbot", "fleet")
    most = [max(2, round(agents * scale)) for _, agents, _, _ in _GRIDS]
    lengths = draws.uniform(1200.0, 2400.0, 10 * sum(most))
    record = _FleetRecord()
    core = Core(State(), Rules(lost_s=60.0), record.note)
    agents = VirtualAgents(
        core, lambda _b, task, _h: (float(lengths[task]), 0), 0.05, heartbeat_s=20.0
    )
    agents.on_left = record.left.__setitem__
    clock, catalog = SimClock(), _catalog(most)
    nothing = Wiring(logs={}, instants={}, until_s=0.0, seed=seed)
    names = [site.name for site in catalog.sites]
    sites = Sites("gridbot", make_drivers(catalog, names, clock, nothing), clock, {})
    places = [
        FleetSite(
            site=name,
            queue="",
            node_type="",
            procs=1,
            limits=PoolLimits(most=count),
            longest_s=_LONGEST_S,
            decide=_decide,
            widest=1,
        )
        for name, count in zip(names, most, strict=True)
    ]
    fleet = Fleet(
        core=core, sites=sites, sources=places, run="gridbot", pilot_environment=lambda _: {}
    )
    core.add(0, BagSpec(name="bag", commands=same(len(lengths))), 0.0)
    bag = core.state.bags[0]

    def preempt(id: str) -> None:
        agent = agents.agents.get(id)
        if agent is not None and agent.here:
            record.busy_s += sum(agents.now_s - since_s for since_s in agent.running.values())
            agents.vanish(id)

    def looked() -> None:
        for agent in core.state.agents.values():
            if agent.here and agent.id not in record.came:
                record.came[agent.id] = agents.now_s
                if vanish and agent.id in agents.agents:
                    gone_s = agents.now_s + draws.exponential(1800.0 / 0.105)
                    agents.at(gone_s, partial(preempt, agent.id))

    World(core, fleet, sites, agents, clock, lambda: bag.over, looked).run()
    return _fleet_use(record, bag.ended_s or inf)


def _catalog(most: Sequence[int]) -> Catalog:
    sites = (
        Site(name=name, kind="batch", procs=count, boot_s=boot_s, boot_spread=0.2, cycle_s=cycle_s)
        for (name, _, cycle_s, boot_s), count in zip(_GRIDS, most, strict=True)
    )
    return Catalog(sites=tuple(sites), links={})


def _fleet_use(record: _FleetRecord, end_s: float) -> FleetResult:
    spans = [(at, min(end_s, record.left.get(name, end_s))) for name, at in record.came.items()]
    ends = sorted(record.ends)
    comes, goes = sorted(at for at, _ in spans), sorted(until for _, until in spans)
    most = longest = 0.0
    since = None
    for at in sorted({*comes, *goes, *ends}):
        there = bisect_right(comes, at) - bisect_right(goes, at)
        most = max(most, there)
        if there > len(ends) - bisect_right(ends, at):
            since = at if since is None else since
            longest = max(longest, at - since)
        else:
            since = None
    time_s = sum(until - at for at, until in spans)
    return FleetResult(
        most=int(most),
        idle=100.0 * (1.0 - record.busy_s / time_s),
        beyond_s=longest,
        hours=end_s / HOUR_S,
    )
