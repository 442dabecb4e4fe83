"""Adaptive correction: if bounds of a queue are missed too often, ask for stricter ones.

Change points are detected per cluster, each from its own run of misses, and a burst of one user may
be missed narrowly hundreds of times in between. The adaptive correction observes all jobs of the
queue: if more of the last hundred judged jobs were missed than in all but one in a thousand
hundreds with calibrated bounds (a binomial tail), the share of misses that a bound may have is
reduced in proportion until the queue is back to the promised share. It only makes bounds longer.
(Not in the papers; its gain and cost are in ``studies/results/backtest.md``.)
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.bounds import find_upper_rank_of_misses

Level = TypeVar("Level", float, NDArray[np.float64])
WINDOW = 100
_HONEST = 0.999


class AdaptiveCorrection:
    """Updated with every judgement; ``correction_factor`` is 1 while misses are as rare as
    promised."""

    def __init__(self, quantile: float) -> None:
        self._promised = 1 - quantile
        self._limit = find_upper_rank_of_misses(WINDOW, self._promised, _HONEST)
        self.last: deque[bool] = deque(maxlen=WINDOW)
        self._misses = 0

    def judge(self, missed: bool) -> None:
        """Record that one more job kept or missed its bound. O(1)."""
        if len(self.last) == WINDOW:
            # the full window drops this one when the next is appended
            self._misses -= self.last[0]
        self.last.append(missed)
        self._misses += missed

    @property
    def correction_factor(self) -> float:
        """Current factor that reduces a bound's share of misses; in (0, 1]."""
        if self._misses <= self._limit:
            return 1.0
        return self._promised / (self._misses / len(self.last))

    def check(self) -> None:
        """Check that the count is that of the window."""
        if self._misses != sum(self.last):
            raise AssertionError(f"{self._misses} counted of {list(self.last)}")


def tighten_level(level: Level, correction_factor: float, tracked: float) -> Level:
    """Return the stricter level to use with history for ``level``: the odds of a miss are reduced.

    Odds are scaled, not shares: if misses are five times as frequent as promised, this says nothing
    about waits so short that many jobs exceed them; five times their share would exceed 1. The
    scale leaves ``correction_factor`` times the share of misses at the ``tracked`` quantile, which
    is the judged one.
    """
    return level / (level + _compute_odds_factor(correction_factor, tracked) * (1 - level))


def loosen_level(level: Level, correction_factor: float, tracked: float) -> Level:
    """Return the effective level of a level of history under a correction factor: the inverse of
    :func:`tighten_level`."""
    odds = _compute_odds_factor(correction_factor, tracked)
    return odds * level / (odds * level + (1 - level))


def _compute_odds_factor(correction_factor: float, tracked: float) -> float:
    """Return the factor on the odds of a miss that multiplies its share at a quantile by
    ``correction_factor``."""
    return correction_factor * tracked / (1 - correction_factor * (1 - tracked))
