"""The page of a queue: what the predictor that answers says now, and how its bounds did."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.operations.questions import JobQuestion
from vgrads.portal.jobs import children
from vgrads.portal.records.reading.forecast_scores import read_newest_coverage
from vgrads.portal.web.forecasts.record_verdict import RecordVerdict, judge_record
from vgrads.portal.web.forecasts.recording import record
from vgrads.portal.web.guard import READ
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.vgrid.catalog import Queue

Json = dict[str, Any]


class QuestionForm(BaseModel):
    """The fields of the page's form; `start_by`: a duration from now, empty for the default."""

    procs: Annotated[int, Field(ge=1, le=10**9)] = 1
    hours: Annotated[float, Field(gt=0, le=1e5)] = 1.0
    start_by: Annotated[str, Field(max_length=50)] = ""
    probability: Annotated[float, Field(gt=0, lt=1)] = 0.9


def add_queue_pages(app: FastAPI, service: Service) -> None:
    """Add the page, and the picture of its bounds."""

    @app.get("/sites/{site}/{queue}", response_class=HTMLResponse, include_in_schema=False)
    def queue_page(
        site: str,
        queue: str,
        request: Request,
        requested: Annotated[QuestionForm, Query()],
    ) -> HTMLResponse:
        who = reader_of(request)
        entry = _find_queue(service, site, queue)
        warning = service.forecasts.record(site, queue).warning
        here: Json = {"site": site, "queue": queue, "warning": warning, "question": requested}
        if entry.history is None:
            return page_of(request, "/sites", "queue.html", has_history=False, **here)
        here |= {"has_history": True, "problem": ""}
        # imported late: the service starts without forecasts
        from vgrads.api.queues.issuing import Statement, issue_stated
        from vgrads.operations.queue_questions import open_queue
        from vgrads.portal.web.forecasts.queue_now import PageQuestion, queue_now

        shape = procs, walltime_s = requested.procs, requested.hours * 3600.0
        question = PageQuestion(
            procs=procs,
            walltime_s=walltime_s,
            start_by=requested.start_by,
            probability=requested.probability,
        )
        job = JobQuestion(site=site, queue=queue, procs=procs, walltime_s=walltime_s)
        try:
            opened = open_queue(job, service.queues.context(owner=who.user))
            payload = queue_now(opened, question)
        except InputError as error:
            here |= {"problem": error.without_place, "default_start_by": ""}
            return page_of(request, "/sites", "queue.html", 422, **here)
        stated = Statement(
            bounds=tuple((row["probability"], row["bound_s"]) for row in payload["bounds"])
        )
        record(service, who, [issue_stated(opened.query, opened.target, shape, stated)])
        payload["learning"] = opened.reason is not None
        payload["is_live"] = opened.target.is_live
        payload["verdict"] = _describe_verdict(service, site, queue, warning)
        return page_of(request, "/sites", "queue.html", **payload, **here)

    @app.get("/sites/{site}/{queue}/record.svg", include_in_schema=False, dependencies=[READ])
    async def picture(site: str, queue: str, dark: bool = False) -> Response:
        entry = _find_queue(service, site, queue)
        if entry.history is None:
            raise HTTPException(404, f"queue '{site}/{queue}' has no history")
        drawn = await service.supervisor.think(
            children.record_picture, entry.history, entry.of_log, dark
        )
        return Response(drawn, media_type="image/svg+xml", headers={"Cache-Control": "max-age=300"})


def _describe_verdict(
    service: Service, site: str, queue: str, warning: str | None
) -> RecordVerdict:
    newest = read_newest_coverage(service.store.reader, site, queue)
    if not newest:
        return judge_record(0, None, warning)
    return judge_record(newest[-1]["bounds"], newest[-1]["share"], warning)


def _find_queue(service: Service, site: str, queue: str) -> Queue:
    """Return a queue; 404 where there is none."""
    for stage_site in service.catalog.sites:
        for entry in stage_site.queues:
            if (stage_site.name, entry.name) == (site, queue):
                return entry
    raise HTTPException(404, f"no queue '{site}/{queue}'")
