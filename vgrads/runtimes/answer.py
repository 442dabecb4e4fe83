"""Prediction for one kind: the plausible laws, mixed into one mean and its variances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, log

import numpy as np

from vgrads.runtimes.laws import (
    DEPARTURE,
    EXPONENT,
    FLOOR,
    GROWTH,
    NOISE,
    RANGE,
    REPEAT,
    SHIFTED,
    Array,
    ratios,
)
from vgrads.runtimes.machines import OWN_SD, OWN_WEIGHT_SD
from vgrads.runtimes.pooling import Pooled
from vgrads.runtimes.samples import PROCS_POWER, PROCS_SD, Sample
from vgrads.runtimes.weighing import MOST_SHORTER, Weighed, retained_laws

_ELSEWHERE = "\0"
"""Name for any machine without data; no real machine has it."""
_FARTHEST = 40.0
"""Limit of sizes, in e-folds from the middle; larger ones are cut to it."""


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
    inverse: Array  # (e, n, n)
    own: Array  # (h,) squared
    growth: Array  # (h,)
    repeat: float  # squared
    slope: float
    places: Mapping[
        str, tuple[Array, float, float]
        # by machine: covariance (n,) with the observations, and with itself; the kind's own
        # deviation from its scores
    ]
    level: float

    def at(self, machine: str, size: float | None, procs: int) -> tuple[float, float, float]:
        """Return the mean of the logarithm without shared parts, the variance of the kind's
        uncertainty, its own variance."""
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
        cross = base + self.departure[:, None] * np.exp(np.abs(sample.x - x) / -RANGE)
        over = ratios(np.array([x]), sample.least)[self.shifted, 0]
        law = np.log(self.floor + (1 - self.floor) * np.exp(self.exponent * over))
        means = law + (cross[self.noise_of] * self.dual).sum(1)
        spread = (
            total + self.departure - ((cross[:, None, :] @ self.inverse)[:, 0, :] * cross).sum(1)
        )
        middle = float(self.weights @ means)
        between = float(self.weights @ (means - middle) ** 2)
        middle += mean
        shorter = min(max(sample.longest - middle, 0.0), MOST_SHORTER)
        own = float(self.weights @ (self.own * np.exp(self.growth * (2 * shorter)))) + extra
        kind = between + self.repeat + float(self.weights @ spread[self.noise_of])
        return middle, max(kind, 0.0), own


def answers(pooled: Pooled, where: Mapping[str, Array]) -> dict[str, KindPredictor]:
    """Return predictors by kind; ``where`` has the log scores of machines, relative to those of the
    reference."""
    return {kind.sample.kind: _answer(kind, pooled, where) for kind in pooled.kinds}


def _answer(kind: Weighed, pooled: Pooled, where: Mapping[str, Array]) -> KindPredictor:
    laws, noises, weights = retained_laws(kind)
    used, noise_of = np.unique(noises, return_inverse=True)
    sample, level_var = kind.sample, pooled.level.sd**2
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
        inverse=kind.inverse[used],
        own=NOISE[noises] ** 2,
        growth=GROWTH[noises],
        repeat=float(weights @ REPEAT[noises] ** 2),
        slope=float(weights @ (EXPONENT[laws] * (1 - FLOOR[laws]))),
        places=places,
        level=pooled.level.mean,
    )
