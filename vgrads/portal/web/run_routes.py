"""How a run stands, what its tasks did, and the forms with which a person begins and stops it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import FastAPI, Form, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.jobs.standings import PATIENCE_S, attempts_at, attempts_beside
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.live_routes import cancel_run
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, begin_run, gantt, summary
from vgrads.portal.web.showing import page_of, reader_of, shown

Json = dict[str, Any]
Name = Annotated[str, PathParameter(max_length=200)]
_MOST_ROWS = 300
Found = Annotated[str, Query(max_length=200)]
_ORDER = ("failed", "running", "waiting", "planned", "cancelled", "skipped", "done")


def add_run_routes(app: FastAPI, service: Service) -> None:
    """Standing, tasks, logs; confirmation of what costs something."""
    _add_asking(app, service)
    _add_parts(app, service)
    _add_forms(app, service)


def _add_asking(app: FastAPI, service: Service) -> None:
    @app.get("/v1/workflow-sets/{set_id}/standing")
    async def standing(set_id: SetId, who: Reader) -> Json:
        """How the newest run stands: tasks and workflows done, the promise as of now, when it is
        due and expected, cost.

        Instants are those of the run's clock, which is that of the simulation where sites are
        simulated.
        """
        head = await run_in_threadpool(service.visible, set_id, who)
        run = await run_in_threadpool(service.newest_run, set_id)
        return await standing_now(service, head, run)

    @app.get("/v1/workflow-sets/{set_id}/tasks")
    async def tasks(set_id: SetId, who: Reader) -> Json:
        """Every attempt of the newest run at every task: state, exit, seconds, where. As ``vgrads
        logs --json``."""
        await run_in_threadpool(service.visible, set_id, who)
        run = await run_in_threadpool(service.newest_run, set_id)
        if run is None:
            return {"run": None, "attempts": []}
        return {"run": run.id, "attempts": await _attempts(service, run)}

    @app.get("/v1/workflow-sets/{set_id}/tasks/{workflow}/{task}")
    def logs(set_id: SetId, workflow: Name, task: Name, who: Reader) -> Json:
        """The attempts at one task, with the ends of what each printed."""
        service.visible(set_id, who)
        return {"attempts": _logs(service, set_id, workflow, task)}


async def _attempts(service: Service, run: RunRow) -> list[Json]:
    found = await service.supervisor.think(attempts_beside, service.store.url, run.id)
    return [_without_paths(row) for row in found]


def _logs(service: Service, set_id: str, workflow: str, task: str) -> list[Json]:
    run = service.newest_run(set_id)
    if run is None:
        raise HTTPException(404, "the set has not run")
    try:
        found = attempts_at(service.store, run.id, f"{workflow}/{task}")
    except InputError as error:
        raise HTTPException(404, str(error)) from error
    return [_without_paths(row) for row in found]


def _without_paths(row: Json) -> Json:
    """Where files lie on the machine of the service is nobody's business elsewhere."""
    return row | {"folder": None}


async def standing_now(service: Service, head: Head, run: RunRow | None) -> Json:
    """How a set stands, for people and programs."""
    if run is not None:
        await service.standings.look_ahead(run)
    found = await run_in_threadpool(service.standings.of, run) if run is not None else None
    promise = head.summary.get("promise") or {}
    told = {
        "run": run.id if run else None,
        "state": run.state if run else head.state,
        "promised": promise.get("probability"),
        "outcome": json.loads(run.outcome) if run else {},
    }
    return told | (found or {})


def _add_parts(app: FastAPI, service: Service) -> None:
    """What pages fetch again while a run goes on."""

    @app.get("/sets/{set_id}/standing", response_class=HTMLResponse, include_in_schema=False)
    async def part(set_id: SetId, request: Request) -> HTMLResponse:
        head = await run_in_threadpool(service.visible, set_id, reader_of(request))
        return page_of(request, "", "standing.html", **await standing_parts(service, head))

    @app.get("/sets/{set_id}/tasks", response_class=HTMLResponse, include_in_schema=False)
    async def task_part(set_id: SetId, request: Request, find: Found = "") -> HTMLResponse:
        head = await run_in_threadpool(service.visible, set_id, reader_of(request))
        return page_of(request, "", "tasks.html", **await task_parts(service, head, find))

    @app.get(
        "/sets/{set_id}/tasks/{workflow}/{task}",
        response_class=HTMLResponse,
        include_in_schema=False,
    )
    def log_page(set_id: SetId, workflow: Name, task: Name, request: Request) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        rows = _logs(service, set_id, workflow, task)
        return page_of(
            request,
            "",
            "logs.html",
            s=summary(service, head),
            task=f"{workflow}/{task}",
            attempts=rows,
        )


