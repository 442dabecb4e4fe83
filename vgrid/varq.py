"""Virtual advance reservations: the latest instant to submit so that a job runs by T.

For every submission instant t the job may start at once and must still hold its processors until
T + W, so it asks for W_adj(t) = W + (T − t); its probability is GETPROB(N, W_adj(t), T − t). (Nurmi,
Wolski, Brevik, "VARQ: virtual advance reservations for queues", HPDC 2008;
SC'09 §3.1.1.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel.errors import InputError

STEP_S = 30.0


class WaitOracle(Protocol):
    """GETPROB of one queue, for one shape of job and many bounds at once."""

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Shapes with the same number get the same answers."""

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,
        ahead: int = 0,
    ) -> NDArray[np.float64]:
        """P(wait ≤ d) for every d; ``ahead`` of the asker's jobs wait in the queue already."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Probability of running at T for each submission instant; 0 where the queue forbids it.

    ``chosen`` is the index of the latest instant whose probability is enough, None if there is none.
    """

    submit_s: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    walltimes_s: NDArray[np.float64]
    chosen: int | None

    @property
    def best(self) -> int:
        """Index of the latest instant with the highest probability."""
        return int(len(self.probabilities) - 1 - np.argmax(self.probabilities[::-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Run ``procs`` processors for ``walltime_s`` from ``start_by_s`` on, with this probability."""

    procs: int
    walltime_s: float
    start_by_s: float
    probability: float
    max_walltime_s: float = np.inf
    confidence: float = 0.95


def trajectory(oracle: WaitOracle, wanted: Reservation, step_s: float = STEP_S) -> Trajectory:
    """Every instant from now to T; the whole list is scanned, for it need not be monotone."""
    if wanted.start_by_s < 0 or step_s <= 0:
        raise InputError("the start must lie ahead and the step be positive", where="trajectory")
    submit = np.arange(0.0, wanted.start_by_s + step_s / 2, step_s)
    submit = submit[submit <= wanted.start_by_s]
    ahead = wanted.start_by_s - submit
    walltimes = wanted.walltime_s + ahead
    chances = _chances(oracle, wanted, walltimes, ahead)
    chances = np.where(walltimes <= wanted.max_walltime_s, chances, 0.0)
    enough = np.flatnonzero(chances >= wanted.probability)
    chosen = int(enough[-1]) if len(enough) else None
    return Trajectory(submit_s=submit, probabilities=chances, walltimes_s=walltimes, chosen=chosen)


def _chances(
    oracle: WaitOracle,
    wanted: Reservation,
    walltimes_s: NDArray[np.float64],
    within_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """GETPROB of each instant with its own wall time; one call per group of like jobs."""
    chances = np.zeros_like(within_s)
    groups = np.array([oracle.group(wanted.procs, walltime_s) for walltime_s in walltimes_s])
    for group in np.unique(groups):
        rows = groups == group
        walltime_s = float(walltimes_s[rows][0])
        chances[rows] = oracle.probability(
            wanted.procs, walltime_s, within_s[rows], wanted.confidence
        )
    return chances
