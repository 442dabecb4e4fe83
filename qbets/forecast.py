"""What a queue's history says about the next job, frozen at one instant: GETBOUND and GETPROB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbets.bounds import minimum_history, probability_within, rank_table
from qbets.predictor import QueuePredictor, learn
from traces.records import JobLog


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An answer of GETBOUND with what it rests on; ``bound_s`` is None with a ``reason``."""

    bound_s: float | None
    probability: float
    confidence: float
    method: str
    jobs: int
    since_s: float
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class QueueForecast:
    """The waits that still apply, ascending, and the instant of the last change point."""

    waits_s: NDArray[np.float64]
    since_s: float
    method: str = "bmbp"

    def group(self, procs: int, walltime_s: float) -> int:
        """Number of the group of like jobs that this shape belongs to."""
        return 0

    def bound(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> Bound:
        """With this confidence a job like this waits no longer with this probability."""
        count = len(self.waits_s)
        rank = int(rank_table(probability, confidence, count)[count])
        needed = minimum_history(probability, confidence)
        return Bound(
            bound_s=float(self.waits_s[rank - 1]) if rank <= count else None,
            probability=probability, confidence=confidence, method=self.method, jobs=count, since_s=self.since_s,
            reason=f"{needed} waits needed, {count} known" if rank > count else None,
        )  # fmt: skip

    def probability(
        self, procs: int, walltime_s: float, within_s: ArrayLike, confidence: float = 0.95
    ) -> NDArray[np.float64]:
        """With this confidence the least probability of waiting at most ``within_s``; same shape."""
        known = np.searchsorted(self.waits_s, np.asarray(within_s, dtype=np.float64), side="right")
        return probability_within(known, len(self.waits_s), confidence)


def forecast(
    log: JobLog,
    at_s: float,
    method: str = "bmbp",
    probability: float = 0.95,
    confidence: float = 0.95,
) -> QueueForecast:
    """What was known at ``at_s``: change points are found with this probability and confidence."""
    predictor: QueuePredictor = learn(log, probability, confidence, at_s)
    since = predictor.change_points[-1] if predictor.change_points else float(log.submit_s[0])
    return QueueForecast(waits_s=predictor.stream.sorted_waits, since_s=since, method=method)
