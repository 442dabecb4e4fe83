"""The distribution of a job's wait as levels: which score of a model's quantiles to use for which
probability. Bounds and probabilities of one queue and shape are read from the same curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vgrads.kernel.arrays import Floats
from vgrads.qbets.bounds import ROUNDING
from vgrads.qbets.knots import HIGHEST, wait_at


@dataclass(frozen=True, kw_only=True)
class LevelCurve:
    """The score to use for each probability: observed ``scores``, ascending, and the probability of
    each, its level. Beyond what so many scores support
    (:func:`vgrads.qbets.bounds.compute_highest_level`) there is none."""

    scores: Floats
    levels: Floats

    def score(self, probability: float) -> float:
        """Return the least score of that probability; monotone. NaN beyond the highest one."""
        # a level i ÷ (n + 1) may differ from the same probability as written in its last digit
        rank = int(np.searchsorted(self.levels, probability * (1 - ROUNDING), side="left"))
        return float(self.scores[rank]) if rank < len(self.scores) else math.nan

    def probability(self, knots: Floats, within_s: ArrayLike) -> Floats:
        """Return the probabilities of these waits: that of the longest wait of the curve that is
        not longer. Same shape.

        Waits of :func:`vgrads.qbets.knots.wait_at` are compared, not scores: converting a wait back
        to a score would lose the last digits, and a bound could exceed the wait whose probability
        was requested.
        """
        waits_s = wait_at(knots, self.scores)
        ranks = np.searchsorted(waits_s, np.asarray(within_s, dtype=np.float64), side="right")
        return np.asarray(np.append(0.0, self.levels)[ranks], dtype=np.float64)

    def replacing(self, earlier: LevelCurve, share: float) -> LevelCurve:
        """Return the curve that has replaced an earlier one to this share, from 0 to 1: at each
        level the weighted mean of both scores, where the earlier one has that level."""
        if share >= 1.0 or not len(earlier.levels):
            return self
        ranks = np.searchsorted(earlier.levels, self.levels * (1 - ROUNDING), side="left")
        has_level = ranks < len(earlier.levels)
        before = earlier.scores[np.minimum(ranks, len(earlier.levels) - 1)]
        mixed = np.where(has_level, share * self.scores + (1.0 - share) * before, self.scores)
        # where the earlier levels end, mixing ends, and scores could fall there
        return LevelCurve(scores=np.maximum.accumulate(mixed), levels=self.levels)


def list_levels(count: int) -> Floats:
    """Return the probabilities of so many observed scores, ascending."""
    return np.arange(1, count + 1) / (count + 1)


def anchor_scores(scores: Floats, quantile: float, requested: float) -> Floats:
    """Transform ascending scores so that ``quantile`` of them are below ``requested``: from the
    beginning of the tail up to that quantile the correction is applied increasingly, and the body
    is unchanged as far as scores stay ascending."""
    levels = list_levels(len(scores))
    plain = LevelCurve(scores=scores, levels=levels).score(quantile)
    plain = HIGHEST if math.isnan(plain) else plain
    body = find_tail(quantile)
    share = np.clip((levels - body) / (quantile - body), 0.0, 1.0)
    bent = scores * (1.0 + share * (requested / max(plain, 1e-9) - 1.0))
    if requested >= plain:
        return np.maximum.accumulate(bent)
    return np.minimum.accumulate(bent[::-1])[::-1]  # the body changes, not the quantile


def find_tail(quantile: float) -> float:
    """Return the level at which the tail begins: as far below the quantile as that is from 1."""
    return 2 * quantile - 1
