"""What people see in the portal of what was done elsewhere: runs of the command line, old rows, sites that are gone."""

import json

import pytest
from fastapi.testclient import TestClient

from desk.config import embedded_data
from portal.records.sites import choose_catalog
from portal.records.store import Store
from portal.web.app import make_app
from tests.conftest import DATA
from tests.serving import SMALL
from tests.waiting import until
from vgrid.catalog import load_catalog

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NAUGHTY = 'a b"c<script>'


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))


@pytest.fixture
def looking(home):
    """A service over the database that the command line writes to, and its store."""
    with Store() as store:
        catalog = load_catalog(embedded_data() / "sites.toml")
        with TestClient(make_app(store, catalog), follow_redirects=False) as client:
            yield client, store


def submit(client, document=SMALL):
    answer = client.post("/v1/workflow-sets", json=document)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def ended(client, set_id):
    """Run a set to its end; its base address."""
    base = f"/v1/workflow-sets/{set_id}"
    assert client.post(f"{base}/run").status_code == 202
    until(lambda: client.get(base).json()["runs"][0]["state"] not in ("queued", "running"))
    return base


# what the command line ran


def test_a_set_that_the_command_line_ran_has_every_page(vgrads, looking):
    client, _ = looking
    done = vgrads("run", DATA / "lead.yaml", "--json")
    assert done.code == 0, done.err
    row = client.get("/v1/workflow-sets").json()[0]
    assert row["runs"][0]["state"] == "kept"
    base = f"/sets/{row['id']}"
    page = client.get(base, headers=PAGE)
    assert page.status_code == 200
    assert "lead" in page.text
    assert f'href="{base}"' in client.get("/", headers=PAGE).text
    what_if = client.get(f"{base}/what-if", headers=PAGE)
    assert (what_if.status_code, 'max="8"' in what_if.text) == (200, True)
    would = client.post(f"/v1/workflow-sets/{row['id']}/what-if", json={"budget_usd": 0})
    assert would.status_code == 200, would.text
    assert would.json()["cost_usd"] == 0
    chart = client.get(f"/v1/workflow-sets/{row['id']}/gantt").json()
    assert (chart["state"], len(chart["workflows"])) == ("kept", 8)


def test_a_set_of_which_an_old_version_kept_only_the_name_has_a_page(vgrads, looking):
    client, store = looking
    assert vgrads("run", DATA / "lead.yaml").code == 0
    row = store.get_set(client.get("/v1/workflow-sets").json()[0]["id"])
    old = store.add_set(NAUGHTY, {"name": NAUGHTY}, json.loads(row.plan), json.loads(row.gantt))
    page = client.get(f"/sets/{old}", headers=PAGE)
    assert page.status_code == 200
    assert "<script>" not in page.text.replace('<script src="', "")
    refused = client.get(f"/sets/{old}/what-if", headers=PAGE)
    assert refused.status_code == 409
    assert "hand it over again" in refused.text
    assert refused.headers["content-type"].startswith("text/html")
    asked = client.post(f"/v1/workflow-sets/{old}/what-if", json={"budget_usd": 0})
    assert (asked.status_code, "hand it over again" in asked.text) == (409, True)
    assert client.get("/", headers=PAGE).status_code == 200


def test_a_queue_whose_site_is_gone_has_a_page_that_says_so(vgrads, write, home):
    entry = '[[site]]\nname = "here"\nkind = "batch"\nprocs = 64\n[[site.queue]]\nname = "q"\n'
    assert vgrads("sites", "add", write("more.toml", entry)).code == 0
    with Store() as store, TestClient(make_app(store, choose_catalog(None))) as client:
        gone = client.get("/sites/mercury/default", headers=PAGE)
        assert gone.status_code == 404
        assert "no queue" in gone.text
        assert gone.headers["content-type"].startswith("text/html")
        assert client.get("/sites/mercury/default/record.png", headers=PAGE).status_code == 404


# mistakes in a browser


WRONG = {
    "/?after=nonsense": 422, "/sets/set-0123456789": 404, "/sets/none": 404, "/sets/set-0123456789/what-if": 404,
    "/sites/none/none": 404, "/sites/mercury/default?procs=abc": 422, "/sites/mercury/default?hours=-1": 422,
    "/nowhere": 404, "/static/none.js": 404, "/login/oidc": 404, "/v1/workflow-sets/none": 404,
    "/v1/workflow-sets/set-0123456789/gantt?format=svg": 404, "/v1/workflow-sets?limit=abc": 422,
}  # fmt: skip


@pytest.mark.parametrize(("path", "status"), WRONG.items())
def test_a_mistake_in_a_browser_is_a_page_and_elsewhere_a_problem_document(looking, path, status):
    client, _ = looking
    page = client.get(path, headers=PAGE)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "<h1>" in page.text
    plain = client.get(path)
    assert (plain.status_code, plain.headers["content-type"]) == (status, "application/problem+json")  # fmt: skip
