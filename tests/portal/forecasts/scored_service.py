"""A service that has read the scores of its forecasts."""

from contextlib import contextmanager

from fastapi.testclient import TestClient

from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog


@contextmanager
def served(store, sites):
    """A client of such a service."""
    app = make_app(store, load_catalog(sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        app.state.service.forecasts.score()
        yield client
