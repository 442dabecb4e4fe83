"""Capacity of a manager: how many workers it can keep busy, the interval of that number, and the
bottleneck.

Yu's equations (*Right-sizing resource allocations for scientific applications in clusters, grids,
and clouds*, PhD thesis, Notre Dame 2013, §4.3) are for a manager that does one thing at a time.
Here each resource is considered separately, since transfers of today's managers overlap and must
not be added up: its loop, its up-link, its down-link, the application's code, a site's file system.
A task cycles through its worker and every resource; with N of them in the cycle the throughput is
at most N ÷ (all its seconds) and at most 1 ÷ (its seconds at the busiest resource), so beyond

    N* = all seconds of a task ÷ its seconds at the busiest resource

more workers do not help (Denning and Buzen 1978, doi:10.1145/356733.356735, asymptotic bounds). For
a serial manager N* is Eq 4.5 plus one, the worker being served.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vgrads.pool.samples import PARTS, Matrix, Meter, Sums, TaskTimes, memory_tasks

Z90 = 1.645  # two-sided 90 %
_MOST_WIDE = 50.0  # logarithm of a factor: unknown
_ENOUGH = 3.0  # least number of tasks for an estimate of spread


def compute_capacity_with_think(tasks: Sequence[TaskTimes]) -> float:
    """Eq 4.5: the manager also runs the application's code, and serves no worker then."""
    busy_s = sum(task.in_s + task.out_s + task.think_s for task in tasks)
    return _compute_ratio(sum(task.execution_s for task in tasks), busy_s)


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of workers with its 90 % interval."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """``workers``: how many can be kept busy; ``bottleneck``: the limiting resource; ``resources``:
    the same for each."""

    workers: Interval
    bottleneck: str
    resources: Mapping[str, Interval]
    cycle_s: float
    tasks: float


def capacity(meter: Meter, mix: Mapping[str, float] | None = None) -> Capacity | None:
    """Return the capacity by the tasks that have ended; None before the first, or where no resource
    is ever busy.

    ``mix``: shares of categories in future work, where known; else those of recent work.
    """
    if not meter.ended:
        return None
    strata = _weigh_mix(meter, mix)
    total = np.ones(len(PARTS))
    late_s = _measure_lateness_s(meter)
    intervals = {
        name: _compute_knee(strata, total, part, late_s) for name, part in _sum_resources(meter)
    }
    intervals |= {
        f"file system of {site}": _compute_knee([(1.0, disk)], *_DISK, late_s)
        for site, disk in meter.disks.items()
    }
    # a resource that was never busy limits nothing
    intervals = {
        name: interval for name, interval in intervals.items() if math.isfinite(interval.value)
    }
    if not intervals:
        return None
    tightest = min(intervals, key=lambda name: (intervals[name].value, name))
    low, high = (
        min(interval.low for interval in intervals.values()),
        min(item.high for item in intervals.values()),
    )
    means = sum((share * sums.means for share, sums in strata), np.zeros(len(PARTS)))
    return Capacity(
        workers=Interval(low, intervals[tightest].value, high),
        resources=intervals,
        cycle_s=float(means.sum()),
        bottleneck=_find_largest(means) if meter.serial and tightest == "manager" else tightest,
        tasks=sum(sums.tasks for _, sums in strata),
    )


_DISK = (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
_NAMES = {
    "up": "up-link",
    "down": "down-link",
    "think": "application's code",
    "loop": "manager's loop",
}


def _sum_resources(meter: Meter) -> list[tuple[str, Matrix]]:
    if meter.serial:
        return [("manager", np.array([0.0, 1.0, 1.0, 1.0, 1.0]))]
    return [(_NAMES[name], np.eye(len(PARTS))[n]) for n, name in enumerate(PARTS) if n]


def _find_largest(means: Matrix) -> str:
    return _NAMES[PARTS[1 + int(np.argmax(means[1:]))]]


def _weigh_mix(meter: Meter, mix: Mapping[str, float] | None) -> list[tuple[float, Sums]]:
    shares = {
        name: share for name, share in (mix or {}).items() if share > 0.0 and name in meter.strata
    }
    total = sum(shares.values())
    if not shares:
        return [(1.0, meter.all)]
    return [(share / total, meter.strata[name]) for name, share in shares.items()]


def _measure_lateness_s(meter: Meter) -> tuple[float, float]:
    """Return by how much tasks take longer than those that have ended so far, and the uncertainty
    of that: among the first tasks, the short ones end sooner. In a renewal process the completed
    cycles of n tasks at each worker are too short by var ÷ (mean cycle · n) in the mean; as the
    first ones fade, so does that. Workers that came late have done fewer than the mean, so the
    value without fading is used as its standard error."""
    tasks, means = meter.all, meter.all.means
    busy_s = float(means[1:].sum() if meter.serial else means[1:].max())
    cycle_s = max(float(means.sum()), meter.workers * busy_s)
    all_s = tasks.spread(np.eye(len(PARTS))[0]) * meter.workers / cycle_s if cycle_s else 0.0
    fresh = max(0.0, 1.0 / tasks.weight - 1.0 / memory_tasks(meter.workers))
    return all_s * fresh, all_s / meter.ended


def _compute_knee(
    strata: Sequence[tuple[float, Sums]], total: Matrix, part: Matrix, late_s: tuple[float, float]
) -> Interval:
    """Return Σ share · all seconds ÷ Σ share · seconds there (not the mean of ratios); its interval
    by the delta method, on a logarithmic scale. With too few tasks the interval is a factor of two.
    """
    all_s = late_s[0] + sum(share * float(total @ sums.means) for share, sums in strata)
    busy_s = sum(share * float(part @ sums.means) for share, sums in strata)
    value = _compute_ratio(all_s, busy_s)
    if not math.isfinite(value):
        return Interval(value, value, value)
    fewest = min(sums.tasks for _, sums in strata)
    if fewest < _ENOUGH:
        return Interval(value / 2.0, value, value * 2.0)
    variance = sum(
        share**2 * sums.spread(total - value * part) / (sums.tasks - 1.0) for share, sums in strata
    )
    freedom = fewest - 1.0
    # Student's t for this freedom, to the first order in 1 ÷ freedom
    student = Z90 + (Z90**3 + Z90) / (4.0 * freedom)
    wide = math.exp(min(_MOST_WIDE, student * math.sqrt(variance + late_s[1] ** 2) / all_s))
    return Interval(value / wide, value, value * wide)


def _compute_ratio(execution_s: float, busy_s: float) -> float:
    return execution_s / busy_s if busy_s > 0.0 else math.inf
