"""Virtual reservations that wait as long as real jobs did. (``vgrads study varq --recorded``)

A reservation of N processors for W seconds from T on is requested at t: with the processors of a
real job that arrives between t and T, uniformly distributed. T − t is at most half of that job's
requested time, W the rest of it: submitted at once the reservation requests W + T − t, a time that
users of that site really request. (A part of it nobody requests: forecasts state more for such a
job, and no real job shows whether it would wait less.) A policy, which has no information about
that job but its queue, chooses the instant of submission s; from there on the reservation waits as
long as a real job of like shape, or as the nearest (:mod:`vgrads_studies.waits.varq_like_jobs`).
Where there is none the question is skipped, and the share of these is reported.

- ``now``: at once, whatever the probability;
- ``once``: the latest instant of the trajectory from past waits, chosen at the request (the paper's
  way);
- ``plain``: the latest instant that reaches the probability by the forecast (for an external user),
  by the state of the queue and increasingly by past waits for later instants: the answer of
  the command ``trajectory``, without a record of outcomes;
- ``ahead``: ``plain`` at the probability that follows the record of promises
  (:mod:`vgrads.vgrid.varq_record`);
- ``moving``: ``ahead`` with the margin of :mod:`vgrads.vgrid.varq`, recomputed as time passes.

Kept: started by T. Idle: processor time held before T, per promise; compared with that of ``now``
over the questions that were not refused. In a view without waiting jobs all policies choose by what
it shows; the waits are the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.api.queues.histories import AS_QUESTION
from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.streams import stream
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor
from vgrads.qbets.state_forecast import AnyForecast, StateForecast
from vgrads.qbets.views import FULL
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Reservation, Trajectory, evaluate_trajectory, move
from vgrads.vgrid.varq_record import adapt
from vgrads_studies.promises.arena import WARM, freeze_now
from vgrads_studies.report import read_enough
from vgrads_studies.waits.varq_like_jobs import (
    LikeJobs,
    ReservationQuestion,
    ReservationResult,
)
from vgrads_studies.waits.varq_recorded_rows import RecordedVarqRow, outcome

LEVELS = (0.5, 0.75, 0.9, 0.95)
POLICIES = ("now", "once", "plain", "ahead", "moving")
_INSTANTS = 24  # of a question, by the state of the queue
_LEAST_S = 3600.0  # requested time of the job of a question, at least
_AHEAD_S = (1800.0, 14_400.0)  # from request to T; at most half of the job's request


def draw_questions(log: JobLog, count: int, seed: int) -> list[ReservationQuestion]:
    """Draw the questions, the same for every level and policy, in time order: real jobs' processors
    and requested times, of which a part passes before T."""
    late = log.submit_s >= float(np.quantile(log.submit_s, WARM))
    rows = np.flatnonzero(log.started & late & (log.request_s >= _LEAST_S))
    if not len(rows):
        raise InputError(
            "no job requested an hour or more, so no job resembles a reservation", where=log.name
        )
    draws = stream(seed, "varq recorded", history_name(log.name))
    results = []
    for row in draws.choice(rows, count).tolist():
        request_s = float(log.request_s[row])
        ahead_s = min(draws.uniform(*_AHEAD_S), request_s / 2)
        reservation = Reservation(
            procs=max(1, int(log.procs[row])),
            walltime_s=request_s - ahead_s,
            start_by_s=ahead_s,
            probability=0.5,
        )
        at_s = float(log.submit_s[row] - ahead_s * draws.uniform())
        results.append((at_s, reservation, int(log.queue[row])))
    results.sort(key=lambda item: item[0])
    return [
        ReservationQuestion(number=n, at_s=at_s, reservation=required, queue=queue)
        for n, (at_s, required, queue) in enumerate(results)
    ]


@dataclass
class RecordedReservations:
    """Questions of one level in the order of their answers; outcomes change later answers."""

    like: LikeJobs
    probability: float
    allowed: float = 0.0
    answers: list[ReservationResult] = field(default_factory=list)
    _open: list[tuple[float, int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.allowed = 1.0 - self.probability

    def strict(self, reservation: Reservation, now_s: float) -> Reservation:
        """Return the reservation at the probability that follows from the record up to now."""
        while self._open and self._open[0][0] <= now_s:
            *_, kept = heapq.heappop(self._open)
            self.allowed = adapt(self.allowed, self.probability, kept)
        return replace(reservation, probability=1.0 - self.allowed)

    def submit(self, question: ReservationQuestion, at_s: float, now_s: float) -> None:
        """Submit, as decided now: it takes the wait of a similar job, if there is one."""
        answer = self.like.submit(question, at_s, now_s)
        self.answers.append(answer)
        if answer.start_s is not None:
            heapq.heappush(self._open, (answer.settled_s, question.number, answer.kept))

    def refuse(self, question: ReservationQuestion) -> None:
        """Refuse: no instant reaches the probability."""
        self.answers.append(ReservationResult(question=question))


PoolSample = Callable[[RecordedReservations, ReservationQuestion, float, AnyForecast], float | None]
"""Evaluates a question at an instant: returns the time of the next evaluation, None where it is
answered."""


def look_once(
    reservations: RecordedReservations,
    question: ReservationQuestion,
    now_s: float,
    forecast: AnyForecast,
) -> None:
    """Evaluate in the paper's way."""
    required = replace(question.reservation, probability=reservations.probability)
    _submit_latest(reservations, question, now_s, evaluate_trajectory(forecast, required, 60.0))


