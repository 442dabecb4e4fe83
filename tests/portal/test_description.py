"""The description of the service: every operation has a typed answer, an example, a tag, a name and
its own errors."""

import json
import re
from collections import Counter

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.contract import closed_schemas, inlined
from tests.portal.serving import bearer
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.problems import PROBLEM_TYPES
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

TAGS = {
    *("workflow sets", "runs", "bags", "pools", "sites", "forecasts", "virtual grids"),
    *("joint submissions", "work", "tokens", "alarms"),
}


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    with Store(f"sqlite:///{tmp_path_factory.mktemp('db') / 'vgrads.db'}") as store:
        limits, bounds = RequestLimits(tokens=True), Bounds(places=Places(planners=0))
        app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, limits)
        app.state.head = bearer(store, "ann", "operate", "pool")
        yield app


@pytest.fixture(scope="module")
def description(app):
    return app.openapi()


@pytest.fixture(scope="module")
def client(app):
    with TestClient(app, base_url="http://127.0.0.1", headers=app.state.head) as client:
        yield client


def operations(description):
    """(method, path, operation) of all under /v1."""
    return [
        (method, path, operation)
        for path, methods in description["paths"].items()
        if path.startswith("/v1/")
        for method, operation in methods.items()
    ]


def successes(operation):
    """(code, response) of success."""
    return [(c, r) for c, r in operation["responses"].items() if c.startswith("2")]


def test_every_operation_has_one_typed_answer_with_an_example(description):
    for method, path, operation in operations(description):
        [(code, response)] = successes(operation)
        assert (code == "204") == ("content" not in response), (method, path)
        for media, content in response.get("content", {}).items():
            text = json.dumps(content)
            assert "#/components/schemas/" in text or '"binary"' in text, (method, path, media)
            assert "example" in content or '"binary"' in text, (method, path, media)


@pytest.mark.more
def test_examples_are_as_their_schemas(description):
    count, checks = 0, {}
    for method, path, operation in operations(description):
        for code, response in operation["responses"].items():
            for media, content in response.get("content", {}).items():
                if media.endswith("json") and "example" in content and "x-line" not in content:
                    key = json.dumps(content["schema"])
                    if key not in checks:  # all errors have one
                        schema = inlined(description, content["schema"])
                        checks[key] = jsonschema_rs.validator_for(schema)
                    wrong = [e.message for e in checks[key].iter_errors(content["example"])]
                    assert not wrong, (method, path, code, wrong)
                    count += 1
    assert count > 100


@pytest.mark.more
def test_no_answer_is_described_as_any_object(description):
    """Every schema of an answer names its fields, each with what it means."""
    closed = closed_schemas(description)
    for name, schema in description["components"]["schemas"].items():
        for field, entry in schema.get("properties", {}).items():
            if name in closed:
                assert entry.get("description"), (name, field)


def test_every_operation_has_a_name_and_a_tag(description):
    names = Counter(operation["operationId"] for *_, operation in operations(description))
    assert [name for name, count in names.items() if count > 1] == []
    for method, path, operation in operations(description):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"]), (method, path)
        assert len(operation["tags"]) == 1 and set(operation["tags"]) <= TAGS, (method, path)


def test_every_operation_has_its_own_errors(description):
    """Not those of all others; each with the type of its problem."""
    for method, path, operation in operations(description):
        codes = {int(code) for code in operation["responses"] if code >= "4"}
        assert {401, 422, 429} <= codes, (method, path)
        assert (413 in codes) == ("requestBody" in operation), (method, path)
        headers = {entry["name"] for entry in operation.get("parameters", ())}
        assert (412 in codes) == ("If-Match" in headers), (method, path)
        for code in codes:
            content = operation["responses"][str(code)]["content"]["application/problem+json"]
            assert content["example"]["type"] == PROBLEM_TYPES[code]
    token = description["paths"]["/v1/token"]["get"]["responses"]
    assert set(token) == {"200", "401", "422", "429"}


def test_schemas_have_one_name_each(description):
    """Also where a client makes classes of titles."""
    titles = Counter(
        schema["title"]
        for schema in description["components"]["schemas"].values()
        if "title" in schema
    )
    assert [title for title, count in titles.items() if count > 1] == []
    assert "itemSchema" not in json.dumps(description)


def test_unknown_query_parameters_are_refused(client, description):
    """On every path, with the field, and what was meant."""
    for method, path, _ in operations(description):
        answer = client.request(method, f"{re.sub('{.*?}', 'x', path)}?nonsense=1")
        assert (answer.status_code, answer.json()["field"]) == (422, "nonsense"), (method, path)
        assert answer.json()["type"] == PROBLEM_TYPES[422]
    bound = "/v1/sites/mayhem/queues/default/bound"
    answer = client.get(f"{bound}?walltime=2h").json()
    assert answer["detail"] == "walltime: unknown query parameter; did you mean 'walltime_s'?"


def test_pages_ignore_what_they_do_not_know(client):
    """Links to them come from elsewhere, with parameters of others."""
    assert client.get("/?utm_source=mail").status_code == 200


def test_problems_have_types(client):
    for path, code in (
        ("/v1/workflow-sets/set-0123456789", 404),
        ("/v1/workflow-sets?limit=x", 422),
        ("/nowhere", 404),
    ):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (code, PROBLEM_TYPES[code])
    assert client.put("/v1/token").json()["type"] == PROBLEM_TYPES[405]
