"""REST: release the tasks of a run one by one, and follow their states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi import Path as PathParameter
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.portal.records.access import Principal
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.answers import answers, events_of
from vgrads.portal.web.checked_routes import body_of, checked_body
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.joint_submissions import JointSubmissions
from vgrads.portal.web.live_routes import RunId
from vgrads.portal.web.planned_tasks import PlannedTasks
from vgrads.portal.web.service import Service

if TYPE_CHECKING:
    from vgrads.portal.jobs.release_documents import MailDocument

_LOOK_S = 0.1
Gathered = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


def add_release_routes(app: FastAPI, service: Service) -> None:
    """Add releases and answers, and joint submissions."""
    _add_releases(app, service)
    _add_joint_submissions(app, service)
    _add_following(app, service)


def _add_releases(app: FastAPI, service: Service) -> None:
    planned_tasks = PlannedTasks(service)

    @app.post(
        "/v1/runs/{run_id}/releases",
        status_code=202,
        **answers(
            "runs.ReleasesStored",
            operation="release_tasks",
            tag="runs",
            errors=(404, 409),
            extra=body_of("MailDocument"),
        ),
    )
    async def release(run_id: RunId, request: Request, who: Submitter) -> dict[str, Any]:
        """Release tasks of a set that is ``released``: each starts in its turn, in its slot, with
        this command.

        An empty request is a heartbeat: a run without requests for ten minutes releases everything.
        """
        run = await run_in_threadpool(_find_released_run, service, run_id, who)
        if run.state not in GOES_ON:
            raise HTTPException(409, f"run '{run_id}' has ended: {run.state}")
        # imported late: the service starts without the documents of sets
        from vgrads.portal.jobs.release_documents import MailDocument

        mail = await checked_body(MailDocument, request, service.supervisor.think)
        await planned_tasks.require(run, *_list_tasks(mail))
        after = await run_in_threadpool(_store, MessageBox(service.store.engine, run_id), mail)
        return {"run": run_id, "after": after}


def _add_joint_submissions(app: FastAPI, service: Service) -> None:
    joint_submissions = JointSubmissions(service)
    described = body_of("JointSubmissionDocument")

    @app.post(
        "/v1/joint-submissions/{name}",
        status_code=202,
        **answers(
            "runs.JointSubmissionState",
            operation="join_submission",
            tag="joint submissions",
            errors=(404, 409),
            extra=described,
        ),
    )
    async def join(name: Gathered, request: Request, who: Submitter) -> dict[str, Any]:
        """Add a workflow to a joint submission of several callers; its tasks are released one by
        one."""
        # imported late, as for releases
        from vgrads.portal.jobs.release_documents import JointSubmissionDocument

        document = await checked_body(JointSubmissionDocument, request, service.supervisor.think)
        return joint_submissions.join(name, document, who)

    @app.get(
        "/v1/joint-submissions/{name}/{ticket}",
        **answers(
            "runs.JointSubmissionState",
            operation="read_joint_submission",
            tag="joint submissions",
            errors=(404,),
        ),
    )
    async def look(name: Gathered, ticket: Gathered, who: Reader) -> dict[str, Any]:
        """Read the state of that set: waiting, begun (with the names of set, run and workflow) or
        failed."""
        return joint_submissions.look(name, ticket, who)


def _add_following(app: FastAPI, service: Service) -> None:
    def run_of(run_id: RunId, who: Reader) -> RunRow:
        return _find_released_run(service, run_id, who)

    @app.get(
        "/v1/runs/{run_id}/answers",
        response_class=EventSourceResponse,
        **answers(
            events_of("runs.ReleasedTaskState"),
            operation="follow_released_tasks",
            tag="runs",
            errors=(404, 409),
        ),
    )
    async def follow_tasks(
        last_event_id: Annotated[str | None, Header()] = None,
        run: RunRow = Depends(run_of),  # noqa: B008  # a local name cannot stand in an annotation
    ) -> AsyncIterator[ServerSentEvent]:
        """Stream the states of tasks as server-sent events: running (site, slot), done, failed (may
        be released again), lost.

        ``Last-Event-ID`` continues after that one; the last event is ``end`` with the run's state.
        """
        last = last_event_id or ""
        after = int(last) if last.isdigit() else 0
        async for event in _follow(service, run.id, after):
            yield event


def _list_tasks(mail: MailDocument) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the tasks that a request releases or gives up, and those that it adds."""
    named = [(item.workflow, item.task) for item in mail.release]
    named += [(item.workflow, item.task) for item in mail.give_up]
    return named, [(item.workflow, item.task) for item in mail.add]


def _store(box: MessageBox, mail: MailDocument) -> int:
    items = chain(mail.add, mail.release, mail.give_up)
    message = [item.model_dump(mode="json") for item in items]
    # without tasks it says only that the program is there
    return box.report(message or [{"kind": "sign"}])


def _find_released_run(service: Service, run_id: str, who: Principal) -> RunRow:
    run = service.visible_run(run_id, who)
    if not service.sets.is_released(run.set_id):
        text = (
            f"the tasks of set '{run.set_id}' are not released one by one; "
            "set 'released: true' in it"
        )
        raise HTTPException(409, text)
    return run


async def _follow(service: Service, run_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    box = MessageBox(service.store.engine, run_id)
    while not service.stopping.is_set():
        # before the answers: those that a run stores as it ends must still be sent
        state = (await run_in_threadpool(service.store.get_run, run_id)).state
        for number, body in await run_in_threadpool(box.answers, after):
            after = number
            yield ServerSentEvent(data=body, event=body["state"], id=str(number))
        if state not in GOES_ON:
            end = {"run": run_id, "state": state}
            yield ServerSentEvent(data=end, event="end", id=str(after))
            return
        await asyncio.sleep(_LOOK_S)
