"""Status of a run, its tasks, and the forms with which a user starts and cancels it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import FastAPI, Form, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.jobs import children
from vgrads.portal.jobs.run_status import PATIENCE_S
from vgrads.portal.records.access import Principal
from vgrads.portal.records.idempotency import answered, key_of
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.live_routes import cancel_run
from vgrads.portal.web.page_context import page_of, reader_of, shown
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, begin_run, gantt, summary

Json = dict[str, Any]
Name = Annotated[str, PathParameter(max_length=200)]
_MOST_ROWS = 300
SearchText = Annotated[str, Query(max_length=200)]
_ORDER = ("failed", "running", "waiting", "planned", "cancelled", "skipped", "done")


def add_run_routes(app: FastAPI, service: Service) -> None:
    """Add status, tasks, logs; confirmation of actions that cost something."""
    _add_asking(app, service)
    _add_parts(app, service)
    _add_forms(app, service)


def _add_asking(app: FastAPI, service: Service) -> None:
    @app.get("/v1/workflow-sets/{set_id}/standing", deprecated=True)
    @app.get("/v1/workflow-sets/{set_id}/status")
    async def status(set_id: SetId, who: Reader) -> Json:
        """Read the status of the newest run: tasks and workflows done, the current promise,
        deadline and expected completion, cost.

        Instants are those of the run's clock, which is that of the simulation where sites are
        simulated.
        """
        head = await run_in_threadpool(service.visible, set_id, who)
        run = await run_in_threadpool(service.newest_run, set_id)
        return await current_status(service, head, run)

    @app.get("/v1/workflow-sets/{set_id}/tasks")
    async def tasks(set_id: SetId, who: Reader) -> Json:
        """Read every attempt of the newest run at every task: state, exit code, seconds, slot. As
        ``vgrads logs --json``."""
        await run_in_threadpool(service.visible, set_id, who)
        run = await run_in_threadpool(service.newest_run, set_id)
        if run is None:
            return {"run": None, "attempts": []}
        return {"run": run.id, "attempts": await attempts_in(service, run.id)}

    @app.get("/v1/workflow-sets/{set_id}/tasks/{workflow}/{task}")
    def logs(set_id: SetId, workflow: Name, task: Name, who: Reader) -> Json:
        """Read the attempts at one task, with the end of each output."""
        service.visible(set_id, who)
        return {"attempts": _logs(service, set_id, workflow, task)}


async def attempts_in(service: Service, run_id: str) -> list[Json]:
    """Return every attempt of a run, without output."""
    result = await service.supervisor.think(children.recorded_attempts, service.store.url, run_id)
    return [_without_paths(row) for row in result]


def _logs(service: Service, set_id: str, workflow: str, task: str) -> list[Json]:
    run = service.newest_run(set_id)
    if run is None:
        raise HTTPException(404, "the set has not run")
    return task_logs(service, run.id, f"{workflow}/{task}")


def task_logs(service: Service, run_id: str, task: str) -> list[Json]:
    """Return the attempts of a run at a task, with output; 404 where there is none."""
    # imported late: the service starts without what runs are made of
    from vgrads.portal.records.reading.attempts import attempts_at

    try:
        result = attempts_at(service.store.reader, run_id, task)
    except InputError as error:
        raise HTTPException(404, str(error)) from error
    return [_without_paths(row) for row in result]


def _without_paths(row: Json) -> Json:
    """Remove the paths of files on the service's machine, which are internal."""
    return row | {"folder": None}


async def current_status(service: Service, head: Head, run: RunRow | None) -> Json:
    """Return the status of a set, for pages and programs."""
    if run is not None:
        await service.statuses.look_ahead(run)
    result = await run_in_threadpool(service.statuses.of, run) if run is not None else None
    promise = head.summary.get("promise") or {}
    payload = {
        "run": run.id if run else None,
        "state": run.state if run else head.state,
        "promised": promise.get("probability"),
        "outcome": json.loads(run.outcome) if run else {},
    }
    return payload | (result or {})


