"""REST: state, logs, reasons, cancel, resume and retry for whatever an id or a name means: a set, a
run, a bag, a matrix or a pool."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.bag_service import source_of
from vgrads.portal.records.access import Principal
from vgrads.portal.records.archived import archive_work
from vgrads.portal.records.reading.run_rows import (
    GOES_ON,
    GONE,
    AmbiguousNameError,
    NamedWork,
    find_named,
    manager_of,
    refuse_inapplicable,
)
from vgrads.portal.web.answers import answers, json_of, lines_of
from vgrads.portal.web.bag_routes import NDJSON, cancel_row, explain_bag_task, result_lines
from vgrads.portal.web.bags.access import refuse_unattended, visible_bag
from vgrads.portal.web.bags.retries import retry_row
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.live_routes import cancel_run
from vgrads.portal.web.page_routes import explain_placement
from vgrads.portal.web.pool_routes import ledger_for, pool_of
from vgrads.portal.web.problems import message
from vgrads.portal.web.run_routes import attempts_in, is_of_service, retry_run, task_logs
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import IdempotencyKey

Json = dict[str, Any]
WorkName = Annotated[
    str,
    PathParameter(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f]+$",
        description="Id or name of a set, run, bag, matrix or pool (`pool:NAME` only of a pool).",
        examples=["run-0123456789"],
    ),
]
TaskName = Annotated[
    str, Query(max_length=500, description="WORKFLOW/TASK, or TASK; of a bag its number.")
]


class RetryRequest(Document):
    """The tasks to run again; none: those that failed or were not run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tasks": ["lead-1/wrf"]}, {}]})

    tasks: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=500)], ...], Field(max_length=1000)
    ] = ()


def add_work_routes(app: FastAPI, service: Service) -> None:
    """Add the common routes of sets, runs, bags, matrices and pools."""
    _add_reading(app, service)
    _add_actions(app, service)
    _add_archive(app, service)


def _find(service: Service, name: str, who: Principal, verb: str) -> NamedWork:
    """Return what a user means by a name; 404 where they may see nothing of that name."""
    try:
        work = find_named(service.store.reader, name, None if who.operator else who.user)
    # an InputError too, but with a status of its own
    except AmbiguousNameError:
        raise
    except InputError as error:
        raise HTTPException(404, error.what) from error
    refuse_inapplicable(work, verb)
    return work


def _run_of(work: NamedWork) -> str:
    if not work.run_id:
        raise HTTPException(409, f"set '{work.id}' has not run")
    return work.run_id


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/work/{name}",
        **answers("work.WorkDescription", operation="read_work", tag="work", errors=(404, 409)),
    )
    def read_work(name: WorkName, who: Reader) -> Json:
        """Read what an id or a name means: its kind, its state, and its own resource."""
        return _describe_work(service, _find(service, name, who, "status"), who)

    @app.get(
        "/v1/work/{name}/logs",
        response_model=None,
        **answers(
            json_of("runs.AttemptsOfRun") | lines_of("bags.BagTaskResult"),
            operation="read_work_logs",
            tag="work",
            errors=(404, 409),
        ),
    )
    async def work_logs(name: WorkName, who: Reader, task: TaskName = "") -> Response:
        """Read every attempt of a run, as JSON (of a set: of its newest run), or of a bag, one JSON
        document per line. ``task``: only those at one task, with their output."""
        work = await run_in_threadpool(_find, service, name, who, "logs")
        if work.kind == "bag":
            row = await run_in_threadpool(visible_bag, service, work.id, who)
            lines = result_lines(service, row, task=_parse_number(task) if task else None)
            return StreamingResponse(lines, media_type=NDJSON)
        run_id = _run_of(work)
        attempts = (
            await run_in_threadpool(task_logs, service, run_id, task)
            if task
            else await attempts_in(service, run_id)
        )
        return JSONResponse({"run": run_id, "attempts": attempts})

    @app.get(
        "/v1/work/{name}/explain",
        **answers(
            json_of("sets.PlacementExplanation", "bags.TaskExplanation", "pools.Pool"),
            operation="explain_work",
            tag="work",
            errors=(404, 409),
        ),
    )
    def explain_work(name: WorkName, who: Reader, task: TaskName = "") -> Json:
        """Explain the placement of a set's task, the state of a bag's task, or the last decision of
        a pool (without ``task``)."""
        work = _find(service, name, who, "explain")
        if work.kind == "pool":
            return pool_of(ledger_for(service, who), work.id)
        if not task:
            raise InputError("is missing", where="task")
        if work.kind == "bag":
            return explain_bag_task(visible_bag(service, work.id, who), _parse_number(task))
        return explain_placement(service, work.set_id, who, task)


def _parse_number(task: str) -> int:
    # int refuses texts of thousands of digits with another error
    if not task.isascii() or not task.isdigit() or len(task) > 10:
        raise InputError(f"'{task}' is no number of a task of a bag", where="task")
    return int(task)


