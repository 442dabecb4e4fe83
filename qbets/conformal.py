"""Online conformal correction of the levels of a model, from the outcomes of its answers.

A job's *score* is the level of the model's distribution that would just have covered its wait, as
−log(1 − level). Calibrated scores are exponential; their running quantile is the level to use so
that q of the waits are covered. Several trackers follow it, some in steps of different rates
(adaptive conformal inference: Gibbs and Candès, NeurIPS 2021, arXiv:2106.00170), some as quantiles
of the newest scores; they are weighted by their loss so far (Gibbs and Candès, JMLR 25(162) 2024;
the proportional and integral parts of Angelopoulos, Candès and Tibshirani, NeurIPS 2023,
arXiv:2307.16895). Jobs of a burst behave alike and unlike others, so jobs are grouped by the number
of the user's own waiting jobs, or if no user is known, of identical waiting jobs (Mondrian groups).

Every job also belongs to a class of width, of requested time, and to a queue. Each has an offset to
the level, which moves with its own misses, so that all of these overlapping groups are covered
(online gradient descent on the pinball loss of a sum of group terms: Gibbs, Cherian and Candès,
JRSS-B 2025, arXiv:2305.12616).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from vgrads.kernel.arrays import Floats
from vgrads.qbets.class_calibration import Applied, ClassCalibration, corrected
from vgrads.qbets.knots import HIGHEST
from vgrads.qbets.level_curve import LevelCurve, anchor_scores, find_tail, list_levels

RATES = (0.02, 0.05, 0.1, 0.2)
WINDOWS = (200, 500, 2000)
BURSTS = (5, 50)
"""Numbers of own (or identical) waiting jobs from which a job belongs to the next group."""
MAX_SCORES = 4096
"""Stored scores of a group: a power of two."""
_ENOUGH = 60  # scores that a window needs
_EVERY = 10  # judged jobs between updates of the windows
_LEARNING = 0.1  # rate at which weights follow losses
_MIX = 0.001  # minimum weight of a tracker
_LAST = 30  # judged jobs in which misses are counted for an alarm
_UNLIKELY = 0.005  # probability of an alarm with calibrated bounds
_INTEGRAL = 1_000.0  # a surplus of so many jobs' allowed misses leaves none
_MEMORY = 20_000.0  # judged jobs over which a surplus decays
_STRICTEST = 0.4  # minimum remaining share of the allowed misses
_OFFSET_RATE, _FIRST_RATE = 0.01, 0.6  # step of an offset: the second ÷ √(jobs + 10) is added
_LEAST_OFFSET, _MOST_OFFSET = -0.3, 1.0
WIDTHS = (0.05, 0.2)
"""Shares of the machine from which a job belongs to the next class of width."""
TIMES_S = (600.0, 3600.0, 14_400.0, 43_200.0, 86_400.0)
"""Requested times above which a job belongs to the next class of time."""
_TIME_MARK, _QUEUE_MARK = 10, 100


@dataclass(slots=True)
class Issued:
    """The level used for one job: as a score, and that of each tracker before the ``offset`` of the
    job's classes, which have these ``marks``; and the corrections of its probabilities that were
    ``applied`` by class."""

    score: float
    trackers: tuple[float, ...]
    marks: tuple[int, ...] = ()
    offset: float = 0.0
    applied: Applied = ()
    cell: int = -1  # number of the job's scores among those of its group


class ScoreRing:
    """The newest scores of a group, each without and with the offset of the job's classes."""

    def __init__(self) -> None:
        self.count = 0
        self._table = np.empty((64, 2))

    def put(self, cell: int, plain: float, score: float) -> int:
        """Store scores: in a cell that exists, or in a new one (−1). Return its number."""
        if cell < 0:
            cell, self.count = self.count, self.count + 1
            if cell == len(self._table) < MAX_SCORES:
                self._table = np.vstack([self._table, np.empty_like(self._table)])
        if cell >= self.count - len(self._table):  # else overwritten since
            self._table[cell % len(self._table)] = plain, score
        return cell

    def newest(self, count: int, column: int) -> np.ndarray:
        """Return the newest scores, at most ``count``, the newest first; ``column``: 0 without
        offset, 1 with."""
        cells = np.arange(
            self.count - 1, max(-1, self.count - 1 - min(count, len(self._table))), -1
        )
        return np.asarray(self._table[cells % len(self._table), column])


