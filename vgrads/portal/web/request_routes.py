"""REST: what a run has to keep, and its change while it goes on."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.operations.runs.requests import ChangeRequest
from vgrads.portal.jobs import children
from vgrads.portal.jobs.run_changes import refuse_ended, request_history, send_change
from vgrads.portal.records.access import Principal
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.answers import answers
from vgrads.portal.web.goal_fields import GoalPatch
from vgrads.portal.web.guard import IfMatch, Reader, Submitter
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId

Json = dict[str, Any]
_Site = Annotated[str, Field(max_length=200)]


class RequestPatch(GoalPatch):
    """What changes of a run's request. ``deadline``: a time from now, or an instant with its zone;
    ``at_least``: a number of workflows, or a share as ``90%``; ``drop_sites``: where no more slots
    are requested, ``add_sites``: where they are again."""

    add_sites: Annotated[tuple[_Site, ...], Field(max_length=100)] = ()
    drop_sites: Annotated[tuple[_Site, ...], Field(max_length=100)] = ()


def add_request_routes(app: FastAPI, service: Service) -> None:
    """Add the routes."""

    @app.get(
        "/v1/workflow-sets/{set_id}/request",
        **answers("runs.RequestOfRun", operation="read_request", tag="runs", errors=(404, 409)),
    )
    def read_request(set_id: SetId, who: Reader, response: Response) -> Json:
        """Read what the newest run has to keep, and how that was changed. ``ETag``: for changes."""
        service.visible(set_id, who)
        run = newest_run_of(service, set_id)
        result = service.live.folded(run.id)
        if result is None:
            raise HTTPException(409, "the run has not started yet")
        response.headers["ETag"] = request_tag(service, run)
        return {"run": run.id, "history": request_history(service.store, run, result[1])}

    @app.patch(
        "/v1/workflow-sets/{set_id}/request",
        status_code=202,
        **answers(
            "runs.RequestChangeSent",
            operation="change_request",
            tag="runs",
            errors=(404, 409, 412, 428),
        ),
    )
    async def change_request(
        set_id: SetId,
        who: Submitter,
        change: RequestPatch,
        if_match: IfMatch = None,
        preview: bool = False,
    ) -> Json:
        """Change what a run has to keep: the remainder is planned again. ``If-Match``: the ``ETag``
        of the request. ``preview``: only answer what would be promised."""
        await run_in_threadpool(service.visible, set_id, who)
        return await changed(service, set_id, who, requested(set_id, change), if_match, preview)


def requested(set_id: str, patch: RequestPatch) -> ChangeRequest:
    """Return the request for a change; InputError for values that it refuses."""
    return ChangeRequest(
        run=set_id, add_sites=patch.add_sites, drop_sites=patch.drop_sites, **patch.stated()
    )


async def changed(
    service: Service,
    set_id: str,
    who: Principal,
    request: ChangeRequest,
    if_match: str | None,
    preview: bool,
) -> Json:
    """Return what a changed request would promise; send it to the run's manager, unless it is a
    preview. 409 for an ended run, 428 without ``If-Match``, 412 for another than the present."""
    # imported late: the journal of the run is read first
    from vgrads.execmgr.core.journal import change_from_json

    run = await run_in_threadpool(newest_run_of, service, set_id)
    refuse_ended(run)
    if not preview:
        tag = await run_in_threadpool(request_tag, service, run)
        if if_match is None:
            raise HTTPException(428, "If-Match: the ETag of the request is needed")
        if if_match not in (tag, "*"):
            raise HTTPException(412, f"If-Match: the request has changed; its ETag is {tag}")
    url = service.store.url
    result: Json = await service.supervisor.think(
        children.preview_change, url, run.id, request, who.user
    )
    message = None
    if not preview:
        sent = change_from_json(result["change"])
        message = await run_in_threadpool(send_change, service.store, run.id, sent)
    return {name: result[name] for name in ("run", "before", "after", "cost_usd")} | {
        "message": message
    }


def request_tag(service: Service, run: RunRow) -> str:
    """Return the tag of a run's request: it changes with each message that changes it."""
    return f'"{run.id}-{MessageBox(service.store.engine, run.id).newest_change()}"'


def newest_run_of(service: Service, set_id: str) -> RunRow:
    """Return the newest run of a set; 409 where it has not run."""
    run = service.newest_run(set_id)
    if run is None:
        raise HTTPException(409, "the set has not run")
    return run
