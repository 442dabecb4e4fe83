"""Order of service: bags by rank (GridBot's Figure 7), owners by weight, black holes, long healthy
tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import numpy as np

from vgrads.dispatch.core.events import AgentQuarantined
from vgrads.dispatch.core.records import (
    AttemptsEnded,
    Record,
    TasksAssigned,
    TasksExpired,
    TasksReplicated,
)
from vgrads.kernel.streams import stream
from vgrads_studies.gridbot.grid import GRIDS, HOUR_S, Field, scaled
from vgrads_studies.gridbot.replicas import COMMON


@dataclass
class Notes:
    """Records with their instants."""

    records: list[tuple[float, Record]] = field(default_factory=list)
    simulation: Field | None = None

    def __call__(self, record: Record) -> None:
        self.records.append((self.simulation.agents.now_s if self.simulation else 0.0, record))

    def assignments(self) -> list[tuple[float, int, int]]:
        """Return instant, bag, task of every first attempt, in order."""
        return [
            (at, r.bag, task)
            for at, r in self.records
            if isinstance(r, TasksAssigned)
            for task in r.tasks
        ]


def noted(*grids: Any, **named: Any) -> tuple[Field, Notes]:
    notes = Notes()
    simulation = Field(*grids, note=notes, **named)
    notes.simulation = simulation
    return simulation, notes


@dataclass(frozen=True, kw_only=True)
class OrderStatistics:
    """``in_order``: the share of jobs outside tails that begin while no job of a higher rank waits,
    %; ``hours``: until a bag is done, for each from the highest rank on; ``gap_hours``: between the
    ends of consecutive bags."""

    in_order: float
    hours: tuple[float, ...]
    gap_hours: float


def order(bags: int, jobs: int, seed: int, scale: float) -> OrderStatistics:
    """Simulate bags of jobs of three minutes on average, all present from the start, with Rank from
    1 to the number of bags."""
    draws = stream(seed, "gridbot", "order")
    lengths = [draws.uniform(120.0, 240.0, jobs) for _ in range(bags)]
    simulation, notes = noted(scaled(GRIDS, scale), seed, lengths)
    for number in range(bags):
        simulation.add(number, jobs, {**COMMON, "Rank": str(bags - number), "Deadline": "1200"})
    simulation.simulate()
    ended = sorted((simulation.core.state.bags[n].ended_s or 0.0) / HOUR_S for n in range(bags))
    return OrderStatistics(
        in_order=100.0 * _in_order(notes, bags, jobs),
        hours=tuple(ended),
        gap_hours=(ended[-1] - ended[0]) / max(1, bags - 1),
    )


def _in_order(notes: Notes, bags: int, jobs: int) -> float:
    """Return the share outside the tail: the last 100 of 1,200 jobs that begin, where the paper
    sees the order end."""
    begun: dict[int, list[float]] = {}
    listed: set[tuple[int, int]] = set()
    for at, bag, task in notes.assignments():
        if (bag, task) not in listed:
            listed.add((bag, task))
            begun.setdefault(bag, []).append(at)
    tail = max(1, jobs // 12)
    body = {bag: times[: jobs - tail] for bag, times in begun.items()}
    right = total = 0
    for bag in range(bags):
        before = max((body[b][-1] for b in range(bag)), default=0.0)
        total += len(body[bag])
        right += len(body[bag]) - bisect_right(body[bag], before - 1e-9)
    return right / total


@dataclass(frozen=True, kw_only=True)
class BlackHoleResult:
    """``first``: the most attempts that a black hole got before it was quarantined; ``share``:
    failed share of all attempts, %, and ``time_share``: of the processor time; ``throughput``:
    relative to the same nodes without them, %; ``back_s``: the longest time until a healed node did
    its first task; ``healthy``: other nodes that were quarantined."""

    first: int
    share: float
    time_share: float
    throughput: float
    back_s: float
    healthy: int


@dataclass
class _Holes:
    """A simulation with black holes, or without: ``bad`` nodes fail within a second, ``healing``
    ones until ``heal_s``."""

    agents: Sequence[str]
    bad: set[str]
    healing: set[str]
    heal_s: float
    lengths_s: Any
    draws: Any

    def simulate(self) -> tuple[Field, Notes]:
        simulation, notes = noted((), 0, runs=self._runs)
        self.created = simulation
        for name in self.agents:
            late_s = self.heal_s if name in self.healing and name not in self.bad else 0.0
            simulation.agents.at(late_s, partial(simulation.agents.join, name))
        simulation.agents.run(until_s=0.5)
        simulation.add(0, len(self.lengths_s))
        simulation.simulate()
        return simulation, notes

    def _runs(self, _bag: int, task: int, agent: str) -> tuple[float, int]:
        healed = agent in self.healing and self.created.agents.now_s >= self.heal_s
        if agent in self.bad and not healed:
            return 0.2 + 0.7 * float(self.draws.random()), 1
        return float(self.lengths_s[task]), 0


def black_holes(agents: int, seed: int, task_s: float, hours: float = 2.0) -> BlackHoleResult:
    """Simulate one node in twenty failing within a second on every task; a quarter of these heal
    half-way.

    Throughput is compared to a simulation without them, where those that heal join half-way.
    """
    draws = stream(seed, "gridbot", "holes")
    names = [f"h{n}" for n in range(agents)]
    bad = {names[n] for n in draws.permutation(agents)[: max(1, agents // 20)]}
    healing = set(sorted(bad)[: max(1, len(bad) // 4)])
    lengths = draws.uniform(0.8 * task_s, 1.2 * task_s, int(agents * hours * HOUR_S / task_s))
    half_s = hours * HOUR_S / 2
    simulation, notes = _Holes(names, bad, healing, half_s, lengths, draws).simulate()
    without = [name for name in names if name not in bad or name in healing]
    free, _ = _Holes(without, set(), healing, half_s, lengths, draws).simulate()
    ideal_s, took_s = (item.core.state.bags[0].ended_s or inf for item in (free, simulation))
    return _holes_of(simulation, notes, bad, healing, half_s, 100.0 * ideal_s / took_s)


def _holes_of(
    simulation: Field,
    notes: Notes,
    bad: set[str],
    healing: set[str],
    half_s: float,
    throughput: float,
) -> BlackHoleResult:
    names = {number: agent.id for number, agent in simulation.core.state.agents.items()}
    quarantined: dict[str, float] = {}
    for at, record in notes.records:
        if isinstance(record, AgentQuarantined):
            quarantined.setdefault(names[record.number], at)
    ends = [(at, end) for at, r in notes.records if isinstance(r, AttemptsEnded) for end in r.ends]
    tries = Counter(names[e.agent] for at, e in ends if at <= quarantined.get(names[e.agent], inf))
    wrong_s = sum(end.ran_s for _, end in ends if end.code)
    back = dict.fromkeys(healing, inf)
    for _, end in ends:
        if end.code == 0 and names[end.agent] in healing:
            back[names[end.agent]] = min(back[names[end.agent]], end.at_s - end.ran_s - half_s)
    return BlackHoleResult(
        first=max(tries[name] for name in bad),
        share=100.0 * sum(end.code != 0 for _, end in ends) / len(ends),
        time_share=100.0 * wrong_s / sum(end.ran_s for _, end in ends),
        throughput=throughput,
        back_s=max(back.values()),
        healthy=len(set(quarantined) - bad),
    )


@dataclass(frozen=True, kw_only=True)
class LongTaskResult:
    """``aborted``: attempts that were given up though they would have ended; ``copied``: long
    healthy tasks with a replica, %; ``straggling``: stragglers running when processors became free;
    ``late_s``: time within which 95 % of them had a replica, from their start, or from the first
    free processor; ``p95_s``: of run times."""

    aborted: int
    copied: float
    straggling: int
    late_s: float
    p95_s: float


def long_tasks(agents: int, seed: int, kind: str) -> LongTaskResult:
    """Simulate long tasks. ``bimodal``: one task in ten is fifty times as long. ``stragglers``: one
    attempt in twenty takes five times as long."""
    draws = stream(seed, "gridbot", kind)
    jobs = agents * 10
    lengths = draws.uniform(50.0, 70.0, jobs)
    if kind == "bimodal":
        lengths = np.where(draws.random(jobs) < 0.1, 50.0 * lengths, lengths)
    slow: dict[tuple[int, str], float] = {}

    def runs(_bag: int, task: int, agent: str) -> tuple[float, int]:
        straggles = kind == "stragglers" and draws.random() < 0.05
        if straggles:
            slow[task, agent] = simulation.agents.now_s
        return float(lengths[task]) * (5.0 if straggles else 1.0), 0

    simulation, notes = noted((), seed, heartbeat_s=15.0, lost_s=60.0, runs=runs)
    for number in range(agents):
        simulation.agents.join(f"h{number}")
    simulation.add(0, jobs, learns=True)
    simulation.simulate()
    return _long_of(simulation, notes, lengths, slow)


def _long_of(
    simulation: Field, notes: Notes, lengths: Any, slow: dict[tuple[int, str], float]
) -> LongTaskResult:
    names = {number: agent.id for number, agent in simulation.core.state.agents.items()}
    p95_s = float(np.quantile(lengths, 0.95))
    replicas: dict[int, float] = {}
    for at, record in notes.records:
        for task in record.tasks if isinstance(record, TasksReplicated) else ():
            replicas.setdefault(task, at)
    aborted = sum(
        len(record.tasks) for _, record in notes.records if isinstance(record, TasksExpired)
    )
    free_s = max(at for at, _, _ in notes.assignments())
    over = {
        (end.task, names[end.agent]): end.at_s
        for _, r in notes.records
        if isinstance(r, AttemptsEnded)
        for end in r.ends
    }
    ages = []
    for (task, agent), since_s in slow.items():
        over_s = over.get((task, agent), inf)
        if over_s > free_s:
            ages.append(min(replicas.get(task, inf), over_s) - max(since_s, free_s))
    long = set(np.flatnonzero(lengths > 10 * np.median(lengths)).tolist())
    return LongTaskResult(
        aborted=aborted,
        copied=100.0 * len(long & replicas.keys()) / max(1, len(long)),
        straggling=len(ages),
        late_s=float(np.quantile(ages, 0.95)) if ages else 0.0,
        p95_s=p95_s,
    )


def shares(
    weights: Sequence[float], agents: int, seed: int, stated: bool, hours: float = 1.5
) -> float:
    """Return, for owners with work all the time, the maximum difference between an owner's share of
    the processor time of any ten minutes and that of their weight, in per cent of it. Tasks of half
    a minute to three, of another length for each owner, which is ``stated`` or learned."""
    draws = stream(seed, "gridbot", "shares")
    means = draws.uniform(30.0, 180.0, len(weights))
    jobs = [int(agents * hours * HOUR_S / mean) + agents for mean in means]
    lengths = [draws.uniform(0.7 * m, 1.3 * m, n) for m, n in zip(means, jobs, strict=True)]
    simulation, notes = noted(
        (), seed, fair=True, runs=lambda bag, task, _: (float(lengths[bag][task]), 0)
    )
    for number, weight in enumerate(weights):
        simulation.add(
            number,
            jobs[number],
            owner=f"o{number}",
            weight=weight,
            estimate_s=float(means[number]) if stated else None,
        )
    for number in range(agents):
        simulation.agents.join(f"h{number}")
    simulation.simulate(hours * HOUR_S)
    width = int(hours * HOUR_S)
    busy = np.zeros((len(weights), width + 1))
    for _, record in notes.records:
        if isinstance(record, AttemptsEnded):
            for end in record.ends:
                busy[record.bag, int(min(end.at_s - end.ran_s, width))] += 1
                busy[record.bag, int(min(end.at_s, width))] -= 1
    used = np.cumsum(np.cumsum(busy, axis=1), axis=1)
    # the first minutes fill the agents, the last ones contain attempts whose end was not observed
    starts = range(600, width - 1200, 60)
    parts = np.array([used[:, s + 600] - used[:, s] for s in starts])
    parts /= parts.sum(axis=1, keepdims=True)
    required = np.array(weights) / sum(weights)
    return float(100.0 * np.max(np.abs(parts - required) / required))
