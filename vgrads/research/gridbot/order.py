"""Who is served, and by whom: bags by rank (GridBot's Figure 7), owners by weight, black holes,
long honest tasks."""

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
from vgrads.dispatch.core.records import Copied, Ended, Given, Late, Record
from vgrads.kernel.streams import stream
from vgrads.research.gridbot.grid import GRIDS, HOUR_S, Field, scaled
from vgrads.research.gridbot.replicas import COMMON

TEN_MINUTES_S = 600.0


@dataclass
class Notes:
    """What was noted, and when."""

    seen: list[tuple[float, Record]] = field(default_factory=list)
    field_: Field | None = None

    def __call__(self, record: Record) -> None:
        self.seen.append((self.field_.hosts.now_s if self.field_ else 0.0, record))

    def given(self) -> list[tuple[float, int, int]]:
        """Instant, bag, task of every first attempt, in order."""
        return [
            (at, r.bag, task) for at, r in self.seen if isinstance(r, Given) for task in r.tasks
        ]


def noted(*grids: Any, **named: Any) -> tuple[Field, Notes]:
    notes = Notes()
    made = Field(*grids, note=notes, **named)
    notes.field_ = made
    return made, notes


@dataclass(frozen=True, kw_only=True)
class Order:
    """``in_order``: the share of jobs outside tails that begin while no job of a higher rank waits,
    %; ``hours``: until a bag is done, for each from the highest rank on; ``gap_hours``: from one
    bag's end to the next one's."""

    in_order: float
    hours: tuple[float, ...]
    gap_hours: float


def order(bags: int, jobs: int, seed: int, scale: float) -> Order:
    """Bags of jobs of three minutes on average, all there from the beginning, Rank 1 to so many."""
    draws = stream(seed, "gridbot", "order")
    lengths = [draws.uniform(120.0, 240.0, jobs) for _ in range(bags)]
    made, notes = noted(scaled(GRIDS, scale), seed, lengths)
    for number in range(bags):
        made.add(number, jobs, {**COMMON, "Rank": str(bags - number), "Deadline": "1200"})
    made.play()
    ended = sorted((made.core.state.bags[n].ended_s or 0.0) / HOUR_S for n in range(bags))
    return Order(
        in_order=100.0 * _in_order(notes, bags, jobs),
        hours=tuple(ended),
        gap_hours=(ended[-1] - ended[0]) / max(1, bags - 1),
    )


def _in_order(notes: Notes, bags: int, jobs: int) -> float:
    """A tail: the last 100 of 1,200 jobs that begin, where the paper sees the order end."""
    begun: dict[int, list[float]] = {}
    known: set[tuple[int, int]] = set()
    for at, bag, task in notes.given():
        if (bag, task) not in known:
            known.add((bag, task))
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
class Holes:
    """``first``: the most attempts that a black hole got before it was barred; ``share``: of all
    attempts that failed, %, and ``time_share``: of the processor time; ``throughput``: against the
    same hosts without them, %; ``back_s``: the longest until a healed host did its first task;
    ``honest``: other hosts that were barred."""

    first: int
    share: float
    time_share: float
    throughput: float
    back_s: float
    honest: int


@dataclass
class _Holes:
    """A field with black holes, or without: ``bad`` fail within a second, ``healing`` until
    ``heal_s``."""

    hosts: Sequence[str]
    bad: set[str]
    healing: set[str]
    heal_s: float
    lengths_s: Any
    draws: Any

    def play(self) -> tuple[Field, Notes]:
        made, notes = noted((), 0, runs=self._runs)
        self.made = made
        for name in self.hosts:
            late_s = self.heal_s if name in self.healing and name not in self.bad else 0.0
            made.hosts.at(late_s, partial(made.hosts.join, name))
        made.hosts.run(until_s=0.5)
        made.add(0, len(self.lengths_s))
        made.play()
        return made, notes

    def _runs(self, _bag: int, task: int, host: str) -> tuple[float, int]:
        healed = host in self.healing and self.made.hosts.now_s >= self.heal_s
        if host in self.bad and not healed:
            return 0.2 + 0.7 * float(self.draws.random()), 1
        return float(self.lengths_s[task]), 0


