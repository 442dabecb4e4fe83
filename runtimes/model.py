"""The model: everything learned, brought into the form in which one question takes a tenth of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot, log, sqrt

import numpy as np

from kernel.errors import InputError
from runtimes.known import Known
from runtimes.laws import (
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
from runtimes.machines import (
    OWN_SD,
    OWN_WEIGHT_SD,
    SCORED_SD,
    UNSCORED_SD,
    Scores,
    checked,
    offsets,
    reference,
)
from runtimes.pooling import Pooled, Shared, pool
from runtimes.prediction import Prediction, Source
from runtimes.samples import PROCS_POWER, PROCS_SD, Sample, memories, times
from runtimes.weighing import MOST_SHORTER, Weighed, kept

STATED_WEIGHT = 4.0
"""Observations that a value which a person states counts for, as for boot times (``vgrid.binding``)."""
STATED_SD = 0.5
"""Of the logarithm of a true median about what a person states: two thirds within a factor 1.6."""
GUESS_OWN = 0.3
"""Standard deviation of one task of a kind of which nothing is known."""


@dataclass(frozen=True, eq=False)
class Answer:
    """One kind, ready to be asked: ``n`` observations, ``h`` laws with noises that matter, ``e`` noises."""

    sample: Sample
    weights: Array  # (h,)
    exponent: Array  # (h,)
    floor: Array  # (h,)
    shifted: np.ndarray  # (h,) 1 where the law has an offset
    dual: Array  # (h, n): inverse covariance times what the law leaves
    noise_of: np.ndarray  # (h,) in e
    departure: Array  # (e,) squared
    inverse: Array  # (e, n, n)
    own: Array  # (h,) squared
    growth: Array  # (h,)
    repeat: float
    slope: float
    places: Mapping[str, Array]  # (n,) 1 where the observation was made at that machine
    level_mean: float
    level_var: float

    def at(
        self, machine: str, scores: Array, size: float | None, procs: int
    ) -> tuple[float, float, float]:
        """Mean of the logarithm without what is shared, variance of what is unknown of the kind, own variance."""
        sample = self.sample
        x, extra = 0.0, 0.0
        if size is not None and size > 0 and not np.isnan(sample.centre):
            x = log(size) - sample.centre
        else:
            extra = (self.slope * sample.spread) ** 2
        near = self.places.get(machine)
        base = np.full(len(sample.y), self.level_var)
        own_weights = scores * OWN_WEIGHT_SD**2
        total = self.level_var + OWN_SD**2 + float(scores @ own_weights)
        base += sample.scores @ own_weights
        if near is not None:
            base += OWN_SD**2 * near
        mean = self.level_mean
        if sample.several:
            many = log(procs) - sample.usual
            mean += PROCS_POWER * many
            base += PROCS_SD**2 * many * sample.procs
            total += (PROCS_SD * many) ** 2
        cross = base + self.departure[:, None] * np.exp(np.abs(sample.x - x) / -RANGE)
        over = ratios(np.array([x]), sample.least)[self.shifted, 0]
        law = np.log(self.floor + (1 - self.floor) * np.exp(self.exponent * over))
        means = mean + law + (cross[self.noise_of] * self.dual).sum(1)
        spread = (
            total + self.departure - ((cross[:, None, :] @ self.inverse)[:, 0, :] * cross).sum(1)
        )
        middle = float(self.weights @ means)
        between = float(self.weights @ (means - middle) ** 2)
        shorter = min(max(sample.longest - middle, 0.0), MOST_SHORTER)
        own = float(self.weights @ (self.own * np.exp(self.growth * (2 * shorter)))) + extra
        between += self.repeat
        return middle, max(between + float(self.weights @ spread[self.noise_of]), 0.0), own


@dataclass(frozen=True, eq=False)
class Model:
    """What was learned; ``reference`` is the machine of speed 1 ("" where no machine is known by name)."""

    reference: str
    times: Mapping[str, Answer]
    memory: Mapping[str, Answer]
    shared: Shared
    scores: Mapping[str, Array]
    scored: frozenset[str]
    level: float
    level_sd: float
    observations: int

    def speed(self, machine: str) -> tuple[float, float]:
        """(times as fast as the reference, standard deviation of its logarithm)."""
        shift, sd = self._machine(machine)
        return exp(-shift), sd

    def predict(
        self, kind: str, machine: str = "", input_bytes: float | None = None, procs: int = 1,
        stated_s: float | None = None,
    ) -> Prediction:  # fmt: skip
        """How long a task of ``kind`` takes at ``machine`` ("": the reference).

        ``stated_s`` is what a person says it takes at the reference. InputError for impossible numbers.
        """
        _check(input_bytes, procs, stated_s)
        machine = machine or self.reference
        shift, machine_sd = self._machine(machine)
        found = self.times.get(kind)
        memory = self._memory(kind, input_bytes)
        source: Source = "guess"
        if found is None:
            level, kind_var, own, seen = self.level, self.level_sd**2, GUESS_OWN**2, 0
        else:
            level, kind_var, own = found.at(machine, self._offset(machine), input_bytes, procs)
            seen, source = len(found.sample.y), "learned"
        if stated_s is not None:
            weight = STATED_WEIGHT / (STATED_WEIGHT + seen)
            level = weight * log(stated_s) + (1 - weight) * level
            kind_var = (weight * STATED_SD) ** 2 + (1 - weight) ** 2 * kind_var
            source = "learned" if seen >= STATED_WEIGHT else "stated"
        return Prediction(
            median_s=exp(level + shift), own=sqrt(own), kind=sqrt(kind_var), machine=machine_sd,
            workflow=self.shared.run_sd, observations=seen, source=source,
            memory_bytes=memory and memory[0], memory_sd=memory and memory[1],
        )  # fmt: skip

    def _offset(self, machine: str) -> Array:
        return self.scores.get(machine, _ZERO)

    def _machine(self, machine: str) -> tuple[float, float]:
        """What all tasks at a machine have in common: logarithm of time over that at the reference, and its sd."""
        if machine in ("", self.reference):
            return 0.0, 0.0
        scores = self._offset(machine)
        scored = machine in self.scored
        extra, sd = self.shared.machines.get(machine, (0.0, SCORED_SD if scored else UNSCORED_SD))
        known = float(scores @ self.shared.weights_cov @ scores) if scored else 0.0
        if machine in self.shared.machines:
            known = 0.0  # its departure was solved for together with the weights
        return extra - float(scores @ self.shared.weights), hypot(sd, sqrt(known))

    def _memory(self, kind: str, size: float | None) -> tuple[float, float] | None:
        found = self.memory.get(kind)
        if found is None:
            return None
        mean, variance, own = found.at("", _ZERO, size, 1)
        return exp(mean), sqrt(variance + own)


_ZERO = np.zeros(2)


def fit(known: Known, scores: Mapping[str, Scores] | None = None) -> Model:
    """The model of all that is known; ``scores`` of a benchmark by machine, where there are any."""
    told = checked(scores or {})
    base = reference(known.records, told)
    names = sorted({record.machine for record in known.records} | set(told))
    where = offsets(names, base, told)
    scored = frozenset(told) if base in told else frozenset()
    rows = {kind: known.of(kind) for kind in known.kinds}
    found = pool([times(kind, some, where) for kind, some in rows.items()], base, scored)
    peaks = [sample for kind, some in rows.items() if (sample := memories(kind, some))]
    memory = pool(peaks, "", frozenset())
    return Model(
        reference=base, times=_answers(found), memory=_answers(memory), shared=found.shared, scores=where,
        scored=scored, level=found.level.mean,
        level_sd=found.level.sd * sqrt(1 + 1 / (1 + found.level.kinds)), observations=len(known.records),
    )  # fmt: skip


def _answers(found: Pooled) -> dict[str, Answer]:
    return {kind.sample.kind: _answer(kind, found) for kind in found.kinds}


def _answer(kind: Weighed, found: Pooled) -> Answer:
    laws, noises, weights = kept(kind)
    used, noise_of = np.unique(noises, return_inverse=True)
    sample = kind.sample
    places = np.array(sample.machines)
    return Answer(
        sample=sample, weights=weights, exponent=EXPONENT[laws], floor=FLOOR[laws],
        shifted=SHIFTED[laws].astype(int),
        dual=np.einsum("hnm,hm->hn", kind.inverse[noises], kind.rest[laws]), noise_of=noise_of,
        departure=DEPARTURE[used] ** 2, inverse=kind.inverse[used], own=NOISE[noises] ** 2,
        growth=GROWTH[noises], repeat=float(weights @ REPEAT[noises] ** 2),
        slope=float(weights @ (EXPONENT[laws] * (1 - FLOOR[laws]))),
        places={str(name): (places == name).astype(float) for name in np.unique(places)},
        level_mean=found.level.mean, level_var=found.level.sd**2,
    )  # fmt: skip


def _check(input_bytes: float | None, procs: int, stated_s: float | None) -> None:
    if stated_s is not None and not 0 < stated_s < np.inf:
        raise InputError("a stated run time must be a positive number of seconds")
    if input_bytes is not None and not 0 <= input_bytes < np.inf:
        raise InputError("a size must be a number of bytes")
    if procs < 1:
        raise InputError("a task needs at least one processor")
