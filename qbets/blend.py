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
from vgrads.qbets.stream import WaitStream

Floats = NDArray[np.float64]
SHARE = 0.15
"""Weight of past waits in the blend, from the median on, for a job that is submitted now."""
FADES_S = 4 * 3600.0
"""Time after which the weight of a queue's state has fallen to a third (1/e) of that for jobs
submitted at once."""
# the least history for which QBETS itself has a bound of .95 at confidence .95
_FEWEST = 59  # minimum number of past waits for a prediction
REFRESH = 256
"""Submissions after which the quantiles of past waits are computed anew."""
_LEVELS = np.array(LEVELS)


def compute_knots(waits_s: Floats) -> Floats | None:
    """Return the quantiles of ascending waits in cube roots of seconds; None if there are too
    few."""
    if len(waits_s) < _FEWEST:
        return None
    # a rank and no interpolation: each quantile is a wait that occurred
    ranks = np.ceil(_LEVELS * len(waits_s)).astype(np.int64) - 1
    roots: Floats = np.cbrt(waits_s[ranks])
    return roots


def compute_lost_share(age_s: float) -> float:
    """Return the lost share of a state's weight after this time."""
    return 1.0 - math.exp(-age_s / FADES_S)


def blend_predictions(state: Floats, past: Floats | None, age_s: float = 0.0) -> Floats:
    """Return the blend of two predictions, or of rows of them; the state's alone if there is no
    other (None or NaN), and below the median while it is fresh: past waits of zero say nothing
    about jobs that must wait for others to end."""
    if past is None:
        return state
    gone = compute_lost_share(age_s)
    share = np.where(_LEVELS < 0.5, gone, SHARE + (1.0 - SHARE) * gone)
    # weights differ below and above the median, so the mean of two ascending rows may fall there
    both = np.maximum.accumulate((1.0 - share) * state + share * past, axis=-1)
    return np.where(np.isnan(past), state, both)


class PastKnots:
    """Quantiles of past waits in every cluster, computed anew after every 256 submissions; in views
    without waiting jobs after every 256 jobs that appear (:meth:`refresh`), because which jobs were
    submitted since is not known there."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[WaitStream, int, Floats | None]] = {}
        self._streams: list[WaitStream] | None = None

    def refresh(self, floor: QueuePredictor, row: int) -> None:
        """Compute all quantiles anew where a job of this number is due for it, or the clusters are
        new; lookups use these from then on."""
        # binning anew makes new streams: their identity shows that the clusters are others
        if row % REFRESH and floor.streams is self._streams:
            return
        self._streams = floor.streams
        self._cache = {
            n: (stream, -1, compute_knots(stream.sorted_waits))
            for n, stream in enumerate(floor.streams)
        }

    def of(self, floor: QueuePredictor, bin_number: int, row: int) -> Floats | None:
        """Return the quantiles of a cluster of a predictor for a submission, by its number."""
        result = self._cache[bin_number] = self._look_up(floor, bin_number, row)
        return result[2]

    def every(self, floor: QueuePredictor, row: int) -> tuple[Floats | None, ...]:
        """Return the same for all clusters."""
        return tuple(self._look_up(floor, n, row)[2] for n in range(len(floor.streams)))

    def _look_up(
        self, floor: QueuePredictor, bin_number: int, row: int
    ) -> tuple[WaitStream, int, Floats | None]:
        stream, epoch = floor.streams[bin_number], row // REFRESH
        result = self._cache.get(bin_number)
        if not floor.settings.sees_waiting:
            return result or (stream, -1, None)
        # after a new binning the same number may mean another cluster
        if result is not None and result[0] is stream and result[1] == epoch:
            return result
        return stream, epoch, compute_knots(stream.sorted_waits)
