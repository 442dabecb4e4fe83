"""Calibration of the body of a distribution by class of job: queue, requested time, width.

Where the wait of a job falls in the distribution of its answer is a *level*: over calibrated jobs
the levels are uniform. Right for all jobs together, they may still be wrong for each queue. So each
class records by how much the distribution function of its newest levels deviates from that of all
jobs at the same time (deviations of all jobs together are left to the trackers of
:mod:`vgrads.qbets.conformal`), and its mean deviation corrects the probabilities of its jobs
(recalibration: Kuleshov, Fenner and Ermon, ICML 2018, arXiv:1807.00263).

How much of a deviation is applied follows its evidence: the share that would have fitted best the
jobs that were submitted after it was known, from 0 to 1, shrunk to 0 while these are few (ridge
regression through the origin; an empirical Bayes estimate, Efron and Morris 1973,
doi:10.1080/01621459.1973.10481350). A burst that is submitted at once is therefore no evidence for
itself. Dimensions follow one another, each on the result of the one before, so that classes that
overlap are not corrected twice (Hébert-Johnson, Kim, Reingold and Rothblum, ICML 2018,
arXiv:1711.08513).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats

GRID = np.arange(1, 20) / 20
"""Levels at which deviations are recorded."""
BLOCK, BLOCKS = 20, 50
"""Jobs of a block, and newest blocks of a class, from which its deviation is computed."""
_RECENT, _FEWEST = 300, 60  # newest jobs of all classes to compare with; at least
_MEMORY = 0.98  # of earlier evidence after a block
_PRIOR = 0.3  # squared deviations, of one block's jobs, that count as evidence for no correction
_LEAST = 1e-4  # distance of corrected levels from 0, 1, and the first that is not corrected
_WITH_ENDS = np.concatenate([[0.0], GRID, [1.0]])


class ClassCorrection(NamedTuple):
    """What was known of a class when an answer was issued: its mean ``deviation`` at :data:`GRID`,
    and the ``corrected`` levels for 0, the grid and 1; None where these are the same."""

    deviation: Floats
    corrected: Floats | None


Applied = tuple[tuple[int, int, ClassCorrection | None], ...]
"""Corrections of an answer in the order of their application: number of the dimension, class, and
its correction."""


class ClassOutcomes:
    """Deviations of one class, and how well earlier ones predicted later ones."""

    def __init__(self) -> None:
        self.blocks: deque[Floats] = deque(maxlen=BLOCKS)
        self._sum, self._jobs = np.zeros(len(GRID)), 0  # of the block that is not complete
        self._fit, self._size = np.zeros(2), np.zeros(2)  # of that block, and of earlier ones
        self._correction: ClassCorrection | None = None

    @property
    def share(self) -> float:
        """The share of the deviation that is applied."""
        return float(np.clip(self._fit[1] / (self._size[1] + _PRIOR), 0.0, 1.0))

    def correction(self, limits: Floats, last: float) -> ClassCorrection | None:
        """Return the correction to apply now, None before the first block; ``limits``: how far each
        level of the grid may be corrected, from 0 to 1; ``last``: the first that is not, which no
        lower one passes."""
        if self._correction is None and self.blocks:
            deviation = np.mean(self.blocks, axis=0) * limits
            corrected = None
            if self.share > 0.0:
                highest = np.where(last > GRID, last, 1.0) - _LEAST
                levels = np.clip(GRID + self.share * deviation, _LEAST, highest)
                corrected = np.concatenate([[0.0], np.maximum.accumulate(levels), [1.0]])
            self._correction = ClassCorrection(deviation, corrected)
        return self._correction

    def add(self, deviation: Floats, correction: ClassCorrection | None) -> None:
        """Record the deviation of a job, and what was known of the class when it was submitted."""
        self._sum += deviation
        self._jobs += 1
        if correction is not None:
            self._fit[0] += correction.deviation @ deviation
            self._size[0] += correction.deviation @ correction.deviation
        if self._jobs < BLOCK:
            return
        for total in (self._fit, self._size):
            total[:] = 0.0, total[1] * _MEMORY + total[0] / BLOCK
        self.blocks.append(self._sum / BLOCK)
        self._sum, self._jobs, self._correction = np.zeros(len(GRID)), 0, None


class _RecentLevels:
    """The distribution function of the newest levels of all jobs."""

    def __init__(self) -> None:
        self._below: deque[Floats] = deque()
        self._sum = np.zeros(len(GRID))

    def add(self, below: Floats) -> Floats | None:
        """Add a job, and return the function at the grid; None while there are too few jobs."""
        self._below.append(below)
        self._sum += below
        if len(self._below) > _RECENT:
            self._sum -= self._below.popleft()
        return self._sum / len(self._below) if len(self._below) >= _FEWEST else None


class ClassCalibration:
    """Corrects the probabilities of jobs by their classes."""

    def __init__(self, first: float, last: float) -> None:
        """Levels are corrected up to ``first``, and decreasingly up to ``last``."""
        self._limits, self._last = np.clip((last - GRID) / (last - first), 0.0, 1.0), last
        self.outcomes: dict[int, ClassOutcomes] = {}
        self._recent: dict[int, _RecentLevels] = {}

    def applied(self, marks: tuple[int, ...]) -> Applied:
        """Return the corrections for a job of these classes, one of each dimension, the last
        dimension first."""
        result = []
        for dimension, mark in reversed(list(enumerate(marks))):
            outcomes = self.outcomes.get(mark)
            correction = None if outcomes is None else outcomes.correction(self._limits, self._last)
            result.append((dimension, mark, correction))
        return tuple(result)

    def learn(self, level: float, applied: Applied) -> None:
        """Record the level of a job's wait before these corrections of its answer."""
        for dimension, mark, correction in applied:
            below = (level <= GRID).astype(np.float64)
            # compared with all jobs of the same time: what is wrong for all is left to the trackers
            usual = self._recent.setdefault(dimension, _RecentLevels()).add(below)
            if usual is not None:
                self.outcomes.setdefault(mark, ClassOutcomes()).add(below - usual, correction)
            # the next dimension learns what this one leaves
            level = float(corrected(np.array(level), ((dimension, mark, correction),)))


def corrected(levels: Floats, applied: Applied) -> Floats:
    """Return the probabilities of levels after corrections; monotone, of the same shape."""
    for _, _, correction in applied:
        if correction is not None and correction.corrected is not None:
            levels = np.interp(levels, _WITH_ENDS, correction.corrected)
    return levels
