"""Forecasts for one job in one queue: an upper bound on its wait, the probability of a start within
a time, and the latest instant to submit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vgrads.api.queues.issued import IssuedForecast
from vgrads.api.queues.issuing import Statement, issue_stated
from vgrads.api.queues.queries import QueueQuery, explain_bound, reading_json
from vgrads.operations.questions import BoundQuestion, ProbabilityQuestion, TrajectoryQuestion
from vgrads.operations.queue_questions import (
    ForecastContext,
    OpenQueue,
    explain_closure,
    open_queue,
)
from vgrads.operations.recommended_submission import RecommendedSubmission, recommend
from vgrads.qbets.forecast import Bound
from vgrads.vgrid.varq import Reservation, Trajectory

Json = dict[str, Any]
_LESS = 0.005
"""By how much a closure must lessen a probability to be named beside it."""


@dataclass(frozen=True, kw_only=True)
class QueueAnswer:
    """What every answer has: the queue that answered, the forecast as issued, and how a ``closure``
    of its site matters: where it moves a bound, otherwise when the site is closed."""

    open_queue: OpenQueue
    issued: IssuedForecast
    closure: str | None = None

    @property
    def query(self) -> QueueQuery:
        """The history and the forecast behind the answer."""
        return self.open_queue.query

    @property
    def warning(self) -> str | None:
        """Why the answer is doubtful, by the record of its queue."""
        return self.open_queue.record.warning

    def queue_json(self) -> Json:
        """Return the fields of every answer: what was read, and what of the present was seen."""
        return {
            "warning": self.warning,
            "downtime": downtime_json(self.query),
            "closure": self.closure,
            "queue_view": self.open_queue.view.as_json(),
            "reading": reading_json(self.query.log),
        }


@dataclass(frozen=True, kw_only=True)
class BoundAnswer(QueueAnswer):
    """The bound; ``explanation``: where it was requested."""

    bound: Bound
    explanation: Mapping[str, Any] | None = None

    def as_json(self) -> Json:
        """``vgrads bound --json``."""
        bound, query = self.bound, self.query
        explanation = {} if self.explanation is None else {"explanation": self.explanation}
        return {
            "bound_s": bound.bound_s,
            "probability": bound.probability,
            "confidence": bound.confidence,
            "method": bound.method,
            "jobs": bound.jobs,
            "since": query.since,
            "cluster": asdict(bound.cluster),
            "reason": bound.reason or self.open_queue.reason,
            "history": {"jobs": query.jobs, "distinct": query.distinct},
            **self.queue_json(),
            **explanation,
        }


@dataclass(frozen=True, kw_only=True)
class ProbabilityAnswer(QueueAnswer):
    """The probability of a start within ``within_s``; ``jobs``: number that it is based on."""

    probability: float
    within_s: float
    confidence: float
    jobs: int

    def as_json(self) -> Json:
        """``vgrads probability --json``."""
        return {
            "probability": self.probability,
            "within_s": self.within_s,
            "confidence": self.confidence,
            "method": self.query.forecast.method,
            "jobs": self.jobs,
            "since": self.query.since,
            "reason": self.open_queue.reason,
            **self.queue_json(),
        }


@dataclass(frozen=True, kw_only=True)
class TrajectoryAnswer(QueueAnswer):
    """The probabilities of a start in time by the instant of submission, and the recommended one;
    ``reservation``: as requested."""

    recommended: RecommendedSubmission
    reservation: Reservation

    @property
    def path(self) -> Trajectory:
        """The instants of submission."""
        return self.recommended.path

    @property
    def warning(self) -> str | None:
        """Why the answer is doubtful: by the record of such answers, else of bounds."""
        return self.recommended.warning or self.open_queue.record.warning

    def as_json(self) -> Json:
        """``vgrads trajectory --json``."""
        return {
            **trajectory_json(self.path),
            "level": self.recommended.required.level,
            "level_reason": self.recommended.required.reason,
            "reason": self.open_queue.reason,
            "warning": self.warning,
            "closure": self.closure,
            "queue_view": self.open_queue.view.as_json(),
        }


def ask_bound(question: BoundQuestion, context: ForecastContext) -> BoundAnswer:
    """Return an upper bound on a job's wait."""
    opened = open_queue(question, context, question.probability)
    shape = question.procs, question.walltime_s
    bound = opened.query.starts.bound(*shape, question.probability, question.confidence)
    explanation = None
    if question.explain:
        explanation = explain_bound(opened.query, *shape, question.probability)
    stated = Statement(bounds=((question.probability, bound.bound_s),))
    return BoundAnswer(
        open_queue=opened,
        issued=issue_stated(opened.query, opened.target, shape, stated),
        closure=explain_closure(opened.query, shape, question.probability),
        bound=bound,
        explanation=explanation,
    )


