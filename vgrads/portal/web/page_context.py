"""Common context of all pages: the surrounding template, the current user, the display of a set's
state."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from vgrads.portal.charts.pages import render
from vgrads.portal.records.access import Principal
from vgrads.portal.web.guard import COOKIE

Json = dict[str, Any]


def page_of(request: Request, name: str, template: str, **values: object) -> HTMLResponse:
    """Render a page; ``name``: its address in the head of every page."""
    who: Principal | None = request.scope["state"]["principal"]
    text = render(
        template,
        package="vgrads.portal.web",
        here=name,
        who=who,
        session=COOKIE in request.cookies,
        **values,
    )
    return HTMLResponse(text)


def reader_of(request: Request) -> Principal:
    """Return the current user of a page; unauthenticated ones are redirected to the login page."""
    who: Principal | None = request.scope["state"]["principal"]
    if who is None:
        raise HTTPException(303, "log in first", {"Location": "/login"})
    return who


def shown(row: Json) -> Json:
    """Return a set's row with the displayed state and progress."""
    newest = row["runs"][0] if row["runs"] else None
    state = row["state"] if row["feasible"] or row["state"] != "planned" else "cannot be promised"
    outcome = newest["outcome"] if newest else {}
    progress = (outcome["in_time"], outcome["needed"]) if "in_time" in outcome else None
    return row | {"shown": newest["state"] if newest else state, "progress": progress}
