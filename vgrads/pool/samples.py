"""What ended tasks told of their times, kept as weighted sums: what a task costs once workers are
warm.

What a worker gets because it is new belongs to its start-up and not to the task that happened to
need it first: what comes with its first task, and files that others had before it joined. (A file
that is itself new is work: every worker needs it.) Counted with the task, every new worker would
look like a fall of the manager's capacity (the *cache bounce* of Yu, PhD thesis, Notre Dame 2013,
§4.3.4). So the first-time share of a transfer is taken off here, and what is left is the same for
the first task of a worker as for its hundredth.

Sums are kept by category, with weights that fade as more tasks end: old work is forgotten, memory
stays constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
PARTS = ("execution", "up", "down", "think", "loop")
"""What is measured of a task, in seconds: at the worker; on the way there; on the way back; in the
application's code and in the manager's own, while it serves nobody."""
MOST_CATEGORIES = 64
"""Categories that are told apart; those beyond share one."""
FEWEST = 20
"""Tasks that a mean rests on at least before the oldest fade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """Times of one ended task, in seconds, and sizes, in MiB.

    ``in_s``, ``out_s``: how long the link was busy for it; where transfers overlap, each one's
    share of that (while n go on at once, every second is 1/n for each), so that the sums are the
    link's. ``in_mib``: what it reads; ``cached_mib`` of it was at the worker, ``cold_mib`` went
    there because the worker is new and will not again, the rest went there for this task.
    ``think_s``: in the application's code after the result, ``loop_s``: in the manager's own.
    ``disk_s``: seconds that the file system of ``site`` was busy for it.
    """

    execution_s: float
    in_s: float = 0.0
    out_s: float = 0.0
    in_mib: float = 0.0
    out_mib: float = 0.0
    cached_mib: float = 0.0
    cold_mib: float = 0.0
    think_s: float = 0.0
    loop_s: float = 0.0
    disk_s: float = 0.0
    category: str = ""
    host: str = ""
    site: str = ""

    @property
    def warm_in_s(self) -> float:
        """Seconds of its input that every task like it will need, at whatever worker."""
        sent = self.in_mib - self.cached_mib
        return self.in_s * max(0.0, sent - self.cold_mib) / sent if sent > 0.0 else self.in_s


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums of products of (1, values…) over tasks, and the sum of squared weights."""

    products: Matrix
    squares: float = 0.0

    @property
    def weight(self) -> float:
        """How many tasks it stands for, faded ones as parts."""
        return float(self.products[0, 0])

    @property
    def means(self) -> Matrix:
        """Mean values."""
        found: Matrix = self.products[0, 1:] / self.products[0, 0]
        return found

    @property
    def tasks(self) -> float:
        """Tasks of equal weight that would tell as much."""
        return self.weight**2 / self.squares if self.squares else 0.0

    def spread(self, factors: Matrix) -> float:
        """Variance of Σ factor · value over tasks."""
        of = np.concatenate(([0.0], factors))
        mean = float(of @ self.products[0]) / self.weight
        return max(0.0, float(of @ self.products @ of) / self.weight - mean**2)

    def with_tasks(self, values: Matrix, after: NDArray[np.int64], count: int, keep: float) -> Sums:
        """After ``count`` more tasks, of which these are its own, one a row; ``after``: how many
        ended after each. What was before fades by ``keep`` with every task, its own or not."""
        rows = np.column_stack((np.ones(len(values)), values))
        weights = keep ** after.astype(np.float64)
        products = self.products * keep**count + (rows * weights[:, None]).T @ rows
        return Sums(products, self.squares * keep ** (2 * count) + float(weights @ weights))


def no_sums(values: int) -> Sums:
    """Of no task."""
    return Sums(np.zeros((values + 1, values + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What a manager keeps of all tasks that have ended: constant memory, however many they are.

    ``ended``: tasks, ``workers``: that were busy lately. ``serial``: the manager does one thing at
    a time, as Work Queue's does, so its parts add up; else they overlap.
    """

    serial: bool = False
    strata: Mapping[str, Sums] = field(default_factory=dict)
    disks: Mapping[str, Sums] = field(default_factory=dict)
    ended: int = 0
    workers: int = 0

    @property
    def all(self) -> Sums:
        """All categories together, as they came."""
        found = tuple(self.strata.values()) or (no_sums(len(PARTS)),)
        total = sum((one.products for one in found), np.zeros_like(found[0].products))
        return Sums(total, sum(one.squares for one in found))

    @property
    def cycle_s(self) -> float:
        """Seconds that one task keeps a warm worker from the next, means of its parts added up."""
        return float(self.all.means.sum()) if self.ended else 0.0


def memory_tasks(workers: int) -> float:
    """Tasks after which an old one counts for 1/e."""
    return 2.0 * max(FEWEST, workers)


def fold(meter: Meter, ended: Sequence[TaskTimes], workers: int = 0) -> Meter:
    """The meter after these tasks have ended, in their order.

    ``workers``: how many are busy; the mean rests on about twice as many tasks, so that slow
    workers have reported too, and no more, so that it follows the work (thesis, §4.3.2).
    """
    if not ended:
        return meter
    keep = 1.0 - 1.0 / memory_tasks(workers)
    count, strata, disks = len(ended), dict(meter.strata), dict(meter.disks)
    order = [_category(strata, one.category) for one in ended]
    names, after = np.array(order), np.arange(count - 1, -1, -1)
    values = np.array(
        [[one.execution_s, one.warm_in_s, one.out_s, one.think_s, one.loop_s] for one in ended]
    )
    for name, old in tuple(strata.items()):
        mine = names == name
        strata[name] = old.with_tasks(values[mine], after[mine], count, keep)
    for site in dict.fromkeys([*disks, *(one.site for one in ended if one.disk_s > 0.0)]):
        here = [one.disk_s if one.site == site else 0.0 for one in ended]
        rows = np.column_stack((values.sum(axis=1), here))
        disks[site] = disks.get(site, no_sums(2)).with_tasks(rows, after, count, keep)
    return replace(
        meter,
        strata=strata,
        disks=disks,
        ended=meter.ended + count,
        workers=workers or meter.workers,
    )


def _category(known: dict[str, Sums], name: str) -> str:
    name = name if name in known or len(known) < MOST_CATEGORIES else "…"
    known.setdefault(name, no_sums(len(PARTS)))
    return name
