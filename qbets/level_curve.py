"""The distribution of a job's wait as levels: which score of a model's quantiles to use for which
probability. Bounds and probabilities of one queue and shape are read from the same curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from vgrads.kernel.arrays import Floats
from vgrads.qbets.bounds import ROUNDING
from vgrads.qbets.conformal import HIGHEST, Calibration
from vgrads.qbets.knots import wait_at


@dataclass(frozen=True, kw_only=True)
class LevelCurve:
    """The score to use for each probability: observed scores, ascending. Beyond what so many scores
    support (:func:`vgrads.qbets.bounds.highest_level`) there is none."""

    scores: Floats

    @cached_property
    def levels(self) -> Floats:
        """The probability of each score."""
        count = len(self.scores)
        return np.arange(1, count + 1) / (count + 1)

    def score(self, probability: float) -> float:
        """Return the least score of that probability; monotone. NaN beyond the highest one."""
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
        existing = np.searchsorted(waits_s, np.asarray(within_s, dtype=np.float64), side="right")
        return np.asarray(np.append(0.0, self.levels)[existing], dtype=np.float64)


def curve_of(calibration: Calibration, group: int, requested: float) -> LevelCurve:
    """Return the observed levels of a group of jobs; from the beginning of the tail up to the
    tracked quantile, the correction of that quantile, the ``requested`` score, is applied
    increasingly."""
    return LevelCurve(scores=anchored(calibration.scores(group), calibration.quantile, requested))


def anchored(scores: Floats, quantile: float, requested: float) -> Floats:
    """Transform ascending scores so that ``quantile`` of them are below ``requested``, and leave
    the body unchanged as far as they stay ascending."""
    count = len(scores)
    plain = LevelCurve(scores=scores).score(quantile)
    plain = HIGHEST if math.isnan(plain) else plain
    levels = np.arange(1, count + 1) / (count + 1)
    body = 2 * quantile - 1  # as far below the quantile as that is from 1
    share = np.clip((levels - body) / (quantile - body), 0.0, 1.0)
    bent = scores * (1.0 + share * (requested / max(plain, 1e-9) - 1.0))
    if requested >= plain:
        return np.maximum.accumulate(bent)
    return np.minimum.accumulate(bent[::-1])[::-1]  # the body changes, not the quantile
