"""The pages of tokens: what the operator does with them, and that nobody else does."""

import re

import pytest
from fastapi.testclient import TestClient

from tests.portal.pages.test_page_states import PAGE
from vgrads.api.config import embedded_data
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store
from vgrads.portal.records.upkeep import audit_rows
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.vgrid.catalog import load_catalog

FORM = {"user": "bob", "scopes": ["read", "submit"], "expires": "30d", "name": "laptop <b>"}


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'vgrads.db'}") as result:
        yield result


def client_of(store, *scopes, tokens=True, user="ann"):
    """A client with a token of these scopes; without any: with none."""
    app = make_app(
        store,
        load_catalog(embedded_data() / "sites.toml"),
        limits=RequestLimits(tokens=tokens),
    )
    secret = AccessControl(store.engine).create(user, scopes, 3600.0)[0] if scopes else ""
    headers = PAGE | ({"Authorization": f"Bearer {secret}"} if secret else {})
    return TestClient(app, follow_redirects=False, headers=headers)


def test_an_operator_creates_a_token_that_is_shown_once_and_revokes_it(store):
    client, access = client_of(store, "operate"), AccessControl(store.engine)
    answer = client.post("/tokens", data=FORM)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    secret = re.search(r'value="(vg_[^"]+)"', answer.text)[1]
    who = access.find(secret)
    assert (who.user, who.scopes) == ("bob", {"read", "submit"})
    row = next(row for row in access.tokens() if row.user == "bob")
    assert round(row.expires_s - row.created_s) == 30 * 86400
    page = client.get("/tokens").text
    assert secret not in page
    assert "laptop &lt;b&gt;" in page
    question = client.get(f"/tokens/{row.id}/revoke").text
    assert f"Revoke {row.id} of bob?" in question
    assert access.find(secret) is not None  # asking changes nothing
    assert client.post(f"/tokens/{row.id}/revoke").headers["location"] == "/tokens"
    assert access.find(secret) is None
    assert client.post(f"/tokens/{row.id}/revoke").status_code == 404
    rows = audit_rows(store, None, 3)
    changes = [(entry["user"], entry["object"], entry["status"]) for entry in rows]
    path = f"/tokens/{row.id}/revoke"
    assert changes == [("ann", path, 404), ("ann", path, 303), ("ann", "/tokens", 200)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": "b b"}, "not a valid user name"),
        ({"user": "ع" * 200}, "not a valid user name"),
        ({"scopes": []}, "no scope is given"),
        ({"scopes": ["root"]}, "unknown scope"),
        ({"expires": "soon"}, "is not a duration"),
        ({"expires": "99y"}, "is not a duration"),
        ({"expires": "0"}, "expires"),
    ],
)
def test_a_token_that_cannot_be_is_refused_beside_the_form(store, change, words):
    client = client_of(store, "operate")
    before = len(AccessControl(store.engine).tokens())
    answer = client.post("/tokens", data=FORM | change)
    assert answer.status_code == 422
    assert words in answer.text.replace("&#39;", "'")
    assert 'value="laptop &lt;b&gt;"' in answer.text
    assert len(AccessControl(store.engine).tokens()) == before
    assert client.post("/tokens", data=FORM | {"user": "b" * 201}).status_code == 422


@pytest.mark.parametrize("scope", ["read", "submit", "pool", "metrics", "forecast"])
def test_others_see_no_tokens(store, scope):
    client = client_of(store, scope)
    for path in ("/tokens", "/tokens/tok-0123456789/revoke"):
        assert client.get(path).status_code == 403
        assert client.post(path, data=FORM).status_code in (403, 405)
    assert "/tokens" not in client_of(store, "read").get("/api").text


def test_nobody_changes_tokens_from_another_site_or_without_one(store):
    client = client_of(store, "operate")
    elsewhere = {"Origin": "https://elsewhere.example"}
    assert client.post("/tokens", data=FORM, headers=elsewhere).status_code == 403
    nobody = client_of(store)
    assert nobody.get("/tokens").headers["location"] == "/login"
    assert nobody.post("/tokens", data=FORM).status_code == 401
    assert [row.user for row in AccessControl(store.engine).tokens()] == ["ann"]


def test_a_service_without_tokens_says_how_to_turn_them_on(store):
    client = client_of(store, tokens=False)
    page = client.get("/tokens").text
    assert "answers only on this machine" in page
    assert "vgrads token create" in page
    assert "<form" not in page.partition("<main")[2]
    assert client.post("/tokens", data=FORM).status_code == 409
    assert client.post("/tokens/tok-0123456789/revoke").status_code == 409
    assert AccessControl(store.engine).tokens() == []
    assert 'href="/tokens"' in client.get("/api").text
