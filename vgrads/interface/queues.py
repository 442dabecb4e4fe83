"""Questions about one batch queue: bound on the wait, probability of a start, latest submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.api.queues.answers import bound_json, probability_json
from vgrads.api.queues.queries import HistorySource, QueueQuery, ask_queue, refuse_too_wide
from vgrads.interface.arguments import (
    Duration,
    FileName,
    Instant,
    count_of,
    instant_of,
    named_arguments,
    path_of,
    reading_options,
    seconds_of,
)
from vgrads.interface.queue_results import BoundResult, ProbabilityResult
from vgrads.kernel.units import parse_probability
from vgrads.qbets.predictor import Settings
from vgrads.traces.reading_options import ReadingOptions


@named_arguments()
def bound(  # noqa: PLR0913 the options of vgrads bound
    history: FileName,
    procs: int = 1,
    walltime: Duration = "1h",
    probability: float | str = 0.95,
    confidence: float | str = 0.95,
    *,
    queue: str | int | None = None,
    at: Instant | None = None,
    method: str = "state",
    user: str | None = None,
    format: str | None = None,
    columns: str | Sequence[str] | None = None,
    zone: str | None = None,
    taken_at: Instant | None = None,
    force: bool = False,
) -> BoundResult:
    """How long does a job wait at most? (GETBOUND)

    ``history``: a queue log (SWF, GWF, ``sacct -P``, PBS or Grid Engine accounting; plain, .gz or
    .xz). ``procs`` and ``walltime``: of the job. ``queue``: one queue of the log, all jobs by
    default. ``at``: instant of the history at which the question is asked; later records are
    ignored; the end by default. ``user``: who submits the job, as the log names them. ``format``:
    of the log, detected by default. ``columns``: names of the columns of a table without a header.
    ``zone``: time zone of local times, UTC by default. ``taken_at``: when the log was taken, at its
    newest event by default: its waiting jobs are the queue then. ``force``: use the rest of a log
    whose records are mostly unusable.

    >>> import vgrads
    >>> from vgrads.api.config import embedded_data
    >>> log = embedded_data() / "histories" / "mayhem.swf.gz"
    >>> result = vgrads.bound(log, procs=16, walltime="2h", method="qbets")
    >>> result
    BoundResult: 16 processors for 2h wait at most 2h 16m with probability 0.95
      confidence 0.95, method qbets, 311 similar jobs since 2008-11-01T01:42:51Z
    >>> result.trajectory(start_by="6h", probability=0.9).submit_in_s
    17490.0
    """
    width = count_of(procs, "procs")
    reading = reading_options(format, columns, zone, taken_at, force)
    query = _query(HistoryQuestion(history, queue, at, method, user, reading), width, confidence)
    walltime_s = seconds_of(walltime, "walltime")
    share = parse_probability(probability, "probability")
    answer = query.forecast.bound(width, walltime_s, share, query.forecast.settings.confidence)
    return BoundResult(
        bound_s=answer.bound_s,
        probability=answer.probability,
        confidence=answer.confidence,
        method=answer.method,
        jobs=answer.jobs,
        since=query.since,
        reason=answer.reason,
        procs=width,
        walltime_s=walltime_s,
        json=bound_json(answer, query),
        query=query,
    )


@named_arguments()
def probability(  # noqa: PLR0913 the options of vgrads probability
    history: FileName,
    procs: int = 1,
    walltime: Duration = "1h",
    *,
    within: Duration,
    confidence: float | str = 0.95,
    queue: str | int | None = None,
    at: Instant | None = None,
    method: str = "state",
    user: str | None = None,
    format: str | None = None,
    columns: str | Sequence[str] | None = None,
    zone: str | None = None,
    taken_at: Instant | None = None,
    force: bool = False,
) -> ProbabilityResult:
    """With which probability does a job start within a time? (GETPROB)

    ``within``: longest wait. The other arguments are those of :func:`bound`.

    >>> import vgrads
    >>> from vgrads.api.config import embedded_data
    >>> log = embedded_data() / "histories" / "mayhem.swf.gz"
    >>> vgrads.probability(log, procs=16, walltime="2h", within="30m", method="qbets")
    ProbabilityResult: starts within 30m with probability 0.822
      confidence 0.95, method qbets, 311 similar jobs
    """
    width = count_of(procs, "procs")
    reading = reading_options(format, columns, zone, taken_at, force)
    query = _query(HistoryQuestion(history, queue, at, method, user, reading), width, confidence)
    walltime_s, within_s = seconds_of(walltime, "walltime"), seconds_of(within, "within")
    sure = query.forecast.settings.confidence
    chance = float(query.forecast.probability(width, walltime_s, within_s, sure))
    document = probability_json(
        query, chance, within_s, len(query.forecast.waits(width, walltime_s))
    )
    names = ("probability", "within_s", "confidence", "method", "jobs", "since")
    return ProbabilityResult(**{name: document[name] for name in names}, json=document)


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """A history as a caller names it and how to read it, and the instant, method and user of a
    question."""

    history: FileName
    queue: str | int | None
    at: Instant | None
    method: str
    user: str | None
    reading: ReadingOptions


def _query(question: HistoryQuestion, procs: int, confidence: float | str) -> QueueQuery:
    settings = Settings(
        method=question.method,
        confidence=parse_probability(confidence, "confidence"),
        knows_user=question.user is not None,
    )
    source = HistorySource(
        file=path_of(question.history),
        queue=question.queue,
        reading=question.reading,
        user=question.user,
    )
    query = ask_queue(source, instant_of(question.at), settings)
    refuse_too_wide(query, procs)
    return query
