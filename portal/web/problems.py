"""Errors over HTTP: RFC 9457 problem documents that name the field."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kernel.errors import InfeasibleError, InputError, SiteError, VgradsError

_STATUS: dict[type[VgradsError], tuple[int, str]] = {
    InputError: (422, "The request is not valid"),
    InfeasibleError: (409, "No plan can meet the requirement"),
    SiteError: (503, "A site or service cannot be reached"),
}


def problem(status: int, title: str, detail: str, **more: object) -> JSONResponse:
    """A problem document."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def install_problem_handlers(app: FastAPI) -> None:
    """Every error leaves as a problem document; an unknown one says no more than that."""

    @app.exception_handler(VgradsError)
    def _ours(_: Request, error: VgradsError) -> JSONResponse:
        status, title = next(
            (s for kind, s in _STATUS.items() if isinstance(error, kind)), (500, "Error")
        )
        return problem(status, title, str(error), field=error.where or None)

    @app.exception_handler(RequestValidationError)
    def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "body"
        detail = f"{field}: {first['msg'].removeprefix('Value error, ')}"
        return problem(422, "The request is not valid", detail, field=field)

    @app.exception_handler(HTTPException)
    def _http(_: Request, error: HTTPException) -> JSONResponse:
        answer = problem(error.status_code, str(error.detail), str(error.detail))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    def _unknown(_: Request, __: Exception) -> JSONResponse:
        return problem(500, "A fault of the service", "a fault of the service, which was logged")