def _add_parts(app: FastAPI, service: Service) -> None:
    """Add the parts that pages reload while a run is active."""

    @app.get("/sets/{set_id}/status", response_class=HTMLResponse, include_in_schema=False)
    async def part(set_id: SetId, request: Request) -> HTMLResponse:
        head = await run_in_threadpool(service.visible, set_id, reader_of(request))
        return page_of(request, "", "status.html", **await status_parts(service, head))

    @app.get("/sets/{set_id}/tasks", response_class=HTMLResponse, include_in_schema=False)
    async def task_part(set_id: SetId, request: Request, find: SearchText = "") -> HTMLResponse:
        head = await run_in_threadpool(service.visible, set_id, reader_of(request))
        return page_of(request, "", "tasks.html", **await task_parts(service, head, find))

    @app.get(
        "/sets/{set_id}/tasks/{workflow}/{task}",
        response_class=HTMLResponse,
        include_in_schema=False,
    )
    def log_page(set_id: SetId, workflow: Name, task: Name, request: Request) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        run = service.newest_run(set_id)
        again = _retry_key(service, run)
        try:
            rows = _logs(service, set_id, workflow, task)
        except HTTPException:
            planned = gantt(service, head, run)["placements"] if again else ()
            if all((p["workflow"], p["task"]) != (workflow, task) for p in planned):
                raise
            rows = []  # it was lost before it started
        return page_of(
            request,
            "",
            "logs.html",
            s=summary(service, head),
            task=f"{workflow}/{task}",
            attempts=rows,
            again=again if all(row["state"] != "done" for row in rows) else "",
        )


async def status_parts(service: Service, head: Head) -> Json:
    """Return the parts of the status sentence on a set's page."""
    run = await run_in_threadpool(service.newest_run, head.id)
    now = await current_status(service, head, run)
    return {"s": shown(summary(service, head)), "now": now}


async def task_parts(service: Service, head: Head, find: str = "") -> Json:
    """Return the tasks of a set, those that need attention first; not all of a very large one.
    ``find``: a part of their displayed text."""
    run = await run_in_threadpool(service.newest_run, head.id)
    again = await run_in_threadpool(_retry_key, service, run)
    if not head.revision:
        return {"set_id": head.id, "tasks": [], "more": 0, "find": find, "again": again}
    chart = await run_in_threadpool(gantt, service, head, run)
    attempts: list[Json] = []
    if run is not None:
        with suppress(TimeoutError, SiteError):  # busy: omitted for now
            attempts = await asyncio.wait_for(attempts_in(service, run.id), PATIENCE_S)
    whole = task_rows(chart["placements"], attempts) + _rows_before(chart.get("done", ()))
    rows = [row for row in whole if _has(row, find)]
    more = max(0, len(rows) - _MOST_ROWS)
    return {
        "set_id": head.id,
        "tasks": rows[:_MOST_ROWS],
        "more": more,
        "find": find,
        "again": again,
    }


def _retry_key(service: Service, run: RunRow | None) -> str:
    """Return a fresh key for the form that retries a run; empty where there is nothing to retry."""
    if run is None or run.state in GOES_ON or json.loads(run.how).get("engine") != "vgrads":
        return ""
    return secrets.token_hex(16) if _is_left(service, run) else ""


def is_of_service(run: RunRow) -> bool:
    """Return False for a run of the command line, whose files the service does not have."""
    return "engine" in json.loads(run.how)


def _is_left(service: Service, run: RunRow) -> bool:
    """Return True where not all tasks of a run are done."""
    status = service.statuses.of(run)
    return status is None or status["tasks"]["done"] < status["tasks"]["of"]


async def retry_run(
    service: Service, set_id: str, who: Principal, tasks: Sequence[str], key: str | None
) -> str:
    """Queue a run of these tasks, or of what failed or did not run in the newest run of a set, with
    what depends on them; return its id. 409 where that run has not ended, or all is done."""
    await run_in_threadpool(service.visible, set_id, who)
    run = await run_in_threadpool(service.newest_run, set_id)
    if run is None:
        raise HTTPException(409, f"set '{set_id}' has not run")
    how = {name: json.loads(run.how).get(name) for name in ("engine", "speed")}
    how |= {"again": list(tasks)} if tasks else {}
    requested = key_of(who.user, key, [set_id, how])
    before = await run_in_threadpool(answered, service.store.engine, requested)
    if before is not None:
        return str(before["run"])
    if run.state in GOES_ON:
        raise HTTPException(409, f"run '{run.id}' has not ended: cancel it first, or wait")
    if not is_of_service(run):
        raise HTTPException(409, f"it is a run of the command line: vgrads retry {run.id}")
    if tasks:
        await service.supervisor.think(children.check_tasks, service.store.url, set_id, tasks)
    elif not await run_in_threadpool(_is_left, service, run):
        raise HTTPException(409, f"all tasks of run '{run.id}' are done: name those to run again")
    return await begin_run(service, set_id, who, how, key, None)


