"""REST: workflow sets, their plans, charts and runs."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document, NotNegative
from vgrads.kernel.errors import InputError
from vgrads.portal.charts.exports import FORMATS, export
from vgrads.portal.jobs.worker import usable, what_if_in_child
from vgrads.portal.records.access import Principal
from vgrads.portal.records.idempotency import key_of
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.guard import Reader, Submitter
from vgrads.portal.web.service import PLANNING_S, Service

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
_WAIT = re.compile(r"\bwait=(\d{1,4})\b")


class WhatIf(Document):
    """Other wishes for a set; what is not named stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"deadline": "90m", "fraction": "7/8", "budget_usd": 20}]}
    )

    deadline: str | float | None = None
    fraction: str | float | None = None
    probability: Annotated[float | None, Field(gt=0, lt=1)] = None
    budget_usd: NotNegative | None = None


class HowToRun(BaseModel):
    """How a set is to be run."""

    engine: Literal["vgrads", "outside"] = "vgrads"
    speed: Annotated[float | None, Field(ge=0.01, le=1e6)] = None
    rerun: bool = False


def add_set_routes(app: FastAPI, service: Service) -> None:
    """Handing over, reading, running, asking."""
    _add_submission(app, service)
    _add_reading(app, service)
    _add_plans(app, service)
    _add_runs(app, service)


def _add_submission(app: FastAPI, service: Service) -> None:
    @app.post("/v1/workflow-sets", status_code=201, openapi_extra={"requestBody": SET_BODY})
    async def submit(
        request: Request,
        response: Response,
        who: Submitter,
        key: IdempotencyKey = None,
        prefer: Annotated[str, Header()] = "",
    ) -> Json:
        """Hand over a workflow set, as JSON or YAML; it is planned in the background.

        The answer comes with what the plan promises and costs, or after half a minute without it
        (``state``: planning). ``Prefer: respond-async`` does not wait, ``Prefer: wait=5`` five
        seconds.
        """
        kind = kind_of(request.headers.get("content-type", ""))
        checked = await service.read_set(await request.body(), kind)
        asked = key_of(who.user, key, [request.url.path, checked.digest])
        answer, head = await service.hand_over(checked, who, asked, _patience(prefer))
        response.headers["Location"] = f"/v1/workflow-sets/{answer['id']}"
        return answer | {"state": head.state if head else "failed"} | _told(head)


def _told(head: Head | None) -> Json:
    """What a caller wants to know of a plan; nothing where there is none yet."""
    if head is None or not head.revision:
        return {}
    names = ("feasible", "promise", "cost_usd", "needed", "deadline_s", "lacking")
    return {name: head.summary.get(name) for name in names}


def kind_of(content_type: str) -> str:
    """``json`` or ``yaml``; InputError for what a form of another site's page could send."""
    found = re.fullmatch(
        r"(?:application|text)/(?:[\w.-]+\+)?(?:x-)?(json|yaml)",
        content_type.partition(";")[0].strip(),
    )
    if found is None:
        raise InputError("must be application/json or application/yaml", where="Content-Type")
    return found[1]


def _patience(prefer: str) -> float:
    found = _WAIT.search(prefer)
    if found:
        return min(float(found[1]), PLANNING_S)
    return 0.0 if "respond-async" in prefer else PLANNING_S


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.get("/v1/workflow-sets")
    def list_sets(
        response: Response,
        who: Reader,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        after: Annotated[str, Query(max_length=100)] = "",
    ) -> list[Json]:
        """Your sets (an operator: all), newest first; the header ``Link`` leads to the next
        page."""
        owner = None if who.operator else who.user
        heads = service.sets.heads(owner, limit + 1, after)
        if len(heads) > limit:
            query = urlencode({"limit": limit, "after": heads[limit - 1].cursor})
            response.headers["Link"] = f'</v1/workflow-sets?{query}>; rel="next"'
        return [summary(service, head) for head in heads[:limit]]

    @app.get("/v1/workflow-sets/{set_id}")
    def read_set(set_id: SetId, request: Request, who: Reader) -> Response:
        """A set as it was handed over, its state, and its runs."""
        head = service.visible(set_id, who)
        document = {"document": json.loads(service.sets.text(set_id, "document"))}
        return _tagged(request, summary(service, head) | document)

    @app.get(
        "/v1/workflow-sets/{set_id}/gantt",
        responses={200: {"content": {f.media.partition(";")[0]: {} for f in FORMATS.values()}}},
    )
    def read_gantt(
        set_id: SetId,
        request: Request,
        who: Reader,
        form: Annotated[
            Literal["json", "html", "svg", "png", "pdf", "trace"], Query(alias="format")
        ] = "json",
    ) -> Response:
        """The Gantt query: slots and placements, planned and actual; ``format``: as a picture, or
        for Perfetto."""
        head = service.visible(set_id, who)
        run = service.newest_run(set_id)
        etag = f'"{head.revision}-{service.live.version(run) if run else head.state}-{form}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        found = gantt(service, head, run)
        if form == "json":
            return JSONResponse(found, headers={"ETag": etag})
        kind = (
            "attachment" if form == "html" else "inline"
        )  # its own script may not run under our policy
        headers = {
            "ETag": etag,
            "Content-Disposition": f'{kind}; filename="{set_id}.{FORMATS[form].ending}"',
        }
        return Response(export(found, form), media_type=FORMATS[form].media, headers=headers)


