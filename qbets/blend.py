"""Blend of two predictions of a wait: from the state of the queue, and from past waits of similar
jobs.

Both are quantiles (:data:`vgrads.qbets.conditional.LEVELS`) in cube roots of seconds; the blend is
their weighted mean, level by level, and only the blend is corrected by outcomes. A mean of
quantiles keeps the shape of its components, whereas a mean of probabilities would widen it
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
"""Weight of past waits in the blend, from the median on, for a job that is submitted now."""
FADES_S = 4 * 3600.0
"""Time after which the weight of a queue's state has fallen to a third (1/e) of that for jobs
submitted at once."""
_FEWEST = 59  # minimum number of past waits for a prediction
_REFRESH = 50  # starts until quantiles of a long history are recomputed
_SHARE_NEW = 0.02  # the same as a share of the starts of the cluster
_LEVELS = np.array(LEVELS)


def knots_of(waits_s: Floats) -> Floats | None:
    """Return the quantiles of ascending waits in cube roots of seconds; None if there are too
    few."""
    if len(waits_s) < _FEWEST:
        return None
    ranks = np.ceil(_LEVELS * len(waits_s)).astype(np.int64) - 1
    roots: Floats = np.cbrt(waits_s[ranks])
    return roots


def faded(age_s: float) -> float:
    """Return the lost share of a state's weight after this time."""
    return 1.0 - math.exp(-age_s / FADES_S)


def blended(state: Floats, past: Floats | None, age_s: float = 0.0) -> Floats:
    """Return the blend of two predictions; the state's alone if there is no other, and below the
    median while it is fresh: past waits of zero say nothing about jobs that must wait for others to
    end."""
    if past is None:
        return state
    gone = faded(age_s)
    share = np.where(_LEVELS < 0.5, gone, SHARE + (1.0 - SHARE) * gone)
    both: Floats = np.maximum.accumulate((1.0 - share) * state + share * past)
    return both


class PastKnots:
    """Quantiles of past waits in every cluster, recomputed now and then."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, int], tuple[int, Floats | None]] = {}

    def of(self, floor: QueuePredictor, bin_number: int) -> Floats | None:
        """Return the quantiles of a cluster of a predictor, limited in age by a number of
        starts."""
        key = (bin_number, id(floor.streams[bin_number]))
        result = self._cache[key] = self._look_up(floor, bin_number)
        return result[1]

    def every(self, floor: QueuePredictor) -> tuple[Floats | None, ...]:
        """Return the same for all clusters, as for the next job of each."""
        return tuple(self._look_up(floor, number)[1] for number in range(len(floor.streams)))

    def _look_up(self, floor: QueuePredictor, bin_number: int) -> tuple[int, Floats | None]:
        stream = floor.streams[bin_number]
        result = self._cache.get((bin_number, id(stream)))
        if result is not None and floor.sequence - result[0] < max(
            _REFRESH, _SHARE_NEW * len(stream)
        ):
            return result
        return floor.sequence, knots_of(stream.sorted_waits)