def _describe_work(service: Service, work: NamedWork, who: Principal) -> Json:
    if work.kind == "pool":
        pool = pool_of(ledger_for(service, who), work.id)
        state = {"name": work.id, "owner": pool["owner"]}
        state |= {"state": "silent" if pool["silent"] else "running"}
        links = {"resource": f"/v1/pools/{work.id}", "page": f"/pools/{work.id}"}
        return {"kind": "pool", "id": work.unique, **state, "links": links}
    if work.kind == "bag":
        # imported late: the service starts without the dispatcher
        from vgrads.dispatch.storage.block_files import is_of_blocks

        row = visible_bag(service, work.id, who)
        return {
            "kind": "matrix" if is_of_blocks(source_of(row)) else "bag",
            **{name: getattr(row, name) for name in ("id", "name", "owner", "state")},
            "links": {"resource": f"/v1/bags/{row.id}", "page": f"/bags/{row.id}"},
        }
    head = service.visible(work.set_id, who)
    run = service.store.get_run(work.run_id) if work.run_id else None
    return {
        "kind": work.kind,
        "id": work.id,
        "name": head.name,
        "owner": head.owner,
        "state": run.state if run else head.state,
        "set": head.id,
        "run": run.id if run else None,
        "links": {"resource": f"/v1/workflow-sets/{head.id}", "page": f"/sets/{head.id}"},
    }


def _add_actions(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/work/{name}/cancel",
        status_code=202,
        **answers("work.WorkRequestSent", operation="cancel_work", tag="work", errors=(404, 409)),
    )
    def cancel_work(name: WorkName, who: Submitter) -> Json:
        """Cancel a run (of a set: its newest), or the remaining tasks of a bag."""
        work = _find(service, name, who, "cancel")
        if work.kind == "bag":
            return cancel_row(service, visible_bag(service, work.id, who), who)
        return cancel_run(service, work.set_id, who, _run_of(work))

    @app.post(
        "/v1/work/{name}/resume",
        status_code=202,
        **answers("work.WorkRequestSent", operation="resume_work", tag="work", errors=(404, 409)),
    )
    def resume_work(name: WorkName, who: Submitter) -> Json:
        """Resume a run or bag that has not ended. Those of the service resume by themselves, unless
        a command has taken a run over and died."""
        work = _find(service, name, who, "resume")
        if work.kind == "bag":
            refuse_unattended(visible_bag(service, work.id, who), "resume")
            service.supervisor.notify()
            return {"id": work.id, **message("its dispatcher runs it")}
        return {"run": work.run_id, **message(_resume_run(service, work.set_id, _run_of(work)))}

    @app.post(
        "/v1/work/{name}/retry",
        status_code=202,
        **answers("work.WorkRetried", operation="retry_work", tag="work", errors=(404, 409, 503)),
    )
    async def retry_work(
        name: WorkName,
        who: Submitter,
        request: RetryRequest | None = None,
        key: IdempotencyKey = None,
    ) -> Json:
        """Run the tasks again that failed or were not run, or these ``tasks``, with those that
        depend on them, as a new run of the same set; those of a bag (by number) in the same bag.
        What is done is not repeated."""
        work = await run_in_threadpool(_find, service, name, who, "retry")
        tasks = request.tasks if request else ()
        if work.kind == "bag":
            return await run_in_threadpool(
                lambda: retry_row(
                    service, visible_bag(service, work.id, who), list(map(_parse_number, tasks))
                )
            )
        return {"run": await retry_run(service, work.set_id, who, tasks, key)}


def _add_archive(app: FastAPI, service: Service) -> None:
    @app.put(
        "/v1/work/{name}/archived",
        **answers("work.WorkArchived", operation="archive_work", tag="work", errors=(404, 409)),
    )
    def archive(name: WorkName, who: Submitter) -> Json:
        """Archive a set or bag that has ended: lists of work leave it out, nothing is deleted. It
        is listed again once something of it begins anew."""
        return archive_work(service.store, _find(service, name, who, "archive"), True)

    @app.delete(
        "/v1/work/{name}/archived",
        **answers("work.WorkArchived", operation="restore_work", tag="work", errors=(404, 409)),
    )
    def restore(name: WorkName, who: Submitter) -> Json:
        """List an archived set or bag again."""
        return archive_work(service.store, _find(service, name, who, "archive"), False)


def _resume_run(service: Service, set_id: str, run_id: str) -> str:
    run = service.store.get_run(run_id)
    if run.state not in GOES_ON:
        raise HTTPException(409, f"run '{run_id}' has ended: {run.state}")
    if service.supervisor.works.awaits(run_id):
        return "the service runs it"
    if manager_of(service.store.reader, run_id, run.state) != GONE:
        return "its manager runs it"
    if not is_of_service(run):
        raise HTTPException(409, f"it is a run of the command line: vgrads resume {run_id}")
    service.supervisor.works.add_run(set_id, run_id)
    service.supervisor.notify()
    return "it was queued"
