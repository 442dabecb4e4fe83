"""Per-job and per-user statistics of a queue: the building blocks of its state."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats

_FORGET = 0.1  # weight of a new wait in a user's or queue's mean


@dataclass(slots=True)
class WaitMemory:
    """Statistics of a user or a queue: the last wait, means of waits and of run ÷ request."""

    last: float = math.nan
    mean: float = math.nan
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=2))

    def waited(self, log_wait: float) -> None:
        self.last = log_wait
        self.mean = (
            log_wait if math.isnan(self.mean) else self.mean + _FORGET * (log_wait - self.mean)
        )


class JobShape(NamedTuple):
    """Statistics of identical jobs: times of the last submission and start, the newest logs of
    waits."""

    came_s: float
    started_s: float = math.nan
    waits: tuple[float, ...] = ()


class JobRows:
    """Rows of numbers by the key of a job, in order of arrival. O(rows) to remove one."""

    def __init__(self, columns: int) -> None:
        self.table = np.empty((64, columns))
        self.keys: list[int] = []

    def add(self, key: int, *row: float) -> None:
        count = len(self.keys)
        if count == len(self.table):
            self.table = np.vstack([self.table, np.empty_like(self.table)])
        self.table[count] = row
        self.keys.append(key)

    def take(self, key: int) -> Floats:
        spot, count = self.keys.index(key), len(self.keys)
        row: Floats = self.table[spot].copy()
        self.table[spot : count - 1] = self.table[spot + 1 : count]
        del self.keys[spot]
        return row

    @property
    def rows(self) -> Floats:
        return self.table[: len(self.keys)]

    def copied(self) -> JobRows:
        """Return a separate copy of the rows."""
        same = JobRows(self.table.shape[1])
        same.table, same.keys = self.table.copy(), self.keys.copy()
        return same
