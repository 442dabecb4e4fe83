"""How far the run time of a task may be from its median, and which tasks are wrong together.

The logarithm of a run time is its median's plus normal errors of four origins: the task's own, what
is not known of its kind (the same for all tasks of that kind in a set), what is special of the
workflow (a larger sample makes all its tasks longer), and what is special of the site (a slow
machine, a busy file system). Drawing each task alone makes a joint promise too sure: independent
errors cancel out, shared ones do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSpread:
    """Standard deviations of the logarithm of a run time, by what shares the error."""

    own: float = 0.0
    kind: float = 0.0
    workflow: float = 0.0
    site: float = 0.0

    @property
    def total(self) -> float:
        """The standard deviation of one run time's logarithm."""
        return math.hypot(self.own, self.kind, self.workflow, self.site)

    def factor(self, level: float) -> float:
        """The quantile of a run time over its median."""
        return math.exp(_STANDARD.inv_cdf(level) * self.total) if self.total else 1.0


EXACT = RuntimeSpread()
"""It takes what is written down."""
