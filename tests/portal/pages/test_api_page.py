"""The page of the REST interface: every route with its fields, each with an address of its own."""

import json
import re
import shlex

import pytest
from fastapi.testclient import TestClient

from tests.portal.pages.pictures import DESKTOP
from tests.portal.pages.test_page_states import PAGE, application, open_page
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store
from vgrads.portal.web.api_reference import read_reference


@pytest.fixture
def portal(tmp_path):
    """A client of a service without work, and its store."""
    with Store(f"sqlite:///{tmp_path / 'vgrads.db'}") as store:
        yield TestClient(application(store), follow_redirects=False), store


def test_every_route_and_every_field_has_an_address(portal):
    client, _ = portal
    page = open_page(client, "/api")
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    description = client.get("/openapi.json").json()
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert operation["operationId"] in ids
            assert f"<b>{method.upper()}</b> {path}</code>" in page
            for entry in operation.get("parameters", ()):
                assert f"{operation['operationId']}.{entry['name']}" in ids
    for name, schema in description["components"]["schemas"].items():
        fields = (f"type-{name}.{field}" for field in schema.get("properties", ()))
        assert {f"type-{name}", *fields} <= set(ids)
    assert "submit_bag.command" in ids


@pytest.mark.parametrize("tokens", [False, True])
def test_every_route_has_a_command_that_can_be_pasted(portal, tokens):
    client, _ = portal
    description = client.get("/openapi.json").json()
    reference = read_reference(description, "https://host", tokens)
    patterns = [re.sub(r"\{\w+\}", "[^/]+", path) for path in description["paths"]]
    routes = [route for group in reference.groups.values() for route in group]
    assert len(routes) > 70
    for route in routes:
        words = shlex.split(route.command.replace("\\\n", " "))
        assert words[0] == "curl"
        assert ("-X" in words) == (route.method != "GET")
        address = next(word for word in words if word.startswith("https://host/"))
        path = address.removeprefix("https://host").partition("?")[0]
        assert any(re.fullmatch(pattern, path) for pattern in patterns), path
        asks = "Authorization: Bearer $VGRADS_TOKEN" in words
        assert asks == (tokens and path.startswith("/v1/"))
        if "Content-Type: application/json" in words:
            json.loads(words[-1])


def test_a_query_is_answered_by_the_command_of_the_page(portal):
    client, _ = portal
    reference = read_reference(client.get("/openapi.json").json(), "http://testserver", False)
    (routes,) = reference.find("list_alarm_targets").groups.values()
    address = shlex.split(routes[0].command.replace("\\\n", " "))[-1]
    assert client.get(address).json() == []
    (adding,) = (r for r in reference.groups["workflow sets"] if r.name == "submit_workflow_set")
    fields = {field.name: field for field in adding.fields if field.place == "body"}
    assert fields["name"].is_required
    assert not fields["budget_usd"].is_required
    assert "at most 200 characters" in fields["name"].meaning


def test_routes_are_selected_by_words(portal):
    client, _ = portal
    page = open_page(client, "/api?find=ACKNOWLEDGE+alarms")
    assert 'id="acknowledge_alarms" open' in page
    assert 'id="submit_bag"' not in page
    nothing = open_page(client, "/api?find=%3Cscript%3Ex")
    assert "Nothing has “&lt;script&gt;x”" in nothing
    assert client.get("/api", params={"find": "x" * 201}, headers=PAGE).status_code == 422


def test_commands_have_a_token_where_one_is_needed(portal):
    client, store = portal
    assert "Bearer $VGRADS_TOKEN" not in open_page(client, "/api")
    secret, _ = AccessControl(store.engine).create("ann", ["read"], 60.0)
    answer = client.get("/api", headers=PAGE | {"Authorization": f"Bearer {secret}"})
    assert "Bearer $VGRADS_TOKEN" in answer.text
    assert secret not in answer.text


@pytest.mark.services
def test_an_address_opens_its_route_and_words_select(browser, gallery_url):
    page = DESKTOP.open(browser, gallery_url)
    page.goto("/api#submit_bag.command")
    assert page.locator("#submit_bag").get_attribute("open") is not None
    assert page.locator("[id='submit_bag.command']").is_visible()
    page.goto("/api")
    page.fill("[name=find]", "acknowledge alarms")
    page.locator("#submit_bag").wait_for(state="hidden")
    assert page.locator("#acknowledge_alarms").is_visible()
    assert page.locator("h2", has_text="Bags").is_hidden()
    page.context.close()
