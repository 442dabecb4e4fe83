"""The REST service: submit a set, read its plan and its Gantt chart, run it, query alternatives.

A set submitted over HTTP may name only workflow files that the service itself ships: no external
path is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI

from vgrads.portal.records.store import Store
from vgrads.portal.web.alarm_routes import add_alarm_routes
from vgrads.portal.web.bag_routes import add_bag_routes
from vgrads.portal.web.bags.goal_routes import add_goal_routes
from vgrads.portal.web.bags.parts import add_part_routes
from vgrads.portal.web.bags.retries import add_bag_retries
from vgrads.portal.web.checked_routes import CheckedRoute
from vgrads.portal.web.description import describe
from vgrads.portal.web.forecasts.queue_page import add_queue_pages
from vgrads.portal.web.forecasts.routes import add_forecast_routes
from vgrads.portal.web.forecasts.score_pages import add_score_pages
from vgrads.portal.web.grid_routes import add_grid_routes
from vgrads.portal.web.guard import Guard, RequestLimits
from vgrads.portal.web.history_routes import add_history_routes, clear_uploads
from vgrads.portal.web.live_routes import add_live_routes
from vgrads.portal.web.page_routes import add_page_routes
from vgrads.portal.web.pool_routes import add_pool_routes
from vgrads.portal.web.problems import install_problem_handlers
from vgrads.portal.web.record_routes import add_record_routes
from vgrads.portal.web.release_routes import add_release_routes
from vgrads.portal.web.request_routes import add_request_routes
from vgrads.portal.web.run_routes import add_run_routes
from vgrads.portal.web.service import Bounds, Service
from vgrads.portal.web.set_routes import add_set_routes
from vgrads.portal.web.sets.dashboard import add_dashboard
from vgrads.portal.web.sets.forms import add_set_forms
from vgrads.portal.web.sets.pages import add_set_pages
from vgrads.portal.web.sets.request_pages import add_request_pages
from vgrads.portal.web.sets.submit_pages import add_submit_pages
from vgrads.portal.web.work_routes import add_work_routes
from vgrads.vgrid.catalog import Catalog

if TYPE_CHECKING:
    from vgrads.portal.web.oidc import Provider

_ABOUT = """Promise a deadline on machines you do not own.

Errors are problem documents (RFC 9457) that name the field. A `POST` with an
`Idempotency-Key` is done once, however often it is sent.
Where tokens are asked for: `Authorization: Bearer …`."""


def make_app(
    store: Store,
    catalog: Catalog,
    bounds: Bounds | None = None,
    limits: RequestLimits | None = None,
    oidc: Provider | None = None,
) -> FastAPI:
    """Create the application over a store and a catalogue; ``app.state.service`` is the shared
    state of its endpoints."""
    service = Service(store, catalog, bounds or Bounds(), oidc)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # files that an earlier process had not received completely
        clear_uploads()
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="vgrads",
        version=version("vgrads"),
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.router.route_class = CheckedRoute
    app.state.service = service
    app.add_middleware(Guard, store=store, limits=limits or RequestLimits(), meters=service.meters)
    install_problem_handlers(app)
    add_set_routes(app, service)
    add_grid_routes(app, service)
    add_forecast_routes(app, service)
    add_score_pages(app, service)
    add_queue_pages(app, service)
    add_history_routes(app, service)
    add_live_routes(app, service)
    add_run_routes(app, service)
    add_request_routes(app, service)
    add_request_pages(app, service)
    add_release_routes(app, service)
    add_bag_routes(app, service)
    add_part_routes(app, service)
    add_bag_retries(app, service)
    add_goal_routes(app, service)
    add_record_routes(app, service)
    add_pool_routes(app, service)
    add_alarm_routes(app, service)
    add_dashboard(app, service)
    add_set_pages(app, service)
    add_set_forms(app, service)
    add_submit_pages(app, service)
    add_page_routes(app, service)
    add_work_routes(app, service)
    app.openapi = describe(app)  # type: ignore[method-assign]
    return app