@dataclass(slots=True)
class _CorrectionGroup:
    """Trackers and record of a group of jobs."""

    trackers: list[float]
    weights: list[float]
    scores: ScoreRing = field(default_factory=ScoreRing)
    missed: deque[bool] = field(default_factory=lambda: deque(maxlen=_LAST))
    since: int = 0
    learned: int = 0
    ordered: Floats | None = None  # the scores, ascending, as of some outcomes ago


class Calibration:
    """Chooses the level of a model so that ``quantile`` of the waits are covered."""

    def __init__(self, quantile: float) -> None:
        self.quantile = quantile
        self.nominal = -math.log1p(-quantile)
        count = len(RATES) + len(WINDOWS)
        self.groups = [
            _CorrectionGroup([self.nominal] * count, [1 / count] * count)
            for _ in range(len(BURSTS) + 1)
        ]
        self.offsets: dict[int, float] = {}
        self._in_class: Counter[int] = Counter()  # judged jobs
        self.classes = ClassCalibration(find_tail(quantile), quantile)
        self.surplus = 0.0  # misses beyond those allowed
        self._alarm = _find_unlikely_count(_LAST, 1 - quantile)

    @staticmethod
    def group_of(waiting: float) -> int:
        """Return the number of the group of a job with this many waiting jobs of its kind."""
        return sum(waiting >= burst for burst in BURSTS)

    @staticmethod
    def groups_of(waiting: np.ndarray) -> np.ndarray:
        """Return the same for many jobs; unknown numbers count as none."""
        return np.asarray(sum((waiting >= burst).astype(np.int64) for burst in BURSTS))

    @property
    def target(self) -> float:
        """The quantile that trackers follow: stricter while more was missed than allowed."""
        allowed = 1 - self.quantile
        return 1 - allowed * max(_STRICTEST, 1 - self.surplus / (_INTEGRAL * allowed))

    def issue(self, group: int, marks: tuple[int, ...] = ()) -> Issued:
        """Return the level to use now for a job of a group with these marks
        (:func:`derive_class_marks`)."""
        own = self.groups[group]
        plain = sum(w * z for w, z in zip(own.weights, own.trackers, strict=True))
        offset = sum(self.offsets.get(mark, 0.0) for mark in marks)
        score = min(HIGHEST, max(self.nominal / 4, plain + offset))
        # jobs of bursts are neither evidence about their classes nor like other jobs of these
        applied = () if group else self.classes.applied(marks)
        return Issued(score, tuple(own.trackers), marks, offset, applied)

    def curve(self, group: int, issued: Issued) -> LevelCurve:
        """Return the observed levels of a group of jobs as issued for one of them: its tail by the
        tracked quantile, its body by the job's classes."""
        scores = anchor_scores(self.scores(group), self.quantile, issued.score)
        levels = corrected(list_levels(len(scores)), issued.applied)
        return LevelCurve(scores=scores, levels=levels)

    def alarmed(self, group: int) -> bool:
        """True if recent misses are more than calibrated bounds would have."""
        return sum(self.groups[group].missed) > self._alarm

    def judge(self, group: int, issued: Issued, missed: bool) -> None:
        """Record that a bound was kept or missed, by a wait that has ended or has exceeded it."""
        own, allowed = self.groups[group], 1 - self.quantile
        own.missed.append(missed)
        self.surplus = max(0.0, self.surplus * (1 - 1 / _MEMORY) + missed - allowed)
        if missed:  # if it still waits, its score is a lower bound
            self._weigh(own, issued, min(HIGHEST, issued.score + 1.0))
            self._remember(own, issued, math.inf)
        target = self.target
        for mark in issued.marks:
            self._in_class[mark] += 1
            rate = _OFFSET_RATE + _FIRST_RATE / math.sqrt(self._in_class[mark] + 10)
            # the step has mean zero where a share of 1 − target is missed
            moved = self.offsets.get(mark, 0.0) + rate * (missed - 1 + target)
            self.offsets[mark] = min(_MOST_OFFSET, max(_LEAST_OFFSET, moved))
        for number, rate in enumerate(RATES):
            moved = own.trackers[number] + rate * (missed - 1 + target)
            own.trackers[number] = min(HIGHEST, max(self.nominal / 4, moved))
        own.since += 1
        if own.since >= _EVERY:
            own.since = 0
            self._look(own, target)

    def learn(self, group: int, issued: Issued, score: float) -> None:
        """Record a job's wait by the score that would just have covered it."""
        own = self.groups[group]
        if issued.applied:
            self.classes.learn(self._level(group, score), issued.applied)
        # otherwise a miss: its loss was counted when it was judged
        if issued.cell < 0:
            self._weigh(own, issued, score)
        self._remember(own, issued, score)
        own.learned += 1
        if own.learned % _EVERY == 0:  # by outcomes alone, whatever was asked in between
            own.ordered = _sort_scores([own])

    def _weigh(self, group: _CorrectionGroup, issued: Issued, score: float) -> None:
        q = self.quantile
        score = max(0.0, score - issued.offset)
        over = [score - z for z in issued.trackers]
        losses = [q * o if o > 0 else (q - 1) * o for o in over]
        raw = [w * math.exp(-_LEARNING * x) for w, x in zip(group.weights, losses, strict=True)]
        total = sum(raw)
        # no weight reaches zero: a tracker that was poor for long may be the best after a change
        group.weights = [(1 - _MIX) * w / total + _MIX / len(raw) for w in raw]

    @staticmethod
    def _remember(group: _CorrectionGroup, issued: Issued, score: float) -> None:
        issued.cell = group.scores.put(issued.cell, max(0.0, score - issued.offset), score)

    def _look(self, group: _CorrectionGroup, target: float) -> None:
        """Update the quantiles of the newest scores, one for each window."""
        newest = group.scores.newest(max(WINDOWS), 0)
        for number, window in enumerate(WINDOWS):
            part = newest[:window]
            if len(part) >= _ENOUGH:
                # n + 1, as in conformal prediction: a next score is as likely in each of n + 1 gaps
                rank = min(len(part) - 1, math.ceil(target * (len(part) + 1)) - 1)
                value = float(np.partition(part, rank)[rank])
                group.trackers[len(RATES) + number] = min(HIGHEST, max(value, self.nominal / 4))

    def scores(self, group: int) -> Floats:
        """Return the scores of the group, ascending; of all jobs if it has too few."""
        own = self.groups[group]
        if own.scores.count < _ENOUGH:
            return _sort_scores(self.groups)
        return _sort_scores([own]) if own.ordered is None else own.ordered

    def _level(self, group: int, score: float) -> float:
        """Return the level of a score among those of the group; the middle one of equal scores."""
        scores = self.scores(group)
        low, high = (int(np.searchsorted(scores, score, side)) for side in ("left", "right"))
        return (low + high) / 2 / (len(scores) + 1)

    def frozen(self) -> Calibration:
        """Return a copy that later outcomes do not change."""
        return deepcopy(self)

    def check(self) -> None:
        """Check that weights are shares and trackers are in their range."""
        for group in self.groups:
            if abs(sum(group.weights) - 1) > 1e-6:
                raise AssertionError(f"weights {group.weights} are no shares")
            if any(not 0 < z <= HIGHEST for z in group.trackers):
                raise AssertionError(f"trackers {group.trackers} have left their range")


def derive_class_marks(share: float, request_s: float, queue: int) -> tuple[int, ...]:
    """Return the classes of a job by its share of the machine, its requested time (seconds) and the
    number of its queue (−1: unknown)."""
    width = sum(share >= limit for limit in WIDTHS)
    time = _TIME_MARK + sum(request_s > limit for limit in TIMES_S)
    return (width, time, _QUEUE_MARK + queue) if queue >= 0 else (width, time)


def _sort_scores(groups: Sequence[_CorrectionGroup]) -> Floats:
    """Return the newest scores of these groups, ascending."""
    newest = [group.scores.newest(max(WINDOWS), 1) for group in groups]
    # missed jobs that still wait have infinite scores
    return np.sort(np.minimum(np.concatenate(newest), HIGHEST))


def _find_unlikely_count(trials: int, chance: float) -> int:
    """Return the least count that is exceeded with a probability of at most :data:`_UNLIKELY`
    (binomial)."""
    from scipy.special import bdtrc  # noqa: PLC0415 late: as in vgrads.qbets.bounds

    return int(np.argmax(bdtrc(np.arange(trials + 1), trials, chance) <= _UNLIKELY))