def whole_document(service: Service, set_id: str) -> str:
    """A set as it was handed over, as JSON; 409 where an earlier version kept only its name."""
    text = service.sets.text(set_id, "document")
    if "workflows" not in json.loads(text):
        told = "an earlier version kept only the name of this set: hand it over again"
        raise HTTPException(409, told)
    return text


def gantt(service: Service, head: Head, run: RunRow | None) -> Json:
    """The chart of the newest run as it stands, else of the plan."""
    found = service.live.chart(run) if run else None
    if found is None:
        if head.state == "planning" and not head.revision:
            raise HTTPException(409, "the set is still being planned", {"Retry-After": "1"})
        found = json.loads(service.sets.text(head.id, "gantt"))
    return found | {
        "set": head.id,
        "run": run.id if run else None,
        "state": run.state if run else head.state,
    }


def _add_plans(app: FastAPI, service: Service) -> None:
    @app.get("/v1/workflow-sets/{set_id}/plan")
    async def read_plan(set_id: SetId, request: Request, who: Reader) -> Response:
        """The plan: the same document as ``vgrads plan --json``; waits for it up to half a
        minute."""
        await _apart(service.visible, set_id, who)
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
        text = await _apart(service.sets.text, set_id, "plan")
        return Response(text, media_type="application/json", headers={"ETag": head.etag})

    @app.post("/v1/workflow-sets/{set_id}/plan", status_code=202)
    def plan_again(set_id: SetId, who: Submitter, if_match: IfMatch = None) -> Json:
        """Plan the set anew with what is known of the sites now; the plan gets a new revision."""
        head = service.visible(set_id, who)
        _refuse_other_revision(head, if_match)
        if not service.sets.plan_again(set_id, head.revision):
            raise HTTPException(409, "the set is being planned")
        service.supervisor.poke()
        return {"id": set_id, "state": "planning"}

    @app.post("/v1/workflow-sets/{set_id}/what-if")
    async def what_if(set_id: SetId, wishes: WhatIf, who: Reader) -> Json:
        """What would be promised with another deadline, fraction or budget? Nothing is kept."""
        head = await _apart(service.visible, set_id, who)
        text = await _apart(whole_document, service, set_id)
        catalog = usable(service.catalog, service.granted(head.owner))[0]
        change = wishes.model_dump(exclude_unset=True)
        think = service.supervisor.think
        answer: Json = await think(what_if_in_child, service.store.url, catalog, text, change)
        return answer


def _add_runs(app: FastAPI, service: Service) -> None:
    @app.post("/v1/workflow-sets/{set_id}/run", status_code=202)
    async def run_set(
        set_id: SetId,
        who: Submitter,
        how: Annotated[HowToRun, Query()],
        key: IdempotencyKey = None,
        if_match: IfMatch = None,
    ) -> Json:
        """Run the set in the background.

        ``engine=outside``: the caller runs the tasks (turns, ends). ``speed``: virtual seconds a
        second at simulated sites; default: as fast as can be. ``rerun``: also tasks that an earlier
        run did, whose command, inputs and environment are unchanged and whose outputs stand;
        without it those are left out, and the rest is planned anew. ``If-Match``: only the plan
        with this ETag.
        """
        asked = how.model_dump(exclude=set() if how.rerun else {"rerun"})
        return {"run": await begin_run(service, set_id, who, asked, key, if_match)}


async def begin_run(
    service: Service, set_id: str, who: Principal, how: Json, key: str | None, if_match: str | None
) -> str:
    """Queue a run of a set, as soon as it is planned; its id."""
    await _apart(service.visible, set_id, who)
    head = await service.planned(set_id, PLANNING_S)
    if head is None:
        raise HTTPException(404, f"no workflow set '{set_id}'")
    _refuse_other_revision(head, if_match)
    run_id: str = await _apart(service.run, head, how, key_of(who.user, key, [set_id, how]))
    return run_id


def _refuse_other_revision(head: Head, if_match: str | None) -> None:
    if if_match not in (None, "*", head.etag):
        raise HTTPException(412, f"If-Match: the plan is {head.etag} by now")


def summary(service: Service, head: Head) -> Json:
    """A set with its runs, as lists and pages show it."""
    runs = [
        {
            "id": run.id,
            "state": run.state,
            "started": run.started.isoformat(),
            "outcome": json.loads(run.outcome),
        }
        for run in service.store.list_runs(head.id)
    ]
    told = {
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
        **told,
        "runs": runs,
    }


def _tagged(request: Request, body: Json) -> Response:
    """A body with an ETag of its content; 304 where the caller has it."""
    text = json.dumps(body, allow_nan=False)
    etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"ETag": etag})
    return Response(text, media_type="application/json", headers={"ETag": etag})


async def _apart(function: Any, *arguments: Any) -> Any:
    return await run_in_threadpool(function, *arguments)
