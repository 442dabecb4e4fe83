"""Stages with a barrier between them, by the dispatcher's own core, fleet and deciders, at a
simulated batch site.

One open bag grows by each stage; hosts come from slots of a cluster that starts jobs once in a
cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vgrads.api.wiring import Surrounding, make_drivers
from vgrads.bags.bag import Bag, Listed
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.site_view import Place
from vgrads.dispatch.fleet.virtual import VirtualHosts
from vgrads.dispatch.fleet.world import World
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.pool.view import PoolDecision, PoolLimits, PoolView
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.catalog import Site as CatalogSite

_NODES = 128  # free nodes of the paper's two clusters
_LONGEST_S = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A batch site that starts jobs in cycles; hosts join ``boot_s`` later. ``turn_s``: from a
    stage's last end to the next stage's submission; ``delay_s``: of a message each way."""

    cycle_s: float = 60.0
    phase_s: float = 0.0
    boot_s: float = 5.0
    turn_s: float = 0.0
    delay_s: float = 0.001


@dataclass(slots=True)
class Ran:
    """What happened: (submitted, begun, ended) of tasks, (joined, left) of hosts, allocations that
    came, sizes of all that were asked for, the most hosts at once."""

    tasks: list[tuple[float, float, float]] = field(default_factory=list)
    hosts: list[tuple[float, float]] = field(default_factory=list)
    allocations: int = 0
    asked: list[int] = field(default_factory=list)
    end_s: float = 0.0


class _Play:
    """One play: the stages, and what is kept of it."""

    def __init__(self, stages: Sequence[tuple[int, float]], site: Site) -> None:
        self.stages, self.site, self.ran = stages, site, Ran()
        self.seconds: list[float] = []
        self.submitted: list[float] = []
        self.left: dict[str, float] = {}
        self.core = Core(State(), Rules(), lambda _: None, self._told)
        self.hosts = VirtualHosts(self.core, self._run_time, site.delay_s)
        self.hosts.on_left = self.left.__setitem__
        self.core.add(0, Bag(name="stages", commands=Listed([])), 0.0, open_=True)
        self.stage = self.open = 0

    def submit(self) -> None:
        tasks, seconds = self.stages[self.stage]
        self.stage += 1
        self.open = tasks
        self.seconds += [seconds] * tasks
        self.submitted += [self.hosts.now_s] * tasks
        self.core.grow(0, tasks)
        self.hosts.push()

    def _run_time(self, _bag: int, task: int, _host: str) -> tuple[float, int]:
        return self.seconds[task], 0

    def _told(self, _bag: int, end: End, _effect: Effect) -> None:
        self.ran.tasks.append((self.submitted[end.task], end.at_s - end.ran_s, end.at_s))
        self.open -= 1
        if not self.open and self.stage < len(self.stages):
            self.hosts.at(self.hosts.now_s + self.site.turn_s, self.submit)

    @property
    def over(self) -> bool:
        return not self.open and self.stage == len(self.stages)


def play(
    stages: Sequence[tuple[int, float]],
    decide: Callable[[PoolView], PoolDecision],
    site: Site,
    most: int,
    held: int = 0,
) -> Ran:
    """From the first stage's submission at 0 to the last task's end; ``held`` hosts are there from
    the beginning."""
    one = _Play(stages, site)
    clock = SimClock()
    batch = CatalogSite(
        name="batch",
        kind="batch",
        procs=_NODES,
        boot_s=site.boot_s,
        boot_spread=0.0,
        cycle_s=site.cycle_s,
        cycle_phase_s=site.phase_s,
    )
    nothing = Surrounding(logs={}, instants={}, until_s=0.0, seed=0)
    drivers = make_drivers(Catalog(sites=(batch,), links={}), ["batch"], clock, nothing)
    sites = Sites("falkon", drivers, clock, {})
    place = Place(
        site="batch",
        queue="",
        node_type="",
        procs=1,
        limits=PoolLimits(most=most),
        longest_s=_LONGEST_S,
        decide=decide,
    )
    fleet = Fleet(
        core=one.core, sites=sites, places=[place], run="falkon", pilot_environment=lambda _: {}
    )
    for number in range(held):
        one.hosts.join(f"held{number}", "held", site="batch")
    one.hosts.run(until_s=2 * site.delay_s)
    one.hosts.now_s = 0.0
    one.submit()
    World(one.core, fleet, sites, one.hosts, clock, lambda: one.over, steady=True).run()
    return _ran(one)


def _ran(one: _Play) -> Ran:
    ran, state = one.ran, one.core.state
    ran.end_s = max(end for _, _, end in ran.tasks)
    ran.hosts = [
        (host.joined_s, min(ran.end_s, one.left.get(host.id, ran.end_s)))
        for host in state.hosts.values()
        if host.joined_s < ran.end_s
    ]
    ran.allocations = sum(slot.joined for slot in state.slots.values())
    ran.asked = [slot.hosts for slot in state.slots.values() if slot.hosts]
    return ran
