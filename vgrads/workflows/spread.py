"""Uncertainty of run times, and the tasks that share an error.

The logarithm of a run time is that of its median plus normal errors of four sources: the task
itself, its kind (the same error for all tasks of that kind in a set), its workflow (a larger sample
makes all its tasks longer), and its site (a slow machine, a busy file system). Sampling each task
independently makes a joint promise too high: independent errors cancel out, shared ones do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

MEMORY_FACTOR, MEMORY_RETRIES = 2.0, 3
"""A task that exceeds the memory that was requested for it by what was learned is started again
with so many times as much, so many times at most."""
Floats = NDArray[np.float64]
_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSpread:
    """Standard deviations of the logarithm of a run time, by the tasks that share the error.

    ``memory_own``, ``memory_kind``: the same of the peak memory of a task that is started again if
    it exceeds its request, whose logarithm is ``memory_limit`` above that of the median; 0 if it is
    not started again.
    """

    own: float = 0.0
    kind: float = 0.0
    workflow: float = 0.0
    site: float = 0.0
    memory_own: float = 0.0
    memory_kind: float = 0.0
    memory_limit: float = 0.0

    @property
    def total(self) -> float:
        """The standard deviation of one run time's logarithm."""
        return math.hypot(self.own, self.kind, self.workflow, self.site)

    @property
    def stated(self) -> dict[str, float]:
        """What a document states of it: by how much memory may be exceeded belongs to one plan."""
        return {name: getattr(self, name) for name in ("own", "kind", "workflow", "site")}

    def factor(self, level: float) -> float:
        """Return the quantile of a run time over its median."""
        return math.exp(_STANDARD.inv_cdf(level) * self.total) if self.total else 1.0

    def alone(self, own: float) -> RuntimeSpread:
        """Return the same with one error of the run time, which no other task shares."""
        return replace(self, own=own, kind=0.0, workflow=0.0, site=0.0)


def estimate_repetitions(over: Floats) -> Floats:
    """Return how often tasks are started again with more memory; ``over``: logarithms of their
    peaks over what was requested."""
    steps = np.floor(over / math.log(MEMORY_FACTOR)) + 1.0
    return np.clip(steps, 0.0, float(MEMORY_RETRIES))


EXACT = RuntimeSpread()
"""The run time is exactly the stated one."""
