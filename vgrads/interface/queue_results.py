"""Results of questions about a queue: bound, probability and trajectory, with their pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vgrads.api.queues.queries import QueueQuery, explain_bound
from vgrads.interface.arguments import (
    Duration,
    named_arguments,
    seconds_of,
)
from vgrads.interface.html import box_html, charts_html, text_html
from vgrads.interface.wait_charts import start_chart, trajectory_chart
from vgrads.kernel.units import format_count, format_duration, parse_probability
from vgrads.operations.forecasts import TrajectoryAnswer, answer_trajectory
from vgrads.operations.questions import TrajectoryQuestion
from vgrads.operations.queue_questions import OpenQueue
from vgrads.portal.charts.curves import CurveChart, curves_png, curves_svg


@dataclass(frozen=True, kw_only=True, repr=False)
class TrajectoryResult:
    """The latest submission after which a job still runs by ``start_by_s`` (VARQ).

    ``submit_in_s``: latest submission, seconds from now; None where no submission reaches the
    ``requested`` probability. ``probability``: that the job then runs by ``start_by_s``.
    ``walltime_s``: the time to request then. ``best_s`` and ``best_probability``: the submission
    with the highest probability. ``points``: (submission in seconds, probability).
    """

    submit_in_s: float | None
    probability: float
    walltime_s: float
    start_by_s: float
    requested: float
    best_s: float
    best_probability: float
    points: tuple[tuple[float, float], ...]
    json: Mapping[str, Any] = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads trajectory --json``."""
        return dict(self.json)

    def __repr__(self) -> str:
        return (
            f"TrajectoryResult: {self.sentence}\n  request {format_duration(self.walltime_s)}: the "
            "job may start at once, and must last until the reservation ends"
        )

    @property
    def sentence(self) -> str:
        """The answer in words."""
        if self.submit_in_s is None:
            return (
                f"no submission starts by {format_duration(self.start_by_s)} with probability "
                f"{self.requested:g}; the best has {self.best_probability:.3f}"
            )
        return (
            f"submit in {format_duration(self.submit_in_s)} to run by "
            f"{format_duration(self.start_by_s)} with probability {self.probability:.3f}"
        )

    def _repr_html_(self) -> str:
        chart = trajectory_chart(self.points, self.start_by_s, self.submit_in_s)
        return box_html(text_html(self.sentence, bold=True), charts_html(curves_svg([chart])))

    def _repr_png_(self) -> bytes | None:
        return curves_png([trajectory_chart(self.points, self.start_by_s, self.submit_in_s)])


@dataclass(frozen=True, kw_only=True, repr=False)
class BoundResult:
    """The bound on the wait of a job.

    ``bound_s``: seconds that the job waits at most; None with a ``reason`` where the history is too
    short. ``probability``: share of such jobs that wait no longer. ``confidence``: of that
    statement. ``method``: state, qbets or bmbp. ``jobs``: number of similar jobs that the bound is
    computed from. ``since``: RFC 3339 time of the oldest of them. ``procs`` and ``walltime_s``: of
    the job. ``open_queue``: the queue behind the answer.
    """

    bound_s: float | None
    probability: float
    confidence: float
    method: str
    jobs: int
    since: str
    reason: str | None
    procs: int
    walltime_s: float
    json: Mapping[str, Any] = field(compare=False)
    open_queue: OpenQueue = field(compare=False)

    @property
    def query(self) -> QueueQuery:
        """The history and the forecast behind the answer."""
        return self.open_queue.query

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads bound --json``."""
        return dict(self.json)

    @named_arguments()
    def trajectory(
        self, start_by: Duration, probability: float | str = 0.9, step: Duration = 30.0
    ) -> TrajectoryResult:
        """When to submit the same job so that it runs by ``start_by`` from now."""
        question = TrajectoryQuestion(
            procs=self.procs,
            walltime_s=self.walltime_s,
            start_by_s=seconds_of(start_by, "start_by"),
            probability=parse_probability(probability, "probability"),
            confidence=self.confidence,
            step_s=seconds_of(step, "step"),
        )
        return _make_trajectory_result(answer_trajectory(self.open_queue, question))

    def explain(self) -> dict[str, Any]:
        """The method that gave the bound and the properties of the queue that moved it."""
        return explain_bound(self.query, self.procs, self.walltime_s, self.probability)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        job = f"{format_count(self.procs, 'processor')} for {format_duration(self.walltime_s)}"
        if self.bound_s is None:
            return f"no bound for {job}: {self.reason}"
        return (
            f"{job} wait at most {format_duration(self.bound_s)} "
            f"with probability {self.probability:g}"
        )

    def __repr__(self) -> str:
        return (
            f"BoundResult: {self.sentence}\n"
            f"  confidence {self.confidence:g}, method {self.method}, "
            f"{format_count(self.jobs, 'similar job')} since {self.since}"
        )

    def _repr_html_(self) -> str:
        foot = (
            f"Confidence {self.confidence:g}, method {self.method}, "
            f"{format_count(self.jobs, 'similar job')}."
        )
        return box_html(
            text_html(self.sentence, bold=True),
            charts_html(curves_svg(self._charts())),
            text_html(foot),
        )

    def _repr_png_(self) -> bytes | None:
        return curves_png(self._charts())

    def _charts(self) -> list[CurveChart]:
        """The probability of a start over the wait, with the bound; the trajectory up to it."""
        charts = [start_chart(self.query, self.procs, self.walltime_s, self)]
        # a job that starts at once can be submitted at the last moment: there is nothing to draw
        if self.bound_s is not None and self.bound_s >= 1.0:
            path = self.trajectory(self.bound_s, self.probability, self.bound_s / 120)
            charts.append(trajectory_chart(path.points, path.start_by_s, path.submit_in_s))
        return charts


@dataclass(frozen=True, kw_only=True, repr=False)
class ProbabilityResult:
    """The probability that a job starts within a time; ``float(result)`` is that number.

    ``within_s``: that time in seconds. ``confidence``: of the statement. ``method``: state, qbets
    or bmbp. ``jobs``: number of similar jobs. ``since``: RFC 3339 time of the oldest of them.
    """

    probability: float
    within_s: float
    confidence: float
    method: str
    jobs: int
    since: str
    json: Mapping[str, Any] = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads probability --json``."""
        return dict(self.json)

    def __float__(self) -> float:
        return self.probability

    def __repr__(self) -> str:
        return (
            f"ProbabilityResult: starts within {format_duration(self.within_s)} "
            f"with probability {self.probability:.3f}\n"
            f"  confidence {self.confidence:g}, method {self.method}, "
            f"{format_count(self.jobs, 'similar job')}"
        )


def _make_trajectory_result(answer: TrajectoryAnswer) -> TrajectoryResult:
    document = answer.as_json()
    return TrajectoryResult(
        submit_in_s=document["submit_in_s"],
        probability=document["probability"],
        walltime_s=document["walltime_s"],
        start_by_s=answer.reservation.start_by_s,
        requested=answer.reservation.probability,
        best_s=document["best"]["submit_in_s"],
        best_probability=document["best"]["probability"],
        points=tuple((at_s, chance) for at_s, chance in document["trajectory"]),
        json=document,
    )
