"""The referee: when bounds of a queue are being missed too often, ask for stricter ones.

Change points are found cluster by cluster, each needing its own run of misses, and a burst of one
user may be missed by a hair hundreds of times in between. The referee watches all jobs of the
queue: if more of the last hundred judged jobs were missed than all but one in a thousand honest
hundreds would show (a binomial tail), the share of misses that a bound may have is reduced in
proportion until the queue is back to what was promised. It only ever makes bounds longer. (Not in
the papers; what it gains and costs stands in ``docs/backtest.md``.)
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.bounds import upper_rank_of_misses

Level = TypeVar("Level", float, NDArray[np.float64])
WINDOW = 100
_HONEST = 0.999


class Referee:
    """Fed with every judgement; ``caution`` is 1 as long as misses are as rare as promised."""

    def __init__(self, quantile: float) -> None:
        self._promised = 1 - quantile
        self._limit = upper_rank_of_misses(WINDOW, self._promised, _HONEST)
        self.last: deque[bool] = deque(maxlen=WINDOW)
        self._misses = 0

    def judge(self, missed: bool) -> None:
        """One more job kept or missed its bound. O(1)."""
        if len(self.last) == WINDOW:
            self._misses -= self.last[0]
        self.last.append(missed)
        self._misses += missed

    @property
    def caution(self) -> float:
        """By which factor a bound's share of misses is to be reduced now; in (0, 1]."""
        if self._misses <= self._limit:
            return 1.0
        return self._promised / (self._misses / len(self.last))

    def check(self) -> None:
        """The count is that of the window."""
        if self._misses != sum(self.last):
            raise AssertionError(f"{self._misses} counted of {list(self.last)}")


def stricter(level: Level, caution: float, tracked: float) -> Level:
    """The level to ask of history where ``level`` is wanted: the same odds of a miss, cut.

    Odds, not shares, are scaled: misses that are five times as frequent as promised say nothing of
    waits so short that many exceed them, where five times the share would be more than all. By as
    much as leaves ``caution`` times the share of misses at the ``tracked`` quantile, which is the
    one that is judged.
    """
    return level / (level + _odds(caution, tracked) * (1 - level))


def looser(level: Level, caution: float, tracked: float) -> Level:
    """What a level of history is worth under caution: the inverse of :func:`stricter`."""
    odds = _odds(caution, tracked)
    return odds * level / (odds * level + (1 - level))


def _odds(caution: float, tracked: float) -> float:
    """By which factor the odds of a miss shrink where its share at a quantile is to shrink by
    ``caution``."""
    return caution * tracked / (1 - caution * (1 - tracked))
