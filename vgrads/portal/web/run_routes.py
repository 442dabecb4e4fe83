"""REST: status of a run, its tasks and their output; retries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from fastapi import Path as PathParameter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.portal.jobs import children
from vgrads.portal.jobs.run_status import run_status
from vgrads.portal.records.access import Principal
from vgrads.portal.records.idempotency import answered, key_of
from vgrads.portal.records.reading.run_list import read_newest_runs
from vgrads.portal.records.reading.run_rows import GOES_ON, active_run
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.answers import answers, list_of
from vgrads.portal.web.guard import Reader
from vgrads.portal.web.paging import NameFilter, Page
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, begin_run

Json = dict[str, Any]
RunState = Literal["running", "kept", "broken", "cancelled", "failed", "interrupted"]
Name = Annotated[str, PathParameter(max_length=200)]


def add_run_routes(app: FastAPI, service: Service) -> None:
    """Add the list, status, tasks, logs."""

    @app.get("/v1/runs", **answers(list_of("runs.RunSummary"), operation="list_runs", tag="runs"))
    def list_runs(
        who: Reader, paging: Page, name: NameFilter = "", state: RunState | None = None
    ) -> list[Json]:
        """List the runs of your sets (an operator: all), newest first; the header ``Link`` has the
        next page. ``name``: of the set."""
        owner = None if who.operator else who.user
        reader = service.store.reader
        rows = read_newest_runs(reader, owner, paging.limit + 1, paging.after, name, state)
        return list(paging.page(rows, lambda row: str(row["id"])))

    @app.get(
        "/v1/workflow-sets/{set_id}/status",
        **answers("runs.RunStatus", operation="read_run_status", tag="runs", errors=(404,)),
    )
    async def status(set_id: SetId, who: Reader) -> Json:
        """Read the status of the newest run: tasks and workflows done, the current promise,
        deadline and expected completion, cost.

        Instants are those of the run's clock, which is that of the simulation where sites are
        simulated.
        """
        head = await run_in_threadpool(service.visible, set_id, who)
        run = await run_in_threadpool(service.newest_run, set_id)
        return await current_status(service, head, run)

    @app.get(
        "/v1/workflow-sets/{set_id}/tasks",
        **answers("runs.AttemptsOfRun", operation="list_attempts", tag="runs", errors=(404,)),
    )
    async def tasks(set_id: SetId, who: Reader) -> Json:
        """Read every attempt of the newest run at every task: state, exit code, seconds, slot. As
        ``vgrads logs --json``."""
        await run_in_threadpool(service.visible, set_id, who)
        run = await run_in_threadpool(service.newest_run, set_id)
        if run is None:
            return {"run": None, "attempts": []}
        return {"run": run.id, "attempts": await attempts_in(service, run.id)}

    @app.get(
        "/v1/workflow-sets/{set_id}/tasks/{workflow}/{task}",
        **answers("runs.TaskAttempts", operation="read_task_output", tag="runs", errors=(404,)),
    )
    def logs(set_id: SetId, workflow: Name, task: Name, who: Reader) -> Json:
        """Read the attempts at one task, with the end of each output."""
        service.visible(set_id, who)
        return {"attempts": set_logs(service, set_id, workflow, task)}


async def attempts_in(service: Service, run_id: str) -> list[Json]:
    """Return every attempt of a run, without output."""
    result = await service.supervisor.think(children.recorded_attempts, service.store.url, run_id)
    return [_remove_paths(row) for row in result]


def set_logs(service: Service, set_id: str, workflow: str, task: str) -> list[Json]:
    """Return the attempts of a set's newest run at a task, with output; 404 where there is none."""
    run = service.newest_run(set_id)
    if run is None:
        raise HTTPException(404, "the set has not run")
    return task_logs(service, run.id, f"{workflow}/{task}")


def task_logs(service: Service, run_id: str, task: str) -> list[Json]:
    """Return the attempts of a run at a task, with output; 404 where there is none."""
    # imported late: the service starts without what runs are made of
    from vgrads.portal.records.reading.attempts import read_attempts_at

    try:
        result = read_attempts_at(service.store.reader, run_id, task)
    except InputError as error:
        raise HTTPException(404, str(error)) from error
    return [_remove_paths(row) for row in result]


def _remove_paths(row: Json) -> Json:
    """Remove the paths of files on the service's machine, which are internal."""
    return row | {"folder": None}


def is_of_service(run: RunRow) -> bool:
    """Return False for a run of the command line, whose files the service does not have."""
    return "engine" in json.loads(run.how)


def is_left(service: Service, run: RunRow) -> bool:
    """Return True where not all tasks of a run are done."""
    status = run_status(service.live, run)
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
    # before the checks: a request that is repeated finds its own run active
    before = await run_in_threadpool(answered, service.store.engine, requested)
    if before is not None:
        return str(before["run"])
    if run.state in GOES_ON:
        raise active_run(run.id)
    if not is_of_service(run):
        raise HTTPException(409, f"it is a run of the command line: vgrads retry {run.id}")
    if tasks:
        await service.supervisor.think(children.check_tasks, service.store.url, set_id, tasks)
    elif not await run_in_threadpool(is_left, service, run):
        raise HTTPException(409, f"all tasks of run '{run.id}' are done: name those to run again")
    return await begin_run(service, set_id, who, how, key, None)


async def current_status(service: Service, head: Head, run: RunRow | None) -> Json:
    """Return the status of a set, for pages and programs."""
    result = await run_in_threadpool(run_status, service.live, run) if run is not None else None
    promise = head.summary.get("promise") or {}
    payload = {
        "run": run.id if run else None,
        "state": run.state if run else head.state,
        "promised": promise.get("probability"),
        "outcome": json.loads(run.outcome) if run else {},
    }
    return payload | (result or {})
