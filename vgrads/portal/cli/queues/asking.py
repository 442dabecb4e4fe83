"""Questions about queues at the command line: options as fields of a question, its answer recorded
as issued."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from vgrads.api.queues.issued import IssuedForecast
from vgrads.api.queues.queries import HistorySource
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.kernel.units import parse_duration, parse_probability
from vgrads.operations.forecasts import QueueAnswer
from vgrads.operations.questions import JobQuestion
from vgrads.operations.queue_questions import ForecastContext
from vgrads.portal.cli.options import instant_of
from vgrads.portal.cli.terminal import busy, console, print_reading
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.reading.forecast_scores import stored_record
from vgrads.portal.records.reading.sites import stored_catalog, stored_queue

Fields = dict[str, Any]
Question = TypeVar("Question", bound=JobQuestion)
Answer = TypeVar("Answer", bound=QueueAnswer)
_OPTIONS = {
    "procs": "--procs",
    "walltime_s": "--walltime",
    "procs, walltime_s": "--procs, --walltime",
}


def job_fields(
    history: Path, queue: str | None, shape: tuple[int, str], how: tuple[str, str, bool]
) -> Fields:
    """Return the fields of a job (processors, requested time), of its queue (HISTORY and
    ``--queue``), and of ``how`` it is forecast (method, confidence, arrays)."""
    (procs, walltime), (method, confidence, arrays) = shape, how
    return {
        **_place(history, queue),
        "procs": procs,
        "walltime_s": parse_duration(walltime, "--walltime"),
        "method": method,
        "confidence": parse_probability(confidence, "--confidence"),
        "arrays": arrays,
    }


def history_fields(at: str | None, user: str | None, live: bool) -> Fields:
    """Return the instant and the user of a question, and whether the present queue counts."""
    return {"at": instant_of(at), "user": user, "live": live}


def _place(history: Path, queue: str | None) -> Fields:
    """Return the file of HISTORY, or the queue of the database that it names, where there is no
    such file."""
    named = stored_queue(history, queue)
    if named is None:
        return {"history": HistorySource(file=history, queue=queue)}
    site, chosen = named
    if queue not in (None, chosen.name):
        raise InputError(f"HISTORY names the queue '{chosen.name}' already", where="--queue")
    return {"site": site.name, "queue": chosen.name}


def answer_question(
    operation: Callable[[Question, ForecastContext], Answer], question: Question, name: str
) -> Answer:
    """Answer a question and record it; what the history's file holds is printed to standard error,
    by its ``name``."""
    what = "states of the queue" if question.method == "state" else "past waits"
    with busy(console(stderr=True), f"learning from {what}"), option_names():
        answer = operation(question, ForecastContext(catalog=stored_catalog, record=stored_record))
    print_reading(console(stderr=True), name, answer.query.log)
    record_issued([answer.issued])
    return answer


def record_issued(forecasts: Sequence[IssuedForecast]) -> None:
    """Record answers as issued. An answer does not depend on its record."""
    with suppress(OSError, VgradsError):
        ForecastJournal().append(forecasts)


def take_estimate(answer: QueueAnswer) -> None:
    """Store the own estimate of a Slurm site for the job of an answer about its present queue; the
    answer is printed already."""
    if answer.open_queue.view.source == "site":
        from vgrads.portal.cli.queues import estimate_now  # noqa: PLC0415 late: needs the database

        estimate_now.take_estimate(answer.issued)


@contextmanager
def option_names() -> Iterator[None]:
    """Errors of the block name options (``--walltime``) instead of fields (``walltime_s``)."""
    try:
        yield
    except InputError as error:
        error.where = _OPTIONS.get(error.where, error.where)
        raise
