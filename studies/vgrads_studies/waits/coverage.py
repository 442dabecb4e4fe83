"""Coverage of issued bounds by group of jobs, and by week.

A mean over all jobs can hide a group that is not covered. Where many waits are equal to their bound
(queues whose jobs start at once), no bound covers the share that it states: such a group is right
if its level lies between the shares of waits below the bound and within it. Standard errors count a
burst (jobs that a user, or where users are not known anybody with the same shape, submits without
an hour between two) as one observation (cluster-robust: Liang and Zeger 1986,
doi:10.1093/biomet/73.1.13).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.kernel.arrays import Bools, Floats, Ints
from vgrads.qbets.coverage_groups import FEWEST, iterate_groups
from vgrads.traces.records import JobLog

FEWEST_REPORTED = 100
"""Jobs of a group that is reported."""
_WEEK_S, _GAP_S, _FEWEST_OF_WEEK = 7 * 86_400.0, 3600.0, 100
TAIL = 0.95
"""Level from which a group may be covered more often than stated."""
LEAST, LEAST_OF_ALL, LEAST_OF_WEEK = 0.93, 0.88, 0.90
"""What bounds at .95 must cover: each group, less two standard errors, and without these; and a
week's jobs."""
NEAR = 0.05
"""How far from a level below .95 the coverage of a group may be, besides two standard errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoverage:
    """Coverage at a ``level`` of a group of jobs of one dimension: the shares of waits within their
    bounds and ``below`` their whole seconds, and the standard error of the first."""

    dimension: str
    name: str
    jobs: int
    level: float
    coverage: float
    below: float
    error: float

    @property
    def covered(self) -> bool:
        """True if the coverage is not significantly farther from the level than permitted."""
        if self.level >= TAIL:
            return self.coverage >= max(LEAST - 2 * self.error, LEAST_OF_ALL)
        away = max(self.level - self.coverage, self.below - self.level)
        return away <= NEAR + 2 * self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """All groups of a backtest; ``weeks``: share of weeks with at least :data:`LEAST_OF_WEEK`."""

    groups: tuple[GroupCoverage, ...]
    weeks: float | None

    @property
    def missed(self) -> list[GroupCoverage]:
        """The groups that are not covered."""
        return [group for group in self.groups if not group.covered]


def group_report(
    log: JobLog, issued_s: Floats, scored: Bools, level: float = TAIL, fewest: int = FEWEST
) -> GroupReport:
    """Return the coverage at a level of the scored jobs, by group of at least so many."""
    covered, bursts, groups = log.wait_s <= issued_s, _bursts(log), []
    below = log.wait_s < np.floor(issued_s)  # waits are recorded in whole seconds
    for dimension, name, part in iterate_groups(log, scored, fewest):
        coverage, error = _share(covered[part], bursts[part])
        group = GroupCoverage(
            dimension=dimension,
            name=name,
            jobs=int(part.sum()),
            level=level,
            coverage=coverage,
            below=float(below[part].mean()),
            error=error,
        )
        groups.append(group)
    return GroupReport(groups=tuple(groups), weeks=_weeks(log, covered, scored))


def _bursts(log: JobLog) -> Ints:
    """Return the number of each job's burst."""
    users = len(np.unique(log.user)) > 1
    owner = log.user if users else log.procs * 1_000_003 + log.request_s.astype(np.int64)
    order = np.lexsort((log.submit_s, owner))
    gap = np.diff(log.submit_s[order], prepend=-np.inf) > _GAP_S
    first = gap | (np.diff(owner[order], prepend=owner[order[:1]] - 1) != 0)
    result = np.empty(len(log), dtype=np.int64)
    result[order] = np.cumsum(first)
    return result


def _share(covered: Bools, bursts: Ints) -> tuple[float, float]:
    """Return the mean, and its standard error with bursts as observations."""
    mean = float(covered.mean())
    _, places = np.unique(bursts, return_inverse=True)
    sums = np.bincount(places, weights=covered - mean)
    return mean, float(np.sqrt((sums**2).sum()) / len(covered))


def _weeks(log: JobLog, covered: Bools, scored: Bools) -> float | None:
    """Return the share of weeks whose jobs are covered; None without a week of enough jobs."""
    week = (log.submit_s // _WEEK_S).astype(np.int64)[scored]
    week -= week.min(initial=0)
    counts, sums = np.bincount(week), np.bincount(week, weights=covered[scored])
    full = counts >= _FEWEST_OF_WEEK
    return float((sums[full] / counts[full] >= LEAST_OF_WEEK).mean()) if full.any() else None