def _has(row: Json, find: str) -> bool:
    """Return True where all words occur in the displayed text of a task."""
    text = (
        f"{row['workflow']}/{row['task']} {row['state']} {row['slot']} {row['reason']}".casefold()
    )
    return all(word in text for word in find.casefold().split())


def task_rows(placements: Iterable[Json], attempts: Iterable[Json]) -> list[Json]:
    """Return a row for each task: the state of its best replica, and the results of its
    attempts."""
    result: dict[tuple[str, str], Json] = {}
    for placement in placements:
        row = {
            "workflow": placement["workflow"],
            "task": placement["task"],
            "state": placement["state"],
            "slot": placement["slot"],
            "attempts": 0,
            "exit": None,
            "seconds": None,
            "times": None,
            "site": "",
            "reason": placement.get("reason") or "",
        }
        existing = result.setdefault((placement["workflow"], placement["task"]), row)
        if _better(placement["state"], existing["state"]):
            result[placement["workflow"], placement["task"]] = row
    for placement in attempts:
        row = result.setdefault(
            (placement["workflow"], placement["task"]), dict(placement) | {"attempts": 0}
        )
        row["attempts"] += 1
        if placement["state"] == row["state"]:
            row |= {key: placement[key] for key in ("exit", "seconds", "times", "site", "slot")}
            row["reason"] = placement["reason"] or ""
    return sorted(result.values(), key=lambda r: (_rank(r["state"]), r["workflow"], r["task"]))


def _rows_before(done: Iterable[Json]) -> list[Json]:
    """Return a row for each task that an earlier run did."""
    nothing = {
        "slot": "",
        "attempts": 0,
        "exit": None,
        "seconds": None,
        "times": None,
        "site": "",
        "state": "done",
    }
    return [{**nothing, **item, "reason": f"done before, in {item['run']}"} for item in done]


def _better(name: str, other: str) -> bool:
    """Return True where the state of a replica represents its task better than that of another."""
    best = ("done", "running", "waiting", "planned", "failed", "cancelled", "skipped")
    return best.index(name) < best.index(other)


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


def _add_forms(app: FastAPI, service: Service) -> None:
    def confirm(set_id: str, request: Request, act: str) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        run = service.newest_run(set_id)
        return page_of(
            request,
            "",
            "confirm.html",
            act=act,
            s=shown(summary(service, head)),
            etag=head.etag,
            key=secrets.token_hex(16),
            now=service.statuses.of(run) if run is not None else None,
        )

    @app.get("/sets/{set_id}/run", response_class=HTMLResponse, include_in_schema=False)
    def ask_run(set_id: SetId, request: Request) -> HTMLResponse:
        return confirm(set_id, request, "run")

    @app.get("/sets/{set_id}/cancel", response_class=HTMLResponse, include_in_schema=False)
    def ask_cancel(set_id: SetId, request: Request) -> HTMLResponse:
        return confirm(set_id, request, "cancel")

    @app.post("/sets/{set_id}/run", include_in_schema=False)
    async def run(
        set_id: SetId,
        who: Submitter,
        key: Annotated[str, Form(max_length=200)],
        plan: Annotated[str, Form(max_length=200)],
        speed: Annotated[str, Form(pattern=r"^\d{0,6}$")] = "",
        rerun: Annotated[bool, Form()] = False,
    ) -> RedirectResponse:
        how: Json = {"engine": "vgrads", "speed": float(speed) if speed else None}
        how |= {"rerun": True} if rerun else {}
        await begin_run(service, set_id, who, how, key, plan)
        return RedirectResponse(f"/sets/{set_id}", 303)

    @app.post("/sets/{set_id}/retry", include_in_schema=False)
    async def retry(
        set_id: SetId,
        who: Submitter,
        key: Annotated[str, Form(max_length=200)],
        task: Annotated[str, Form(max_length=500)] = "",
    ) -> RedirectResponse:
        await retry_run(service, set_id, who, [task] if task else [], key)
        return RedirectResponse(f"/sets/{set_id}", 303)

    @app.post("/sets/{set_id}/cancel", include_in_schema=False)
    def cancel(set_id: SetId, who: Submitter) -> RedirectResponse:
        cancel_run(service, set_id, who)
        return RedirectResponse(f"/sets/{set_id}", 303)
