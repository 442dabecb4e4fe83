"""The web pages, and the routes that only they use."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Form, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from pydantic import Field
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document
from vgrads.portal.jobs.run_status import promise_points
from vgrads.portal.records.access import EVERYBODY_HERE, SESSION_S, Principal
from vgrads.portal.web.answers import answers
from vgrads.portal.web.guard import COOKIE, Reader
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId
from vgrads.portal.web.token_pages import add_token_pages

if TYPE_CHECKING:
    from vgrads.portal.web.api_reference import ApiReference

Json = dict[str, Any]
_SET = {
    "name": "lead",
    "deadline": "2h",
    "at_least": 6,
    "workflows": [{"file": "lead.json", "count": 8}],
}


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
    _add_site_pages(app, service)
    _add_api_page(app, service)
    _add_entrance(app, service)
    _add_provider(app, service)
    add_token_pages(app, service)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", **answers("work.ServiceState", operation="read_health", tag="service"))
    async def healthz() -> dict[str, str]:
        """Report whether the service runs, and its database (at most one second old)."""
        await service.database_answers()
        return {"status": "ok"}

    @app.get(
        "/readyz",
        **answers("work.ServiceState", operation="read_readiness", tag="service", errors=(503,)),
    )
    def readyz() -> dict[str, str]:
        """Report whether it accepts work. 503 while it starts or stops, where nothing can be
        written, where the database's file was deleted or replaced, and where bags are not
        served."""
        if service.stopping.is_set() or not service.supervisor.alive:
            raise HTTPException(503, "not accepting work")
        if service.supervisor.failing:
            raise HTTPException(503, "the dispatcher of bags ended with an error; see the log")
        service.store.refuse_lost()
        service.store.ready()
        service.store.try_writing()
        return {"status": "ready"}


def _add_asking(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/workflow-sets/{set_id}/explain",
        **answers(
            "sets.PlacementExplanation",
            operation="explain_placement",
            tag="workflow sets",
            errors=(404, 409),
        ),
    )
    def why(set_id: SetId, who: Reader, task: Annotated[str, Query(max_length=500)]) -> Json:
        """Explain the placement of a task (``workflow/task``), as ``vgrads explain --json``."""
        return explain_placement(service, set_id, who, task)

    @app.get(
        "/v1/workflow-sets/{set_id}/promise",
        **answers(
            "runs.PromiseHistory", operation="read_promise_history", tag="runs", errors=(404,)
        ),
    )
    def promise(set_id: SetId, who: Reader) -> Json:
        """Return the probability of the promise over the newest run."""
        service.visible(set_id, who)
        run = service.newest_run(set_id)
        if run is None:
            return {"run": None, "points": []}
        result = service.live.folded(run.id)
        points = [] if result is None else promise_points(run, *result)
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


def _add_site_pages(app: FastAPI, service: Service) -> None:
    @app.get("/sites", response_class=HTMLResponse, include_in_schema=False)
    def sites(request: Request) -> HTMLResponse:
        # imported late: a page of its own needs them
        from vgrads.api.queues import sites as site_rows
        from vgrads.portal.web.forecasts.queue_overview import cloud_lines, queue_lines

        who, catalog = reader_of(request), service.catalog
        scores = {(s["site"], s["queue"]): s for s in service.forecasts.scores()["queues"]}
        queues = queue_lines(catalog, service.queues.context(owner=who.user), scores)
        slots = site_rows.describe(catalog, service.store.acquisitions())
        return page_of(
            request,
            "/sites",
            "sites.html",
            queues=queues,
            clouds=cloud_lines(catalog),
            slots=slots,
        )


def _add_api_page(app: FastAPI, service: Service) -> None:
    @app.get("/docs", include_in_schema=False)
    def docs() -> RedirectResponse:
        return RedirectResponse("/api", status_code=308)

    @app.get("/api", response_class=HTMLResponse, include_in_schema=False)
    def api(request: Request, find: Annotated[str, Query(max_length=200)] = "") -> HTMLResponse:
        description = app.openapi()
        url = service.bounds.url or str(request.base_url).rstrip("/")
        tokens = request.scope["state"]["principal"] is not EVERYBODY_HERE
        return page_of(
            request,
            "/api",
            "api.html",
            about=description["info"]["description"],
            reference=reference(url, tokens).find(find),
            find=find,
            example=_SET,
            url=url,
            tokens=tokens,
        )

    @lru_cache(maxsize=4)
    def reference(url: str, tokens: bool) -> ApiReference:
        # imported late: a page of its own needs it
        from vgrads.portal.web.api_reference import read_reference

        return read_reference(app.openapi(), url, tokens)


def _add_entrance(app: FastAPI, service: Service) -> None:
    @app.get("/login", response_class=HTMLResponse, include_in_schema=False)
    def entrance(request: Request) -> HTMLResponse:
        return page_of(request, "/login", "login.html", oidc=service.oidc is not None, problem="")

    @app.post("/login/form", include_in_schema=False, response_model=None)
    def login_form(
        request: Request, token: Annotated[str, Form(min_length=1, max_length=200)]
    ) -> Response:
        principal = service.access.find(token)
        if principal is not None:
            return let_in(service, principal, request, RedirectResponse("/", status_code=303))
        problem = "The token is unknown or has expired."
        oidc = service.oidc is not None
        page = page_of(request, "/login", "login.html", oidc=oidc, problem=problem)
        page.status_code = 401
        return page

    @app.post("/login", include_in_schema=False)
    def login(value: Login, request: Request) -> Response:
        principal = service.access.find(value.token)
        if principal is None:
            raise HTTPException(401, "token: unknown or expired")
        return let_in(service, principal, request, JSONResponse({"user": principal.user}))

    @app.get(
        "/v1/token", **answers("work.TokenDescription", operation="describe_token", tag="tokens")
    )
    def describe_token(request: Request) -> Json:
        """Describe the token of this request: its user, its scopes, and `expires_s` (Unix time;
        null: it does not expire)."""
        who: Principal = request.scope["state"]["principal"]  # the guard refuses /v1/ without one
        return {"user": who.user, "scopes": sorted(who.scopes), "expires_s": who.expires_s}

    @app.post("/logout", include_in_schema=False)
    def logout(request: Request) -> RedirectResponse:
        secret = request.cookies.get(COOKIE, "")
        service.access.end(secret)
        request.scope["state"]["forget"](secret)
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer


def _add_provider(app: FastAPI, service: Service) -> None:
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
    # strict: no page of another site can use the session
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=(service.bounds.url or str(request.url)).startswith("https:"),
    )
    return answer
