"""The web pages, and the routes that only they use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from markupsafe import Markup
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.api.config import embedded_data
from vgrads.kernel.documents import Document
from vgrads.portal.charts.exports import available
from vgrads.portal.charts.gantt import render_svg
from vgrads.portal.jobs import children
from vgrads.portal.records.access import EVERYBODY_HERE, SESSION_S, Principal
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.sets import Head
from vgrads.portal.web.guard import COOKIE, Reader
from vgrads.portal.web.page_context import page_of, reader_of, shown
from vgrads.portal.web.run_routes import SearchText, status_parts, task_parts
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, gantt, summary, whole_document

if TYPE_CHECKING:
    pass

Json = dict[str, Any]
_PAGE = 50
_MOST_STILL = 1000  # bars


class Login(Document):
    """A token to be stored as a cookie."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


def add_page_routes(app: FastAPI, service: Service) -> None:
    """Add pages, their files, login and logout, health checks."""
    app.mount(
        "/static",
        StaticFiles(packages=[("vgrads.portal.web", "static"), ("vgrads.portal.charts", "static")]),
        name="static",
    )
    _add_health(app, service)
    _add_asking(app, service)
    _add_set_pages(app, service)
    _add_site_pages(app, service)
    _add_api_page(app, service)
    _add_entrance(app, service)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Report whether the service runs, and its database (at most one second old)."""
        await service.database_answers()
        return {"status": "ok"}

    @app.get("/readyz")
    def readyz() -> dict[str, str]:
        """Report whether it accepts work. 503 while it starts or stops, where nothing can be
        written, and where bags are not served."""
        if service.stopping.is_set() or not service.supervisor.alive:
            raise HTTPException(503, "not accepting work")
        if service.supervisor.failing:
            raise HTTPException(503, "the dispatcher of bags ended with an error; see the log")
        service.store.ready()
        service.store.try_writing()
        return {"status": "ready"}


def _add_asking(app: FastAPI, service: Service) -> None:
    @app.get("/v1/workflow-sets/{set_id}/explain")
    def why(set_id: SetId, who: Reader, task: Annotated[str, Query(max_length=500)]) -> Json:
        """Explain the placement of a task (``workflow/task``), as ``vgrads explain --json``."""
        return explain_placement(service, set_id, who, task)

    @app.get("/v1/workflow-sets/{set_id}/promise")
    async def promise(set_id: SetId, who: Reader) -> Json:
        """Return the probability of the promise over the newest run."""
        service.visible(set_id, who)
        run = service.newest_run(set_id)
        if run is None:
            return {"run": None, "points": []}
        points = await service.supervisor.think(
            children.promise_over_time, service.store.url, run.id
        )
        return {"run": run.id, "points": points}


def explain_placement(service: Service, set_id: str, who: Principal, task: str) -> Json:
    """Explain the placement of a task of a set; 409 where it has no plan."""
    head = service.visible(set_id, who)
    if not head.revision:
        raise HTTPException(409, "the set has no plan yet")
    # imported late: a page of its own needs it
    from vgrads.planner.explain import explain, explain_text

    payload = explain(json.loads(service.sets.text(set_id, "plan")), task)
    return payload | {"text": explain_text(payload)}


def _add_set_pages(app: FastAPI, service: Service) -> None:
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def index(request: Request, after: str = "") -> HTMLResponse:
        who = reader_of(request)
        heads = service.sets.heads(None if who.operator else who.user, _PAGE + 1, after)
        rows = [_listed(service, head) for head in heads[:_PAGE]]
        following = heads[_PAGE - 1].cursor if len(heads) > _PAGE else ""
        return page_of(request, "/", "sets.html", sets=rows, next=following)

    @app.get("/sets/{set_id}", response_class=HTMLResponse, include_in_schema=False)
    async def page(set_id: SetId, request: Request, find: SearchText = "") -> HTMLResponse:
        head = await run_in_threadpool(service.visible, set_id, reader_of(request))
        parts = await status_parts(service, head) | await task_parts(service, head, find)
        return await run_in_threadpool(_set_page, service, head, request, parts)

    @app.get("/sets/{set_id}/what-if", response_class=HTMLResponse, include_in_schema=False)
    def wishes(set_id: SetId, request: Request) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        if not head.revision:
            raise HTTPException(409, "the set has no plan yet")
        budget = json.loads(whole_document(service, set_id)).get("budget_usd")
        most = max(20.0, 2 * (head.summary.get("cost_usd") or 0.0), 2 * (budget or 0.0))
        return page_of(
            request,
            "",
            "whatif.html",
            s=summary(service, head),
            workflows=_count(service, set_id),
            budget=most,
            requested_budget_usd=budget,
        )

    @app.get("/submit", response_class=HTMLResponse, include_in_schema=False)
    def form(request: Request) -> HTMLResponse:
        reader_of(request)
        files = sorted(p.name for p in embedded_data().glob("*.json"))
        example = (embedded_data() / "lead-storm.yaml").read_text(encoding="utf-8")
        return page_of(request, "/submit", "submit.html", files=files, example=example)


def _set_page(service: Service, head: Head, request: Request, parts: Json) -> HTMLResponse:
    run = parts["now"]["run"]
    live = parts["now"]["state"] in GOES_ON
    return page_of(
        request,
        "",
        "set.html",
        forms=available(),
        run=run,
        workflows=_count(service, head.id),
        run_times=_run_times(service, head),
        lacking=head.summary.get("lacking") or "",
        svg=_still(service, head),
        live=live,
        **parts,
    )


def _listed(service: Service, head: Head) -> Json:
    """Return a row of the list; of an active run, with its progress."""
    row, run = shown(summary(service, head)), service.newest_run(head.id)
    live = run is not None and run.state in GOES_ON
    return row | {
        "live": live,
        "now": service.statuses.of(run) if run is not None and live else None,
    }


def _still(service: Service, head: Head) -> Markup:
    """Return the chart for browsers without scripts; not of very large sets."""
    if not head.revision:
        return Markup("")
    result = gantt(service, head, service.newest_run(head.id))
    return Markup(render_svg(result)) if len(result["placements"]) <= _MOST_STILL else Markup("")


def _run_times(service: Service, head: Head) -> list[Json]:
    """Return the evidence for the run times of each kind of task; nothing where all are as
    stated."""
    if not head.revision:
        return []
    result = json.loads(service.sets.text(head.id, "plan")).get("run_times", [])
    if all(entry["source"] == "stated" for entry in result):
        return []
    # imported late: most sets have stated run times
    from vgrads.api.plans.runtimes import source_text

    return [entry | {"rests": source_text(entry)} for entry in result]


def _count(service: Service, set_id: str) -> int:
    """Return the number of workflows of a set; 0 where an earlier version stored only its name."""
    document = json.loads(service.sets.text(set_id, "document"))
    return sum(int(w.get("count", 1)) for w in document.get("workflows", ()))


def _add_site_pages(app: FastAPI, service: Service) -> None:
    @app.get("/sites", response_class=HTMLResponse, include_in_schema=False)
    def sites(request: Request) -> HTMLResponse:
        # imported late: a page of its own needs it
        from vgrads.api.queues import sites as site_rows

        reader_of(request)
        rows = site_rows.describe(service.catalog, service.store.acquisitions())
        return page_of(request, "/sites", "sites.html", sites=rows)


def _add_api_page(app: FastAPI, service: Service) -> None:
    @app.get("/docs", include_in_schema=False)
    def docs() -> RedirectResponse:
        return RedirectResponse("/api", status_code=308)

    @app.get("/api", response_class=HTMLResponse, include_in_schema=False)
    def api(request: Request) -> HTMLResponse:
        result = app.openapi()
        example = {
            "name": "lead",
            "deadline": "2h",
            "at_least": 6,
            "workflows": [{"file": "lead.json", "count": 8}],
        }
        return page_of(
            request,
            "/api",
            "api.html",
            about=result["info"]["description"],
            paths=result["paths"],
            example=example,
            url=service.bounds.url or str(request.base_url).rstrip("/"),
            tokens=request.scope["state"]["principal"] is not EVERYBODY_HERE,
        )


def _add_entrance(app: FastAPI, service: Service) -> None:
    @app.get("/login", response_class=HTMLResponse, include_in_schema=False)
    def entrance(request: Request) -> HTMLResponse:
        return page_of(request, "/login", "login.html", oidc=service.oidc is not None)

    @app.post("/login", include_in_schema=False)
    def login(value: Login, request: Request) -> Response:
        principal = service.access.find(value.token)
        if principal is None:
            raise HTTPException(401, "token: unknown or expired")
        return let_in(service, principal, request, JSONResponse({"user": principal.user}))

    @app.get("/v1/token")
    def describe_token(request: Request) -> Json:
        """Describe the token of this request: its user, its scopes, and `expires_s` (Unix time;
        null: it does not expire)."""
        who: Principal = request.scope["state"]["principal"]  # the guard refuses /v1/ without one
        return {"user": who.user, "scopes": sorted(who.scopes), "expires_s": who.expires_s}

    @app.post("/logout", include_in_schema=False)
    def logout(request: Request) -> JSONResponse:
        secret = request.cookies.get(COOKIE, "")
        service.access.end(secret)
        request.scope["state"]["forget"](secret)
        answer = JSONResponse({})
        answer.delete_cookie(COOKIE)
        return answer

    @app.get("/login/oidc", include_in_schema=False)
    def away(request: Request) -> RedirectResponse:
        if service.oidc is None:
            raise HTTPException(404, "no login provider is configured")
        own = service.bounds.url or str(request.base_url).rstrip("/")
        return service.oidc.begin(f"{own}/login/oidc/back")

    @app.get("/login/oidc/back", include_in_schema=False, name="back")
    def back(request: Request) -> Response:
        if service.oidc is None:
            raise HTTPException(404, "no login provider is configured")
        result = service.oidc.finish(
            str(request.url), request.query_params.get("state", ""), request.cookies
        )
        return let_in(service, result, request, RedirectResponse("/", status_code=303))


def let_in(service: Service, who: Principal, request: Request, answer: Response) -> Response:
    """Create a session for an authenticated user."""
    secret, _ = service.access.create(who.user, who.scopes, SESSION_S, session=True)
    request.scope["state"]["forget"](secret)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=(service.bounds.url or str(request.url)).startswith("https:"),
    )
    return answer