async def standing_parts(service: Service, head: Head) -> Json:
    """What the sentence on top of a set's page is made of."""
    run = await run_in_threadpool(service.newest_run, head.id)
    now = await standing_now(service, head, run)
    return {"s": shown(summary(service, head)), "now": now}


async def task_parts(service: Service, head: Head, find: str = "") -> Json:
    """The tasks of a set, those that ask for attention first; not all of a very large one.
    ``find``: a part of what tells of them."""
    run = await run_in_threadpool(service.newest_run, head.id)
    if not head.revision:
        return {"set_id": head.id, "tasks": [], "more": 0, "find": find}
    chart = await run_in_threadpool(gantt, service, head, run)
    attempts: list[Json] = []
    if run is not None:
        with suppress(TimeoutError, SiteError):  # busy: without them for now
            attempts = await asyncio.wait_for(_attempts(service, run), PATIENCE_S)
    whole = task_rows(chart["placements"], attempts) + _rows_before(chart.get("done", ()))
    rows = [row for row in whole if _has(row, find)]
    more = max(0, len(rows) - _MOST_ROWS)
    return {"set_id": head.id, "tasks": rows[:_MOST_ROWS], "more": more, "find": find}


def _has(row: Json, find: str) -> bool:
    """Whether all words stand in what is told of a task."""
    told = (
        f"{row['workflow']}/{row['task']} {row['state']} {row['slot']} {row['reason']}".casefold()
    )
    return all(word in told for word in find.casefold().split())


def task_rows(placements: Iterable[Json], attempts: Iterable[Json]) -> list[Json]:
    """A row for each task: its best copy's state, and what its attempts came to."""
    found: dict[tuple[str, str], Json] = {}
    for one in placements:
        row = {
            "workflow": one["workflow"],
            "task": one["task"],
            "state": one["state"],
            "slot": one["slot"],
            "attempts": 0,
            "exit": None,
            "seconds": None,
            "times": None,
            "site": "",
            "reason": one.get("reason") or "",
        }
        known = found.setdefault((one["workflow"], one["task"]), row)
        if _better(one["state"], known["state"]):
            found[one["workflow"], one["task"]] = row
    for one in attempts:
        row = found.setdefault((one["workflow"], one["task"]), dict(one) | {"attempts": 0})
        row["attempts"] += 1
        if one["state"] == row["state"]:
            row |= {key: one[key] for key in ("exit", "seconds", "times", "site", "slot")}
            row["reason"] = one["reason"] or ""
    return sorted(found.values(), key=lambda r: (_rank(r["state"]), r["workflow"], r["task"]))


def _rows_before(done: Iterable[Json]) -> list[Json]:
    """A row for each task that an earlier run did."""
    nothing = {
        "slot": "",
        "attempts": 0,
        "exit": None,
        "seconds": None,
        "times": None,
        "site": "",
        "state": "done",
    }
    return [{**nothing, **one, "reason": f"done before, in {one['run']}"} for one in done]


def _better(one: str, other: str) -> bool:
    """Whether the state of a copy tells more of its task than that of another."""
    best = ("done", "running", "waiting", "planned", "failed", "cancelled", "skipped")
    return best.index(one) < best.index(other)


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
            now=service.standings.of(run) if run is not None else None,
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

    @app.post("/sets/{set_id}/cancel", include_in_schema=False)
    def cancel(set_id: SetId, who: Submitter) -> RedirectResponse:
        cancel_run(service, set_id, who)
        return RedirectResponse(f"/sets/{set_id}", 303)
