"""Uncertainty of run times, and the tasks that share an error.

The logarithm of a run time is that of its median plus normal errors of four sources: the task
itself, its kind (the same error for all tasks of that kind in a set), its workflow (a larger sample
makes all its tasks longer), and its site (a slow machine, a busy file system). Sampling each task
independently makes a joint promise too high: independent errors cancel out, shared ones do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSpread:
    """Standard deviations of the logarithm of a run time, by the tasks that share the error."""

    own: float = 0.0
    kind: float = 0.0
    workflow: float = 0.0
    site: float = 0.0

    @property
    def total(self) -> float:
        """The standard deviation of one run time's logarithm."""
        return math.hypot(self.own, self.kind, self.workflow, self.site)

    def factor(self, level: float) -> float:
        """Return the quantile of a run time over its median."""
        return math.exp(_STANDARD.inv_cdf(level) * self.total) if self.total else 1.0


EXACT = RuntimeSpread()
"""The run time is exactly the stated one."""
