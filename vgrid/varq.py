"""Virtual advance reservations: the latest instant to submit so that a job runs by T.

For every submission instant t the job may start at once and must still hold its processors until
T + W, so it asks for W_adj(t) = W + (T − t); its probability is GETPROB(N, W_adj(t), T − t).
(Nurmi, Wolski, Brevik, "VARQ: virtual advance reservations for queues", HPDC 2008; SC'09 §3.1.1.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.errors import InputError

STEP_S = 30.0
MARGIN = 0.35
"""Of the probability that is missing to 1: what later instants must have in reserve."""


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
        submit_in_s: float = 0.0,
    ) -> NDArray[np.float64]:
        """P(wait ≤ d) for every d of a job that is submitted later; ``ahead`` of the asker's jobs
        wait before it."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Probability of running at T for each submission instant; 0 where the queue forbids it.

    ``chosen`` is the index of the latest instant whose probability is enough, None if there is
    none.
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


def trajectory(
    oracle: WaitOracle,
    wanted: Reservation,
    step_s: float = STEP_S,
) -> Trajectory:
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
        submit_in_s = wanted.start_by_s - float(within_s[rows][0])
        chances[rows] = oracle.probability(
            wanted.procs, walltime_s, within_s[rows], wanted.confidence, 0, submit_in_s
        )
    return chances


def adapt(allowed: float, probability: float, kept: bool, rate: float = 0.03) -> float:
    """The share of failures to allow from now on, after one more promise was kept or not.

    Choosing instants by their estimated probability picks those that were estimated too high, and
    moving them gives away luck but keeps bad luck; the record of promises corrects both in the long
    run (adaptive conformal inference: Gibbs and Candès, NeurIPS 2021, equation 2). Never more
    lenient than what was promised, never asking for the impossible.
    """
    missing = 1.0 - probability
    step = rate * missing if kept else -rate * probability
    return min(max(allowed + step, missing / 10.0), missing)


class QueueFutures(Protocol):
    """How one queue may go on from the state it is in."""

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """P(a job submitted in ``submit_in_s`` runs by ``by_s``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What to do about a reservation now: submit, or look again in ``again_in_s``.

    ``probability`` is that of submitting as early as the queue allows; ``latest_s`` the latest
    instant that is still sure enough, None where none is any more; submitting is then the best that
    is left.
    """

    submit: bool
    again_in_s: float
    probability: float
    latest_s: float | None


def move(futures: QueueFutures, wanted: Reservation, margin: float = MARGIN) -> Move:
    """Submit now, or wait because later is sure enough. Times in ``wanted`` count from now.

    Waiting is worth it only while what is lost by bad news until the next look is covered: later
    instants must beat the probability by ``margin`` of what is missing to 1. The next look comes
    after a third of the time that is left to the latest good instant.
    """
    begin = wanted.start_by_s

    def chance(submit_s: float) -> float:
        walltime_s = wanted.walltime_s + begin - submit_s
        if walltime_s > wanted.max_walltime_s:
            return 0.0
        return futures.chance(wanted.procs, walltime_s, submit_s, begin)

    first = max(0.0, wanted.walltime_s + begin - wanted.max_walltime_s)  # within the queue's limit
    best = chance(first) if first <= begin else 0.0
    level = wanted.probability + margin * (1.0 - wanted.probability)
    if best < level:
        enough = best >= wanted.probability
        again_s = first if enough else 0.0
        return Move(
            submit=again_s <= 0,
            again_in_s=again_s,
            probability=best,
            latest_s=first if enough else None,
        )
    low, high = first, begin
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
