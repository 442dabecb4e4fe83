"""Keeping a model honest as its answers come true: online conformal correction of its levels.

A job's *score* is the level of the model's distribution that would just have covered its wait, as
−log(1 − level). Calibrated scores are exponential; their running quantile says which level must be
asked of the model so that q of the waits are covered. Several trackers follow it, some in steps of
different rates (adaptive conformal inference: Gibbs and Candès, NeurIPS 2021, arXiv:2106.00170),
some as quantiles of the newest scores; they are weighed by their loss so far (Gibbs and Candès,
JMLR 25(162) 2024; the proportional and integral parts of Angelopoulos, Candès and Tibshirani,
NeurIPS 2023, arXiv:2307.16895). Jobs of a burst behave alike and unlike others, so jobs are told
apart by how many of the user's own, or where no user is known how many exactly alike, wait already
(Mondrian groups).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

RATES = (0.02, 0.05, 0.1, 0.2)
WINDOWS = (200, 500, 2000)
BURSTS = (5, 50)
"""Own jobs (or jobs exactly alike) waiting from which on a job belongs to the next group."""
HIGHEST = 9.0
"""No level is asked for beyond 1 − e⁻⁹."""
_KEPT = 5000  # scores that are remembered
_ENOUGH = 60  # scores that a window needs
_EVERY = 10  # judged jobs between two looks at the windows
_LEARNING = 0.1  # how fast weights follow losses
_MIX = 0.001  # weight that every tracker keeps
_LAST = 30  # judged jobs among which misses alarm
_UNLIKELY = 0.005  # of honest thirties alarm by chance
_INTEGRAL = 1_000.0  # jobs whose allowed misses, as a surplus, would use up those of all to come
_MEMORY = 20_000.0  # judged jobs over which a surplus is forgotten
_STRICTEST = 0.4  # least share of the misses allowed that is left


@dataclass(slots=True)
class Issued:
    """What was asked of the model for one job: the level as a score, and each tracker's."""

    score: float
    trackers: tuple[float, ...]
    known: list[float] = field(default_factory=list)  # the job's cell among the scores


@dataclass(slots=True)
class _Group:
    """Trackers and record of jobs alike."""

    trackers: list[float]
    weights: list[float]
    scores: deque[list[float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    missed: deque[bool] = field(default_factory=lambda: deque(maxlen=_LAST))
    since: int = 0


class Calibration:
    """Which level to ask a model for, so that ``quantile`` of the waits are covered."""

    def __init__(self, quantile: float) -> None:
        self.quantile = quantile
        self.nominal = -math.log1p(-quantile)
        count = len(RATES) + len(WINDOWS)
        self.groups = [
            _Group([self.nominal] * count, [1 / count] * count) for _ in range(len(BURSTS) + 1)
        ]
        self.surplus = 0.0  # misses beyond those allowed
        self._alarm = _unlikely_from(_LAST, 1 - quantile)

    @staticmethod
    def group_of(waiting: float) -> int:
        """Number of the group of a job with so many of its kind waiting."""
        return sum(waiting >= burst for burst in BURSTS)

    @property
    def target(self) -> float:
        """The quantile that trackers follow: stricter while more was missed than allowed."""
        allowed = 1 - self.quantile
        return 1 - allowed * max(_STRICTEST, 1 - self.surplus / (_INTEGRAL * allowed))

    def issue(self, group: int) -> Issued:
        """The level to ask for now."""
        known = self.groups[group]
        score = sum(w * z for w, z in zip(known.weights, known.trackers, strict=True))
        return Issued(score, tuple(known.trackers))

    def alarmed(self, group: int) -> bool:
        """More was missed lately than honest bounds would show."""
        return sum(self.groups[group].missed) > self._alarm

    def judge(self, group: int, issued: Issued, missed: bool) -> None:
        """A bound was kept or missed, by a wait that is over or that has outlived it."""
        known, allowed = self.groups[group], 1 - self.quantile
        known.missed.append(missed)
        self.surplus = max(0.0, self.surplus * (1 - 1 / _MEMORY) + missed - allowed)
        if missed:  # if it still waits, its score is at least what was asked for, and not known yet
            self._weigh(known, issued, min(HIGHEST, issued.score + 1.0))
            self._remember(known, issued, math.inf)
        target = self.target
        for number, rate in enumerate(RATES):
            moved = known.trackers[number] + rate * (missed - 1 + target)
            known.trackers[number] = min(HIGHEST, max(self.nominal / 4, moved))
        known.since += 1
        if known.since >= _EVERY:
            known.since = 0
            self._look(known, target)

    def learn(self, group: int, issued: Issued, score: float) -> None:
        """A job's wait is known: the score that would just have covered it."""
        known = self.groups[group]
        if issued.known:
            issued.known[0] = score
        else:
            self._weigh(known, issued, score)
            self._remember(known, issued, score)

    def _weigh(self, known: _Group, issued: Issued, score: float) -> None:
        q = self.quantile
        over = [score - z for z in issued.trackers]
        losses = [q * o if o > 0 else (q - 1) * o for o in over]
        raw = [w * math.exp(-_LEARNING * x) for w, x in zip(known.weights, losses, strict=True)]
        total = sum(raw)
        known.weights = [(1 - _MIX) * w / total + _MIX / len(raw) for w in raw]

    @staticmethod
    def _remember(known: _Group, issued: Issued, score: float) -> None:
        issued.known = [score]
        known.scores.append(issued.known)

    def _look(self, known: _Group, target: float) -> None:
        """Quantiles of the newest scores, one for each window."""
        newest = newest_scores(known.scores, max(WINDOWS))
        for number, window in enumerate(WINDOWS):
            part = newest[:window]
            if len(part) >= _ENOUGH:
                rank = min(len(part) - 1, math.ceil(target * (len(part) + 1)) - 1)
                found = float(np.partition(part, rank)[rank])
                known.trackers[len(RATES) + number] = min(HIGHEST, max(found, self.nominal / 4))

    def scores(self, group: int) -> np.ndarray:
        """Scores of the group, ascending; of all jobs where it has too few."""
        own = newest_scores(self.groups[group].scores, max(WINDOWS))
        if len(own) < _ENOUGH:
            own = np.concatenate([newest_scores(g.scores, max(WINDOWS)) for g in self.groups])
        return np.sort(np.minimum(own, HIGHEST))

    def check(self) -> None:
        """Weights are shares, trackers lie in their range."""
        for known in self.groups:
            if abs(sum(known.weights) - 1) > 1e-6:
                raise AssertionError(f"weights {known.weights} are no shares")
            if any(not 0 < z <= HIGHEST for z in known.trackers):
                raise AssertionError(f"trackers {known.trackers} have left their range")


def newest_scores(scores: deque[list[float]], count: int) -> np.ndarray:
    """The newest first, at most so many."""
    newest = chain.from_iterable(islice(reversed(scores), count))
    return np.fromiter(newest, np.float64, min(count, len(scores)))


def _unlikely_from(trials: int, chance: float) -> int:
    """The least count that is exceeded with a probability of at most :data:`_UNLIKELY`
    (binomial)."""
    from scipy.special import bdtrc  # noqa: PLC0415 late: as in vgrads.qbets.bounds

    return int(np.argmax(bdtrc(np.arange(trials + 1), trials, chance) <= _UNLIKELY))
