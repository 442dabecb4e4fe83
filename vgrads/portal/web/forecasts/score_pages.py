"""Pages of scores: of each queue, and of all promises."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from vgrads.portal.web.forecasts.routes import score_of
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.qbets.views import VIEWS


def add_score_pages(app: FastAPI, service: Service) -> None:
    """Add the pages."""

    @app.get("/scores", response_class=HTMLResponse, include_in_schema=False)
    def scores(request: Request) -> HTMLResponse:
        reader_of(request)
        return page_of(request, "/scores", "scores.html", **service.forecasts.scores())

    @app.get("/sites/{site}/{queue}/score", response_class=HTMLResponse, include_in_schema=False)
    def queue_score(site: str, queue: str, request: Request) -> HTMLResponse:
        reader_of(request)
        document = score_of(service, site, queue)
        return page_of(request, "/sites", "score.html", s=document, views=VIEWS)
