"""Questions about one batch queue: bound on the wait, probability of a start, latest submission."""

from __future__ import annotations

from typing import Any

from vgrads.api.queues.queries import HistorySource
from vgrads.interface.arguments import FileName, path_of
from vgrads.interface.catalogs import Sites, catalog_of
from vgrads.interface.queue_results import BoundResult, ProbabilityResult
from vgrads.operations.fields import field_values
from vgrads.operations.forecasts import ask_bound, ask_probability
from vgrads.operations.questions import (
    BoundOptions,
    BoundQuestion,
    ProbabilityOptions,
    ProbabilityQuestion,
    ReadingFields,
)
from vgrads.operations.queue_questions import ForecastContext
from vgrads.operations.reading import make_reading_options
from vgrads.vgrid.catalog import choose_queue, split_queue_name


def bound_of(
    history: FileName, sites: Sites | None, reading: ReadingFields, options: BoundOptions
) -> BoundResult:
    """The bound; the arguments are those of :func:`vgrads.bound`."""
    question = BoundQuestion(
        **field_values(options, BoundOptions), **_place(history, reading, sites)
    )
    answer = ask_bound(question, _make_context(sites))
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


def probability_of(
    history: FileName, sites: Sites | None, reading: ReadingFields, options: ProbabilityOptions
) -> ProbabilityResult:
    """The probability; the arguments are those of :func:`vgrads.probability`."""
    shared = field_values(options, ProbabilityOptions)
    question = ProbabilityQuestion(**shared, **_place(history, reading, sites))
    document = ask_probability(question, _make_context(sites)).as_json()
    names = ("probability", "within_s", "confidence", "method", "jobs", "since")
    return ProbabilityResult(**{name: document[name] for name in names}, json=document)


def _place(history: FileName, reading: ReadingFields, sites: Sites | None) -> dict[str, Any]:
    """Return the fields of a question that name its queue: a file and its queue, or with ``sites``
    a queue of these."""
    options = make_reading_options(reading)
    if sites is None:
        source = HistorySource(file=path_of(history), queue=reading.queue)
        return {"history": source, "reading": options}
    site, name = split_queue_name(str(history))
    queue = None if reading.queue is None else str(reading.queue)
    chosen = choose_queue(catalog_of(sites).site(site), name or queue, str(history))
    return {"site": site, "queue": chosen.name, "reading": options}


def _make_context(sites: Sites | None) -> ForecastContext:
    return ForecastContext(catalog=lambda: None if sites is None else catalog_of(sites))
