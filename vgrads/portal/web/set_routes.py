"""REST: workflow sets, their plans, charts and runs."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document, NotNegative
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.requests import PlanningOptions, StoredRunOptions, list_changed_options
from vgrads.portal.charts.exports import FORMATS, export
from vgrads.portal.jobs import children
from vgrads.portal.jobs.children import Call
from vgrads.portal.records.access import Principal
from vgrads.portal.records.idempotency import key_of
from vgrads.portal.records.reading.archived import is_archived
from vgrads.portal.records.reading.sites import choose_usable_sites
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.answers import answers, files_of, json_of, list_of
from vgrads.portal.web.checked_routes import kind_of, turn_of
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.paging import NameFilter, Page
from vgrads.portal.web.request_models import query_model
from vgrads.portal.web.service import PLANNING_S, Service
from vgrads.portal.web.set_document import is_as_planned

SetId = Annotated[str, PathParameter(pattern=r"^set-[0-9a-f]{10}$", examples=["set-0123456789"])]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]
IfMatch = Annotated[str | None, Header(alias="If-Match")]
Json = dict[str, Any]
_EXAMPLE = {
    "name": "lead",
    "deadline": "2h",
    "at_least": 6,
    "budget_usd": 40,
    "workflows": [{"file": "lead.json", "count": 8}],
}
SET_BODY = {
    "required": True,
    "content": {
        kind: {"schema": {"$ref": "#/components/schemas/SetDocument"}, "example": _EXAMPLE}
        for kind in ("application/json", "application/yaml")
    },
}
_PICTURES = files_of(*(f.media.partition(";")[0] for f in FORMATS.values()))
_WAIT = re.compile(r"\bwait=(\d{1,4})\b")


class WhatIf(Document):
    """Alternative options of a set; missing ones are unchanged."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"deadline": "90m", "fraction": "7/8", "budget_usd": 20}]}
    )

    deadline: str | float | None = None
    fraction: str | float | None = None
    probability: Annotated[float | None, Field(gt=0, lt=1)] = None
    budget_usd: NotNegative | None = None


if TYPE_CHECKING:  # the models are made of the requests
    PlanningFields: TypeAlias = Any
    RunFields: TypeAlias = Any
else:
    PlanningFields = Annotated[query_model(PlanningOptions), Query()]
    RunFields = Annotated[query_model(StoredRunOptions), Query()]


def add_set_routes(app: FastAPI, service: Service) -> None:
    """Add routes to submit, read, run, query."""
    _add_submission(app, service)
    _add_reading(app, service)
    _add_chart(app, service)
    _add_plans(app, service)
    _add_runs(app, service)


def _add_submission(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/workflow-sets",
        status_code=201,
        **answers(
            "sets.SubmittedSet",
            operation="submit_workflow_set",
            tag="workflow sets",
            errors=(409, 503),
            extra={"requestBody": SET_BODY},
        ),
    )
    async def submit(
        request: Request,
        response: Response,
        who: Submitter,
        fields: PlanningFields,
        key: IdempotencyKey = None,
        prefer: Annotated[str, Header()] = "",
    ) -> Json:
        """Submit a workflow set, as JSON or YAML; it is planned in the background.

        The answer has the plan's promise and cost, or is sent after half a minute without them
        (``state``: planning). ``Prefer: respond-async`` does not wait, ``Prefer: wait=5`` five
        seconds.
        """
        kind = kind_of(request.headers.get("content-type", ""))
        body = await request.body()
        async with turn_of(request):
            read = await service.read_set(body, kind)
        checked = replace(read, options=checked_options(fields))
        service.catalog.only(checked.options.only_sites, "only_sites")  # or InputError, before
        requested = key_of(who.user, key, [request.url.path, checked.digest])
        answer, head = await service.submit_set(checked, who, requested, patience(prefer))
        response.headers["Location"] = f"/v1/workflow-sets/{answer['id']}"
        return answer | {"state": head.state if head else "failed"} | _describe_state(head)


MOST_EFFORT = 10.0
"""Of planning, for one set: half a minute of a processor, which others of its users need too."""


def checked_options(fields: BaseModel) -> PlanningOptions:
    """Return options of planning. Raise InputError for an unknown policy or model, and for more
    work than one user may have the service do."""
    options = PlanningOptions(**fields.model_dump())
    if options.effort is not None and options.effort > MOST_EFFORT:
        raise InputError(f"a service plans with at most {MOST_EFFORT:g}", where="effort")
    # imported late: the service starts without the planner
    from vgrads.operations.plans.planning import make_planner_options

    make_planner_options(options)
    return options


