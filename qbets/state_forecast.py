"""What the state of a queue says about a job submitted now, frozen: GETBOUND and GETPROB.

The same answers as of :class:`vgrads.qbets.forecast.QueueForecast`, which is its floor. What is
claimed is *coverage of the next job* (conformal), where QBETS claims confidence on a quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.qbets.blend import blended
from vgrads.qbets.conditional import ConditionalModel
from vgrads.qbets.conformal import HIGHEST
from vgrads.qbets.downtime import Downtime
from vgrads.qbets.forecast import Bound, QueueForecast, forecast, freeze
from vgrads.qbets.knots import wait_at
from vgrads.qbets.predictor import NOBODY, Arrival, Settings
from vgrads.qbets.queue_state import Seen
from vgrads.qbets.replay import learn_state
from vgrads.qbets.state_predictor import Choice, StatePredictor
from vgrads.traces.records import JobLog

Floats = NDArray[np.float64]
_ROUNDING = 1e-12  # of a share of scores
_HIGHEST_LEVEL = float(-np.expm1(-HIGHEST))


@dataclass(frozen=True, kw_only=True)
class LevelCurve:
    """Which score to ask for at which probability: scores that came true, ascending. As the last of
    them stands the highest that is ever asked for, so that every probability has a bound."""

    scores: Floats

    @property
    def levels(self) -> Floats:
        """The probability of each score."""
        count = len(self.scores)
        return np.append(np.arange(1, count + 1) / (count + 1), _HIGHEST_LEVEL)

    def score(self, probability: float) -> float:
        """The least score of that probability; monotone."""
        rank = int(np.searchsorted(self.levels, probability * (1 - _ROUNDING), side="left"))
        return float(self.scores[rank]) if rank < len(self.scores) else HIGHEST

    def probability(self, knots: Floats, within_s: ArrayLike) -> Floats:
        """The probabilities of these waits: of the longest wait of the curve that is no longer.
        Same shape.

        Waits are compared, as :func:`vgrads.qbets.knots.wait_at` gives them, and not scores:
        through a wait and back to a score would cost the last digits, and a bound could lie above
        the wait whose probability was asked.
        """
        waits_s = wait_at(knots, np.append(self.scores, HIGHEST))
        known = np.searchsorted(waits_s, np.asarray(within_s, dtype=np.float64), side="right")
        return np.asarray(np.append(0.0, self.levels)[known], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class StateForecast:
    """A queue at one instant. ``predictor`` is not fed any more; ``past`` is what past
    waits say in each cluster, ``asker`` says whose jobs are asked about, ``age_s`` how long ago
    that instant was: the older the state, the more past waits say."""

    floor: QueueForecast
    predictor: StatePredictor
    model: ConditionalModel
    at_s: float
    past: tuple[Floats | None, ...]
    asker: Arrival = NOBODY
    age_s: float = 0.0

    @property
    def settings(self) -> Settings:
        return self.predictor.settings

    @property
    def since_s(self) -> float:
        return self.floor.since_s

    @property
    def method(self) -> str:
        """Whose answers these are for an asker with nothing in the queue: ``state`` or
        ``qbets``."""
        return "qbets" if self.choice().whose == "qbets" else "state"

    @property
    def downtime(self) -> Downtime | None:
        return self.floor.downtime

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Every shape has answers of its own."""
        return hash((procs, walltime_s, ahead))

    def features(self, procs: int, walltime_s: float, ahead: int = 0) -> Floats:
        """What a job of the asker finds, with so many more like it waiting."""
        procs, walltime_s = self.settings.shape(procs, walltime_s)
        job = replace(self.asker, procs=procs, request_s=walltime_s)
        return self.predictor.features(job, self.at_s, ahead)

    def burst(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Number of the group of jobs that are corrected like the asker's next one."""
        shape = (procs, walltime_s)
        if shape not in self._waiting_alike:
            self._waiting_alike[shape] = self.predictor.waiting_alike(self.features(*shape))
        return self.predictor.calibration.group_of(self._waiting_alike[shape] + ahead)

    def knots(
        self, procs: int, walltime_s: float, ahead: int = 0, submit_in_s: float = 0.0
    ) -> Floats:
        """Cube roots of the waits at :data:`vgrads.qbets.conditional.LEVELS`, as blended of state
        and past waits; never less for having more of one's own ahead."""
        key = (procs, walltime_s, submit_in_s)
        known = self._knots.get(key, ())
        while len(known) <= ahead:
            shape = (procs, walltime_s, len(known))
            found = self.blend(self.features(*shape), shape, submit_in_s)
            known = (*known, np.maximum(found, known[-1]) if known else found)
        self._knots[key] = known
        return known[ahead]

    def blend(
        self, features: Floats, shape: tuple[int, float, int], submit_in_s: float = 0.0
    ) -> Floats:
        """The same for a queue that would be in another state."""
        past = self.past[self.floor.group(*shape)]
        return blended(self.model.knots(features)[0], past, self.age_s + submit_in_s)

    def choice(self, group: int = 0) -> Choice:
        """Whose answers are given to a group of jobs, and why."""
        return self.predictor.choose(group, bool(len(self.floor.waits_s[0])))

    def curve(self, procs: int, walltime_s: float, ahead: int = 0) -> LevelCurve:
        """Levels as they came true for jobs alike; from where the tail begins up to the tracked
        quantile ever more as the correction of that quantile asks for."""
        return self._curves[self.burst(procs, walltime_s, ahead)]

    @cached_property
    def _waiting_alike(self) -> dict[tuple[int, float], float]:
        return {}

    @cached_property
    def _knots(self) -> dict[tuple[int, float, float], tuple[Floats, ...]]:
        return {}

    @cached_property
    def _curves(self) -> tuple[LevelCurve, ...]:
        """Of every group; more of one's own waiting is never surer."""
        calibration, found = self.predictor.calibration, list[LevelCurve]()
        for group in range(len(calibration.groups)):
            asked = calibration.issue(group).score
            found.append(
                LevelCurve(scores=anchored(calibration.scores(group), calibration.quantile, asked))
            )
        return tuple(found)

    def waits(self, procs: int, walltime_s: float, ahead: int = 0) -> Floats:
        """What an answer rests on: scores, or the waits of QBETS where that answers."""
        if self.choice().whose == "qbets":
            return self.floor.waits(procs, walltime_s, ahead)
        return self.curve(procs, walltime_s, ahead).scores

    def bounds(
        self, procs: int, walltime_s: float, probabilities: ArrayLike, confidence: float = 0.95
    ) -> Floats:
        """GETBOUND for many probabilities at once; NaN where history is too short. Same shape
        back."""
        levels = np.asarray(probabilities, dtype=np.float64)
        group = self.burst(procs, walltime_s)
        whose = self.choice(group).whose
        if whose == "qbets":
            return self.floor.bounds(procs, walltime_s, levels, confidence)
        knots, curve = self.knots(procs, walltime_s), self._curves[group]
        scores = [curve.score(float(level)) for level in levels.ravel()]
        found = wait_at(knots, np.array(scores).reshape(levels.shape))
        if whose != "both":
            return found
        floor = self.floor.bounds(procs, walltime_s, levels, confidence)
        longest_s = self.floor.waits(procs, walltime_s).max(initial=0.0)
        return np.maximum(found, np.where(np.isnan(floor), longest_s, floor))

    def bound(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> Bound:
        """The wait that is not exceeded with this probability; whose answer it is stands in
        ``method``: of the larger of both, ``qbets`` where that was the larger.
        """
        found = float(self.bounds(procs, walltime_s, probability, confidence))
        if self.choice(self.burst(procs, walltime_s)).whose != "state":
            floor = self.floor.bound(procs, walltime_s, probability, confidence)
            if self.method == "qbets" or found == floor.bound_s:
                return floor
        return Bound(
            bound_s=found,
            probability=probability,
            confidence=confidence,
            method="state",
            jobs=len(self.curve(procs, walltime_s).scores),
            since_s=self.since_s,
            cluster=self.floor.cluster(procs, walltime_s),
            reason=None,
        )

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,
        ahead: int = 0,
        submit_in_s: float = 0.0,
    ) -> Floats:
        """The probability of waiting at most ``within_s`` from ``submit_in_s`` on; same shape. The
        inverse of the bounds."""
        times = np.asarray(within_s, dtype=np.float64)
        first, last = (self.burst(procs, walltime_s, n) for n in (0, ahead))
        whose = self.choice(last).whose
        if whose == "qbets":
            return self.floor.probability(procs, walltime_s, times, confidence, ahead)
        knots = self.knots(procs, walltime_s, ahead, submit_in_s)
        groups = self._curves[first : last + 1]  # surer for none of them
        found: Floats = np.min([curve.probability(knots, times) for curve in groups], axis=0)
        if whose != "both":
            return found
        floor = self.floor.probability(procs, walltime_s, times, confidence, ahead)
        longest_s = self.floor.waits(procs, walltime_s, ahead).max(initial=0.0)
        return np.where(times < longest_s, np.minimum(found, floor), found)  # beyond: nothing known

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """P(a job that is submitted in ``submit_in_s`` has started by ``by_s``), both from now."""
        within_s = by_s - submit_in_s
        return float(self.probability(procs, walltime_s, within_s, submit_in_s=submit_in_s))

    def told(self, waiting: Sequence[Seen], running: Sequence[Seen], at_s: float) -> StateForecast:
        """The same for the queue as its site tells of it at a later instant."""
        predictor = copy(self.predictor)
        predictor.state = predictor.state.told(waiting, running, at_s)
        return replace(self, predictor=predictor, at_s=at_s, age_s=0.0)


def anchored(scores: Floats, quantile: float, asked: float) -> Floats:
    """Ascending scores, bent so that ``quantile`` of them lie below ``asked``, and unbent in the
    body as far as they stay ascending."""
    count = len(scores)
    plain = LevelCurve(scores=scores).score(quantile)
    levels = np.arange(1, count + 1) / (count + 1)
    body = 2 * quantile - 1  # as far below the quantile as that is from 1
    share = np.clip((levels - body) / (quantile - body), 0.0, 1.0)
    bent = scores * (1.0 + share * (asked / max(plain, 1e-9) - 1.0))
    if asked >= plain:
        return np.maximum.accumulate(bent)
    return np.minimum.accumulate(bent[::-1])[::-1]  # the body gives way, not the quantile


def freeze_state(
    predictor: StatePredictor, at_s: float, first_s: float, asker: Arrival = NOBODY
) -> StateForecast | QueueForecast:
    """What a predictor knows now, apart from it: it may be fed on. ``first_s``: beginning of its
    history."""
    floor = freeze(predictor.floor, first_s, asker)
    if predictor.model is None:
        return floor
    return StateForecast(
        floor=floor,
        predictor=predictor.frozen(),
        model=predictor.model,
        at_s=at_s,
        past=predictor.past.every(predictor.floor),
        asker=asker,
    )


Known = StateForecast | QueueForecast
"""What is known of a queue at one instant: by its state, or by past waits where that is too
little."""


def aged(known: Known, by_s: float) -> Known:
    """What is known, so much later, with nothing new to know; past waits stay as they are."""
    return replace(known, age_s=known.age_s + by_s) if isinstance(known, StateForecast) else known


def known_of(log: JobLog, at_s: float, settings: Settings, asker: Arrival = NOBODY) -> Known:
    """What was known at ``at_s``, by the method that the settings name."""
    learn_it = forecast_state if settings.looks_at_state else forecast
    return learn_it(log, at_s, settings, asker)


def forecast_state(log: JobLog, at_s: float, settings: Settings, asker: Arrival = NOBODY) -> Known:
    """What was known at ``at_s``; QBETS's forecast where there is too little to learn from."""
    predictor = learn_state(log, settings, at_s)
    if predictor is None or predictor.model is None:
        return forecast(log, at_s, replace(settings, method="qbets"), asker)
    return freeze_state(predictor, at_s, float(log.submit_s[0]), asker)
