"""Accuracy of the reported capacity: against the knee of a sweep over workers, and over time as
workers join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.pool.capacity import Capacity, capacity, compute_capacity_with_think
from vgrads.pool.samples import FEWEST, Meter, fold
from vgrads_studies.pools.stage import PoolSimulation
from vgrads_studies.pools.values import Batch, PoolWorker, StudyConfig

_SETTLED = 2  # times the workers, at least FEWEST tasks: valid from here
Place = tuple[StudyConfig, Batch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One setting: the knee of its sweep, and the relative error of the estimate, for a number of
    workers, in several simulations; whether the interval contained the true value; the relative
    error of the thesis's estimate."""

    serial: bool
    knee: float
    workers: int
    off: tuple[float, ...]
    inside: tuple[bool, ...]
    thesis: tuple[float, ...]


class Traced(PoolSimulation):
    """Workers join at given instants, in given numbers; estimates are recorded after every few
    tasks."""

    def __init__(
        self,
        batches: Sequence[Batch],
        config: StudyConfig,
        comes: Sequence[tuple[float, int]],
        seed: int,
        most: int = 10**9,
    ) -> None:
        super().__init__(batches, config, None, seed)
        self.meter, self.most = Meter(serial=config.serial), most
        self.trace: list[tuple[float, int, Capacity | None, float]] = []
        self.speeds: list[float] = []
        for at_s, workers in comes:
            for _ in range(workers):
                self.time.at(at_s, self.join, f"w{self.time.number()}")

    def end(self, worker: PoolWorker, out_s: float, think_s: float, loop_s: float) -> None:
        """Record the end of a task."""
        self.speeds.append(worker.speed)
        super().end(worker, out_s, think_s, loop_s)
        if len(self.fresh) >= 5:
            self.meter = fold(self.meter, self.fresh, self.served)
            self.fresh = []
            window = list(self.last)[-max(10, self.served) :]
            self.trace.append(
                (
                    self.time.now_s,
                    len(self.account.ends_s),
                    capacity(self.meter),
                    compute_capacity_with_think(window),
                )
            )
        if len(self.account.ends_s) >= self.most:
            self.closed_s = self.time.now_s  # enough data


