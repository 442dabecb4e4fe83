"""Pages of scores: of each queue, and of all promises."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from vgrads.portal.web.forecasts.record_verdict import chart_of, reliability_chart, verdict_of
from vgrads.portal.web.forecasts.routes import score_of
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.qbets.views import VIEWS


def add_score_pages(app: FastAPI, service: Service) -> None:
    """Add the pages."""

    @app.get("/scores", response_class=HTMLResponse, include_in_schema=False)
    def scores(request: Request) -> HTMLResponse:
        reader_of(request)
        scores = service.forecasts.scores()
        queues = [(s, verdict_of(s), Markup(chart_of(s))) for s in scores["queues"]]
        promises = scores["promises"]
        chart = Markup(reliability_chart(promises["reliability"], "Promises"))
        return page_of(
            request, "/scores", "scores.html", queues=queues, promises=promises, chart=chart
        )

    @app.get("/sites/{site}/{queue}/score", response_class=HTMLResponse, include_in_schema=False)
    def queue_score(site: str, queue: str, request: Request) -> HTMLResponse:
        reader_of(request)
        document = score_of(service, site, queue)
        return page_of(
            request,
            "/sites",
            "score.html",
            s=document,
            verdict=verdict_of(document),
            chart=Markup(chart_of(document)),
            views=VIEWS,
        )
