"""Questions about one batch queue: bound on the wait, probability of a start, latest submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vgrads.api.queues.queries import HistorySource
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
from vgrads.interface.catalogs import Sites, catalog_of
from vgrads.interface.queue_results import BoundResult, ProbabilityResult
from vgrads.kernel.units import parse_probability
from vgrads.operations.forecasts import ask_bound, ask_probability
from vgrads.operations.questions import BoundQuestion, ProbabilityQuestion
from vgrads.operations.queue_questions import ForecastContext
from vgrads.vgrid.catalog import choose_queue, split_queue_name


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
    sites: Sites | None = None,
    live: bool = True,
) -> BoundResult:
    """How long does a job wait at most? (GETBOUND)

    ``history``: a queue log (SWF, GWF, ``sacct -P``, PBS or Grid Engine accounting; plain, .gz or
    .xz). ``procs`` and ``walltime``: of the job. ``queue``: one queue of the log, all jobs by
    default. ``at``: instant of the history at which the question is asked; later records are
    ignored; the end by default. ``user``: who submits the job, as the log names them. ``format``:
    of the log, detected by default. ``columns``: names of the columns of a table without a header.
    ``zone``: time zone of local times, UTC by default. ``taken_at``: when the log was taken, at its
    newest event by default: its waiting jobs are the queue then. ``force``: use the rest of a log
    whose records are mostly unusable. ``sites``: then ``history`` is ``SITE`` or ``SITE/QUEUE`` of
    these; ``live``: use the present queue of a real site, as it lists it.

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
    question = BoundQuestion(
        **_job(procs, walltime, method, confidence),
        **_place(history, queue, sites),
        at=instant_of(at),
        user=user,
        live=live,
        reading=reading_options(format, columns, zone, taken_at, force),
        probability=parse_probability(probability, "probability"),
    )
    answer = ask_bound(question, _context(sites))
    document = answer.as_json()
    return BoundResult(
        bound_s=answer.bound.bound_s,
        probability=answer.bound.probability,
        confidence=answer.bound.confidence,
        method=answer.bound.method,
        jobs=answer.bound.jobs,
        since=answer.query.since,
        reason=document["reason"],
        procs=question.procs,
        walltime_s=question.walltime_s,
        json=document,
        open_queue=answer.open_queue,
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
    sites: Sites | None = None,
    live: bool = True,
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
    question = ProbabilityQuestion(
        **_job(procs, walltime, method, confidence),
        **_place(history, queue, sites),
        at=instant_of(at),
        user=user,
        live=live,
        reading=reading_options(format, columns, zone, taken_at, force),
        within_s=seconds_of(within, "within"),
    )
    document = ask_probability(question, _context(sites)).as_json()
    names = ("probability", "within_s", "confidence", "method", "jobs", "since")
    return ProbabilityResult(**{name: document[name] for name in names}, json=document)


def _job(procs: int, walltime: Duration, method: str, confidence: float | str) -> dict[str, Any]:
    return {
        "procs": count_of(procs, "procs"),
        "walltime_s": seconds_of(walltime, "walltime"),
        "method": method,
        "confidence": parse_probability(confidence, "confidence"),
    }


def _place(history: FileName, queue: str | int | None, sites: Sites | None) -> dict[str, Any]:
    """Return the fields of a question that name its queue: a file and its queue, or with ``sites``
    a queue of these."""
    if sites is None:
        return {"history": HistorySource(file=path_of(history), queue=queue)}
    site, name = split_queue_name(str(history))
    chosen = choose_queue(catalog_of(sites).site(site), name or _text(queue), str(history))
    return {"site": site, "queue": chosen.name}


def _text(queue: str | int | None) -> str | None:
    return None if queue is None else str(queue)


def _context(sites: Sites | None) -> ForecastContext:
    return ForecastContext(catalog=lambda: None if sites is None else catalog_of(sites))
