"""Forecasts for many questions at once, over sites and queues; a wrong question has an error in its
place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from vgrads.api.queues.issued import LEVELS, IssuedForecast
from vgrads.api.queues.issuing import Statement, compute_stated_bounds, issue
from vgrads.api.queues.queries import QueueQuery
from vgrads.kernel.compiled import use_stored
from vgrads.kernel.documents import Document, validate_field
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.operations.forecasts import QueueAnswer
from vgrads.operations.questions import ForecastQuestion, JobQuestion
from vgrads.operations.queue_questions import (
    ForecastContext,
    OpenQueue,
    explain_closure,
    open_queue,
)
from vgrads.operations.recommended_submission import recommend
from vgrads.qbets import boosting
from vgrads.qbets.state import queue_features
from vgrads.qbets.state_forecast import AnyForecast
from vgrads.vgrid.varq import Reservation

Json = dict[str, Any]
WITHIN_S = (600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
"""Default waits at which a curve of probabilities is evaluated."""
_EXPECTED = 0.5  # the bound whose closure is named
_INSTANTS = 48  # of submission that are tried
_LONGEST_S = 31 * 86400.0

Name = Annotated[str, Field(min_length=1, max_length=200)]
Procs = Annotated[int, Field(ge=1, le=10**9)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Question(Document):
    """A job of a shape in a queue. ``start_by_s``: by when it must run, with ``probability``; then
    the best instant to submit it is part of the answer."""

    site: Name
    queue: Name
    procs: Procs = 1
    walltime_s: Seconds = 3600.0
    start_by_s: Annotated[float, Field(gt=0, le=_LONGEST_S, allow_inf_nan=False)] | None = None
    probability: Share = 0.9


@dataclass(frozen=True, kw_only=True)
class HowToAnswer:
    """Quantiles and probabilities of every answer; ``live``: as in
    :class:`vgrads.operations.queue_questions.JobQuestion`."""

    quantiles: tuple[float, ...] = LEVELS
    within_s: tuple[float, ...] = WITHIN_S
    kind: str = "forecast"
    live: bool = True


@dataclass(frozen=True, kw_only=True)
class Forecasts:
    """Answers in the order of the questions, and what was issued."""

    answers: list[Json]
    issued: list[IssuedForecast]

    @property
    def first_error(self) -> InputError | None:
        """The error of the first question, where no question has an answer."""
        if not self.answers or any("error" not in answer for answer in self.answers):
            return None
        first = self.answers[0]
        what = first["error"].removeprefix(f"{first['field']}: ")
        return InputError(what, where=f"questions.0.{first['field']}")


class _Asker:
    """Answers questions; each queue is opened once, and so is its error."""

    def __init__(self, context: ForecastContext, how: HowToAnswer) -> None:
        self._context, self._how = context, how
        self._queues: dict[tuple[str, str], OpenQueue | VgradsError] = {}
        self.issued: list[IssuedForecast] = []

    def answer(self, question: Question) -> Json:
        """Return the answer. Raise InputError where there is none."""
        opened = self._open(question.site, question.queue)
        answer, issued = answer_in_full(opened, question, self._how)
        self.issued.append(issued)
        return {**_name_question(question), **answer}

    def _open(self, site: str, queue: str) -> OpenQueue:
        key = (site, queue)
        if key not in self._queues:
            # a job that can always start: the shape of each question is checked by itself
            any_job = JobQuestion(site=site, queue=queue, walltime_s=0.0, live=self._how.live)
            try:
                opened = open_queue(any_job, self._context)
                self._queues[key] = replace(opened, query=opened.query.separate())
            except VgradsError as error:
                # each further question about the queue has the same error, without opening it again
                self._queues[key] = error
        entry = self._queues[key]
        if isinstance(entry, VgradsError):
            raise entry
        return entry


def answer_in_full(
    opened: OpenQueue, question: Question | ForecastQuestion, how: HowToAnswer
) -> tuple[Json, IssuedForecast]:
    """Return bounds, probabilities and, where it is requested, the best submission of a job, and
    what was issued. Raise InputError for a job that can never start."""
    shape = (question.procs, question.walltime_s)
    opened.limits.check(*shape)
    query, forecast = opened.query, opened.query.forecast
    # the usual levels are recorded in any case, so that scores of a queue can be compared
    bounds = dict(compute_stated_bounds(query, *shape, tuple(sorted({*how.quantiles, *LEVELS}))))
    curve = query.starts.probability(*shape, how.within_s, forecast.settings.confidence)
    points = tuple(zip(how.within_s, np.asarray(curve).tolist(), strict=True))
    stated = Statement(bounds=tuple(bounds.items()), probabilities=points)
    method, jobs, reason = _describe_basis(query, shape, max(how.quantiles))
    best = None if question.start_by_s is None else _find_best(opened, question)
    answer = {
        "method": method,
        "bounds": [{"quantile": q, "bound_s": bounds[q]} for q in how.quantiles],
        "curve": [{"within_s": s, "probability": p} for s, p in points],
        "best_submission": best,
        "jobs": jobs,
        "since": query.since,
        "reason": reason or opened.reason,
        "closure": explain_closure(query, shape, _EXPECTED),
        "warning": opened.record.warning,
        "queue_view": opened.view.as_json(),
    }
    return answer, issue(query, opened.target, how.kind, shape, stated)


@dataclass(frozen=True, kw_only=True)
class FullAnswer(QueueAnswer):
    """Bounds, probabilities and the best submission of one job."""

    question: ForecastQuestion
    answer: Json

    def as_json(self) -> Json:
        """Return ``vgrads forecast --json``: as in ``POST /v1/forecasts``."""
        return {**_name_question(self.question), **self.answer, **self.queue_json()}


def ask_forecast(question: ForecastQuestion, context: ForecastContext) -> FullAnswer:
    """Return all that is forecast about a job."""
    opened = open_queue(question, context)
    opened = replace(opened, query=opened.query.separate())
    how = HowToAnswer(quantiles=question.quantiles, within_s=question.within_s or WITHIN_S)
    answer, issued = answer_in_full(opened, question, how)
    closure = answer["closure"]
    return FullAnswer(
        open_queue=opened, issued=issued, closure=closure, question=question, answer=answer
    )


def _describe_basis(
    query: QueueQuery, shape: tuple[int, float], level: float
) -> tuple[str, int, str | None]:
    """Return the method of a bound, the number of jobs that it is based on, and why there is
    none."""
    bound = query.starts.bound(*shape, level, query.forecast.settings.confidence)
    return bound.method, bound.jobs, bound.reason


def prepare(forecast: AnyForecast) -> None:
    """Load what makes many answers fast, where it exists: half a second, once for a process."""
    for module in (queue_features, boosting):
        use_stored(module)
    # of a copy: what it caches is not for the answers of others
    replace(forecast).bounds(1, 3600.0, LEVELS)


def _name_question(question: Question | ForecastQuestion) -> Json:
    return {
        "site": question.site,
        "queue": question.queue,
        "procs": question.procs,
        "walltime_s": question.walltime_s,
    }


def _find_best(opened: OpenQueue, question: Question | ForecastQuestion) -> Json:
    """Return the latest instant to submit a job with the requested probability, else the best."""
    by_s = question.start_by_s or 0.0
    reservation = Reservation(
        procs=question.procs,
        walltime_s=question.walltime_s,
        start_by_s=by_s,
        probability=question.probability,
        max_walltime_s=opened.limits.walltime_s,
    )
    recommended = recommend(opened.query, opened.record, reservation, by_s / _INSTANTS)
    path, at = recommended.path, recommended.path.recommended
    return {
        "submit_in_s": float(path.submit_s[at]),
        "probability": recommended.probability,
        "walltime_s": float(path.walltimes_s[at]),
        "meets_request": path.chosen is not None,
        "level": recommended.required.level,
        "level_reason": recommended.required.reason,
        "warning": recommended.warning,
    }


def forecast_many(
    questions: Iterable[Any], context: ForecastContext, how: HowToAnswer
) -> Forecasts:
    """Answer questions: documents, or :class:`Question`. What is wrong with a question stands in
    its place, with the ``field``."""
    asker, answers = _Asker(context, how), list[Json]()
    for entry in questions:
        try:
            question = entry if isinstance(entry, Question) else validate_field(Question, entry)
        except InputError as error:
            answers.append(_describe_refusal(entry, error.where or "question", error))
            continue
        try:
            answers.append(asker.answer(question))
        except VgradsError as error:
            name = error.where if error.where in _SHAPE else "queue"
            answers.append(_describe_refusal(_name_question(question), name, error))
    return Forecasts(answers=answers, issued=asker.issued)


_SHAPE = ("site", "queue", "procs", "walltime_s")


def _describe_refusal(entry: object, name: str, error: VgradsError) -> Json:
    plain = {k: entry[k] for k in _SHAPE if k in entry} if isinstance(entry, dict) else {}
    return {**plain, "field": name, "error": f"{name}: {error.without_place}"}
