"""REST and pages: bags of tasks, submitted whole or task by task, and their results in real
time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, FastAPI, Form, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import read_agent_names, read_latest, read_status
from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import is_database
from vgrads.portal.charts.rates import rate_chart
from vgrads.portal.jobs import children
from vgrads.portal.jobs.bag_service import source_of
from vgrads.portal.records.access import Principal
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import ENDED, BagEntry, read_bag_status
from vgrads.portal.web.answers import answers, events_of, files_of, lines_of, list_of
from vgrads.portal.web.bag_intake import BUNDLE, take_tasks
from vgrads.portal.web.bags.access import BagId, refuse_unattended, visible_bag
from vgrads.portal.web.bags.answer import answer_of
from vgrads.portal.web.bags.goal import goal_view
from vgrads.portal.web.bags.goal_form import GoalMistake, change_by_form
from vgrads.portal.web.bags.goal_routes import goal_tag, undecided
from vgrads.portal.web.bags.liveness import note_client_of, while_connected
from vgrads.portal.web.bags.news import NewsOfEnds
from vgrads.portal.web.checked_routes import MOST_PARSED, kind_of, turn_of
from vgrads.portal.web.goal_fields import GoalTexts
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.paging import NameFilter, Page
from vgrads.portal.web.problems import message
from vgrads.portal.web.service import Service

if TYPE_CHECKING:
    from vgrads.api.bags.answers import Results

BagState = Literal["waiting", "running", "done", "failed", "cancelled"]
Json = dict[str, Any]
_EXAMPLE = {
    "name": "sweep",
    "command": "python sim.py --seed {seed}",
    "parameters": {"seed": {"range": [1000]}},
}
_BODY = {
    "required": True,
    "content": {
        kind: {"schema": {"$ref": "#/components/schemas/BagDocument"}, "example": _EXAMPLE}
        for kind in ("application/json", "application/yaml")
    },
}
NDJSON = "application/x-ndjson"
_TASKS = {
    "required": True,
    "content": {NDJSON: {"schema": {"type": "string"}, "example": '"sleep 1"\n"sleep 2"\n'}},
}
_LOOK_S = 0.3
_COUNTS = (
    *("done", "failed", "running", "waiting", "dropped"),
    *("tried_again", "copied", "reused", "rate"),
)
_UNMEASURED: Json = dict.fromkeys(_COUNTS, 0) | {
    "weight": 1,
    "typical_s": None,
    "left_s": None,
    "reason": "",
    "problem": "",
    "times": {},
    "goal": {},
}


def add_bag_routes(app: FastAPI, service: Service) -> None:
    """Add routes to submit, add, read, follow and cancel; two pages."""
    _add_submission(app, service)
    _add_changes(app, service)
    _add_reading(app, service)
    _add_following(app, service)
    _add_pages(app, service)


def _add_submission(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/bags",
        status_code=201,
        **answers(
            "bags.SubmittedBag",
            operation="submit_bag",
            tag="bags",
            errors=(409, 503),
            extra={"requestBody": _BODY},
        ),
    )
    async def receive_bag(
        request: Request, response: Response, who: Submitter, reuse: bool = False
    ) -> Json:
        """Submit a bag of tasks, as JSON or YAML. With ``open: true`` its commands are added later
        (``/tasks``). ``reuse``: tasks that your earlier bags of this name did are not repeated."""
        kind = kind_of(request.headers.get("content-type", ""))
        body = await request.body()
        granted = await run_in_threadpool(service.granted, who.user)

        def keep() -> BagEntry:
            # imported late: the service starts without the dispatcher
            from vgrads.portal.jobs.bag_worker import read_document, submit_bag

            document = read_document(body, kind, who.user)
            return submit_bag(service.store, service.catalog, granted, document, not reuse)

        row: BagEntry
        if len(body) > MOST_PARSED:  # this process would answer nothing else meanwhile
            where = (service.store.url, service.catalog, granted, who.user)
            row = await service.supervisor.think(
                children.submit_bag, *where, (body, kind), not reuse
            )
        else:
            async with turn_of(request):
                row = await run_in_threadpool(keep)
        service.supervisor.notify()
        response.headers["Location"] = f"/v1/bags/{row.id}"
        return {"id": row.id, "tasks": row.tasks, "state": row.state}


def _add_changes(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/bags/{bag_id}/tasks",
        status_code=202,
        **answers(
            "bags.StoredTasks",
            operation="add_tasks",
            tag="bags",
            errors=(404, 409, 507),
            extra={"requestBody": _TASKS},
        ),
    )
    async def add_tasks(bag_id: BagId, request: Request, who: Submitter) -> Json:
        """Add commands to an open bag: a JSON string on each line, any number, streamed.

        An invalid line ends the request; the lines of whole bundles before it are stored, and the
        answer has their number.
        """
        row = await run_in_threadpool(visible_bag, service, bag_id, who)
        await run_in_threadpool(note_client_of, row)
        return {"id": row.id, "taken": await take_tasks(row, request)}

    @app.post(
        "/v1/bags/{bag_id}/close",
        status_code=202,
        **answers("bags.BagRequestSent", operation="close_bag", tag="bags", errors=(404, 409)),
    )
    def close(bag_id: BagId, who: Submitter) -> Json:
        """Close an open bag: no more tasks can be added, and it ends when its tasks have ended."""
        # imported late, as for a submission
        from vgrads.dispatch.storage.folder import close_bag, open_bag

        row = visible_bag(service, bag_id, who)
        if not open_bag(dispatcher_folder(row.dispatcher), row.number).document.open:
            raise HTTPException(409, f"bag '{bag_id}' was not submitted as an open bag")
        close_bag(dispatcher_folder(row.dispatcher), row.number)
        return {"id": row.id, **message("the bag is closed: it accepts no more tasks")}

    @app.delete(
        "/v1/bags/{bag_id}",
        status_code=202,
        **answers("bags.BagRequestSent", operation="cancel_bag", tag="bags", errors=(404, 409)),
    )
    def cancel_bag(bag_id: BagId, who: Submitter) -> Json:
        """Cancel the remaining tasks of a bag; running ones are killed."""
        return cancel_row(service, visible_bag(service, bag_id, who), who)


def cancel_row(service: Service, row: BagEntry, who: Principal) -> Json:
    """Cancel a bag; 409 where it has ended, or no dispatcher would do it."""
    refuse_unattended(row, "cancel")
    BagStore(service.store.engine).ask_to_stop(row.id, f"cancelled by {who.user}")
    service.supervisor.notify()
    return {"id": row.id, **message("asked its dispatcher to cancel it")}


_OF_ITS_ROW = ("number", "name", "owner", "state")  # missing where a dispatcher cannot read the bag


def status_of(row: BagEntry) -> Json:
    """Return a bag: its row, and its last status."""
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "state": row.state,
        "tasks": row.tasks,
        "created": row.created.isoformat(),
        **{k: v for k, v in read_bag_status(row).items() if k not in _OF_ITS_ROW},
    }


def _make_row(row: BagEntry) -> Json:
    """Return a bag for the pages: all shown fields, also before its dispatcher has measured
    anything."""
    return _UNMEASURED | status_of(row)


def _list_hosts(row: BagEntry) -> Json:
    status = read_status(dispatcher_folder(row.dispatcher))
    return {
        name: status.get(name)
        for name in (
            "now_s",
            "host_count",
            "coming",
            "hosts",
            "rates",
            "reasons",
            "problem",
            "refused",
        )
    }


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.get("/v1/bags", **answers(list_of("bags.BagSummary"), operation="list_bags", tag="bags"))
    def list_bags(
        who: Reader, paging: Page, name: NameFilter = "", state: BagState | None = None
    ) -> list[Json]:
        """List your bags (an operator: all), newest first; the header ``Link`` has the next
        page."""
        owner = None if who.operator else who.user
        bags = BagStore(service.store.engine)
        rows = bags.newest(owner, paging.limit + 1, paging.after, name, state)
        return [status_of(row) for row in paging.page(rows, lambda row: row.id)]

    @app.get(
        "/v1/bags/{bag_id}",
        **answers("bags.BagDetails", operation="read_bag", tag="bags", errors=(404,)),
    )
    def read_bag(bag_id: BagId, who: Reader, response: Response) -> Json:
        """Read the status of a bag: tasks waiting, running, done and failed, ends per second,
        agents and why they joined and left. ``ETag``: of its goal, if it has one."""
        row = visible_bag(service, bag_id, who)
        note_client_of(row)
        status = status_of(row)
        if status.get("goal"):
            response.headers["ETag"] = goal_tag(row)
        return status | {"dispatcher": _list_hosts(row)}

    @app.get(
        "/v1/bags/{bag_id}/tasks/{task}",
        **answers("bags.TaskExplanation", operation="explain_task", tag="bags", errors=(404,)),
    )
    def explain_task(
        bag_id: BagId,
        task: Annotated[int, PathParameter(ge=0, le=10**9)],
        who: Reader,
        host: Annotated[str, Query(max_length=200)] = "",
    ) -> Json:
        """Explain the state of a task, and why agents (or one of them) do not get it: policy slot,
        expression, values."""
        return explain_bag_task(visible_bag(service, bag_id, who), task, host)

    @app.get(
        "/v1/bags/{bag_id}/outputs/{name:path}",
        response_class=FileResponse,
        **answers(
            files_of("application/octet-stream"), operation="read_output", tag="bags", errors=(404,)
        ),
    )
    def read_output(
        bag_id: BagId, name: Annotated[str, PathParameter(max_length=1000)], who: Reader
    ) -> FileResponse:
        """Read a file that a task of the bag wrote and its document declares."""
        row = visible_bag(service, bag_id, who)
        folder = (source_of(row) / "results").resolve()
        # resolved, since links and '..' must not lead out of the folder
        path = (folder / name).resolve()
        inside = path.is_relative_to(folder) and not is_database(path)
        if "\0" in name or not inside or not path.is_file():
            raise HTTPException(404, f"no output '{name}'")
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def explain_bag_task(row: BagEntry, task: int, host: str = "") -> Json:
    """Explain the state of a task of a bag; 404 where there is none, or no such agent."""
    # imported late, as for a submission
    from vgrads.api.bags.answers import why

    try:
        return why(dispatcher_folder(row.dispatcher), row.number, task, host)
    except InputError as error:
        raise HTTPException(404, str(error)) from error


def _add_following(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/bags/{bag_id}/results",
        response_class=StreamingResponse,
        **answers(
            lines_of("bags.BagTaskResult"), operation="read_results", tag="bags", errors=(404,)
        ),
    )
    def bag_results(
        bag_id: BagId,
        who: Reader,
        request: Request,
        follow: bool = False,
        skip: Annotated[int, Query(ge=0, le=10**12)] = 0,
    ) -> StreamingResponse:
        """Read the result of each attempt with its output: one JSON document per line, in the order
        of the ends.

        ``follow``: until the bag is terminal; ``skip``: continue after this many lines.
        """
        row = visible_bag(service, bag_id, who)
        lines = while_connected(request, row, result_lines(service, row, follow, skip))
        return StreamingResponse(lines, media_type=NDJSON)

    def open_bag_row(bag_id: BagId, who: Reader) -> BagEntry:
        return visible_bag(service, bag_id, who)

    @app.get(
        "/v1/bags/{bag_id}/events",
        response_class=EventSourceResponse,
        **answers(events_of("bags.BagSummary"), operation="follow_bag", tag="bags", errors=(404,)),
    )
    async def bag_events(row: BagEntry = Depends(open_bag_row)) -> AsyncIterator[ServerSentEvent]:  # noqa: B008
        """Stream the status of the bag as server-sent events at each change; the last one is
        ``end``."""
        before: Json = {}
        while not service.stopping.is_set():
            fresh = await run_in_threadpool(BagStore(service.store.engine).get, row.id)
            payload = await run_in_threadpool(status_of, fresh)
            if fresh.state in ENDED:
                yield ServerSentEvent(data=payload, event="end")
                return
            if (content := _remove_age(payload)) != before:
                yield ServerSentEvent(data=payload, event="status")
            before = content
            await asyncio.sleep(_LOOK_S)


def _remove_age(payload: Json) -> Json:
    """Return a bag without what changes by the passage of time alone."""
    goal = payload.get("goal")
    return payload | {"goal": goal | {"promise_age_s": None}} if goal else payload


async def result_lines(
    service: Service, row: BagEntry, follow: bool = False, skip: int = 0, task: int | None = None
) -> AsyncIterator[bytes]:
    """Yield the results of a bag's attempts, or of those at one task, as lines of JSON."""

    def results() -> Results:
        # imported late, as for a submission; in a thread, since other requests go on
        from vgrads.api.bags.answers import Results

        return Results(dispatcher_folder(row.dispatcher), row.number)

    def more() -> tuple[bool, list[bytes]]:
        """Read the state first: the results before the end are there when it is."""
        ended = not follow or BagStore(service.store.engine).get(row.id).state in ENDED
        rows = (r for r in reader.more() if task in (None, r["task"]))
        return ended, [json.dumps(result).encode() + b"\n" for result in rows]

    reader = await run_in_threadpool(results)
    async with NewsOfEnds(dispatcher_folder(row.dispatcher)) as news:
        while True:
            ended, bodies = await run_in_threadpool(more)
            fresh_lines, skip = bodies[skip:], max(0, skip - len(bodies))
            for at in range(0, len(fresh_lines), BUNDLE):
                yield b"".join(fresh_lines[at : at + BUNDLE])
            if ended or service.stopping.is_set():
                return
            if not bodies:
                await news.wait(_LOOK_S)


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/bags", include_in_schema=False)
    def bags_page(request: Request) -> RedirectResponse:
        reader_of(request)
        return RedirectResponse("/?kind=bag", 308)

    @app.get("/bags/{bag_id}/why", response_class=HTMLResponse, include_in_schema=False)
    def why_page(
        bag_id: BagId,
        request: Request,
        task: Annotated[int, Query(ge=0, le=10**9)] = 0,
        host: Annotated[str, Query(max_length=200)] = "",
    ) -> HTMLResponse:
        # imported late, as for a submission
        from vgrads.api.bags.answers import why

        row = visible_bag(service, bag_id, reader_of(request))
        try:
            payload, problem = why(dispatcher_folder(row.dispatcher), row.number, task, host), ""
        except InputError as error:
            payload, problem = {}, str(error)
        return page_of(
            request,
            "/",
            "bag_why.html",
            b=_make_row(row),
            t=payload,
            problem=problem,
            task=task,
            host=host,
        )

    @app.get("/bags/{bag_id}", response_class=HTMLResponse, include_in_schema=False)
    def bag_page(bag_id: BagId, request: Request) -> HTMLResponse:
        row = visible_bag(service, bag_id, reader_of(request))
        return _bag_page(request, row, GoalTexts(etag=goal_tag(row)))

    @app.post(
        "/bags/{bag_id}/goal",
        response_class=HTMLResponse,
        include_in_schema=False,
        response_model=None,
    )
    def change_goal(
        bag_id: BagId, request: Request, who: Submitter, form: Annotated[GoalTexts, Form()]
    ) -> Response:
        row = visible_bag(service, bag_id, who)
        mistake = change_by_form(service, row, form)
        if mistake is None:
            return RedirectResponse(f"/bags/{bag_id}", 303)
        return _bag_page(request, row, form, mistake)


