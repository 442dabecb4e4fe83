"""The page on which the request of a run is changed: the new promise stands beside the present one
before it is confirmed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.run_changes import request_history
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.web.goal_fields import GoalTexts
from vgrads.portal.web.guard import Submitter
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.request_routes import RequestPatch, changed, request_tag, requested
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, summary

Json = dict[str, Any]


class RequestForm(GoalTexts):
    """The form. ``act``: show the new promise, or change the request."""

    act: Literal["preview", "change"] = "preview"


def add_request_pages(app: FastAPI, service: Service) -> None:
    """Add the page and its form."""

    def page(
        request: Request,
        set_id: str,
        form: RequestForm,
        preview: Json | None = None,
        problem: str = "",
    ) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        run = service.newest_run(set_id)
        if run is None or run.state not in GOES_ON:
            raise HTTPException(409, "the set does not run: submit a changed one")
        result = service.live.folded(run.id)
        if result is None:
            raise HTTPException(409, "the run has not started yet")
        return page_of(
            request,
            "",
            "request.html",
            s=summary(service, head),
            history=request_history(service.store, run, result[1]),
            promise=result[1].promise.probability,
            form=form,
            etag=form.etag or request_tag(service, run),
            preview=preview,
            problem=problem,
        )

    @app.get("/sets/{set_id}/request", response_class=HTMLResponse, include_in_schema=False)
    def show(set_id: SetId, request: Request) -> HTMLResponse:
        return page(request, set_id, RequestForm())

    @app.post(
        "/sets/{set_id}/request",
        response_class=HTMLResponse,
        include_in_schema=False,
        response_model=None,
    )
    async def change(
        set_id: SetId, request: Request, who: Submitter, form: Annotated[RequestForm, Form()]
    ) -> Response:
        await run_in_threadpool(service.visible, set_id, who)
        preview = form.act == "preview"
        try:
            wished = requested(set_id, RequestPatch(**form.stated()))
            answer = await changed(service, set_id, who, wished, form.etag or None, preview)
        except InputError as error:
            shown = await run_in_threadpool(page, request, set_id, form, None, str(error))
            shown.status_code = 422
            return shown
        if preview:
            return await run_in_threadpool(page, request, set_id, form, answer)
        return RedirectResponse(f"/sets/{set_id}", 303)
