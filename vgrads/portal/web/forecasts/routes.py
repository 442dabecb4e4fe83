"""REST: forecasts for many questions at once, and the scores of issued forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastapi import FastAPI, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document
from vgrads.operations.questions import RankingOptions
from vgrads.portal.records.access import Principal
from vgrads.portal.records.reading import forecast_scores
from vgrads.portal.web.answers import answers
from vgrads.portal.web.embedding.forecast_access import (
    FORECASTS,
    public_answers,
    public_catalog,
    public_questions,
    public_score,
    refuse_missing_queue,
    refuse_quantiles,
)
from vgrads.portal.web.forecasts.recording import record
from vgrads.portal.web.guard import READ, Forecaster, Reader
from vgrads.portal.web.request_models import query_model
from vgrads.portal.web.service import Service

Json = dict[str, Any]
MOST_QUESTIONS = 1000
if TYPE_CHECKING:  # the model is made of the question
    JobFields: TypeAlias = Any
else:
    JobFields = Annotated[query_model(RankingOptions), Query()]
Level = Annotated[float, Field(gt=0, lt=1)]
Within = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class ForecastQuestions(Document):
    """Questions, as `{"site": …, "queue": …, "procs": 64, "walltime_s": 14400}`; with
    `start_by_s` (and `probability`) an answer also has the best instant to submit the job.

    `within_s`: waits at which probabilities are stated.
    """

    questions: Annotated[tuple[Any, ...], Field(min_length=1, max_length=MOST_QUESTIONS)]
    quantiles: Annotated[tuple[Level, ...], Field(min_length=1, max_length=20)] = (
        0.5,
        0.75,
        0.9,
        0.95,
    )
    within_s: Annotated[tuple[Within, ...], Field(min_length=1, max_length=100)] | None = None


def add_forecast_routes(app: FastAPI, service: Service) -> None:
    """Add the routes."""

    @app.post(
        FORECASTS,
        **answers(
            "forecasts.ForecastAnswers", operation="forecast_waits", tag="forecasts", errors=(503,)
        ),
    )
    def forecasts(document: ForecastQuestions, who: Forecaster) -> Json:
        """Answer up to 1,000 questions about waits, in their order. A wrong question has an `error`
        in its place; 422 where all are wrong."""
        return {"forecasts": answer_many(service, who, document)}

    @app.get(
        "/v1/where",
        **answers(
            "forecasts.QueueRanking", operation="rank_queues", tag="forecasts", errors=(503,)
        ),
    )
    def where(who: Reader, job: JobFields) -> Json:
        """Rank all queues by the expected start of a job, as `vgrads where --json`."""
        # imported late: the service starts without forecasts
        from vgrads.operations.ranking import rank_queues

        context = service.queues.context(owner=who.user)
        question = RankingOptions(**job.model_dump())
        answer, result = rank_queues(question, service.catalog, context)
        record(service, who, result.issued)
        return answer

    @app.get(
        "/v1/scores",
        dependencies=[READ],
        **answers("forecasts.AllScores", operation="read_scores", tag="forecasts"),
    )
    def scores() -> Json:
        """Return the scores of all issued forecasts by queue, and of the promises, as `vgrads score
        --json`."""
        return service.forecasts.scores()

    @app.get(
        "/v1/sites/{site}/queues/{queue}/score",
        **answers(
            "forecasts.QueueScore", operation="read_queue_score", tag="forecasts", errors=(404,)
        ),
    )
    def score(site: str, queue: str, who: Forecaster) -> Json:
        """Return the score of the forecasts that were issued about a queue, as `vgrads score SITE
        QUEUE --json`."""
        refuse_missing_queue(who, site, queue)
        return public_score(who, score_of(service, site, queue))


def score_of(service: Service, site: str, queue: str) -> Json:
    """Return the score of a queue; 404 where there is no record, and no such queue or history."""
    result = forecast_scores.queue_score(service.store.reader, site, queue)
    if result["records"]["issued"]:
        return result
    names = {(s.name, q.name): q.history for s in service.catalog.sites for q in s.queues}
    if (site, queue) not in names:
        raise HTTPException(404, f"no queue '{site}/{queue}'")
    if names[site, queue] is None:
        raise HTTPException(404, f"queue '{site}/{queue}' has no history")
    return result


def answer_many(service: Service, who: Principal, document: ForecastQuestions) -> list[Json]:
    """Answer questions as far as the user may ask them, and record the answers. Raise InputError
    where every question is wrong."""
    # imported late: the service starts without forecasts
    from vgrads.operations.forecast_lists import WITHIN_S, HowToAnswer, forecast_many

    refuse_quantiles(who, document.quantiles)
    how = HowToAnswer(
        quantiles=document.quantiles,
        within_s=WITHIN_S if document.within_s is None else document.within_s,
    )
    context = service.queues.context(public_catalog(who, service.catalog), who.user)
    result = forecast_many(public_questions(who, document.questions), context, how)
    if result.first_error is not None:
        raise result.first_error
    record(service, who, result.issued)
    return public_answers(who, result.answers)
