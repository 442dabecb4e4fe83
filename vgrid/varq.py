"""Virtual advance reservations: the latest instant to submit so that a job runs by T.

For every submission instant t the job may start at once and must still hold its processors until T
+ W, so it requests W_adj(t) = W + (T − t); its probability is GETPROB(N, W_adj(t), T − t). (Nurmi,
Wolski, Brevik, "VARQ: virtual advance reservations for queues", HPDC 2008; SC'09 §3.1.1.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.errors import InputError

STEP_S = 30.0
MARGIN = 0.35
"""Reserve required of later instants, as a share of the probability missing to 1."""


class WaitOracle(Protocol):
    """GETPROB of one queue, for one shape of job and many bounds at once."""

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Return the group of a shape: shapes of one group have the same probabilities."""

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,
        ahead: int = 0,
        submit_in_s: float = 0.0,
    ) -> NDArray[np.float64]:
        """Return P(wait ≤ d) for every d of a job that is submitted later; ``ahead`` of the user's
        jobs wait before it."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Probability of running at T for each submission instant; 0 if the queue forbids it.

    ``chosen`` is the index of the latest instant whose probability suffices, None if there is none.
    """

    submit_s: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    walltimes_s: NDArray[np.float64]
    chosen: int | None

    @property
    def best(self) -> int:
        """Index of the latest instant with the highest probability."""
        return int(len(self.probabilities) - 1 - np.argmax(self.probabilities[::-1]))

    @property
    def recommended(self) -> int:
        """Index of the chosen instant; where none suffices, of the best."""
        return self.best if self.chosen is None else self.chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Run ``procs`` processors for ``walltime_s`` from ``start_by_s`` on, with this probability."""

    procs: int
    walltime_s: float
    start_by_s: float
    probability: float
    max_walltime_s: float = np.inf
    confidence: float = 0.95


def evaluate_trajectory(
    oracle: WaitOracle,
    reservation: Reservation,
    step_s: float = STEP_S,
) -> Trajectory:
    """Evaluate every instant from now to T; the whole list is scanned, because it need not be
    monotone."""
    if reservation.start_by_s < 0 or step_s <= 0:
        raise InputError(
            "the start must be in the future and the step must be positive", where="trajectory"
        )
    submit = np.arange(0.0, reservation.start_by_s + step_s / 2, step_s)
    # arange went half a step further, so that rounding does not lose the start itself
    submit = submit[submit <= reservation.start_by_s]
    ahead = reservation.start_by_s - submit
    walltimes = reservation.walltime_s + ahead
    chances = _compute_chances(oracle, reservation, walltimes, ahead)
    chances = np.where(walltimes <= reservation.max_walltime_s, chances, 0.0)
    enough = np.flatnonzero(chances >= reservation.probability)
    chosen = int(enough[-1]) if len(enough) else None
    return Trajectory(submit_s=submit, probabilities=chances, walltimes_s=walltimes, chosen=chosen)


def _compute_chances(
    oracle: WaitOracle,
    reservation: Reservation,
    walltimes_s: NDArray[np.float64],
    within_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return GETPROB of each instant with its own wall time; one call per group of similar jobs."""
    chances = np.zeros_like(within_s)
    # jobs of one group have the same distribution of waits: one call serves all their instants
    groups = np.array([oracle.group(reservation.procs, walltime_s) for walltime_s in walltimes_s])
    for group in np.unique(groups):
        rows = groups == group
        walltime_s = float(walltimes_s[rows][0])
        submit_in_s = reservation.start_by_s - float(within_s[rows][0])
        chances[rows] = oracle.probability(
            reservation.procs, walltime_s, within_s[rows], reservation.confidence, 0, submit_in_s
        )
    return chances


class QueueFutures(Protocol):
    """Possible futures of one queue from its current state."""

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """Return P(a job submitted in ``submit_in_s`` runs by ``by_s``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Next action for a reservation: submit, or check again in ``again_in_s``.

    ``probability`` is that of submitting as early as the queue permits; ``latest_s`` the latest
    instant with sufficient probability, None if there is none; then submitting is the best
    remaining action.
    """

    submit: bool
    again_in_s: float
    probability: float
    latest_s: float | None


def move(futures: QueueFutures, reservation: Reservation, margin: float = MARGIN) -> Move:
    """Submit now, or wait if a later instant suffices. Times in ``reservation`` count from now.

    Waiting pays off only if possible losses until the next check are covered: later instants must
    exceed the probability by ``margin`` of the part missing to 1. The next check is after a third
    of the time left to the latest sufficient instant.
    """
    begin = reservation.start_by_s

    def chance(submit_s: float) -> float:
        walltime_s = reservation.walltime_s + begin - submit_s
        if walltime_s > reservation.max_walltime_s:
            return 0.0
        return futures.chance(reservation.procs, walltime_s, submit_s, begin)

    first = max(
        0.0, reservation.walltime_s + begin - reservation.max_walltime_s
    )  # within the queue's limit
    best = chance(first) if first <= begin else 0.0
    level = reservation.probability + margin * (1.0 - reservation.probability)
    if best < level:
        enough = best >= reservation.probability
        again_s = first if enough else 0.0
        return Move(
            submit=again_s <= 0,
            again_in_s=again_s,
            probability=best,
            latest_s=first if enough else None,
        )
    low, high = first, begin
    # bisection, although chances need not fall steadily: it takes few forecasts, and is repeated
    while high - low > 2 * STEP_S:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) >= level else (low, middle)
    waits = low > 2 * STEP_S
    return Move(
        submit=not waits,
        again_in_s=max(STEP_S, first, low / 3) if waits else 0.0,
        probability=best,
        latest_s=low,
    )