def look_plain(
    reservations: RecordedReservations,
    question: ReservationQuestion,
    now_s: float,
    forecast: AnyForecast,
) -> None:
    """Choose the latest instant that reaches the probability by the current queue, without a second
    evaluation."""
    required = replace(question.reservation, probability=reservations.probability)
    path = evaluate_trajectory(forecast, required, required.start_by_s / _INSTANTS)
    _submit_latest(reservations, question, now_s, path)


def look_ahead(
    reservations: RecordedReservations,
    question: ReservationQuestion,
    now_s: float,
    forecast: AnyForecast,
) -> None:
    """Choose as ``plain`` does, by the probability that follows from the record of promises."""
    required = reservations.strict(question.reservation, now_s)
    path = evaluate_trajectory(forecast, required, required.start_by_s / _INSTANTS)
    _submit_latest(reservations, question, now_s, path)


def _submit_latest(
    reservations: RecordedReservations,
    question: ReservationQuestion,
    now_s: float,
    path: Trajectory,
) -> None:
    """Submit at the latest instant that reaches the probability; refuse where there is none."""
    if path.chosen is None:
        reservations.refuse(question)
    else:
        reservations.submit(question, now_s + float(path.submit_s[path.chosen]), now_s)


def look_moving(
    reservations: RecordedReservations,
    question: ReservationQuestion,
    now_s: float,
    forecast: AnyForecast,
) -> float | None:
    """Submit, refuse at the first evaluation, or evaluate again later."""
    left = replace(
        reservations.strict(question.reservation, now_s), start_by_s=question.start_by_s - now_s
    )
    step = move(forecast, left)
    if now_s == question.at_s and step.latest_s is None:
        reservations.refuse(question)
    elif step.submit:
        reservations.submit(question, now_s, now_s)
    else:
        return now_s + step.again_in_s
    return None


_LOOKS: tuple[tuple[Settings, dict[str, PoolSample]], ...] = (
    (Settings(), {"once": look_once}),
    (AS_QUESTION, {"plain": look_plain, "ahead": look_ahead, "moving": look_moving}),
)
Answers = dict[tuple[str, float], list[ReservationResult]]
"""By policy and level."""


def answer_all(log: JobLog, questions: Sequence[ReservationQuestion], view: str = FULL) -> Answers:
    """Answer all questions by all policies at all levels: one pass over the log for each method, in
    a view of it."""
    like, answers = LikeJobs(log), Answers()
    for level in LEVELS:
        reservations = RecordedReservations(like, level)
        for question in questions:
            reservations.submit(question, question.at_s, question.at_s)
        answers["now", level] = reservations.answers
    for settings, looks in _LOOKS:
        desks = {
            (policy, level): RecordedReservations(like, level)
            for policy in looks
            for level in LEVELS
        }
        _pass(log, questions, replace(settings, view=view), looks, desks)
        answers |= {key: dispatcher.answers for key, dispatcher in desks.items()}
    return answers


def _pass(
    log: JobLog,
    questions: Sequence[ReservationQuestion],
    settings: Settings,
    looks: Mapping[str, PoolSample],
    desks: Mapping[tuple[str, float], RecordedReservations],
) -> None:
    """Advance time; evaluate every question when it is due."""
    passing, first_s = HistoryReplay(log, make_predictor(settings, log)), float(log.submit_s[0])
    due = [(q.at_s, q.number, key) for q in questions for key in desks]
    heapq.heapify(due)
    forecast, last = None, (-np.inf, -1)
    while due:
        now_s, number, key = heapq.heappop(due)
        if forecast is None or (now_s, number) != last:
            passing.to(now_s)
            frozen, last = freeze_now(passing.predictor, now_s, first_s), (now_s, number)
            forecast = for_queue(frozen, questions[number].queue)
        again_s = looks[key[0]](desks[key], questions[number], now_s, forecast)
        if again_s is not None:
            heapq.heappush(due, (again_s, number, key))


def for_queue(forecast: AnyForecast, queue: int) -> AnyForecast:
    """Return the forecast for jobs of a queue, if it distinguishes queues."""
    if isinstance(forecast, StateForecast) and forecast.settings.knows_queue:
        return replace(forecast, asker=replace(forecast.asker, queue=queue))
    return forecast


def study_log(path: Path, count: int, jobs: int, seed: int, view: str) -> list[RecordedVarqRow]:
    """Study one log under all policies and levels, in a view of it."""
    log = read_enough(path)
    log = log.select(np.arange(min(jobs, len(log))))
    questions = draw_questions(log, count, seed)
    answers, name = answer_all(log, questions, view), history_name(path)
    rows = (
        outcome(name, level, policy, answers[policy, level], answers["now", level])
        for level in LEVELS
        for policy in POLICIES
    )
    return [replace(row, view=view) for row in rows]


def recorded_study(
    logs: Sequence[Path], count: int, jobs: int, seed: int = 0, view: str = FULL
) -> list[RecordedVarqRow]:
    """Study all logs, on all cores, with a progress bar."""
    work = partial(study_log, count=count, jobs=jobs, seed=seed, view=view)
    with process_pool() as pool:
        bar = Console(stderr=True)
        done = track(
            pool.map(work, logs), "simulating recorded reservations", total=len(logs), console=bar
        )
        return [
            recorded_varq_row
            for recorded_varq_rows in done
            for recorded_varq_row in recorded_varq_rows
        ]
