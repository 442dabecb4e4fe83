"""REST and forms: do failed tasks of a bag again; drop those that wait; archive a bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Form
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.portal.records.archived import archive_work
from vgrads.portal.records.reading.bags import HERE, BagEntry
from vgrads.portal.records.reading.run_rows import NamedWork
from vgrads.portal.web.answers import answers
from vgrads.portal.web.bags.access import BagId, refuse_unattended, visible_bag
from vgrads.portal.web.guard import Submitter
from vgrads.portal.web.problems import message
from vgrads.portal.web.service import Service

Json = dict[str, Any]
_TaskNumber = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
_DROP_S = 10.0


class BagRetry(BaseModel):
    """The tasks to do again, by number; none: all that failed or were not run."""

    model_config = ConfigDict(extra="forbid")

    tasks: Annotated[list[_TaskNumber], Field(max_length=1_000_000)] = []


class BagDrop(BaseModel):
    """The tasks to drop, by number."""

    model_config = ConfigDict(extra="forbid")

    tasks: Annotated[list[_TaskNumber], Field(min_length=1, max_length=1_000_000)]


def add_bag_retries(app: FastAPI, service: Service) -> None:
    """Add the routes and the forms."""

    @app.post(
        "/v1/bags/{bag_id}/retry",
        status_code=202,
        **answers("bags.RetriedTasks", operation="retry_bag", tag="bags", errors=(404, 409)),
    )
    def retry_bag(bag_id: BagId, who: Submitter, request: BagRetry | None = None) -> Json:
        """Do tasks of a bag again: these ``tasks``, done or not, or without a body all that failed
        or were not run. The bag works again; what is done is not repeated."""
        row = visible_bag(service, bag_id, who)
        return retry_row(service, row, request.tasks if request else ())

    @app.post(
        "/v1/bags/{bag_id}/drop",
        **answers("bags.DroppedTasks", operation="drop_tasks", tag="bags", errors=(404, 409, 503)),
    )
    def drop_tasks(bag_id: BagId, who: Submitter, request: BagDrop) -> Json:
        """Drop those of these ``tasks`` that no agent has; the answer has the numbers of the tasks
        that were dropped."""
        row = visible_bag(service, bag_id, who)
        refuse_unattended(row, "cancel")
        # imported late: the service starts without the dispatcher
        from vgrads.dispatch.storage.drop_requests import request_drop

        folder = dispatcher_folder(row.dispatcher)
        try:
            dropped = request_drop(folder, row.number, request.tasks, _DROP_S)
        except TimeoutError as error:
            message = f"the dispatcher of bag '{bag_id}' did not answer within {_DROP_S:g} s"
            raise HTTPException(503, message, {"Retry-After": "1"}) from error
        return {"id": row.id, "tasks": dropped}

    @app.post("/bags/{bag_id}/archive", include_in_schema=False)
    def archive_form(
        bag_id: BagId, who: Submitter, archived: Annotated[bool, Form()]
    ) -> RedirectResponse:
        visible_bag(service, bag_id, who)
        archive_work(service.store, NamedWork("bag", bag_id), archived)
        return RedirectResponse(f"/bags/{bag_id}", 303)

    @app.post("/bags/{bag_id}/retry", include_in_schema=False)
    def retry_form(bag_id: BagId, who: Submitter) -> RedirectResponse:
        retry_row(service, visible_bag(service, bag_id, who), ())
        return RedirectResponse(f"/bags/{bag_id}", 303)


def retry_row(service: Service, row: BagEntry, tasks: Sequence[int]) -> Json:
    """Do these tasks of a bag again, or all that failed or were not run; 409 where there are none,
    or no dispatcher would do it."""
    # imported late: the service starts without the dispatcher
    from vgrads.api.bags.retries import NotRetriableError
    from vgrads.portal.jobs.bags import retry

    if row.owner == HERE and not is_worked_on(dispatcher_folder(row.dispatcher)):
        raise HTTPException(409, f"it is a bag of the command line: vgrads retry {row.id}")
    try:
        count, _ = retry(service.store, row, tasks or None)
    except NotRetriableError as error:
        raise HTTPException(409, str(error)) from error
    service.supervisor.notify()
    return {"id": row.id, "tasks": count, **message("asked its dispatcher to do them again")}
