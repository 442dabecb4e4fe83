"""Prediction for one kind: the plausible laws, mixed into one mean and its variances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, log
from typing import NamedTuple

import numpy as np

from vgrads.runtimes.laws import (
    DEPARTURE,
    EXPONENT,
    FLOOR,
    GROWTH,
    NOISE,
    SHIFTED,
    Array,
    ratios,
)
from vgrads.runtimes.machines import OWN_SD, OWN_WEIGHT_SD
from vgrads.runtimes.pooling import Pooled, Source
from vgrads.runtimes.samples import PROCS_POWER, PROCS_SD, Sample
from vgrads.runtimes.task_history import KindRecords
from vgrads.runtimes.weighing import MOST_SHORTER, choose_laws, repeats
from vgrads.traces.task_record import TaskRecord

_ELSEWHERE = "\0"
"""Name for any machine without data; no real machine has it."""
_USUAL, _TRIMMED = 0.9, 0.05
_FARTHEST = 40.0
"""Limit of sizes, in e-folds from the middle; larger ones are cut to it."""


class Answer(NamedTuple):
    """``mean`` of the logarithm, the usual variance of the kind, and a task's own; the
    laws behind them, (3, h): weights, distances from the mean, variances."""

    mean: float
    kind: float
    own: float
    laws: Array


@dataclass(frozen=True, eq=False)
class KindPredictor:
    """One kind, ready for prediction: ``n`` observations, ``h`` laws with noises that matter, ``e``
    noises."""

    sample: Sample
    weights: Array  # (h,)
    exponent: Array  # (h,)
    floor: Array  # (h,)
    shifted: np.ndarray  # (h,) 1 where the law has an offset
    dual: Array  # (h, n): inverse covariance times the law's residuals
    noise_of: np.ndarray  # (h,) in e
    departure: Array  # (e,) squared
    at_places: Array  # (n,) of the departures
    inverse: Array  # (e, n, n)
    own: Array  # (h,) squared
    growth: Array  # (h,)
    repeat: Array  # (h,) squared
    slope: float
    places: Mapping[
        str, tuple[Array, float, float]
        # by machine: covariance (n,) with the observations, and with itself; the kind's own
        # deviation from its scores
    ]
    level: float
    strays: Array  # (3, s): weights, means, variances of tasks that do not resemble the others

    def at(self, machine: str, size: float | None, procs: int) -> Answer:
        """Return the logarithm of a task's time (or memory) without shared parts."""
        sample = self.sample
        x, extra = 0.0, 0.0
        if size is not None and size > 0 and not isnan(sample.centre):
            x = min(log(max(size, 1.0)) - sample.centre, _FARTHEST)
        else:
            extra = (self.slope * sample.spread) ** 2
        base, total, felt = self.places.get(machine) or self.places[_ELSEWHERE]
        mean = self.level + felt
        if sample.several:
            many = log(procs) - sample.usual
            mean += PROCS_POWER * many
            base = base + PROCS_SD**2 * many * sample.procs
            total += (PROCS_SD * many) ** 2
        # the covariance of an Ornstein-Uhlenbeck process decays exponentially with distance
        cross = base + self.departure[:, None] * np.exp(
            -np.abs(self.at_places - sample.place_of(x))
        )
        over = ratios(np.array([x]), sample.least)[self.shifted, 0]
        law = np.log(self.floor + (1 - self.floor) * np.exp(self.exponent * over))
        means = law + (cross[self.noise_of] * self.dual).sum(1)
        spread = (
            total + self.departure - ((cross[:, None, :] @ self.inverse)[:, 0, :] * cross).sum(1)
        )
        middle = _compute_trimmed_mean(means, self.weights)
        between = _compute_upper_deviation(means - middle, self.weights)
        offs = means - middle
        middle += mean
        shorter = min(max(sample.longest - middle, 0.0), MOST_SHORTER)
        owns = self.own * np.exp(self.growth * (2 * shorter)) + extra
        kinds = np.maximum(spread[self.noise_of], 0.0) + self.repeat
        kind, own = (
            between + _compute_usual_variance(kinds, self.weights),
            float(self.weights @ owns),
        )
        laws = np.array([self.weights, offs, kinds + owns])
        return Answer(middle, kind, own, add_strays(laws, middle - felt, self.strays))


