"""A site whose log grows, and a service that has read the scores of its forecasts."""

from contextlib import contextmanager

from fastapi.testclient import TestClient

from tests.portal.forecasts.logs_that_grow import JOBS, write_log
from tests.portal.forecasts.test_scores import SITES, waits
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog


def add_site(vgrads, folder):
    """Write a site, add it to the database, and return its file."""
    write_log(folder / "grows.swf.gz", waits(JOBS))
    (folder / "sites.toml").write_text(SITES)
    assert vgrads("sites", "add", folder / "sites.toml").code == 0
    return folder / "sites.toml"


@contextmanager
def served(store, sites):
    """A client of such a service."""
    app = make_app(store, load_catalog(sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        app.state.service.forecasts.score()
        yield client
