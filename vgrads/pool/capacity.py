"""How many workers a manager can keep busy, how surely, and what stands in the way of more.

Yu's equations (*Right-sizing resource allocations for scientific applications in clusters, grids,
and clouds*, PhD thesis, Notre Dame 2013, §4.3) are for a manager that does one thing at a time.
Ours ask each resource by itself, since transfers of today's manager overlap and must not be added
up: its loop, its up-link, its down-link, the application's code, a site's file system. A task goes
round, through its worker and every resource; with N of them on the way the throughput is at most N
÷ (all its seconds) and at most 1 ÷ (its seconds at the busiest resource), so beyond

    N* = all seconds of a task ÷ its seconds at the busiest resource

no worker more helps (Denning and Buzen 1978, doi:10.1145/356733.356735, asymptotic bounds). For a
serial manager N* is Eq 4.5 and one, the worker that is being served.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vgrads.pool.samples import PARTS, Matrix, Meter, Sums, TaskTimes, memory_tasks

Z90 = 1.645  # two-sided 90 %
_MOST_WIDE = 50.0  # logarithm of a factor: nothing is known
_ENOUGH = 3.0  # tasks from which on a spread can be told


def capacity_of_task(execution_s: float, transfer_s: float) -> float:
    """Eq 4.3; below 1 there is no use in going elsewhere."""
    return _ratio(execution_s, transfer_s)


def capacity_of_transfers(tasks: Sequence[TaskTimes]) -> float:
    """Eq 4.4: means over tasks, for hosts and links that differ."""
    return _ratio(sum(one.execution_s for one in tasks), sum(one.in_s + one.out_s for one in tasks))


def capacity_with_think(tasks: Sequence[TaskTimes]) -> float:
    """Eq 4.5: the manager is in the application's code, too, and serves nobody meanwhile."""
    busy_s = sum(one.in_s + one.out_s + one.think_s for one in tasks)
    return _ratio(sum(one.execution_s for one in tasks), busy_s)


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of workers with its 90 % interval."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """``workers``: how many can be kept busy; ``bottleneck``: what hinders more; ``resources``: the
    same for each."""

    workers: Interval
    bottleneck: str
    resources: Mapping[str, Interval]
    cycle_s: float
    tasks: float


def capacity(meter: Meter, mix: Mapping[str, float] | None = None) -> Capacity | None:
    """The capacity by what has ended so far; None before the first, or where nothing is ever busy.

    ``mix``: shares of categories in the work to come, where that is known; else as in the work done
    lately.
    """
    if not meter.ended:
        return None
    strata = _weighted(meter, mix)
    total = np.ones(len(PARTS))
    late_s = _late_s(meter)
    found = {name: _knee(strata, total, part, late_s) for name, part in _resources(meter)}
    found |= {
        f"file system of {site}": _knee([(1.0, one)], *_DISK, late_s)
        for site, one in meter.disks.items()
    }
    found = {name: one for name, one in found.items() if math.isfinite(one.value)}
    if not found:
        return None
    tightest = min(found, key=lambda name: (found[name].value, name))
    low, high = min(one.low for one in found.values()), min(one.high for one in found.values())
    means = sum((share * one.means for share, one in strata), np.zeros(len(PARTS)))
    return Capacity(
        workers=Interval(low, found[tightest].value, high),
        resources=found,
        cycle_s=float(means.sum()),
        bottleneck=_largest(means) if meter.serial and tightest == "manager" else tightest,
        tasks=sum(one.tasks for _, one in strata),
    )


_DISK = (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
_NAMES = {
    "up": "up-link",
    "down": "down-link",
    "think": "application's code",
    "loop": "manager's loop",
}


def _resources(meter: Meter) -> list[tuple[str, Matrix]]:
    if meter.serial:
        return [("manager", np.array([0.0, 1.0, 1.0, 1.0, 1.0]))]
    return [(_NAMES[name], np.eye(len(PARTS))[n]) for n, name in enumerate(PARTS) if n]


def _largest(means: Matrix) -> str:
    return _NAMES[PARTS[1 + int(np.argmax(means[1:]))]]


def _weighted(meter: Meter, mix: Mapping[str, float] | None) -> list[tuple[float, Sums]]:
    known = {
        name: share for name, share in (mix or {}).items() if share > 0.0 and name in meter.strata
    }
    total = sum(known.values())
    if not known:
        return [(1.0, meter.all)]
    return [(share / total, meter.strata[name]) for name, share in known.items()]


def _late_s(meter: Meter) -> tuple[float, float]:
    """By how much tasks take longer than those that have ended by now, and how uncertain that is:
    of the first ones the short end sooner. In a renewal process the completed cycles of n tasks at
    each worker are too short by var ÷ (mean cycle · n) in the mean; as the first ones fade, so does
    that. Workers that came late have done fewer than the mean, so that what it would be without
    fading is taken for its standard error."""
    tasks, means = meter.all, meter.all.means
    busy_s = float(means[1:].sum() if meter.serial else means[1:].max())
    cycle_s = max(float(means.sum()), meter.workers * busy_s)
    all_s = tasks.spread(np.eye(len(PARTS))[0]) * meter.workers / cycle_s if cycle_s else 0.0
    fresh = max(0.0, 1.0 / tasks.weight - 1.0 / memory_tasks(meter.workers))
    return all_s * fresh, all_s / meter.ended


def _knee(
    strata: Sequence[tuple[float, Sums]], total: Matrix, part: Matrix, late_s: tuple[float, float]
) -> Interval:
    """Σ share · all seconds ÷ Σ share · seconds there (not the mean of ratios); its interval by the
    delta method, on a logarithmic scale. Of too few tasks nothing can be told but a factor of
    two."""
    all_s = late_s[0] + sum(share * float(total @ one.means) for share, one in strata)
    busy_s = sum(share * float(part @ one.means) for share, one in strata)
    value = _ratio(all_s, busy_s)
    if not math.isfinite(value):
        return Interval(value, value, value)
    fewest = min(one.tasks for _, one in strata)
    if fewest < _ENOUGH:
        return Interval(value / 2.0, value, value * 2.0)
    variance = sum(
        share**2 * one.spread(total - value * part) / (one.tasks - 1.0) for share, one in strata
    )
    freedom = fewest - 1.0
    student = Z90 + (Z90**3 + Z90) / (4.0 * freedom)
    wide = math.exp(min(_MOST_WIDE, student * math.sqrt(variance + late_s[1] ** 2) / all_s))
    return Interval(value / wide, value, value * wide)


def _ratio(execution_s: float, busy_s: float) -> float:
    return execution_s / busy_s if busy_s > 0.0 else math.inf
