"""Common context of all pages: the surrounding template, the current user, the display of a set's
state."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from vgrads.portal.charts.pages import render
from vgrads.portal.records.access import Principal
from vgrads.portal.web.guard import COOKIE


def page_of(
    request: Request, name: str, template: str, status: int = 200, /, **values: object
) -> HTMLResponse:
    """Render a page; ``name``: its address in the head of every page; ``status``: of the
    answer."""
    who: Principal | None = request.scope["state"]["principal"]
    text = render(
        template,
        package="vgrads.portal.web",
        here=name,
        who=who,
        session=COOKIE in request.cookies,
        **values,
    )
    return HTMLResponse(text, status)


def reader_of(request: Request) -> Principal:
    """Return the current user of a page; unauthenticated ones are redirected to the login page."""
    who: Principal | None = request.scope["state"]["principal"]
    if who is None:
        raise HTTPException(303, "log in first", {"Location": "/login"})
    return who
