"""Two opinions as one: what the state of the queue says of a wait, and what past waits of like jobs
say.

Both are quantiles (:data:`vgrads.qbets.conditional.LEVELS`) in cube roots of seconds; the blend is
their weighted mean, level by level, and only the blend is corrected by what comes true. A mean of
quantiles keeps the shape of what is averaged, where a mean of probabilities would widen it
(Vincentization: Lichtendahl, Grushka-Cockayne and Winkler 2013, doi:10.1287/mnsc.1120.1667).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.conditional import LEVELS
from vgrads.qbets.predictor import QueuePredictor

Floats = NDArray[np.float64]
SHARE = 0.15
"""Of the past waits in the blend, from the median on, about a job that is submitted now."""
FADES_S = 4 * 3600.0
"""After this time the state of a queue says a third (1/e) of what it said about jobs submitted at
once."""
_FEWEST = 59  # past waits that have an opinion
_REFRESH = 50  # starts after which the quantiles of a cluster are looked up anew, of long histories
_SHARE_NEW = 0.02  # after as many starts as this share of them
_LEVELS = np.array(LEVELS)


def knots_of(waits_s: Floats) -> Floats | None:
    """The quantiles of ascending waits in cube roots of seconds; None where they are too few."""
    if len(waits_s) < _FEWEST:
        return None
    ranks = np.ceil(_LEVELS * len(waits_s)).astype(np.int64) - 1
    roots: Floats = np.cbrt(waits_s[ranks])
    return roots


def faded(age_s: float) -> float:
    """How much of what a state said is gone after this time."""
    return 1.0 - math.exp(-age_s / FADES_S)


def blended(state: Floats, past: Floats | None, age_s: float = 0.0) -> Floats:
    """The blend of two opinions; the state's alone where there is no other, and below the median
    while it is fresh: of jobs that must wait for others to end, past waits that were none say
    nothing."""
    if past is None:
        return state
    gone = faded(age_s)
    share = np.where(_LEVELS < 0.5, gone, SHARE + (1.0 - SHARE) * gone)
    both: Floats = np.maximum.accumulate((1.0 - share) * state + share * past)
    return both


class PastKnots:
    """The opinion of past waits in every cluster, looked up anew now and then."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, Floats | None]] = {}

    def of(self, floor: QueuePredictor, bin_number: int) -> Floats | None:
        """The quantiles of a cluster of a predictor, at most so many starts old."""
        key = (bin_number, id(floor.streams[bin_number]))
        found = self._known[key] = self._look_up(floor, bin_number)
        return found[1]

    def every(self, floor: QueuePredictor) -> tuple[Floats | None, ...]:
        """The same for all clusters, as the next job of each would find them."""
        return tuple(self._look_up(floor, number)[1] for number in range(len(floor.streams)))

    def _look_up(self, floor: QueuePredictor, bin_number: int) -> tuple[int, Floats | None]:
        stream = floor.streams[bin_number]
        found = self._known.get((bin_number, id(stream)))
        if found is not None and floor.sequence - found[0] < max(
            _REFRESH, _SHARE_NEW * len(stream)
        ):
            return found
        return floor.sequence, knots_of(stream.sorted_waits)
