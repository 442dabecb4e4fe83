"""Lists: pages by ``limit`` and ``after``, the next one in the header ``Link``; filters."""

import re

import pytest
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.serving import SMALL, bearer
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.bags import BagStore, new_bag
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

COUNT = 5
MANAGER = {
    **{"id": "1", "project": "p", "period_s": 60.0, "waiting": 1, "running": 1, "procs": 2},
    **{"contact": "c", "certificate": "x", "slot": "s", "key": "k"},
}
POOL = {"id": "1", "period_s": 60.0, "procs": 2, "policy": "capacity", "max_workers": 3}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Sets with runs, bags, managers and pools of ann; one set and bag of bob."""
    with Store(f"sqlite:///{tmp_path_factory.mktemp('db') / 'vgrads.db'}") as store:
        limits, bounds = RequestLimits(tokens=True), Bounds(places=Places(planners=0))
        app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, limits)
        client = TestClient(app, base_url="http://127.0.0.1")  # not begun: nothing is worked on
        ann, bob = bearer(store, "ann", "submit", "pool"), bearer(store, "bob", "submit")
        fill(client, store, ann)
        BagStore(store.engine).add(new_bag("bag-bbbbbbbbbb", "bag-b", 0, "b-0", "bob", 1))
        client.post("/v1/workflow-sets", json=SMALL, headers=bob | {"Prefer": "respond-async"})
        client.headers.update(ann)
        yield client


def fill(client, store, head):
    bags, ledger = BagStore(store.engine), PoolLedger(store.engine, "ann")
    for n in range(COUNT):
        document = SMALL | {"name": f"s-{n}"}
        later = head | {"Prefer": "respond-async"}
        set_id = client.post("/v1/workflow-sets", json=document, headers=later).json()["id"]
        store.add_run(set_id)
        bags.add(new_bag(f"bag-{n:010x}", "bag-a", n, f"b-{n}", "ann", 1))
        ledger.publish_manager(f"m-{n}", MANAGER)
        ledger.publish_pool(f"p-{n}", POOL)


def pages(client, path):
    """The pages of a list, by its links."""
    result = []
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        result.append([row.get("id" if "set-" in str(row) else "name") for row in answer.json()])
        link = re.fullmatch(r'<(.*)>; rel="next"', answer.headers.get("Link", ""))
        path = link[1] if link else ""
    return result


LISTS = ("workflow-sets", "runs", "bags", "managers", "pools", "sites")


@pytest.mark.parametrize("name", LISTS)
def test_pages_have_every_entry_once_in_the_order_of_the_list(client, name):
    [whole] = pages(client, f"/v1/{name}")
    assert len(whole) == (7 if name == "sites" else COUNT)
    parts = pages(client, f"/v1/{name}?limit=2")
    assert [len(part) for part in parts[:-1]] == [2] * (len(parts) - 1)
    assert [entry for part in parts for entry in part] == whole


@pytest.mark.parametrize("name", ["workflow-sets", "runs", "bags"])
def test_lists_have_only_what_a_filter_names(client, name):
    letter = "b" if name == "bags" else "s"
    [only] = client.get(f"/v1/{name}?name={letter}-3").json()
    assert only["name"] == f"{letter}-3"
    state = only["state"]
    assert len(client.get(f"/v1/{name}?state={state}").json()) == COUNT
    assert client.get(f"/v1/{name}?state=failed").json() == []
    wrong = client.get(f"/v1/{name}?state=asleep")
    assert (wrong.status_code, wrong.json()["field"]) == (422, "state")


def test_the_next_page_has_the_same_filter(client):
    link = client.get("/v1/bags?state=waiting&limit=2").headers["Link"]
    assert "state=waiting" in link and "limit=2" in link


@pytest.mark.parametrize("name", ["workflow-sets", "runs", "bags"])
def test_a_list_cannot_go_on_after_what_is_not_in_it(client, name):
    answer = client.get(f"/v1/{name}?after=gone")
    assert (answer.status_code, answer.json()["field"]) == (422, "after")


def test_a_list_goes_on_after_a_manager_that_has_ended(client):
    assert pages(client, "/v1/managers?after=m-2x")[0] == ["m-3", "m-4"]
