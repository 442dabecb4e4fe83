"""The REST service: hand over a set, read its plan and its Gantt chart, run it, ask what would be.

A set that comes over HTTP may name only workflow files that the service itself ships: a path from
outside opens nothing here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from portal.description import describe
from portal.grid_routes import add_grid_routes
from portal.guard import Guard, Limits
from portal.history_routes import add_history_routes, clear_uploads
from portal.live_routes import add_live_routes
from portal.oidc import Provider
from portal.page_routes import add_page_routes
from portal.problems import install_problem_handlers
from portal.service import Bounds, Service
from portal.set_routes import add_set_routes
from portal.store import Store
from vgrid.catalog import Catalog

_ABOUT = """Promise a deadline on machines you do not own.

Errors are problem documents (RFC 9457) that name the field. A `POST` with an `Idempotency-Key` is done
once, however often it is sent. Where tokens are asked for: `Authorization: Bearer …`."""


def make_app(
    store: Store, catalog: Catalog, bounds: Bounds | None = None, limits: Limits | None = None,
    oidc: Provider | None = None,
) -> FastAPI:  # fmt: skip
    """The application over a store and a catalogue; ``app.state.service`` is what its endpoints share."""
    service = Service(store, catalog, bounds or Bounds(), oidc)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        clear_uploads()
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="vgrads", version="0.1.0", description=_ABOUT, lifespan=life, docs_url=None, redoc_url=None
    )  # fmt: skip
    app.state.service = service
    app.add_middleware(Guard, store=store, limits=limits or Limits(), meters=service.meters)
    install_problem_handlers(app)
    add_set_routes(app, service)
    add_grid_routes(app, service.store, lambda: service.catalog, service.shelf)
    add_history_routes(app, service)
    add_live_routes(app, service)
    add_page_routes(app, service)
    app.openapi = describe(app)  # type: ignore[method-assign]
    return app