def ask_probability(question: ProbabilityQuestion, context: ForecastContext) -> ProbabilityAnswer:
    """Return the probability that a job starts within a time."""
    opened = open_queue(question, context)
    shape, forecast = (question.procs, question.walltime_s), opened.query.forecast
    value = float(opened.query.starts.probability(*shape, question.within_s, question.confidence))
    stated = Statement(probabilities=((question.within_s, value),))
    return ProbabilityAnswer(
        open_queue=opened,
        issued=issue_stated(opened.query, opened.target, shape, stated),
        closure=_describe_lessening(opened.query, shape, question, value),
        probability=value,
        within_s=question.within_s,
        confidence=question.confidence,
        jobs=len(forecast.waits(*shape)),
    )


def _describe_lessening(
    query: QueueQuery, shape: tuple[int, float], question: ProbabilityQuestion, value: float
) -> str | None:
    """Describe the closures that lessen a probability; None if none does."""
    if not query.availability.closures:
        return None
    plain = float(query.forecast.probability(*shape, question.within_s, question.confidence))
    if plain - value < _LESS:
        return None
    return _describe_closures_until(query, question.within_s + question.walltime_s)


def _describe_closures_until(query: QueueQuery, until_s: float) -> str | None:
    """Describe the closures from now until an instant; None if there are none."""
    availability = query.availability
    closures = availability.during(0.0, until_s)
    return "; ".join(availability.describe(entry) for entry in closures) or None


def ask_trajectory(question: TrajectoryQuestion, context: ForecastContext) -> TrajectoryAnswer:
    """Return when a job must be submitted to run by a given time."""
    return answer_trajectory(open_queue(question, context), question)


def answer_trajectory(opened: OpenQueue, question: TrajectoryQuestion) -> TrajectoryAnswer:
    """Return the same for a queue that is open already."""
    reservation = Reservation(
        procs=question.procs,
        walltime_s=question.walltime_s,
        start_by_s=question.start_by_s,
        probability=question.probability,
        max_walltime_s=opened.limits.walltime_s,
        confidence=question.confidence,
    )
    recommended = recommend(opened.query.separate(), opened.record, reservation, question.step_s)
    shape = question.procs, question.walltime_s
    stated = Statement(path=recommended.path, requested=question.probability)
    return TrajectoryAnswer(
        open_queue=opened,
        issued=issue_stated(opened.query, opened.target, shape, stated),
        closure=_describe_closures_until(opened.query, question.start_by_s + question.walltime_s),
        recommended=recommended,
        reservation=reservation,
    )


def downtime_json(query: QueueQuery) -> Json | None:
    """Return the current stall of the queue, if there is one."""
    stall = query.forecast.downtime
    return (
        {"since": query.instant(stall.since_s), "submissions": stall.submissions} if stall else None
    )


def trajectory_json(path: Trajectory) -> Json:
    """Return the instants of submission with their probabilities, the chosen and the best one."""
    chosen, best, at = path.chosen, path.best, path.recommended
    return {
        "submit_in_s": None if chosen is None else float(path.submit_s[chosen]),
        "probability": float(path.probabilities[at]),
        "walltime_s": float(path.walltimes_s[at]),
        "best": {
            "submit_in_s": float(path.submit_s[best]),
            "probability": float(path.probabilities[best]),
        },
        "trajectory": np.column_stack([path.submit_s, path.probabilities]).round(6).tolist(),
    }
