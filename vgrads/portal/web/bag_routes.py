"""REST and pages: bags of tasks, handed over whole or task by task, their results as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.api.bags.answers import Results, how_it_ended, why
from vgrads.dispatch.storage.kept import (
    close_bag,
    host_names,
    is_worked_on,
    open_bag,
    read_latest,
    read_status,
)
from vgrads.kernel.documents import parse_mapping
from vgrads.kernel.errors import InputError
from vgrads.portal.charts.rates import rate_chart
from vgrads.portal.jobs.bag_service import hand_over, read_document, source_of
from vgrads.portal.jobs.bags import bag_standing, dispatcher_folder
from vgrads.portal.records.access import Principal
from vgrads.portal.records.bags import ENDED, HERE, Bags
from vgrads.portal.records.tables import BagRow
from vgrads.portal.web.bag_intake import BUNDLE, take_tasks
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import kind_of
from vgrads.portal.web.showing import page_of, reader_of

BagId = Annotated[str, PathParameter(pattern=r"^bag-[0-9a-f]{10}$", examples=["bag-0123456789"])]
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
_TASKS = {
    "required": True,
    "content": {
        "application/x-ndjson": {"schema": {"type": "string"}, "example": '"sleep 1"\n"sleep 2"\n'}
    },
}
_LOOK_S = 0.3
_COUNTS = ("done", "failed", "running", "waiting", "tried_again", "copied", "rate")
_UNMEASURED: Json = dict.fromkeys(_COUNTS, 0) | {
    "weight": 1,
    "typical_s": None,
    "left_s": None,
    "reason": "",
    "problem": "",
    "times": {},
}


def add_bag_routes(app: FastAPI, service: Service) -> None:
    """Handing over, adding, reading, following, cancelling; two pages."""
    _add_submission(app, service)
    _add_reading(app, service)
    _add_following(app, service)
    _add_pages(app, service)


def visible_bag(service: Service, bag_id: str, who: Principal) -> BagRow:
    """A bag that somebody may see; 404 where there is none, or it is another's."""
    try:
        row = Bags(service.store.engine).get(bag_id)
    except InputError as error:
        raise HTTPException(404, error.what) from error
    if not (who.operator or row.owner == who.user):
        raise HTTPException(404, f"no bag '{bag_id}'")
    return row


def _add_submission(app: FastAPI, service: Service) -> None:
    @app.post("/v1/bags", status_code=201, openapi_extra={"requestBody": _BODY})
    async def submit_bag(request: Request, response: Response, who: Submitter) -> Json:
        """Hand over a bag of tasks, as JSON or YAML. With ``open: true`` its commands come later
        (``/tasks``)."""
        kind = kind_of(request.headers.get("content-type", ""))
        body = await request.body()

        def keep() -> BagRow:
            try:
                given = parse_mapping(body.decode(), "body", kind)
            except UnicodeDecodeError as error:
                raise InputError("is not UTF-8 text", where="body") from error
            document = read_document(given, who.user)
            granted = service.granted(who.user)
            return hand_over(service.store, service.catalog, granted, document)

        row = await run_in_threadpool(keep)
        service.supervisor.poke()
        response.headers["Location"] = f"/v1/bags/{row.id}"
        return {"id": row.id, "tasks": row.tasks, "state": row.state}

    @app.post("/v1/bags/{bag_id}/tasks", status_code=202, openapi_extra={"requestBody": _TASKS})
    async def add_tasks(bag_id: BagId, request: Request, who: Submitter) -> Json:
        """Add commands to an open bag: a JSON string on each line, as many as you like, streamed.

        What is wrong with a line ends it; the lines of whole bundles before it are kept, and the
        answer says how many.
        """
        row = await run_in_threadpool(visible_bag, service, bag_id, who)
        return {"id": row.id, "taken": await take_tasks(row, request)}

    @app.post("/v1/bags/{bag_id}/close", status_code=202)
    def close(bag_id: BagId, who: Submitter) -> Json:
        """No more tasks come to an open bag: it ends when those that it has have ended."""
        row = visible_bag(service, bag_id, who)
        if not open_bag(dispatcher_folder(row.dispatcher), row.number).document.open:
            raise HTTPException(409, f"bag '{bag_id}' was not submitted as an open one")
        close_bag(dispatcher_folder(row.dispatcher), row.number)
        return {"id": row.id, "told": "no more tasks are taken"}

    @app.delete("/v1/bags/{bag_id}", status_code=202)
    def cancel_bag(bag_id: BagId, who: Submitter) -> Json:
        """Drop what has not ended of a bag; what runs is killed."""
        row = visible_bag(service, bag_id, who)
        _refuse_unattended(row)
        Bags(service.store.engine).ask_to_stop(bag_id, f"cancelled by {who.user}")
        service.supervisor.poke()
        return {"id": row.id, "told": "its dispatcher was asked to stop it"}


