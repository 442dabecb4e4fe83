"""Questions about queues at the command line: answered, printed, and recorded as issued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from vgrads.api.queues.issued import IssuedForecast
from vgrads.api.queues.queries import HistorySource
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.operations.fields import field_values
from vgrads.operations.forecast_lists import FullAnswer, ask_forecast
from vgrads.operations.forecasts import (
    BoundAnswer,
    ProbabilityAnswer,
    QueueAnswer,
    TrajectoryAnswer,
    ask_bound,
    ask_probability,
    ask_trajectory,
)
from vgrads.operations.questions import (
    BoundQuestion,
    BoundRequest,
    ForecastQuestion,
    ForecastRequest,
    HistoryFields,
    ProbabilityQuestion,
    ProbabilityRequest,
    QuestionAtPlace,
    TrajectoryQuestion,
    TrajectoryRequest,
)
from vgrads.operations.queue_questions import ForecastContext
from vgrads.operations.reading import make_reading_options
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.queues import text as queue_text
from vgrads.portal.cli.requests import CommandOutput
from vgrads.portal.cli.terminal import busy, console, print_reading
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.reading.forecast_scores import read_stored_record
from vgrads.portal.records.reading.sites import read_stored_catalog, read_stored_queue

Question = TypeVar("Question", bound=QuestionAtPlace)
Answer = TypeVar("Answer", BoundAnswer, ProbabilityAnswer, TrajectoryAnswer, FullAnswer)
_KINDS: dict[type, type] = {
    BoundRequest: BoundQuestion,
    ProbabilityRequest: ProbabilityQuestion,
    TrajectoryRequest: TrajectoryQuestion,
    ForecastRequest: ForecastQuestion,
}


def bound_now(request: BoundRequest, output: CommandOutput) -> int:
    """``vgrads bound``."""
    return _answer(request, output, ask_bound, queue_text.bound_text)


def probability_now(request: ProbabilityRequest, output: CommandOutput) -> int:
    """``vgrads probability``."""
    return _answer(request, output, ask_probability, queue_text.probability_text)


def trajectory_now(request: TrajectoryRequest, output: CommandOutput) -> int:
    """``vgrads trajectory``."""
    return _answer(request, output, ask_trajectory, queue_text.trajectory_text)


def forecast_now(request: ForecastRequest, output: CommandOutput) -> int:
    """``vgrads forecast``."""
    return _answer(request, output, ask_forecast, queue_text.forecast_text)


def _answer(
    request: HistoryFields,
    output: CommandOutput,
    operation: Callable[[Question, ForecastContext], Answer],
    text: Callable[[Answer], Any],
) -> int:
    """Answer a question, print and record it; what the history's file holds is printed to standard
    error."""
    question: Question = _make_question(request)
    what = "states of the queue" if question.method == "state" else "past waits"
    with busy(console(stderr=True), f"learning from {what}"):
        answer = operation(
            question, ForecastContext(catalog=read_stored_catalog, record=read_stored_record)
        )
    print_reading(console(stderr=True), request.history.name, answer.query.log)
    record_issued([answer.issued])
    answer_with(output.as_json, answer.as_json(), lambda: text(answer))
    _take_estimate(answer)
    return 0


def _make_question(request: HistoryFields) -> Any:
    """Return the question of a request: about its file, or about the queue of the database that
    HISTORY names, where there is no such file."""
    kind = _KINDS[type(request)]
    fields = field_values(request, kind)
    queue = None if request.queue is None else str(request.queue)
    named = read_stored_queue(request.history, queue)
    if named is None:
        source = HistorySource(file=request.history, queue=queue)
        return kind(**fields, history=source, reading=make_reading_options(request))
    site, chosen = named
    if queue not in (None, chosen.name):
        raise InputError(f"HISTORY names the queue '{chosen.name}' already", where="queue")
    return kind(**fields, site=site.name, queue=chosen.name, reading=make_reading_options(request))


def record_issued(forecasts: Sequence[IssuedForecast]) -> None:
    """Record answers as issued. An answer does not depend on its record."""
    with suppress(OSError, VgradsError):
        ForecastJournal().append(forecasts)


def _take_estimate(answer: QueueAnswer) -> None:
    """Store the own estimate of a Slurm site for the job of an answer about its present queue; the
    answer is printed already."""
    if answer.open_queue.view.source == "site":
        from vgrads.portal.cli.queues import estimate_now  # noqa: PLC0415 late: needs the database

        estimate_now.take_estimate(answer.issued)