def rate(place: Place, workers: int, tasks: int) -> float:
    """Return the tasks per second that this many workers complete, without the first and last
    ones."""
    config, batch = place
    stage = PoolSimulation([replace(batch, tasks=tasks)], config, None, 1, workers)
    ends = stage.simulate().ends_s
    first, last = min(2 * workers, tasks // 3), max(tasks - workers, tasks // 2)
    return (last - first) / (ends[last - 1] - ends[first - 1])


def sweep(place: Place) -> tuple[float, float]:
    """Return the seconds from one task of a single worker to its next, and the tasks per second
    with so many workers that more do not help. Their product is the knee, where the line of one
    worker meets the plateau. Workers are warm, and all variation is omitted: it changes neither, in
    the mean, and the sweep need not be long."""
    config, batch = place
    warm_mib = 0.0 if batch.shared else batch.in_mib
    even = replace(config, speeds=0.0, jitter=0.0), replace(batch, spread=0.0, in_mib=warm_mib)
    value, workers = rate(even, 1, 40), 64
    while True:
        plateau = rate(even, workers, 6 * workers)
        if plateau / value < workers / 2.0:
            return 1.0 / value, plateau
        workers *= 2


def places(count: int, seed: int) -> Iterator[Place]:
    """Draw sizes, times, bandwidths, think times and caches for each setting; half of the managers
    are serial."""
    draws = stream(seed, "pool", "capacity")

    def between(low: float, high: float) -> float:
        return float(low * (high / low) ** draws.random())

    for n in range(count):
        config = StudyConfig(
            mib_s=between(5.0, 100.0),
            think_s=between(0.005, 0.3),
            per_worker_s=0.0,
            serial=n % 2 == 0,
            speeds=between(0.01, 0.15),
            jitter=between(0.05, 0.4),
        )
        shared = draws.random() < 0.5
        yield (
            config,
            Batch(
                at_s=0.0,
                tasks=1,
                in_mib=between(1.0, 200.0) if shared else between(0.1, 10.0),
                shared=bool(shared),
                out_mib=between(0.1, 10.0),
                execution_s=between(3.0, 60.0),
                spread=between(0.05, 0.6),
            ),
        )


def estimate(place: Place, seed: int, simulations: int) -> Estimate:
    """Return the estimate once twice as many tasks as workers have ended, for half to twice as many
    workers as the knee. The true value is the knee with nodes as fast as those that ran the tasks.
    """
    config, batch = place
    cycle_s, plateau = sweep(place)
    draws = stream(seed, "pool", "estimate")
    workers = max(2, round(cycle_s * plateau * float(draws.uniform(0.5, 2.0))))
    tasks = _SETTLED * max(FEWEST, workers)
    off, inside, thesis = [], [], []
    for simulate in range(simulations):
        stage = Traced(
            [replace(batch, tasks=tasks + 2 * workers)],
            config,
            [(0.0, workers)],
            100 * seed + simulate,
            tasks,
        )
        stage.simulate()
        slower = float(np.mean(stage.speeds))
        true = (cycle_s + batch.execution_s * (slower - 1.0)) * plateau
        capacity = stage.trace[-1][2]
        assert capacity
        off.append(capacity.workers.value / true - 1.0)
        inside.append(capacity.workers.low <= true <= capacity.workers.high)
        thesis.append((stage.trace[-1][3] + 1.0) / true - 1.0)
    return Estimate(
        serial=config.serial,
        knee=cycle_s * plateau,
        workers=workers,
        off=tuple(off),
        inside=tuple(inside),
        thesis=tuple(thesis),
    )


FIGURES: dict[str, tuple[Batch, tuple[tuple[float, int], ...]]] = {
    "4.6 settle time": (
        Batch(at_s=0.0, tasks=600, in_mib=5.0, out_mib=5.0, execution_s=10.0, shared=False),
        ((0.0, 80),),
    ),
    "4.7 cache bounce": (
        Batch(at_s=0.0, tasks=500, in_mib=1024.0, out_mib=1.0, execution_s=5.0),
        ((0.0, 1), (300.0, 10)),
    ),
    "4.8 both": (
        Batch(at_s=0.0, tasks=600, in_mib=50.0, out_mib=5.0, execution_s=10.0),
        ((0.0, 20), (40.0, 20), (80.0, 20)),
    ),
}
"""The thesis's workloads for figures 4.6 to 4.8; the arrivals of workers in 4.8 are from its text.
"""
_PLACE = StudyConfig(mib_s=60.0, think_s=1.0 / 12.0, per_worker_s=0.0, speeds=0.1)
"""Figure 4.5: 10 MiB in a sixth of a second, and a twelfth of a second in the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``settled_s``: time from which it stays within a tenth of its final value; ``dip``: how far
    it falls below its earlier value, after twice as many tasks as workers (at least 20)."""

    name: str
    settled_s: float
    dip: float
    thesis_settled_s: float
    thesis_dip: float
    end: float
    thesis_end: float
    trace: tuple[tuple[float, float, float, float, float], ...]


def figure(name: str, seed: int) -> Figure:
    """Return one of figures 4.6 to 4.8."""
    batch, comes = FIGURES[name]
    stage = Traced([batch], _PLACE, comes, seed)
    stage.simulate()
    rows = [
        (at_s, ended, capacity.workers.value, capacity.workers.low, capacity.workers.high, thesis)
        for at_s, ended, capacity, thesis in stage.trace
        if capacity
    ]
    settled = _SETTLED * max(FEWEST, comes[0][1])
    ours, theirs = [row[2] for row in rows], [row[5] for row in rows]
    since = next(n for n, row in enumerate(rows) if row[1] >= settled)
    return Figure(
        name=name,
        settled_s=_settled_s([row[0] for row in rows], ours),
        dip=_dip(ours[since:]),
        thesis_settled_s=_settled_s([row[0] for row in rows], theirs),
        thesis_dip=_dip(theirs[since:]),
        end=ours[-1],
        thesis_end=theirs[-1],
        trace=tuple((row[0], *row[2:]) for row in rows),
    )


def _dip(values: Sequence[float]) -> float:
    highest = np.maximum.accumulate(values)
    return float(np.max(1.0 - np.array(values) / highest))


def _settled_s(at_s: Sequence[float], values: Sequence[float]) -> float:
    off = np.abs(np.array(values) / values[-1] - 1.0) > 0.1
    return float(at_s[int(np.flatnonzero(off)[-1]) + 1]) if off.any() else float(at_s[0])
