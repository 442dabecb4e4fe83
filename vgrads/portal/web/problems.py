"""Errors over HTTP: RFC 9457 problem documents that name the field."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from vgrads.kernel.errors import InfeasibleError, InputError, SiteError, VgradsError
from vgrads.portal.charts.pages import render

_STATUS: dict[type[VgradsError], tuple[int, str]] = {
    InputError: (422, "The request is not valid"),
    InfeasibleError: (409, "No plan can meet the requirement"),
    SiteError: (503, "A site or service cannot be reached"),
}


def problem(status: int, title: str, detail: str, **more: object) -> JSONResponse:
    """A problem document."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def refusal(scope: Scope, status: int, title: str, detail: str, **more: object) -> Response:
    """What is wrong: a page for a person at a browser, a problem document for everybody else."""
    if "text/html" not in Headers(scope=scope).get("accept", ""):
        return problem(status, title, detail, **more)
    who = scope.get("state", {}).get("principal")
    page = render(
        "error.html",
        package="vgrads.portal.web",
        here="",
        who=who,
        session=False,
        title=title,
        detail=detail,
    )
    return HTMLResponse(page, status_code=status)


FAULT = ("A fault of the service", "a fault of the service, which was logged")


def install_problem_handlers(app: FastAPI) -> None:
    """Every error leaves as a problem document or a page; what nobody expected is the guard's."""

    @app.exception_handler(VgradsError)
    def _ours(request: Request, error: VgradsError) -> Response:
        status, title = next(
            (s for kind, s in _STATUS.items() if isinstance(error, kind)), (500, "Error")
        )
        more = {"errors": list(error.parts)} if error.parts else {}
        return refusal(request.scope, status, title, str(error), field=error.where or None, **more)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "body"
        detail = f"{field}: {first['msg'].removeprefix('Value error, ')}"
        if first["loc"][0] == "path":  # what cannot be a name is the name of nothing
            return refusal(request.scope, 404, "Not Found", detail, field=field)
        return refusal(request.scope, 422, "The request is not valid", detail, field=field)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        title = HTTPStatus(error.status_code).phrase
        answer = refusal(request.scope, error.status_code, title, str(error.detail))
        answer.headers.update(error.headers or {})
        return answer