def _compute_trimmed_mean(values: Array, weights: Array) -> float:
    """Return the mean without the lowest and highest values, a twentieth by weight each: with wide
    noise little is believed of the records, and they are drawn to the mean of all kinds."""
    order = np.argsort(values)
    above = np.cumsum(weights[order])
    left = np.minimum(above, 1 - _TRIMMED) - np.maximum(above - weights[order], _TRIMMED)
    left = np.maximum(left, 0.0)
    return float(left @ values[order] / left.sum())


def _compute_upper_deviation(offs: Array, weights: Array) -> float:
    """Return the mean square of the deviations to longer times. A plan is endangered by these, and
    the law of no dependence on size lies far on the other side."""
    longer = offs >= 0
    total = float(weights[longer].sum())
    return float(weights[longer] @ offs[longer] ** 2) / total if total else 0.0


def _compute_usual_variance(variances: Array, weights: Array) -> float:
    """Return the mean of all but the largest variances, a tenth by weight: a rare law with a wide
    spread belongs to the quantiles, not to what a plan expects."""
    order = np.argsort(variances)
    left = np.minimum(
        weights[order], np.maximum(_USUAL - np.cumsum(weights[order]) + weights[order], 0.0)
    )
    return float(left @ variances[order] / left.sum())


def add_strays(laws: Array, middle: float, strays: Array) -> Array:
    """Return laws and, with their weights, tasks that are like those of any kind, (3, s)."""
    weights, means, variances = strays
    others = np.array([weights, means - middle, variances])
    return np.concatenate([laws * [[1 - weights.sum()], [1], [1]], others], axis=1)


@dataclass(frozen=True, eq=False)
class Kinds(Mapping[str, KindPredictor]):
    """The kinds with records, each weighed when it is first predicted. ``sample_of`` a kind's
    records: of time or of memory, if there is any; ``where`` has the log scores of machines,
    relative to those of the reference."""

    records: KindRecords
    sample_of: Callable[[str, Sequence[TaskRecord]], Sample | None]
    pooled: Pooled
    where: Mapping[str, Array]
    _weighed: dict[str, KindPredictor | None] = field(default_factory=dict)

    def find(self, kind: str) -> KindPredictor | None:
        """Return a kind's predictor; None without records."""
        if kind not in self._weighed:
            records = self.records.of(kind)
            sample = self.sample_of(kind, records) if records else None
            predictor = None if sample is None else _answer(sample, self.pooled, self.where)
            self._weighed[kind] = predictor
        return self._weighed[kind]

    def __getitem__(self, kind: str) -> KindPredictor:
        result = self.find(kind)
        if result is None:
            raise KeyError(kind)
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self.records.kinds)

    def __len__(self) -> int:
        return len(self.records.kinds)


def _answer(raw: Sample, pooled: Pooled, where: Mapping[str, Array]) -> KindPredictor:
    kind, level = pooled.weigh(raw)
    laws, noises, weights = choose_laws(kind)
    used, noise_of = np.unique(noises, return_inverse=True)
    sample, level_var = kind.sample, level.sd**2
    created = np.array(sample.machines)
    places: dict[str, tuple[Array, float, float]] = {}
    for name in (*sorted({*sample.machines, *where}), _ELSEWHERE):
        there = where.get(name, np.zeros(2))
        offset = there * sample.gain
        felt = float((there - offset) @ pooled.shared.weights)
        base = (
            level_var + sample.scores @ (offset * OWN_WEIGHT_SD**2) + OWN_SD**2 * (created == name)
        )
        places[name] = (
            base,
            level_var + OWN_SD**2 + float(np.sum((offset * OWN_WEIGHT_SD) ** 2)),
            felt,
        )
    return KindPredictor(
        sample=sample,
        weights=weights,
        exponent=EXPONENT[laws],
        floor=FLOOR[laws],
        shifted=SHIFTED[laws].astype(int),
        dual=np.einsum("hnm,hm->hn", kind.inverse[noises], kind.rest[laws]),
        noise_of=noise_of,
        departure=DEPARTURE[used] ** 2,
        at_places=sample.places,
        inverse=kind.inverse[used],
        own=NOISE[noises] ** 2,
        growth=GROWTH[noises],
        repeat=repeats(sample)[noises],
        slope=float(weights @ (EXPONENT[laws] * (1 - FLOOR[laws]))),
        places=places,
        level=level.mean,
        strays=_count_strays(pooled.source(sample.source), len(sample.y)),
    )


def _count_strays(source: Source, records: int) -> Array:
    weights, means, spread = source.unseen()
    return np.array([source.strays / (source.strays + records) * weights, means, spread])
