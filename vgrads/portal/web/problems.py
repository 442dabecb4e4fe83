"""Errors over HTTP: RFC 9457 problem documents that name the field."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from vgrads.dispatch.storage.request_lines import StaleRequestError
from vgrads.kernel.errors import InfeasibleError, InputError, SiteError, VgradsError
from vgrads.kernel.extras import MissingExtraError
from vgrads.kernel.problems import detail_problems
from vgrads.portal.charts.pages import render
from vgrads.portal.records.reading.run_rows import AmbiguousNameError, InapplicableError

_INVALID = "The request is not valid"
_STATUS: dict[type[VgradsError], tuple[int, str]] = {
    MissingExtraError: (501, "Not installed here"),
    AmbiguousNameError: (409, "The name is ambiguous"),
    StaleRequestError: (412, "The goal has changed"),
    InapplicableError: (409, "The request does not apply"),
    InputError: (422, _INVALID),
    InfeasibleError: (409, "No plan can meet the requirement"),
    SiteError: (503, "A site or service cannot be reached"),
}
PROBLEM_TYPES = {
    400: "/problems/bad-request",
    401: "/problems/token-needed",
    403: "/problems/forbidden",
    404: "/problems/not-found",
    405: "/problems/method-not-allowed",
    408: "/problems/body-timeout",
    409: "/problems/conflict",
    412: "/problems/plan-changed",
    413: "/problems/too-large",
    422: "/problems/invalid-request",
    428: "/problems/precondition-needed",
    429: "/problems/too-many-requests",
    500: "/problems/internal-error",
    501: "/problems/not-installed",
    503: "/problems/unreachable",
    507: "/problems/no-room",
}
"""``type`` of a problem by its status: programs rely on them (docs/portal.md)."""
_OWN_TYPES: dict[type[VgradsError], str] = {
    AmbiguousNameError: "/problems/ambiguous-name",
    InapplicableError: "/problems/does-not-apply",
    InfeasibleError: "/problems/infeasible",
}
_NAMED = {
    "set_id": "workflow set",
    "run_id": "run",
    "bag_id": "bag",
    "grid_id": "virtual grid",
    "digest": "file with the digest",
    "name": "object with the name",
}
"""What the parts of a path name; any other part has the name of what it names."""


def problem(status: int, title: str, detail: str, **more: object) -> JSONResponse:
    """Create a problem document; its ``type`` is that of the status unless stated."""
    kind = PROBLEM_TYPES.get(status, "about:blank")
    body = {"type": kind, "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def refusal(scope: Scope, status: int, title: str, detail: str, **more: object) -> Response:
    """Return an error: a page for a user at a browser, a problem document for all other clients."""
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


def unknown(scope: Scope) -> Response:
    """Return the answer to a request without a valid token. The body is not read."""
    detail = "a token is needed: Authorization: Bearer …"
    return _close_connection(
        refusal(scope, 401, "Unauthorized", detail), {"WWW-Authenticate": "Bearer"}
    )


def unreadable(scope: Scope) -> Response:
    """Return the answer to a request for a page with a token that reads no pages."""
    detail = "the token does not have the scope 'read'"
    return _close_connection(refusal(scope, 403, "Forbidden", detail), {})


def too_often(scope: Scope, wait_s: float) -> Response:
    """Return the answer to a request above the rate."""
    answer = refusal(scope, 429, "Too many requests", "too many requests; see Retry-After")
    return _close_connection(answer, {"Retry-After": str(max(1, round(wait_s)))})


def too_many(scope: Scope, most: int) -> Response:
    """Return the answer to a request above the number at once."""
    text = f"at most {most} requests of one user at once, event streams included"
    answer = refusal(scope, 429, "Too many requests at once", text)
    return _close_connection(answer, {"Retry-After": "1"})


def too_large(scope: Scope, most: int) -> Response:
    """Return the answer to a request whose body is above the limit."""
    detail = f"body: at most {most} bytes"
    return _close_connection(refusal(scope, 413, "The body is too large", detail, field="body"), {})


def _close_connection(answer: Response, headers: dict[str, str]) -> Response:
    # the rest of the body, which is not read, would be taken for the next request
    answer.headers.update({"Connection": "close", **headers})
    return answer


FAULT = ("Internal error", "internal error; the error was logged, please report it")


def message(text: str) -> dict[str, str]:
    """A message to a person as part of a JSON answer."""
    return {"message": text}


def install_problem_handlers(app: FastAPI) -> None:
    """Convert every error to a problem document or a page; unexpected ones are handled by the
    guard."""

    @app.exception_handler(VgradsError)
    def _ours(request: Request, error: VgradsError) -> Response:
        status, title = next(
            (s for kind, s in _STATUS.items() if isinstance(error, kind)), (500, "Error")
        )
        name = "ids" if isinstance(error, AmbiguousNameError | InapplicableError) else "errors"
        more: dict[str, object] = {name: list(error.parts)} if error.parts else {}
        if own := next((t for kind, t in _OWN_TYPES.items() if isinstance(error, kind)), None):
            more["type"] = own
        return refusal(request.scope, status, title, str(error), field=error.where or None, **more)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        details = error.errors()
        for detail in details:
            if detail["loc"][0] == "path":  # an invalid name is treated as not found
                name = str(detail["loc"][-1])
                what = f"no {_NAMED.get(name, name)} '{str(detail['input'])[:60]}'"
                return refusal(request.scope, 404, "Not Found", what, field=name)
        first = details[0]
        if first["type"] == "json_invalid":
            text = f"body: is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
            return refusal(request.scope, 422, _INVALID, text, field="body")
        wrong, *_ = detail_problems(
            {**detail, "loc": detail["loc"][1:] or ("body",)} for detail in details
        )
        return refusal(request.scope, 422, _INVALID, str(wrong), field=wrong.field)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        title = HTTPStatus(error.status_code).phrase
        answer = refusal(request.scope, error.status_code, title, str(error.detail))
        answer.headers.update(error.headers or {})
        return answer