def black_holes(hosts: int, seed: int, task_s: float, hours: float = 2.0) -> Holes:
    """One host in twenty fails within a second at whatever it is given; a quarter of these heal
    half-way.

    Throughput is held against a play without them, where those that heal come half-way.
    """
    draws = stream(seed, "gridbot", "holes")
    names = [f"h{n}" for n in range(hosts)]
    bad = {names[n] for n in draws.permutation(hosts)[: max(1, hosts // 20)]}
    healing = set(sorted(bad)[: max(1, len(bad) // 4)])
    lengths = draws.uniform(0.8 * task_s, 1.2 * task_s, int(hosts * hours * HOUR_S / task_s))
    half_s = hours * HOUR_S / 2
    made, notes = _Holes(names, bad, healing, half_s, lengths, draws).play()
    without = [name for name in names if name not in bad or name in healing]
    free, _ = _Holes(without, set(), healing, half_s, lengths, draws).play()
    ideal_s, took_s = (one.core.state.bags[0].ended_s or inf for one in (free, made))
    return _holes_of(made, notes, bad, healing, half_s, 100.0 * ideal_s / took_s)


def _holes_of(
    made: Field, notes: Notes, bad: set[str], healing: set[str], half_s: float, throughput: float
) -> Holes:
    names = {number: host.id for number, host in made.core.state.hosts.items()}
    barred: dict[str, float] = {}
    for at, record in notes.seen:
        if isinstance(record, AgentQuarantined):
            barred.setdefault(names[record.number], at)
    ends = [(at, end) for at, r in notes.seen if isinstance(r, Ended) for end in r.ends]
    tries = Counter(names[e.host] for at, e in ends if at <= barred.get(names[e.host], inf))
    wrong_s = sum(end.ran_s for _, end in ends if end.code)
    back = dict.fromkeys(healing, inf)
    for _, end in ends:
        if end.code == 0 and names[end.host] in healing:
            back[names[end.host]] = min(back[names[end.host]], end.at_s - end.ran_s - half_s)
    return Holes(
        first=max(tries[name] for name in bad),
        share=100.0 * sum(end.code != 0 for _, end in ends) / len(ends),
        time_share=100.0 * wrong_s / sum(end.ran_s for _, end in ends),
        throughput=throughput,
        back_s=max(back.values()),
        honest=len(set(barred) - bad),
    )


@dataclass(frozen=True, kw_only=True)
class Long:
    """``aborted``: attempts that were given up though they would have ended; ``copied``: long
    honest tasks that had a copy, %; ``straggling``: stragglers that ran when places came free;
    ``late_s``: 95 % of them had a copy so soon after they began, or after the first free place;
    ``p95_s``: of run times."""

    aborted: int
    copied: float
    straggling: int
    late_s: float
    p95_s: float


def long_tasks(hosts: int, seed: int, kind: str) -> Long:
    """``bimodal``: one task in ten is fifty times as long. ``stragglers``: one attempt in twenty
    takes five times."""
    draws = stream(seed, "gridbot", kind)
    jobs = hosts * 10
    lengths = draws.uniform(50.0, 70.0, jobs)
    if kind == "bimodal":
        lengths = np.where(draws.random(jobs) < 0.1, 50.0 * lengths, lengths)
    slow: dict[tuple[int, str], float] = {}

    def runs(_bag: int, task: int, host: str) -> tuple[float, int]:
        straggles = kind == "stragglers" and draws.random() < 0.05
        if straggles:
            slow[task, host] = made.hosts.now_s
        return float(lengths[task]) * (5.0 if straggles else 1.0), 0

    made, notes = noted((), seed, beat_s=15.0, lost_s=60.0, runs=runs)
    for number in range(hosts):
        made.hosts.join(f"h{number}")
    made.add(0, jobs, learns=True)
    made.play()
    return _long_of(made, notes, lengths, slow)


def _long_of(made: Field, notes: Notes, lengths: Any, slow: dict[tuple[int, str], float]) -> Long:
    names = {number: host.id for number, host in made.core.state.hosts.items()}
    p95_s = float(np.quantile(lengths, 0.95))
    copies: dict[int, float] = {}
    for at, record in notes.seen:
        for task in record.tasks if isinstance(record, Copied) else ():
            copies.setdefault(task, at)
    aborted = sum(len(record.tasks) for _, record in notes.seen if isinstance(record, Late))
    free_s = max(at for at, _, _ in notes.given())
    over = {
        (end.task, names[end.host]): end.at_s
        for _, r in notes.seen
        if isinstance(r, Ended)
        for end in r.ends
    }
    ages = []
    for (task, host), since_s in slow.items():
        over_s = over.get((task, host), inf)
        if over_s > free_s:
            ages.append(min(copies.get(task, inf), over_s) - max(since_s, free_s))
    long = set(np.flatnonzero(lengths > 10 * np.median(lengths)).tolist())
    return Long(
        aborted=aborted,
        copied=100.0 * len(long & copies.keys()) / max(1, len(long)),
        straggling=len(ages),
        late_s=float(np.quantile(ages, 0.95)) if ages else 0.0,
        p95_s=p95_s,
    )


def shares(
    weights: Sequence[float], hosts: int, seed: int, stated: bool, hours: float = 1.5
) -> float:
    """Owners with work all the time: by how much, at most, one's part of the processor time of any
    ten minutes differs from his weight's, in per cent of it. Tasks of half a minute to three, of
    each owner of another length, which is ``stated`` or learned."""
    draws = stream(seed, "gridbot", "shares")
    means = draws.uniform(30.0, 180.0, len(weights))
    jobs = [int(hosts * hours * HOUR_S / mean) + hosts for mean in means]
    lengths = [draws.uniform(0.7 * m, 1.3 * m, n) for m, n in zip(means, jobs, strict=True)]
    made, notes = noted(
        (), seed, fair=True, runs=lambda bag, task, _: (float(lengths[bag][task]), 0)
    )
    for number, weight in enumerate(weights):
        made.add(
            number,
            jobs[number],
            owner=f"o{number}",
            weight=weight,
            estimate_s=float(means[number]) if stated else None,
        )
    for number in range(hosts):
        made.hosts.join(f"h{number}")
    made.play(hours * HOUR_S)
    width = int(hours * HOUR_S)
    busy = np.zeros((len(weights), width + 1))
    for _, record in notes.seen:
        if isinstance(record, Ended):
            for end in record.ends:
                busy[record.bag, int(min(end.at_s - end.ran_s, width))] += 1
                busy[record.bag, int(min(end.at_s, width))] -= 1
    used = np.cumsum(np.cumsum(busy, axis=1), axis=1)
    # the first minutes fill the hosts, the last ones hold attempts whose end was not seen
    starts = range(600, width - 1200, 60)
    parts = np.array([used[:, s + 600] - used[:, s] for s in starts])
    parts /= parts.sum(axis=1, keepdims=True)
    wanted = np.array(weights) / sum(weights)
    return float(100.0 * np.max(np.abs(parts - wanted) / wanted))
