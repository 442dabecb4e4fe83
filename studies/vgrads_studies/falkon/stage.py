"""Stages with a barrier between them, by the dispatcher's own core, fleet and deciders, at a
simulated batch site.

One open bag grows by each stage; nodes come from slots of a cluster that starts jobs once per
cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vgrads.api.wiring import Wiring, make_drivers
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.site_view import FleetSite
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.fleet.world import World
from vgrads.exchange.values import AttemptEnd
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.pool.view import PoolDecision, PoolLimits, PoolView
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.catalog import Site as CatalogSite

_NODES = 128  # free nodes of the paper's two clusters
_LONGEST_S = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSite:
    """A batch site that starts jobs in cycles; agents join ``boot_s`` later. ``turn_s``: from a
    stage's last end to the next stage's submission; ``delay_s``: of a message each way."""

    cycle_s: float = 60.0
    phase_s: float = 0.0
    boot_s: float = 5.0
    turn_s: float = 0.0
    delay_s: float = 0.001


@dataclass(slots=True)
class StageResult:
    """Result: (submitted, begun, ended) of tasks, (joined, left) of nodes, started allocations,
    sizes of all requested ones, the maximum number of nodes at once."""

    tasks: list[tuple[float, float, float]] = field(default_factory=list)
    agents: list[tuple[float, float]] = field(default_factory=list)
    allocations: int = 0
    requests: list[int] = field(default_factory=list)
    end_s: float = 0.0


class _Simulation:
    """One simulation: the stages, and its records."""

    def __init__(self, stages: Sequence[tuple[int, float]], site: StageSite) -> None:
        self.stages, self.site, self.ran = stages, site, StageResult()
        self.seconds: list[float] = []
        self.submitted: list[float] = []
        self.left: dict[str, float] = {}
        self.core = Core(State(), Rules(), lambda _: None, self._on_end)
        self.agents = VirtualAgents(self.core, self._run_time, site.delay_s)
        self.agents.on_left = self.left.__setitem__
        self.core.add(0, BagSpec(name="stages", commands=Listed([])), 0.0, open_=True)
        self.stage = self.open = 0

    def submit(self) -> None:
        tasks, seconds = self.stages[self.stage]
        self.stage += 1
        self.open = tasks
        self.seconds += [seconds] * tasks
        self.submitted += [self.agents.now_s] * tasks
        self.core.add_tasks(0, tasks)
        self.agents.push()

    def _run_time(self, _bag: int, task: int, _agent: str) -> tuple[float, int]:
        return self.seconds[task], 0

    def _on_end(self, _bag: int, end: AttemptEnd, _effect: Effect) -> None:
        self.ran.tasks.append((self.submitted[end.task], end.at_s - end.ran_s, end.at_s))
        self.open -= 1
        if not self.open and self.stage < len(self.stages):
            self.agents.at(self.agents.now_s + self.site.turn_s, self.submit)

    @property
    def over(self) -> bool:
        return not self.open and self.stage == len(self.stages)


def simulate(
    stages: Sequence[tuple[int, float]],
    decide: Callable[[PoolView], PoolDecision],
    site: StageSite,
    most: int,
    reserved: int = 0,
) -> StageResult:
    """Simulate from the first stage's submission at 0 to the last task's end; ``reserved`` nodes
    are present from the start."""
    item = _Simulation(stages, site)
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
    nothing = Wiring(logs={}, instants={}, until_s=0.0, seed=0)
    drivers = make_drivers(Catalog(sites=(batch,), links={}), ["batch"], clock, nothing)
    sites = Sites("falkon", drivers, clock, {})
    place = FleetSite(
        site="batch",
        queue="",
        node_type="",
        procs=1,
        limits=PoolLimits(most=most),
        longest_s=_LONGEST_S,
        decide=decide,
    )
    fleet = Fleet(
        core=item.core, sites=sites, sources=[place], run="falkon", pilot_environment=lambda _: {}
    )
    for number in range(reserved):
        item.agents.join(f"held{number}", "held", site="batch")
    item.agents.run(until_s=2 * site.delay_s)
    item.agents.now_s = 0.0
    item.submit()
    World(item.core, fleet, sites, item.agents, clock, lambda: item.over, steady_s=1.0).run()
    return _ran(item)


def _ran(simulate: _Simulation) -> StageResult:
    ran, state = simulate.ran, simulate.core.state
    ran.end_s = max(end for _, _, end in ran.tasks)
    ran.agents = [
        (agent.joined_s, min(ran.end_s, simulate.left.get(agent.id, ran.end_s)))
        for agent in state.agents.values()
        if agent.joined_s < ran.end_s
    ]
    ran.allocations = sum(slot.joined for slot in state.slots.values())
    ran.requests = [slot.agents for slot in state.slots.values() if slot.agents]
    return ran
