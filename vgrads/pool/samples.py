"""Times of ended tasks as weighted sums: the cost of a task once workers are warm.

Data sent to a worker because it is new is part of its start-up and not of the task that needed it
first: data sent with its first task, and files that others had before it joined. (A file that is
itself new is work: every worker needs it.) Counted with the task, every new worker would look like
a fall of the manager's capacity (the *cache bounce* of Yu, PhD thesis, Notre Dame 2013, §4.3.4). So
the first-time share of a transfer is subtracted here, and the rest is the same for the first task
of a worker as for its hundredth.

Sums are kept by category, with weights that fade as more tasks end: old work loses weight, memory
stays constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
PARTS = ("execution", "up", "down", "think", "loop")
"""Measured parts of a task, in seconds: at the worker; transfer to it; transfer back; in the
application's code and in the manager's own, while it serves no worker."""
MOST_CATEGORIES = 64
"""Maximum number of separate categories; those beyond share one."""
FEWEST = 20
"""Minimum number of tasks in a mean before the oldest fade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """Times of one ended task, in seconds, and sizes, in MiB.

    ``in_s``, ``out_s``: how long the link was busy for it; where transfers overlap, each one's
    share of that (while n are in progress, every second is 1/n for each), so that the sums are the
    link's. ``in_mib``: its input; ``cached_mib`` of it was at the worker, ``cold_mib`` was sent
    because the worker is new and will not be sent again, the rest was sent for this task.
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
    node: str = ""
    site: str = ""

    @property
    def warm_in_s(self) -> float:
        """Return the input seconds that every similar task will need, at any worker."""
        sent = self.in_mib - self.cached_mib
        return self.in_s * max(0.0, sent - self.cold_mib) / sent if sent > 0.0 else self.in_s


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums of products of (1, values…) over tasks, and the sum of squared weights."""

    products: Matrix
    squares: float = 0.0

    @property
    def weight(self) -> float:
        """Return the number of tasks in the sums, faded ones as fractions."""
        return float(self.products[0, 0])

    @property
    def means(self) -> Matrix:
        """Return the mean values."""
        result: Matrix = self.products[0, 1:] / self.products[0, 0]
        return result

    @property
    def tasks(self) -> float:
        """Return the effective number of tasks: as many of equal weight carry the same
        information."""
        return self.weight**2 / self.squares if self.squares else 0.0

    def spread(self, factors: Matrix) -> float:
        """Return the variance of Σ factor · value over tasks."""
        of = np.concatenate(([0.0], factors))
        mean = float(of @ self.products[0]) / self.weight
        # rounding may leave a difference slightly below 0
        return max(0.0, float(of @ self.products @ of) / self.weight - mean**2)

    def with_tasks(self, values: Matrix, after: NDArray[np.int64], count: int, keep: float) -> Sums:
        """Return the sums after ``count`` more tasks, of which these are its own, one per row;
        ``after``: how many ended after each. Earlier weights fade by ``keep`` with every task, its
        own or not."""
        rows = np.column_stack((np.ones(len(values)), values))
        weights = keep ** after.astype(np.float64)
        products = self.products * keep**count + (rows * weights[:, None]).T @ rows
        # weights fade by `keep`, their squares by its square
        return Sums(products, self.squares * keep ** (2 * count) + float(weights @ weights))


def no_sums(values: int) -> Sums:
    """Return empty sums."""
    return Sums(np.zeros((values + 1, values + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Summary of all ended tasks of a manager: constant memory, for any number of tasks.

    ``ended``: tasks, ``workers``: recently busy ones. ``serial``: the manager does one thing at a
    time, as Work Queue's does, so its parts add up; else they overlap.
    """

    serial: bool = False
    strata: Mapping[str, Sums] = field(default_factory=dict)
    disks: Mapping[str, Sums] = field(default_factory=dict)
    ended: int = 0
    workers: int = 0

    @property
    def all(self) -> Sums:
        """Return the sums over all categories, in their observed mix."""
        result = tuple(self.strata.values()) or (no_sums(len(PARTS)),)
        total = sum((sums.products for sums in result), np.zeros_like(result[0].products))
        return Sums(total, sum(sums.squares for sums in result))

    @property
    def cycle_s(self) -> float:
        """Return the seconds for which one task keeps a warm worker from the next: the sum of the
        means of its parts."""
        return float(self.all.means.sum()) if self.ended else 0.0


def memory_tasks(workers: int) -> float:
    """Return the number of tasks after which an old one counts for 1/e."""
    return 2.0 * max(FEWEST, workers)


def fold(meter: Meter, ended: Sequence[TaskTimes], workers: int = 0) -> Meter:
    """Return the meter after these tasks have ended, in their order.

    ``workers``: number of busy ones; the mean covers about twice as many tasks, so that slow
    workers have reported too, and no more, so that it follows the work (thesis, §4.3.2).
    """
    if not ended:
        return meter
    keep = 1.0 - 1.0 / memory_tasks(workers)
    count, strata, disks = len(ended), dict(meter.strata), dict(meter.disks)
    order = [_make_category(strata, times.category) for times in ended]
    names, after = np.array(order), np.arange(count - 1, -1, -1)
    values = np.array(
        [
            [times.execution_s, times.warm_in_s, times.out_s, times.think_s, times.loop_s]
            for times in ended
        ]
    )
    for name, old in tuple(strata.items()):
        mine = names == name
        strata[name] = old.with_tasks(values[mine], after[mine], count, keep)
    # also sites where no task has ended: their sums fade with every task
    for site in dict.fromkeys([*disks, *(times.site for times in ended if times.disk_s > 0.0)]):
        # tasks elsewhere count with 0 s: the sums of each site cover all tasks
        here = [times.disk_s if times.site == site else 0.0 for times in ended]
        rows = np.column_stack((values.sum(axis=1), here))
        disks[site] = disks.get(site, no_sums(2)).with_tasks(rows, after, count, keep)
    return replace(
        meter,
        strata=strata,
        disks=disks,
        ended=meter.ended + count,
        workers=workers or meter.workers,
    )


def _make_category(sums: dict[str, Sums], name: str) -> str:
    name = name if name in sums or len(sums) < MOST_CATEGORIES else "…"
    sums.setdefault(name, no_sums(len(PARTS)))
    return name
