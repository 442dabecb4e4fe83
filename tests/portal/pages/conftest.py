"""What tests of pages share: sets in every state, built once, and a service over them."""

from __future__ import annotations

import pytest
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient

from tests.portal.pages.gallery import Gallery, served
from tests.services.fixtures import surrounded
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app


@pytest.fixture(scope="session")
def gallery(tmp_path_factory):
    """Sets in every state. Tests may add others; they change none of these."""
    home = tmp_path_factory.mktemp("gallery")
    with surrounded({"VGRADS_HOME": str(home)}), Store() as store:
        result = Gallery(store)
        result.fill()
    with Store(f"sqlite:///{home / 'vgrads.db'}") as store:
        result.open(store)
        yield result


@pytest.fixture
def gallery_home(gallery, monkeypatch):
    """The home of the gallery, where the service finds the folders of its bags."""
    monkeypatch.setenv("VGRADS_HOME", str(gallery.folder))
    return gallery.folder


@pytest.fixture
def client(gallery):
    """A client of the gallery's service, which takes no work. What a page has begun to compute goes
    on after its answer, as in a service: all requests have one event loop."""
    result = TestClient(make_app(gallery.store, gallery.catalog), follow_redirects=False)
    with start_blocking_portal() as portal:
        result.portal = portal
        yield result


@pytest.fixture(scope="session")
def gallery_url(gallery):
    """The address of the gallery's service, for browsers."""
    with served(gallery.store, gallery) as url:
        yield url