def _describe_state(head: Head | None) -> Json:
    """Return the summary of a plan for callers; empty where there is none yet."""
    if head is None or not head.revision:
        return {}
    names = ("feasible", "promise", "cost_usd", "needed", "deadline_s", "lacking")
    return {name: head.summary.get(name) for name in names}


def patience(prefer: str) -> float:
    """Return the seconds that a caller waits, by its header ``Prefer``."""
    match = _WAIT.search(prefer)
    if match:
        return min(float(match[1]), PLANNING_S)
    return 0.0 if "respond-async" in prefer else PLANNING_S


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/workflow-sets",
        **answers(list_of("sets.SetSummary"), operation="list_workflow_sets", tag="workflow sets"),
    )
    def list_sets(
        who: Reader,
        paging: Page,
        name: NameFilter = "",
        state: Literal["planning", "planned", "failed"] | None = None,
    ) -> list[Json]:
        """List your sets (an operator: all), newest first; the header ``Link`` has the next
        page."""
        owner = None if who.operator else who.user
        heads = service.sets.heads(owner, paging.limit + 1, paging.after, name, state)
        return [summary(service, head) for head in paging.page(heads, lambda head: head.cursor)]

    @app.get(
        "/v1/workflow-sets/{set_id}",
        **answers(
            "sets.SetDetails",
            operation="read_workflow_set",
            tag="workflow sets",
            errors=(404,),
            unchanged=True,
        ),
    )
    def read_set(set_id: SetId, request: Request, who: Reader) -> Response:
        """Read a set as submitted, its state, and its runs."""
        head = service.visible(set_id, who)
        document = {"document": json.loads(service.sets.text(set_id, "document"))}
        return _tag_answer(request, summary(service, head) | document)


def _add_chart(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/workflow-sets/{set_id}/gantt",
        **answers(
            _PICTURES | json_of("sets.GanttChart"),
            operation="read_gantt_chart",
            tag="workflow sets",
            errors=(404, 409, 501),
            unchanged=True,
        ),
    )
    def read_gantt(
        set_id: SetId,
        request: Request,
        who: Reader,
        form: Annotated[
            Literal["json", "html", "svg", "png", "pdf", "trace"], Query(alias="format")
        ] = "json",
    ) -> Response:
        """Read the Gantt chart: slots and placements, planned and actual; ``format``: as a picture,
        or for Perfetto."""
        head = service.visible(set_id, who)
        run = service.newest_run(set_id)
        etag = f'"{head.revision}-{service.live.version(run) if run else head.state}-{form}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        result = gantt(service, head, run)
        if form == "json":
            return JSONResponse(result, headers={"ETag": etag})
        kind = (
            "attachment" if form == "html" else "inline"
        )  # its own script is blocked by our content policy
        headers = {
            "ETag": etag,
            "Content-Disposition": f'{kind}; filename="{set_id}.{FORMATS[form].ending}"',
        }
        return Response(export(result, form), media_type=FORMATS[form].media, headers=headers)


def gantt(service: Service, head: Head, run: RunRow | None) -> Json:
    """Return the current chart of the newest run, else of the plan."""
    result = service.live.chart(run) if run else None
    if result is None:
        if head.state == "planning" and not head.revision:
            raise HTTPException(409, "the set is still being planned", {"Retry-After": "1"})
        result = json.loads(service.sets.text(head.id, "gantt"))
    return result | {
        "set": head.id,
        "run": run.id if run else None,
        "state": run.state if run else head.state,
        "started": run_start(run).isoformat() if run else None,
    }


def run_start(run: RunRow) -> datetime:
    """Return the start of a run; SQLite returns it without its zone, which is UTC."""
    return run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)


def _add_plans(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/workflow-sets/{set_id}/plan",
        **answers(
            "sets.PlanAnswer",
            operation="read_plan",
            tag="workflow sets",
            errors=(404, 409),
            unchanged=True,
        ),
    )
    async def read_plan(set_id: SetId, request: Request, who: Reader) -> Response:
        """Read the plan: the same document as ``vgrads plan --json``; waits for it up to half a
        minute."""
        await _run_apart(service.visible, set_id, who)
        head = await service.planned(set_id, PLANNING_S)
        if head is None or head.revision == 0:
            reason = (
                head.problem
                if head and head.state == "failed"
                else "the set is still being planned"
            )
            raise HTTPException(409, reason, {"Retry-After": "5"})
        if request.headers.get("if-none-match") == head.etag:
            return Response(status_code=304, headers={"ETag": head.etag})
        text = await _run_apart(service.sets.text, set_id, "plan")
        return Response(text, media_type="application/json", headers={"ETag": head.etag})

    @app.post(
        "/v1/workflow-sets/{set_id}/plan",
        status_code=202,
        **answers(
            "sets.PlanningStarted",
            operation="plan_again",
            tag="workflow sets",
            errors=(404, 409, 412),
        ),
    )
    def plan_again(set_id: SetId, who: Submitter, if_match: IfMatch = None) -> Json:
        """Plan the set again with current data of the sites; the plan gets a new revision."""
        request_plan(service, set_id, who, if_match)
        return {"id": set_id, "state": "planning"}

    @app.post(
        "/v1/workflow-sets/{set_id}/what-if",
        **answers(
            "sets.PlanSummary",
            operation="try_other_options",
            tag="workflow sets",
            errors=(404, 409, 503),
        ),
    )
    async def what_if(set_id: SetId, wishes: WhatIf, who: Reader) -> Json:
        """Query the promise with another deadline, fraction or budget; planned briefly, unless they
        are those of the set. Nothing is stored."""
        head = await _run_apart(service.visible, set_id, who)
        return await changed_promise(service, head, wishes)


