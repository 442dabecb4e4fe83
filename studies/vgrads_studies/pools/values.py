"""Work, setting and results of a pool's simulated manager, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vgrads.pool.capacity import Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Equal tasks that arrive at once. ``shared``: their input is one file, which a worker keeps;
    ``spread``: variation of execution times."""

    at_s: float
    tasks: int
    in_mib: float
    out_mib: float
    execution_s: float
    shared: bool = True
    spread: float = 0.0
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """The setting. ``jitter``: variation of transfer and think times. A worker joins after
    ``wait_s`` and a random time with the median ``wait_spread_s``; nodes differ by ``speeds``; one
    is lost after ``lifetime_s`` on average, while losses occur. All workers leave ``closing_s``
    after the last task: in the thesis D7 takes no more worker time for P1 than D6, so its workers
    did not stay until their cycles ended."""

    mib_s: float = 40.0
    think_s: float = 0.15
    per_worker_s: float = 0.0007
    serial: bool = True
    jitter: float = 0.0
    wait_s: float = 50.0
    wait_spread_s: float = 12.0
    speeds: float = 0.1
    lifetime_s: float = math.inf
    losses_until_s: float = math.inf
    period_s: float = 15.0
    closing_s: float = 120.0
    most_s: float = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSample:
    """State at a decision; ``target``: workers present or requested after it."""

    at_s: float
    decided: int
    target: int
    connected: int
    busy: int
    unfinished: int
    estimate: Capacity | None
    thesis: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPool:
    """``useless``: workers that joined and ran nothing."""

    turnaround_s: float
    worker_s: float
    execution_s: float
    cycles: int
    workers: int
    useless: int
    looks: tuple[PoolSample, ...]
    ends_s: tuple[float, ...]


@dataclass(slots=True)
class PoolWorker:
    """A worker."""

    id: str
    joined_s: float
    speed: float
    served: bool = True
    there: bool = True
    idle_s: float | None = None
    task: tuple[int, float] | None = None
    sent: tuple[float, float, float] = (0.0, 0.0, 0.0)
    files: set[int] = field(default_factory=set)
    ran: int = 0