def _refuse_unattended(row: BagRow) -> None:
    """409 for a bag that is over, or of the command line whose dispatcher is gone: no service takes
    its place."""
    if row.state in ENDED:
        raise HTTPException(409, f"bag '{row.id}' is over: {row.state}")
    if row.owner == HERE and not is_worked_on(dispatcher_folder(row.dispatcher)):
        raise HTTPException(409, f"nobody is at work on bag '{row.id}'; see vgrads bags cancel")


_OF_ITS_ROW = ("number", "name", "owner", "state")  # a dispatcher that cannot read it may not know


def standing_of(row: BagRow) -> Json:
    """A bag: its row, and how it stood last."""
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "state": row.state,
        "tasks": row.tasks,
        "created": row.created.isoformat(),
        **{k: v for k, v in bag_standing(row).items() if k not in _OF_ITS_ROW},
    }


def _row_of(row: BagRow) -> Json:
    """A bag for the pages: all that they show, also before its dispatcher has measured anything."""
    return _UNMEASURED | standing_of(row)


def _hosts_of(row: BagRow) -> Json:
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
    @app.get("/v1/bags")
    def list_bags(who: Reader, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[Json]:
        """Your bags (an operator: all), newest first."""
        rows = Bags(service.store.engine).newest(None if who.operator else who.user, limit)
        return [standing_of(row) for row in rows]

    @app.get("/v1/bags/{bag_id}")
    def read_bag(bag_id: BagId, who: Reader) -> Json:
        """How a bag stands: tasks waiting, running, done and failed, ends a second, hosts and why
        they came and went."""
        row = visible_bag(service, bag_id, who)
        return standing_of(row) | {"dispatcher": _hosts_of(row)}

    @app.get("/v1/bags/{bag_id}/tasks/{task}")
    def explain_task(
        bag_id: BagId,
        task: Annotated[int, PathParameter(ge=0, le=10**9)],
        who: Reader,
        host: Annotated[str, Query(max_length=200)] = "",
    ) -> Json:
        """Why a task stands where it stands, and why hosts (or one of them) do not have it: slot,
        expression, values."""
        row = visible_bag(service, bag_id, who)
        try:
            return why(dispatcher_folder(row.dispatcher), row.number, task, host)
        except InputError as error:
            raise HTTPException(404, str(error)) from error

    @app.get("/v1/bags/{bag_id}/outputs/{name:path}", response_class=FileResponse)
    def read_output(
        bag_id: BagId, name: Annotated[str, PathParameter(max_length=1000)], who: Reader
    ) -> FileResponse:
        """A file that a task of the bag wrote and its document declares."""
        row = visible_bag(service, bag_id, who)
        folder = (source_of(row) / "results").resolve()
        path = (folder / name).resolve()
        if "\0" in name or not path.is_relative_to(folder) or not path.is_file():
            raise HTTPException(404, f"no output '{name}'")
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def _add_following(app: FastAPI, service: Service) -> None:
    @app.get("/v1/bags/{bag_id}/results", response_class=StreamingResponse)
    def bag_results(
        bag_id: BagId,
        who: Reader,
        follow: bool = False,
        skip: Annotated[int, Query(ge=0, le=10**12)] = 0,
    ) -> StreamingResponse:
        """How each attempt ended, with what it printed: a JSON document a line, in the order of the
        ends.

        ``follow``: until the bag has ended; ``skip``: go on behind so many lines.
        """
        row = visible_bag(service, bag_id, who)
        lines = _lines(service, row, follow, skip)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    def known(bag_id: BagId, who: Reader) -> BagRow:
        return visible_bag(service, bag_id, who)

    @app.get("/v1/bags/{bag_id}/events", response_class=EventSourceResponse)
    async def bag_events(row: BagRow = Depends(known)) -> AsyncIterator[ServerSentEvent]:  # noqa: B008
        """How the bag stands, as server-sent events whenever that changes; the last one is
        ``end``."""
        before: Json = {}
        while not service.stopping.is_set():
            fresh = await run_in_threadpool(Bags(service.store.engine).get, row.id)
            told = await run_in_threadpool(standing_of, fresh)
            if fresh.state in ENDED:
                yield ServerSentEvent(data=told, event="end")
                return
            if told != before:
                yield ServerSentEvent(data=told, event="standing")
            before = told
            await asyncio.sleep(_LOOK_S)


async def _lines(service: Service, row: BagRow, follow: bool, skip: int) -> AsyncIterator[bytes]:
    reader = await run_in_threadpool(Results, dispatcher_folder(row.dispatcher), row.number)
    while True:
        fresh = await run_in_threadpool(Bags(service.store.engine).get, row.id)
        found = await run_in_threadpool(
            lambda: [json.dumps(r).encode() + b"\n" for r in reader.more()]
        )
        fresh_lines, skip = found[skip:], max(0, skip - len(found))
        for at in range(0, len(fresh_lines), BUNDLE):
            yield b"".join(fresh_lines[at : at + BUNDLE])
        if not follow or fresh.state in ENDED or service.stopping.is_set():
            return
        if not found:
            await asyncio.sleep(_LOOK_S)


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/bags", response_class=HTMLResponse, include_in_schema=False)
    def bags_page(request: Request) -> HTMLResponse:
        who = reader_of(request)
        rows = Bags(service.store.engine).newest(None if who.operator else who.user)
        return page_of(request, "/bags", "bags.html", bags=[_row_of(row) for row in rows])

    @app.get("/bags/{bag_id}/why", response_class=HTMLResponse, include_in_schema=False)
    def why_page(
        bag_id: BagId,
        request: Request,
        task: Annotated[int, Query(ge=0, le=10**9)] = 0,
        host: Annotated[str, Query(max_length=200)] = "",
    ) -> HTMLResponse:
        row = visible_bag(service, bag_id, reader_of(request))
        try:
            told, problem = why(dispatcher_folder(row.dispatcher), row.number, task, host), ""
        except InputError as error:
            told, problem = {}, str(error)
        return page_of(
            request,
            "/bags",
            "bag_why.html",
            b=_row_of(row),
            t=told,
            problem=problem,
            task=task,
            host=host,
        )

    @app.get("/bags/{bag_id}", response_class=HTMLResponse, include_in_schema=False)
    def bag_page(bag_id: BagId, request: Request) -> HTMLResponse:
        row = visible_bag(service, bag_id, reader_of(request))
        return page_of(
            request,
            "/bags",
            "bag.html",
            b=_row_of(row),
            d=_hosts_of(row),
            live=row.state not in ENDED,
            last=_last(row),
            chart=rate_chart(_hosts_of(row)["rates"] or ()),
        )


def _last(row: BagRow) -> list[Json]:
    """The latest ends that went wrong, and failing those the latest ones."""
    folder = dispatcher_folder(row.dispatcher)
    found, names = read_latest(folder, row.number), host_names(folder)
    ends = found["wrong"] or found["last"]
    commands = open_bag(folder, row.number).bag.commands if ends else ()
    return [
        end
        | {
            "how": how_it_ended(end["code"]),
            "host": names[end["host"]] if end["host"] < len(names) else "?",
            "command": commands.command(end["task"]) if end["task"] < len(commands) else "",  # type: ignore[union-attr]
        }
        for end in ends
    ]