def request_plan(service: Service, set_id: str, who: Principal, if_match: str | None) -> None:
    """Have a set planned again in the background."""
    head = service.visible(set_id, who)
    _refuse_other_revision(head, if_match)
    if not service.sets.plan_again(set_id, head.revision):
        raise HTTPException(409, "the set is being planned")
    service.supervisor.notify()


async def changed_promise(service: Service, head: Head, wishes: WhatIf) -> Json:
    """Return the summary of a brief plan of a set with other options."""
    text = await _run_apart(service.sets.text, head.id, "document")
    change = wishes.model_dump(exclude_unset=True)
    if is_as_planned(head.summary, json.loads(text), change):
        return dict(head.summary)
    function, arguments = promise_call(service, head, text, change)
    answer: Json = await service.supervisor.think(function, *arguments)
    return answer


def promise_call(service: Service, head: Head, text: str, change: Json) -> Call:
    """Return what computes the promise of a set, whose document is ``text``, with other options."""
    catalog = choose_usable_sites(service.catalog, service.granted(head.owner))[0]
    return children.what_if, (service.store.url, catalog, (head.id, text, head.owner), change)


def _add_runs(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/workflow-sets/{set_id}/run",
        status_code=202,
        **answers(
            "runs.RunStarted", operation="run_workflow_set", tag="runs", errors=(404, 409, 412, 503)
        ),
    )
    async def run_set(
        set_id: SetId,
        who: Submitter,
        how: RunFields,
        key: IdempotencyKey = None,
        if_match: IfMatch = None,
    ) -> Json:
        """Run the set in the background. ``If-Match``: only the plan with this ETag."""
        requested = list_changed_options(StoredRunOptions(**how.model_dump()), StoredRunOptions)
        requested = {"engine": how.engine, **requested}
        return {"run": await begin_run(service, set_id, who, requested, key, if_match)}


async def begin_run(
    service: Service, set_id: str, who: Principal, how: Json, key: str | None, if_match: str | None
) -> str:
    """Queue a run of a set, as soon as it is planned; return its id."""
    await _run_apart(service.visible, set_id, who)
    head = await service.planned(set_id, PLANNING_S)
    if head is None:
        raise HTTPException(404, f"no workflow set '{set_id}'")
    _refuse_other_revision(head, if_match)
    run_id: str = await _run_apart(service.run, head, how, key_of(who.user, key, [set_id, how]))
    return run_id


def _refuse_other_revision(head: Head, if_match: str | None) -> None:
    if if_match not in (None, "*", head.etag):
        raise HTTPException(412, f"If-Match: the plan has changed; its ETag is {head.etag}")


def summary(service: Service, head: Head) -> Json:
    """Return a set with its runs, for lists and pages."""
    runs = [
        {
            "id": run.id,
            "state": run.state,
            "started": run_start(run).isoformat(),
            "outcome": json.loads(run.outcome),
        }
        for run in service.store.list_runs(head.id)
    ]
    newest_s = datetime.fromisoformat(runs[0]["started"]).timestamp() if runs else None
    payload = {
        name: head.summary.get(name)
        for name in ("needed", "deadline_s", "feasible", "promise", "cost_usd")
    }
    return {
        "id": head.id,
        "name": head.name,
        "created": head.created.isoformat(),
        "owner": head.owner,
        "state": head.state,
        "problem": head.problem or None,
        "revision": head.revision,
        "archived": is_archived(head.archived_s, newest_s),
        **payload,
        "runs": runs,
    }


def _tag_answer(request: Request, body: Json) -> Response:
    """Return a body with an ETag of its content; 304 where the caller has it."""
    text = json.dumps(body, allow_nan=False)
    etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"ETag": etag})
    return Response(text, media_type="application/json", headers={"ETag": etag})


async def _run_apart(function: Any, *arguments: Any) -> Any:
    return await run_in_threadpool(function, *arguments)
