"""Hosts that are asked for: the overlay constructor and the fleet over simulated sites, as a bag's
tail runs out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from vgrads.api.wiring import Surrounding, make_drivers
from vgrads.bags.bag import Bag
from vgrads.dispatch.core.records import Ended, Record
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.site_view import Place
from vgrads.dispatch.fleet.virtual import VirtualHosts
from vgrads.dispatch.fleet.world import World
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.kernel.streams import stream
from vgrads.pool.acquire import acquire
from vgrads.pool.release import distributed
from vgrads.pool.view import PoolDecision, PoolLimits, PoolView, together
from vgrads.research.gridbot.grid import HOUR_S, same
from vgrads.vgrid.catalog import Catalog, Site

IDLE_S = 15.0
_LONGEST_S = 12 * HOUR_S
_GRIDS = (
    ("Madison", 460, 60.0, 120.0),
    ("OSG", 230, 300.0, 300.0),
    ("EGEE", 368, 600.0, 600.0),
    ("Technion", 115, 0.0, 20.0),
)
"""Hosts at once by the throughput of Figure 6(c), seconds of a scheduling cycle, seconds until a
host is up."""


@dataclass(frozen=True, kw_only=True)
class Fleeted:
    """``most``: hosts at once; ``idle``: of their time, %; ``beyond_s``: the longest that there
    were more hosts than tasks left, without a break, until the end; ``hours``: until done."""

    most: int
    idle: float
    beyond_s: float
    hours: float


def _decide(view: PoolView) -> PoolDecision:
    return together((acquire(view, "all-at-once"), distributed(view, IDLE_S)))


@dataclass
class _Kept:
    """Who came and went when, and when tasks ended."""

    came: dict[str, float] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    ends: list[float] = field(default_factory=list)
    busy_s: float = 0.0

    def note(self, record: Record) -> None:
        if isinstance(record, Ended):
            self.ends += [end.at_s for end in record.ends if end.code == 0]
            self.busy_s += sum(end.ran_s for end in record.ends)


def play_fleet(seed: int, scale: float, vanish: bool) -> Fleeted:
    """A bag of jobs of 20 to 40 minutes, ten for each host; ``vanish``: a tenth of hosts' jobs is
    preempted."""
    draws = stream(seed, "gridbot", "fleet")
    most = [max(2, round(hosts * scale)) for _, hosts, _, _ in _GRIDS]
    lengths = draws.uniform(1200.0, 2400.0, 10 * sum(most))
    kept = _Kept()
    core = Core(State(), Rules(lost_s=60.0), kept.note)
    hosts = VirtualHosts(core, lambda _b, task, _h: (float(lengths[task]), 0), 0.05, beat_s=20.0)
    hosts.on_left = kept.left.__setitem__
    clock, catalog = SimClock(), _catalog(most)
    nothing = Surrounding(logs={}, instants={}, until_s=0.0, seed=seed)
    names = [site.name for site in catalog.sites]
    sites = Sites("gridbot", make_drivers(catalog, names, clock, nothing), clock, {})
    places = [
        Place(
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
        core=core, sites=sites, places=places, run="gridbot", pilot_environment=lambda _: {}
    )
    core.add(0, Bag(name="bag", commands=same(len(lengths))), 0.0)
    bag = core.state.bags[0]

    def preempt(id: str) -> None:
        host = hosts.hosts.get(id)
        if host is not None and host.here:
            kept.busy_s += sum(hosts.now_s - since_s for since_s in host.running.values())
            hosts.vanish(id)

    def looked() -> None:
        for host in core.state.hosts.values():
            if host.here and host.id not in kept.came:
                kept.came[host.id] = hosts.now_s
                if vanish and host.id in hosts.hosts:
                    gone_s = hosts.now_s + draws.exponential(1800.0 / 0.105)
                    hosts.at(gone_s, partial(preempt, host.id))

    World(core, fleet, sites, hosts, clock, lambda: bag.over, looked).run()
    return _told(kept, bag.ended_s or inf)


def _catalog(most: Sequence[int]) -> Catalog:
    sites = (
        Site(name=name, kind="batch", procs=count, boot_s=boot_s, boot_spread=0.2, cycle_s=cycle_s)
        for (name, _, cycle_s, boot_s), count in zip(_GRIDS, most, strict=True)
    )
    return Catalog(sites=tuple(sites), links={})


def _told(kept: _Kept, end_s: float) -> Fleeted:
    spans = [(at, min(end_s, kept.left.get(name, end_s))) for name, at in kept.came.items()]
    ends = sorted(kept.ends)
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
    return Fleeted(
        most=int(most),
        idle=100.0 * (1.0 - kept.busy_s / time_s),
        beyond_s=longest,
        hours=end_s / HOUR_S,
    )
