"""REST: releasing the tasks of a run one by one, and hearing how they stand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header
from fastapi import Path as PathParameter
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document, NotNegative, as_value_error
from vgrads.portal.records.access import Principal
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.store import GOES_ON
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.gatherings import GatherDocument, Gatherings
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.live_routes import RunId
from vgrads.portal.web.service import Service
from vgrads.workflows.dag import check_command
from vgrads.workflows.sets import TaskDocument

_LOOK_S = 0.1
_MOST = 10_000
_Name = Annotated[str, Field(max_length=200)]
Gathered = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


class ReleaseDocument(Document):
    """Leave to begin a task, with what it is to run."""

    kind: Literal["release"] = "release"
    workflow: _Name
    task: _Name
    command: Annotated[str, Field(min_length=1)]
    memory_mib: NotNegative = 0.0

    @field_validator("command")
    @classmethod
    def _command(cls, value: str) -> str:
        as_value_error(lambda: check_command(value))
        return value


class GiveUpDocument(Document):
    """A task that nobody will release any more; what needs it is given up with it."""

    kind: Literal["give-up"] = "give-up"
    workflow: _Name
    task: _Name
    reason: Annotated[str, Field(max_length=1000)] = "given up"


class AddDocument(Document):
    """A task that the workflow has besides: the remainder is planned anew with it."""

    kind: Literal["add"] = "add"
    workflow: _Name
    task: _Name
    document: TaskDocument


class MailDocument(Document):
    """What is told to a run, as one: added first, then released, then given up."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"release": [{"workflow": "calls-1", "task": "align-a", "command": "./align a"}]}
            ]
        }
    )

    add: Annotated[tuple[AddDocument, ...], Field(max_length=_MOST)] = ()
    release: Annotated[tuple[ReleaseDocument, ...], Field(max_length=_MOST)] = ()
    give_up: Annotated[tuple[GiveUpDocument, ...], Field(max_length=_MOST)] = ()


def add_release_routes(app: FastAPI, service: Service) -> None:
    """Releases and answers."""

    def run_of(run_id: RunId, who: Reader) -> RunRow:
        return _released_run(service, run_id, who)

    @app.post("/v1/runs/{run_id}/releases", status_code=202)
    def release(run_id: RunId, mail: MailDocument, who: Submitter) -> dict[str, Any]:
        """Release tasks of a set that is ``released``: each begins in its turn, in its slot, with
        this command.

        With nothing in it, a sign of life: a run that hears nothing for ten minutes gives
        everything back.
        """
        run = _released_run(service, run_id, who)
        if run.state not in GOES_ON:
            raise HTTPException(409, f"run '{run_id}' is over: {run.state}")
        told = [one.model_dump(mode="json") for one in chain(mail.add, mail.release, mail.give_up)]
        told = told or [{"kind": "sign"}]
        return {"run": run_id, "after": MessageBox(service.store.engine, run_id).tell(told)}

    gatherings = Gatherings(service)

    @app.post("/v1/gatherings/{name}", status_code=202)
    async def join(name: Gathered, given: GatherDocument, who: Submitter) -> dict[str, Any]:
        """Bring a workflow to a set that several callers put together; its tasks are released one
        by one."""
        return gatherings.join(name, given, who)

    @app.get("/v1/gatherings/{name}/{ticket}")
    async def look(name: Gathered, ticket: Gathered, who: Reader) -> dict[str, Any]:
        """How that set stands: waiting, begun (with the names of set, run and workflow) or
        failed."""
        return gatherings.look(name, ticket, who)

    @app.get("/v1/runs/{run_id}/answers", response_class=EventSourceResponse)
    async def answers(
        last_event_id: Annotated[str | None, Header()] = None,
        run: RunRow = Depends(run_of),  # noqa: B008  # a local name cannot stand in an annotation
    ) -> AsyncIterator[ServerSentEvent]:
        """How tasks stand, as server-sent events: running (site, slot), done, failed (may be
        released again), lost.

        ``Last-Event-ID`` goes on behind that one; the last event is ``end`` with the run's state.
        """
        last = last_event_id or ""
        after = int(last) if last.isdigit() else 0
        async for one in _follow(service, run.id, after):
            yield one


def _released_run(service: Service, run_id: str, who: Principal) -> RunRow:
    run = service.sets.run(run_id)
    if run is None:
        raise HTTPException(404, f"no run '{run_id}'")
    service.visible(run.set_id, who)
    if not service.sets.is_released(run.set_id):
        told = (
            f"the tasks of set '{run.set_id}' are not released one by one; 'released: true' says so"
        )
        raise HTTPException(409, told)
    return run


async def _follow(service: Service, run_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    box = MessageBox(service.store.engine, run_id)
    while not service.stopping.is_set():
        state = (await run_in_threadpool(service.store.get_run, run_id)).state
        for number, body in await run_in_threadpool(box.answers, after):
            after = number
            yield ServerSentEvent(data=body, event=body["state"], id=str(number))
        if state not in GOES_ON:
            end = {"run": run_id, "state": state}
            yield ServerSentEvent(data=end, event="end", id=str(after))
            return
        await asyncio.sleep(_LOOK_S)