def _bag_page(
    request: Request, row: BagEntry, form: GoalTexts, mistake: GoalMistake | None = None
) -> HTMLResponse:
    bag, hosts = _make_row(row), _list_hosts(row)
    goal = goal_view(bag, hosts["now_s"])
    return page_of(
        request,
        "/",
        "bag.html",
        422 if mistake else 200,
        b=bag,
        answer=answer_of(row, bag),
        d=hosts,
        live=row.state not in ENDED,
        archived=row.archived_s is not None,
        last=_list_last(row),
        chart=rate_chart(hosts["rates"] or ()),
        goal=goal,
        form=form,
        mistake=mistake,
        pending=undecided(row, bag) if goal else 0,
    )


def _list_last(row: BagEntry) -> list[Json]:
    """Return the latest failed ends, or if there are none the latest ones."""
    # imported late, as for a submission
    from vgrads.api.bags.answers import exit_text
    from vgrads.dispatch.storage.folder import open_bag

    folder = dispatcher_folder(row.dispatcher)
    result, names = read_latest(folder, row.number), read_agent_names(folder)
    ends = result["wrong"] or result["last"]
    bag = open_bag(folder, row.number).bag if ends else None
    return [
        end
        | {
            "how": exit_text(end["code"]),
            "host": names[end["host"]] if end["host"] < len(names) else "?",
            "command": bag.label(end["task"]) if bag and end["task"] < len(bag.commands) else "",
        }
        for end in ends
    ]
