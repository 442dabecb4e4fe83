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
from numpy.typing import ArrayLike

from vgrads.kernel.arrays import Floats, Ints
from vgrads.qbets.blend import blend_predictions
from vgrads.qbets.bounds import compute_minimum_history, explain_highest_level
from vgrads.qbets.conditional import ConditionalModel, average_knots
from vgrads.qbets.conformal import Calibration
from vgrads.qbets.correction_pass import (
    MethodChoice,
    choose_method,
    derive_marks,
    derive_waiting_group,
)
from vgrads.qbets.downtime import Downtime
from vgrads.qbets.events import list_users
from vgrads.qbets.forecast import Bound, QueueForecast, forecast, freeze
from vgrads.qbets.knots import wait_at
from vgrads.qbets.level_curve import LevelCurve
from vgrads.qbets.predictor import NOBODY, UNJUDGED, IssuedRecord, JobArrival, Settings
from vgrads.qbets.replay import learn_state
from vgrads.qbets.state.queue_state import QueueState, TimedArrival
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.qbets.viewed_log import bound_runs, end_of
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.records import JobLog


class JobClass(NamedTuple):
    """Classes of a job for the correction: the number of its group, and its marks."""

    group: int
    marks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StateForecast:
    """A queue at one instant. ``past`` holds the quantiles of past waits in each cluster, ``asker``
    is the user and the queue of the jobs in question, ``age_s`` is the time since that instant: the
    older the state, the more weight past waits have. ``replaced``: how far, from 0 to 1, the newest
    model and the ``calibration`` have replaced what was learned before: the oldest model and the
    ``earlier`` calibration."""

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
    earlier: Calibration | None = None
    replaced: float = 1.0
    record: IssuedRecord = UNJUDGED

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
            alike = float(derive_waiting_group(features, self.settings.knows_user))
            self._classes[shape] = alike, derive_marks(features)
        alike, marks = self._classes[shape]
        return JobClass(Calibration.group_of(alike + ahead), marks)

    def knots(
        self, procs: int, walltime_s: float, ahead: int = 0, submit_in_s: float = 0.0
    ) -> Floats:
        """Return cube roots of the waits at :data:`vgrads.qbets.conditional.LEVELS`, blended from
        state and past waits; never less with more own jobs ahead."""
        key = (procs, walltime_s, submit_in_s)
        knots = self._knots.get(key, ())
        # each number ahead from 0 on, because a quantile must not fall below that with one job less
        while len(knots) <= ahead:
            shape = (procs, walltime_s, len(knots))
            result = self.blend(self.features(*shape), shape, submit_in_s)
            knots = (*knots, np.maximum(result, knots[-1]) if knots else result)
        self._knots[key] = knots
        return knots[ahead]

    def blend(
        self, features: Floats, shape: tuple[int, float, int], submit_in_s: float = 0.0
    ) -> Floats:
        """Return the same for a queue in another state."""
        past = self.past[self.floor.group(*shape)]
        # rounded like the stored features: a threshold must divide both in the same way
        rows = features.astype(np.float32).astype(np.float64)[None]  # as they are learned
        state = average_knots(self.models, rows, self.replaced)[0]
        return blend_predictions(state, past, self.age_s + submit_in_s)

    def choice(self, group: int = 0) -> MethodChoice:
        """Return the method for a group of jobs, and the reason."""
        settings, waits = self.settings, len(self.floor.waits_s[0])
        # as in a replay, where too few waits have no bound; several clusters have enough each
        bound = waits >= compute_minimum_history(settings.quantile, settings.confidence)
        return choose_method(self.calibration, self.judged, group, bound, settings.knows_user)

    def curve(self, procs: int, walltime_s: float, ahead: int = 0) -> LevelCurve:
        """Return the observed levels of similar jobs."""
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
            curve, *earlier = (
                calibration.curve(job.group, calibration.issue(*job))
                for calibration in (self.calibration, self.earlier)
                if calibration is not None
            )
            for other in earlier:
                curve = curve.replacing(other, self.replaced)
            self._curves[job] = curve
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
        # where history is too short for a bound of QBETS, its longest wait counts
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
            reason=None if supported else explain_highest_level(outcomes, "outcome"),
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


def find_present(log: JobLog, settings: Settings, at_s: float | None = None) -> PresentQueue | None:
    """Return the jobs that wait and run when a history is taken, or at an instant before. None
    where it does not list waiting jobs, or none of these was submitted by then: then the events of
    the history show the queue."""
    waiting = log.waiting
    if waiting is None:
        return None
    now_s = waiting.taken_s if at_s is None else min(at_s, waiting.taken_s)
    listed = waiting.select(waiting.submit_s <= now_s)
    if now_s < waiting.taken_s and not len(listed):
        return None
    users = list_users(log)
    identified = bool(len(users) and users[0] >= 0)
    listed_users = listed.user if identified else np.full(len(listed), -1)
    # jobs that waited at that instant, and have started since
    later = np.flatnonzero((log.submit_s <= now_s) & (log.start_s > now_s))
    ran_s = now_s - log.start_s
    # the next larger number: a job exactly at the limit still counts as running
    until_s = np.where(log.run_s < 0, np.nextafter(bound_runs(log), np.inf), log.run_s)
    runs = np.flatnonzero(log.started & (ran_s >= 0) & (ran_s < until_s))

    def arrivals(ages_s: Floats, *columns: Ints | Floats) -> list[TimedArrival]:
        rows = zip(ages_s.tolist(), *(column.tolist() for column in columns), strict=True)
        return [
            (age_s, JobArrival(*settings.shape(procs, request_s), user, queue))
            for age_s, procs, request_s, user, queue in rows
        ]

    def of_rows(rows: Ints, since_s: Floats) -> list[TimedArrival]:
        columns = (log.procs, log.request_s, users, log.queue)
        return arrivals(now_s - since_s[rows], *(column[rows] for column in columns))

    still = arrivals(
        now_s - listed.submit_s, listed.procs, listed.request_s, listed_users, listed.queue
    )
    return PresentQueue(
        taken_s=now_s,
        waiting=still + of_rows(later, log.submit_s),
        running=of_rows(runs, log.start_s),
    )


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
        earlier=None if correction.earlier is None else correction.earlier.calibration.frozen(),
        replaced=predictor.replaced,
        record=predictor.record_of(asker.queue),
    )


AnyForecast = StateForecast | QueueForecast
"""Forecast of a queue at one instant: by its state, or by past waits if that has too little data.
"""


def find_instant(forecast: AnyForecast, log: JobLog) -> float:
    """Return the instant of the log at which its end was learned."""
    if isinstance(forecast, StateForecast):
        return forecast.at_s
    return end_of(log, forecast.settings.view)


def age_forecast(forecast: AnyForecast, by_s: float) -> AnyForecast:
    """Return the forecast after this time without new information; past waits are unchanged."""
    return (
        replace(forecast, age_s=forecast.age_s + by_s)
        if isinstance(forecast, StateForecast)
        else forecast
    )


def choose_user(forecast: AnyForecast, user: int) -> AnyForecast:
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
