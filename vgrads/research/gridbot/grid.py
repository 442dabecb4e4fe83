"""Grids as GridBot had them (Silberstein and others, SC'09, doi:10.1145/1654059.1654071), simulated
around a core.

A grid is a number of places in its queue. A place waits (log-normal, seconds to hours), then a host
comes, on one of twice as many machines, works, and is preempted: it vanishes without a word. How
many places a grid grants is drawn anew every four hours on average, over an order of magnitude.
What is assumed, beyond what the paper prints, stands in docs/gridbot.md; with it, a tenth of jobs
of 20 to 60 minutes fails (section 2.2 of the paper).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from numpy.random import Generator

from vgrads.bags.bag import Bag, Commands, Listed
from vgrads.dispatch.core.records import Record
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Answer, Message, Rules
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.fleet.virtual import RunTime, VirtualHosts
from vgrads.kernel.streams import stream
from vgrads.policies.policy import Policy, read_policy

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Grid:
    """``places``: the most hosts at once; ``wait_s`` (median) and ``wait_spread`` of its queue;
    ``stay_s``: until a host is preempted, on average, and ``flaky_stay_s`` on ``flaky`` of its
    machines; ``level_s``: how long the number that it grants stays the same, ``inf``: always all;
    ``speed_spread``: of its machines, log-normal; ``part``: which part of the time that a job is at
    a host it runs, on average; ``errors``: jobs that end wrong."""

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


TECHNION = Grid(
    name="Technion", places=121, wait_s=20.0, wait_spread=0.5, stay_s=inf, flaky=0.0, level_s=inf
)
GRIDS = (
    Grid(name="EGEE", places=2800, wait_s=1200.0),
    Grid(name="OSG", places=2450, wait_s=600.0),
    Grid(name="Madison", places=840, wait_s=300.0),
    TECHNION,
)
"""The collaborative grids: of the hosts that the paper counts in three months 0.7 (2,500 at once on
average, what its turnarounds of 30,000 jobs come to), and the cluster."""
COMMUNITY = Grid(
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


def scaled(grids: Sequence[Grid], scale: float) -> list[Grid]:
    """The same grids with fewer places."""
    return [replace(grid, places=max(2, round(grid.places * scale))) for grid in grids]


class _Hosts(VirtualHosts):
    """Counts what is done in vain, by bag: results of which one was there, copies that were called
    off, their seconds."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.discarded, self.called_off = Counter[int](), Counter[int]()
        self.vain_s: defaultdict[int, float] = defaultdict(float)

    def _hear(self, host: Any, message: Message) -> None:
        for bag, end in message.ends:
            if end.code == 0 and self.core.state.bags[bag].tasks.status[end.task] == DONE:
                self.discarded[bag] += 1
                self.vain_s[bag] += end.ran_s
        super()._hear(host, message)

    def _take(self, host: Any, answer: Answer) -> None:
        for triple in answer.cancel:
            if triple in host.running:
                self.called_off[triple[0]] += 1
                self.vain_s[triple[0]] += self.now_s - host.running[triple]
        super()._take(host, answer)


@dataclass
class _Places:
    """The places of one grid: the host that each has, and how often that has changed."""

    grid: Grid
    draws: Generator
    granted: int = 0
    hosts: dict[int, str] = field(default_factory=dict)
    machines: dict[int, int] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)


def no_note(_record: Record) -> None:
    """Nothing is kept."""


class Field:
    """Grids around a core. ``lengths_s``: of each bag's jobs, on a machine of speed 1; ``runs``:
    instead of those; ``wiped``: a host that comes again on a machine is not known any more."""

    def __init__(  # noqa: PLR0913
        self,
        grids: Sequence[Grid],
        seed: int,
        lengths_s: Sequence[Any] = (),
        *,
        beat_s: float = inf,
        lost_s: float = inf,
        fair: bool = False,
        wiped: bool = False,
        runs: RunTime | None = None,
        note: Callable[[Record], None] = no_note,
    ) -> None:
        rules = Rules(policy="fair-share" if fair else "next-available", lost_s=lost_s)
        self.lengths_s, self._wiped = lengths_s, wiped
        self.core = Core(State(), rules, note)
        self.hosts = _Hosts(self.core, runs or self._runs, delay_s=0.05, beat_s=beat_s)
        self._seed, self._draws = seed, stream(seed, "gridbot", "attempts")
        self._speeds: dict[str, float] = {}
        self._grid_of: dict[str, Grid] = {}
        self.preempted_busy = 0
        for grid in grids:
            places = _Places(grid, stream(seed, "gridbot", grid.name))
            self.hosts.at(0.0, partial(self._grant, places))

    def add(
        self, number: int, jobs: int, policy: dict[str, str] | None = None, **named: Any
    ) -> None:
        """One more bag."""
        given = _policy(tuple(policy.items())) if policy else None
        bag = Bag(name=f"b{number}", commands=same(jobs), policy=given, **named)
        self.core.add(number, bag, self.hosts.now_s)
        self.hosts.push()

    def play(self, until_s: float = inf) -> None:
        """Until all bags are over."""
        self.hosts.run(
            until_s, lambda: not self.core.serving or all(b.over for b in self.core.serving)
        )

    def _runs(self, bag: int, task: int, host: str) -> tuple[float, int]:
        grid = self._grid_of[host]
        seconds = self.lengths_s[bag][task] / self._speeds[host]
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
            self.hosts.at(
                self.hosts.now_s + places.draws.exponential(grid.level_s),
                partial(self._grant, places),
            )

    def _ask(self, places: _Places, place: int) -> None:
        turn = places.turns[place] = places.turns.get(place, 0) + 1
        wait_s = places.grid.wait_s * places.draws.lognormal(0.0, places.grid.wait_spread)
        self.hosts.at(self.hosts.now_s + wait_s, partial(self._come, places, place, turn))

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
        places.hosts[place], places.machines[place] = name, number
        of = stream(self._seed, "gridbot", machine)
        self._speeds[name] = float(of.lognormal(0.0, grid.speed_spread))
        self._grid_of[name] = grid
        stay_s = grid.flaky_stay_s if of.random() < grid.flaky else grid.stay_s
        self.hosts.join(name, site=grid.name)
        if stay_s < inf:
            end_s = self.hosts.now_s + draws.exponential(stay_s)
            self.hosts.at(end_s, partial(self._end, places, place, turn))

    def _end(self, places: _Places, place: int, turn: int) -> None:
        if places.turns[place] == turn:
            self._preempt(places, place)
            if place < places.granted:
                self._ask(places, place)

    def _preempt(self, places: _Places, place: int) -> None:
        places.turns[place] += 1
        name = places.hosts.pop(place, None)
        if name is not None:
            places.used.discard(places.machines[place])
            self.preempted_busy += bool(self.hosts.hosts[name].running)
            self.hosts.vanish(name)


def _policy(items: tuple[tuple[str, str], ...]) -> Policy:
    return read_policy(dict(items), "study gridbot")


def same(jobs: int) -> Commands:
    """So many jobs that look alike."""
    return Listed(["true"] * jobs)
