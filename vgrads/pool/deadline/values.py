"""A bag's goal, its work, and the sources of its nodes, as frozen values. Times in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vgrads.pool.deadline.width import LevelPace, Width
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.survival import Hazards, LifeTable

Floats = NDArray[np.float64]
_LEAST_SPREAD, _POINTS = 1e-3, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Tasks that must be done: how many, their mean run time, and its errors.

    ``error``: standard deviation of the logarithm of the true mean over the estimate;
    ``spread``: the same of single tasks around their mean; ``overhead_s``: between two tasks on a
    worker; ``rate``: tasks that the dispatcher starts in a second at most; ``running``: how many
    of them run already, at a random phase; ``width``: how many may run at once as they are done,
    None: all.
    """

    tasks: int
    mean_s: float
    error: float = 0.3
    spread: float = 0.3
    overhead_s: float = 0.0
    rate: float = math.inf
    running: int = 0
    width: Width | None = None

    @property
    def pace(self) -> LevelPace | None:
        """Return the progress of tasks with a width; None without."""
        return None if self.width is None else LevelPace(self.width, self.spread)

    @property
    def chain_s(self) -> float:
        """Return the least time of all tasks, with any number of workers."""
        if self.width is None:
            return self.mean_s
        return len(self.width.levels) * self.width.stretch(self.spread) * self.each_s

    def lost_s(self, workers: float) -> float:
        """Return how much longer so many workers need because not all tasks may run at once."""
        pace = self.pace
        if pace is None:
            return 0.0
        rounds = pace.rounds_lost(np.array([float(self.tasks)]), np.array([workers]))
        return float(rounds[0]) * self.each_s

    @property
    def each_s(self) -> float:
        """Return how long a task occupies a worker, on average."""
        return self.mean_s + self.overhead_s

    @property
    def total_s(self) -> float:
        """Return the worker seconds of all tasks, less what those that run have done already."""
        running_s = max(0.0, self.mean_s - self.residual_s) * min(self.running, self.tasks)
        return self.tasks * self.each_s - running_s

    @property
    def residual_s(self) -> float:
        """Return how long a task that runs still does at a random instant, on average: half its run
        time, and more where run times differ, as long tasks run at more instants."""
        return self.mean_s * math.exp(max(self.spread, _LEAST_SPREAD) ** 2) / 2.0

    def tail_s(self, workers: float) -> float:
        """Return the time between the mean end and the last end of the tasks that run at the same
        time when no more are waiting: the longest of so many residual run times less their mean.
        These tasks have begun at different times: the longest residual run time is shorter than the
        longest run time."""
        last = self.tasks if self.width is None else self.width.last
        count = max(1, round(min(workers, float(last))))
        longest = _estimate_longest_residual(count, max(self.spread, _LEAST_SPREAD))
        return max(0.0, self.mean_s * longest - self.residual_s)


@dataclass(frozen=True, kw_only=True)
class NodeSource:
    """Nodes of one kind: of a batch queue, or of a cloud.

    ``workers``: tasks that a node runs at once; ``most``: nodes; ``usd_per_hour`` and
    ``billing_s``: of a node; ``length_s``: after which a node of a queue ends; ``waits_s``: drawn
    times until a request starts, ascending; ``boot_s``: from the start until the first task.
    ``running``: nodes that run already, for ``running_left_s`` more; those of a cloud are paid for
    ``paid_s`` more. ``spot_usd_per_hour`` and ``history``: the price on the spot market and what
    was observed of it, for clouds that have one. ``market``: on which a cloud's nodes run now
    (:data:`vgrads.pool.spot.choose.MARKETS`); ``now_s``: the present instant on the clock of
    ``history``; ``observed``: whether anything was seen of it; ``prior``: life tables of other
    places and dates.
    """

    name: str
    cloud: bool
    workers: int = 1
    most: int = 1
    usd_per_hour: float = 0.0
    billing_s: float = 0.0
    length_s: float = math.inf
    waits_s: tuple[float, ...] = (0.0,)
    boot_s: float = 0.0
    running: int = 0
    running_left_s: float = 0.0
    paid_s: float = 0.0
    market: str = "none"
    spot_usd_per_hour: float | None = None
    history: SpotHistory | None = None
    now_s: float = 0.0
    observed: bool = True
    prior: tuple[LifeTable, ...] = PRIOR


@dataclass(frozen=True, kw_only=True)
class DeadlineCase:
    """What plans are compared for: the work, its deadline (seconds from now), the sources of nodes,
    and the probabilities that spells of spot nodes end. Time runs in ``steps`` of ``step_s``, some
    of them after the deadline."""

    work: Work
    queues: tuple[NodeSource, ...]
    cloud: NodeSource | None
    deadline_s: float
    budget_usd: float | None
    hazards: Hazards
    step_s: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """How many nodes are requested at most: of each queue at once, and of the cloud when
    :func:`vgrads.pool.spot.choose.choose` says so. ``late``: on-demand nodes wait as long as the
    deadline permits; ``reserve``: share by which more work than the estimate is assumed."""

    queues: tuple[int, ...] = ()
    cloud: int = 0
    late: bool = False
    reserve: float = 0.1


@lru_cache(maxsize=4096)
def _estimate_longest_residual(count: int, spread: float) -> float:
    """Return the mean of the longest of so many independent residual run times, in mean run times.

    In a renewal process, a residual run time exceeds x with probability E[(X - x)+] / E[X], for
    log-normal run times X in closed form; the mean of the maximum is the integral of the
    probability that not all are shorter.
    """
    # eight standard deviations: beyond, even the longest of many tasks adds nothing visible
    ends = math.exp(8.0 * spread) + 1.0
    # middles of equal intervals, for the integral by the midpoint rule
    points = np.linspace(0.0, ends, _POINTS + 1)[1:] - ends / _POINTS / 2.0
    # E[(X - x)+] of a log-normal X of mean 1: the formula of Black and Scholes
    low = (-np.log(points) - spread**2 / 2.0) / spread
    longer = _compute_normal(low + spread) - points * _compute_normal(low)
    return float((1.0 - (1.0 - np.clip(longer, 0.0, 1.0)) ** count).sum() * ends / _POINTS)


def _compute_normal(values: Floats) -> Floats:
    # numpy has no error function
    return np.array([math.erfc(-value / math.sqrt(2.0)) / 2.0 for value in values.tolist()])
