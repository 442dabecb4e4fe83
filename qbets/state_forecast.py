"""Forecast for a job submitted now from the state of a queue, frozen: GETBOUND and GETPROB.

The interface of :class:`vgrads.qbets.forecast.QueueForecast`, which is its floor. It claims
*coverage of the next job* (conformal), while QBETS claims confidence on a quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.qbets.blend import blended
from vgrads.qbets.bounds import ROUNDING, beyond
from vgrads.qbets.conditional import ConditionalModel, mean_knots
from vgrads.qbets.conformal import HIGHEST, Calibration
from vgrads.qbets.correction_pass import MethodChoice, choose_method, marks_from, waiting_alike
from vgrads.qbets.downtime import Downtime
from vgrads.qbets.events import users_of
from vgrads.qbets.forecast import Bound, QueueForecast, forecast, freeze
from vgrads.qbets.knots import wait_at
from vgrads.qbets.predictor import NOBODY, JobArrival, Settings
from vgrads.qbets.replay import learn_state
from vgrads.qbets.state.queue_state import QueueState, TimedArrival
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.records import JobLog

Floats = NDArray[np.float64]
_GRACE_S, _FORGOTTEN_S = 86400.0, 30 * 86400.0
"""A record without an end, of a job that would run for longer than it may (or than this, if no
limit is stated), is of a job whose end was not recorded."""


class JobClass(NamedTuple):
    """Classes of a job for the correction: the number of its group, and its marks."""

    group: int
    marks: tuple[int, ...]


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


@dataclass(frozen=True, kw_only=True)
class StateForecast:
    """A queue at one instant. ``past`` holds the quantiles of past waits in each cluster, ``asker``
    is the user and the queue of the jobs in question, ``age_s`` is the time since that instant: the
    older the state, the more weight past waits have."""

    floor: QueueForecast
    settings: Settings
    state: QueueState
    models: tuple[ConditionalModel, ...]
    calibration: Calibration
    judged: int
    at_s: float
    unix_start_s: float
    past: tuple[Floats | None, ...]
    asker: JobArrival = NOBODY
    age_s: float = 0.0

    @property
    def since_s(self) -> float:
        return self.floor.since_s

    @property
    def method(self) -> str:
        """The method for a user with nothing in the queue: ``state`` or ``qbets``."""
        return "qbets" if self.choice().whose == "qbets" else "state"

    @property
    def downtime(self) -> Downtime | None:
        return self.floor.downtime

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Return a different group for every shape."""
        return hash((procs, walltime_s, ahead))

    def features(self, procs: int, walltime_s: float, ahead: int = 0) -> Floats:
        """Return the features of a job of the user, with ``ahead`` more like it waiting."""
        procs, walltime_s = self.settings.shape(procs, walltime_s)
        job = replace(self.asker, procs=procs, request_s=walltime_s)
        state = self.state.with_waiting(job, self.at_s, ahead) if ahead else self.state
        return state.features(self.settings.as_question(job), self.at_s, self.unix_start_s)

    def job_class(self, procs: int, walltime_s: float, ahead: int = 0) -> JobClass:
        """Return the classes by which the level of the user's next job is corrected."""
        shape = (procs, walltime_s)
        if shape not in self._classes:
            features = self.features(*shape)
            alike = float(waiting_alike(features, self.settings.knows_user))
            self._classes[shape] = alike, marks_from(features)
        alike, marks = self._classes[shape]
        return JobClass(Calibration.group_of(alike + ahead), marks)

    def knots(
        self, procs: int, walltime_s: float, ahead: int = 0, submit_in_s: float = 0.0
    ) -> Floats:
        """Return cube roots of the waits at :data:`vgrads.qbets.conditional.LEVELS`, blended from
        state and past waits; never less with more own jobs ahead."""
        key = (procs, walltime_s, submit_in_s)
        existing = self._knots.get(key, ())
        while len(existing) <= ahead:
            shape = (procs, walltime_s, len(existing))
            result = self.blend(self.features(*shape), shape, submit_in_s)
            existing = (*existing, np.maximum(result, existing[-1]) if existing else result)
        self._knots[key] = existing
        return existing[ahead]

    def blend(
        self, features: Floats, shape: tuple[int, float, int], submit_in_s: float = 0.0
    ) -> Floats:
        """Return the same for a queue in another state."""
        past = self.past[self.floor.group(*shape)]
        rows = features.astype(np.float32).astype(np.float64)[None]  # as they are learned
        return blended(mean_knots(self.models, rows)[0], past, self.age_s + submit_in_s)

    def choice(self, group: int = 0) -> MethodChoice:
        """Return the method for a group of jobs, and the reason."""
        existing = bool(len(self.floor.waits_s[0]))
        knows_user = self.settings.knows_user
        return choose_method(self.calibration, self.judged, group, existing, knows_user)

    def curve(self, procs: int, walltime_s: float, ahead: int = 0) -> LevelCurve:
        """Return the observed levels of similar jobs; from the beginning of the tail up to the
        tracked quantile, the correction of that quantile is applied increasingly."""
        return self._curve(self.job_class(procs, walltime_s, ahead))

    @cached_property
    def _classes(self) -> dict[tuple[int, float], tuple[float, tuple[int, ...]]]:
        return {}

    @cached_property
    def _knots(self) -> dict[tuple[int, float, float], tuple[Floats, ...]]:
        return {}

    @cached_property
    def _curves(self) -> dict[JobClass, LevelCurve]:
        return {}

    def _curve(self, job: JobClass) -> LevelCurve:
        if job not in self._curves:
            calibration = self.calibration
            requested = calibration.issue(job.group, job.marks).score
            scores = anchored(calibration.scores(job.group), calibration.quantile, requested)
            self._curves[job] = LevelCurve(scores=scores)
        return self._curves[job]

    def waits(self, procs: int, walltime_s: float, ahead: int = 0) -> Floats:
        """Return the basis of a forecast: scores, or the waits of QBETS if that is the method."""
        if self.choice().whose == "qbets":
            return self.floor.waits(procs, walltime_s, ahead)
        return self.curve(procs, walltime_s, ahead).scores

    def bounds(
        self, procs: int, walltime_s: float, probabilities: ArrayLike, confidence: float = 0.95
    ) -> Floats:
        """Return GETBOUND for many probabilities at once; NaN if history is too short for one. The
        result has the same shape."""
        levels = np.asarray(probabilities, dtype=np.float64)
        job = self.job_class(procs, walltime_s)
        whose = self.choice(job.group).whose
        if whose == "qbets":
            return self.floor.bounds(procs, walltime_s, levels, confidence)
        knots, curve = self.knots(procs, walltime_s), self._curve(job)
        scores = [curve.score(float(level)) for level in levels.ravel()]
        result = wait_at(knots, np.array(scores).reshape(levels.shape))
        if whose != "both":
            return result
        floor = self.floor.bounds(procs, walltime_s, levels, confidence)
        longest_s = self.floor.waits(procs, walltime_s).max(initial=0.0)
        return np.maximum(result, np.where(np.isnan(floor), longest_s, floor))

    def bound(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> Bound:
        """Return the wait that is not exceeded with this probability, with its ``method``: for the
        larger of both, ``qbets`` if that was the larger. None if outcomes do not support it."""
        value = float(self.bounds(procs, walltime_s, probability, confidence))
        if self.choice(self.job_class(procs, walltime_s).group).whose != "state":
            floor = self.floor.bound(procs, walltime_s, probability, confidence)
            if self.method == "qbets" or value == floor.bound_s:
                return floor
        outcomes = len(self.curve(procs, walltime_s).scores)
        supported = not math.isnan(value)
        return Bound(
            bound_s=value if supported else None,
            probability=probability,
            confidence=confidence,
            method="state",
            jobs=outcomes,
            since_s=self.since_s,
            cluster=self.floor.cluster(procs, walltime_s),
            reason=None if supported else beyond(outcomes, "outcome"),
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
        """Return the probability of waiting at most ``within_s`` from ``submit_in_s`` on; same
        shape. The inverse of the bounds."""
        times = np.asarray(within_s, dtype=np.float64)
        first, last = (self.job_class(procs, walltime_s, n) for n in (0, ahead))
        whose = self.choice(last.group).whose
        if whose == "qbets":
            return self.floor.probability(procs, walltime_s, times, confidence, ahead)
        knots = self.knots(procs, walltime_s, ahead, submit_in_s)
        groups = range(first.group, last.group + 1)  # the lowest probability of all
        curves = [self._curve(first._replace(group=group)) for group in groups]
        result: Floats = np.min([curve.probability(knots, times) for curve in curves], axis=0)
        if whose != "both":
            return result
        floor = self.floor.probability(procs, walltime_s, times, confidence, ahead)
        longest_s = self.floor.waits(procs, walltime_s, ahead).max(initial=0.0)
        return np.where(
            times < longest_s, np.minimum(result, floor), result
        )  # no information beyond

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """Return P(a job that is submitted in ``submit_in_s`` has started by ``by_s``), both from
        now."""
        within_s = by_s - submit_in_s
        return float(self.probability(procs, walltime_s, within_s, submit_in_s=submit_in_s))

    def with_queue(self, present: PresentQueue) -> StateForecast:
        """Return the same for the queue as it was listed at a later instant; past waits are
        unchanged."""
        state = self.state.with_queue(present.waiting, present.running, present.taken_s)
        return replace(self, state=state, at_s=present.taken_s, age_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentQueue:
    """The jobs of a machine that wait and run at an instant of its history's clock, with the
    seconds since their submission or start: as its site lists them, or as a history does that was
    taken then."""

    taken_s: float
    waiting: Sequence[TimedArrival] = ()
    running: Sequence[TimedArrival] = ()


def present_of_history(log: JobLog, settings: Settings) -> PresentQueue | None:
    """Return the jobs that wait and run when a history was taken; None where it does not list
    waiting jobs."""
    waiting = log.waiting
    if waiting is None:
        return None
    shape = settings.shape
    users = users_of(log)
    identified = bool(len(users) and users[0] >= 0)

    def arrival(procs: int, request_s: float, user: int, queue: int) -> JobArrival:
        return JobArrival(*shape(procs, request_s), user if identified else -1, queue)

    columns = (waiting.procs, waiting.request_s, waiting.user, waiting.queue)
    waits = [
        (waiting.taken_s - submit_s, arrival(*job))
        for submit_s, *job in zip(
            waiting.submit_s.tolist(), *(column.tolist() for column in columns), strict=True
        )
    ]
    ran_s = waiting.taken_s - log.start_s
    longest_s = np.where(log.request_s > 0, log.request_s + _GRACE_S, _FORGOTTEN_S)
    runs = np.flatnonzero(log.started & (log.run_s < 0) & (ran_s >= 0) & (ran_s <= longest_s))
    running = [
        (
            float(ran_s[row]),
            arrival(
                int(log.procs[row]),
                float(log.request_s[row]),
                int(users[row]),
                int(log.queue[row]),
            ),
        )
        for row in runs
    ]
    return PresentQueue(taken_s=waiting.taken_s, waiting=waits, running=running)


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


def freeze_state(
    predictor: StatePredictor, at_s: float, first_s: float, asker: JobArrival = NOBODY
) -> StateForecast | QueueForecast:
    """Freeze the current knowledge of a predictor, separately: the predictor may be updated
    further. ``first_s``: beginning of its history."""
    floor = freeze(predictor.floor, first_s).for_user(asker.user)
    if not predictor.models:
        return floor
    correction = predictor.correction
    return StateForecast(
        floor=floor,
        settings=predictor.settings,
        state=predictor.state.separate(),
        models=tuple(predictor.models),
        calibration=correction.calibration.frozen(),
        judged=correction.judged,
        at_s=at_s,
        unix_start_s=predictor.unix_start_s,
        past=predictor.past.every(predictor.floor, predictor.count),
        asker=asker,
    )


AnyForecast = StateForecast | QueueForecast
"""Forecast of a queue at one instant: by its state, or by past waits if that has too little data.
"""


def aged(forecast: AnyForecast, by_s: float) -> AnyForecast:
    """Return the forecast after this time without new information; past waits are unchanged."""
    return (
        replace(forecast, age_s=forecast.age_s + by_s)
        if isinstance(forecast, StateForecast)
        else forecast
    )


def for_user(forecast: AnyForecast, user: int) -> AnyForecast:
    """Return the forecast for questions of a user of its log, by number."""
    if not isinstance(forecast, StateForecast):
        return forecast.for_user(user)
    asker = replace(forecast.asker, user=user)
    return replace(forecast, asker=asker, floor=forecast.floor.for_user(user))


Learn = Callable[[JobLog, Settings, float], StatePredictor]
"""How a history is learned up to an instant: :func:`vgrads.qbets.replay.learn_state`, or the same
from a stored replay."""


def make_forecast(
    log: JobLog,
    at_s: float,
    settings: Settings,
    queue: LogQueue = None,
    learn: Learn = learn_state,
) -> AnyForecast:
    """Return the forecast at ``at_s`` for jobs of a queue of the log, by the method of the
    settings.

    The state is that of the whole machine, whose queues share it; past waits alone, the answer
    while there is too little to learn from, are those of the queue.
    """
    if settings.looks_at_state:
        asker = JobArrival(queue=log.largest_queue(queue))
        named = replace(settings, knows_queue=settings.knows_queue and asker.queue >= 0)
        result = forecast_state(log, at_s, named, asker, learn)
        if queue is None or isinstance(result, StateForecast):
            return result
        settings = replace(settings, method="qbets")
    return forecast(log.only_queue(queue), at_s, settings)


def forecast_state(
    log: JobLog,
    at_s: float,
    settings: Settings,
    asker: JobArrival = NOBODY,
    learn: Learn = learn_state,
) -> AnyForecast:
    """Return the forecast at ``at_s`` from the state of the queue; QBETS's forecast if there is
    too little to learn from."""
    predictor = learn(log, settings, at_s)
    return freeze_state(predictor, at_s, float(log.submit_s[0]) if len(log) else 0.0, asker)
