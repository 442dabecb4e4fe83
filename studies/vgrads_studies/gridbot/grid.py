"""Grids as GridBot had them (Silberstein and others, SC'09, doi:10.1145/1654059.1654071), simulated
around a core.

A grid is a number of positions in its queue. A position waits (log-normal, seconds to hours), then
an agent joins, on one of twice as many machines, works, and is preempted: it vanishes without a
message. The number of positions that a grid grants is drawn again every four hours on average, over
an order of magnitude. Assumptions beyond the paper are listed in studies/results/gridbot.md; with
them, a tenth of jobs of 20 to 60 minutes fails (section 2.2 of the paper).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from numpy.random import Generator

from vgrads.bags.bag import BagSpec, Listed, TaskCommands
from vgrads.dispatch.core.protocol import AgentReply, Rules
from vgrads.dispatch.core.records import Record
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.fleet.virtual import RunTime, VirtualAgents
from vgrads.exchange.values import Message
from vgrads.kernel.streams import stream
from vgrads.policies.policy import Policy, read_policy

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class SimulatedGrid:
    """``places``: maximum number of nodes at once; ``wait_s`` (median) and ``wait_spread`` of its
    queue; ``stay_s``: mean time until a node is preempted, and ``flaky_stay_s`` on ``flaky`` of its
    machines; ``level_s``: how long the granted number stays the same, ``inf``: always all;
    ``speed_spread``: of its machines, log-normal; ``part``: mean share of a job's time at a node in
    which it runs; ``errors``: jobs with a wrong result."""

    name: str
    places: int
    wait_s: float = 600.0
    wait_spread: float = 1.2
    stay_s: float = 22 * HOUR_S
    flaky: float = 0.05
    flaky_stay_s: float = HOUR_S
    level_s: float = 4 * HOUR_S
    speed_spread: float = 0.2
    part: float = 1.0
    errors: float = 0.0


TECHNION = SimulatedGrid(
    name="Technion", places=121, wait_s=20.0, wait_spread=0.5, stay_s=inf, flaky=0.0, level_s=inf
)
GRIDS = (
    SimulatedGrid(name="EGEE", places=2800, wait_s=1200.0),
    SimulatedGrid(name="OSG", places=2450, wait_s=600.0),
    SimulatedGrid(name="Madison", places=840, wait_s=300.0),
    TECHNION,
)
"""The collaborative grids: 0.7 of the nodes that the paper counts in three months (2,500 at once on
average, consistent with its turnarounds of 30,000 jobs), and the cluster."""
COMMUNITY = SimulatedGrid(
    name="Superlink",
    places=4067,
    wait_s=600.0,
    stay_s=240 * HOUR_S,
    flaky=0.0,
    level_s=inf,
    part=0.3,
    errors=0.05,
    speed_spread=0.3,
)


def scaled(grids: Sequence[SimulatedGrid], scale: float) -> list[SimulatedGrid]:
    """Return the same grids with fewer nodes."""
    return [replace(grid, places=max(2, round(grid.places * scale))) for grid in grids]


class _Hosts(VirtualAgents):
    """Counts wasted work, by bag: duplicate results, cancelled replicas, their seconds."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self.discarded, self.called_off = Counter[int](), Counter[int]()
        self.vain_s: defaultdict[int, float] = defaultdict(float)

    def _receive(self, agent: Any, message: Message) -> None:
        for bag, end in message.ends:
            if end.code == 0 and self.core.state.bags[bag].tasks.status[end.task] == DONE:
                self.discarded[bag] += 1
                self.vain_s[bag] += end.ran_s
        super()._receive(agent, message)

    def _take(self, agent: Any, answer: AgentReply) -> None:
        for triple in answer.cancel:
            if triple in agent.running:
                self.called_off[triple[0]] += 1
                self.vain_s[triple[0]] += self.now_s - agent.running[triple]
        super()._take(agent, answer)


@dataclass
class _Places:
    """The positions of one grid: the node of each, and how often that has changed."""

    grid: SimulatedGrid
    draws: Generator
    granted: int = 0
    agents: dict[int, str] = field(default_factory=dict)
    machines: dict[int, int] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)


def no_note(_record: Record) -> None:
    """Discard a record."""


class Field:
    """Grids around a core. ``lengths_s``: of each bag's jobs, on a machine of speed 1; ``runs``: in
    place of those; ``wiped``: a node that joins again on a machine is not recognised."""

    def __init__(  # noqa: PLR0913
        self,
        grids: Sequence[SimulatedGrid],
        seed: int,
        lengths_s: Sequence[Any] = (),
        *,
        heartbeat_s: float = inf,
        lost_s: float = inf,
        fair: bool = False,
        wiped: bool = False,
        runs: RunTime | None = None,
        note: Callable[[Record], None] = no_note,
    ) -> None:
        rules = Rules(policy="fair-share" if fair else "next-available", lost_s=lost_s)
        self.lengths_s, self._wiped = lengths_s, wiped
        self.core = Core(State(), rules, note)
        self.agents = _Hosts(self.core, runs or self._runs, delay_s=0.05, heartbeat_s=heartbeat_s)
        self._seed, self._draws = seed, stream(seed, "gridbot", "attempts")
        self._speeds: dict[str, float] = {}
        self._grid_of: dict[str, SimulatedGrid] = {}
        self.preempted_busy = 0
        for grid in grids:
            places = _Places(grid, stream(seed, "gridbot", grid.name))
            self.agents.at(0.0, partial(self._grant, places))

    def add(
        self, number: int, jobs: int, policy: dict[str, str] | None = None, **named: Any
    ) -> None:
        """Add a bag."""
        value = _policy(tuple(policy.items())) if policy else None
        bag = BagSpec(name=f"b{number}", commands=same(jobs), policy=value, **named)
        self.core.add(number, bag, self.agents.now_s)
        self.agents.push()

    def simulate(self, until_s: float = inf) -> None:
        """Simulate until all bags are terminal."""
        self.agents.run(
            until_s, lambda: not self.core.serving or all(b.over for b in self.core.serving)
        )

    def _runs(self, bag: int, task: int, agent: str) -> tuple[float, int]:
        grid = self._grid_of[agent]
        seconds = self.lengths_s[bag][task] / self._speeds[agent]
        if grid.part < 1.0:  # between .01 and 1, as printed
            seconds /= max(0.01, self._draws.beta(0.9, 0.9 * (1 / grid.part - 1)))
        if grid.errors and self._draws.random() < grid.errors:
            return seconds * float(self._draws.random()), 1
        return float(seconds), 0

    # places

    def _grant(self, places: _Places) -> None:
        grid, before = places.grid, places.granted
        level = 1.0 if grid.level_s == inf else 10.0 ** -places.draws.random()
        places.granted = max(1, round(grid.places * level))
        for place in range(places.granted, before):
            self._preempt(places, place)
        for place in range(before, places.granted):
            self._ask(places, place)
        if grid.level_s < inf:
            self.agents.at(
                self.agents.now_s + places.draws.exponential(grid.level_s),
                partial(self._grant, places),
            )

    def _ask(self, places: _Places, place: int) -> None:
        turn = places.turns[place] = places.turns.get(place, 0) + 1
        wait_s = places.grid.wait_s * places.draws.lognormal(0.0, places.grid.wait_spread)
        self.agents.at(self.agents.now_s + wait_s, partial(self._come, places, place, turn))

    def _come(self, places: _Places, place: int, turn: int) -> None:
        if places.turns[place] != turn:
            return
        grid, draws = places.grid, places.draws
        number = int(draws.integers(2 * grid.places))
        while number in places.used:
            number = int(draws.integers(2 * grid.places))
        places.used.add(number)
        machine = f"{grid.name}{number}"
        name = f"{machine}.{place}.{turn}" if self._wiped else machine
        places.agents[place], places.machines[place] = name, number
        of = stream(self._seed, "gridbot", machine)
        self._speeds[name] = float(of.lognormal(0.0, grid.speed_spread))
        self._grid_of[name] = grid
        stay_s = grid.flaky_stay_s if of.random() < grid.flaky else grid.stay_s
        self.agents.join(name, site=grid.name)
        if stay_s < inf:
            end_s = self.agents.now_s + draws.exponential(stay_s)
            self.agents.at(end_s, partial(self._end, places, place, turn))

    def _end(self, places: _Places, place: int, turn: int) -> None:
        if places.turns[place] == turn:
            self._preempt(places, place)
            if place < places.granted:
                self._ask(places, place)

    def _preempt(self, places: _Places, place: int) -> None:
        places.turns[place] += 1
        name = places.agents.pop(place, None)
        if name is not None:
            places.used.discard(places.machines[place])
            self.preempted_busy += bool(self.agents.agents[name].running)
            self.agents.vanish(name)


def _policy(items: tuple[tuple[str, str], ...]) -> Policy:
    return read_policy(dict(items), "study gridbot")


def same(jobs: int) -> TaskCommands:
    """Return this many equal jobs."""
    return Listed(["true"] * jobs)
