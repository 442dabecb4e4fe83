"""One family of routes for sets, runs, bags and pools: what a name means, and what is done with it;
a failed run is retried over REST and from its page."""

import json
import re
from functools import partial

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.portal.serving import bearer, serving
from tests.waiting import until
from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.view import PoolMemory, PoolStatus, decide_now, entry_of
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.bags import BagStore, new_bag
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

SITE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'
PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
BAG = 'name: sweep\ncommand: "echo of the bag {n}"\nparameters: {n: [1, 2]}\n'


@pytest.fixture
def client(store, tmp_path):
    """A service that asks for tokens, with a site that is open to ann."""
    (tmp_path / "sites.toml").write_text(SITE)
    app = make_app(
        store,
        load_catalog(tmp_path / "sites.toml"),
        Bounds(places=Places(planners=0)),
        RequestLimits(tokens=True),
    )
    AccessControl(store.engine).grant("here", "ann")
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client


@pytest.fixture
def token(store):
    return partial(bearer, store)


@pytest.fixture
def bag(vgrads, write, store):
    """A bag of ann that ran, on this machine."""
    answer = vgrads("bags", "run", write("bag.yaml", BAG), "--json")
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE bag SET owner = 'ann'")
    return answer.json["bags"][0]["id"]


@pytest.fixture
def ann(token):
    return token("ann", "submit")


def flaky(tmp_path, name="flaky"):
    """A set whose task b fails until the file ``go`` exists, and whose task c needs it."""
    ran, go = tmp_path / "ran", tmp_path / "go"

    def task(id_, command, *parents):
        return {
            "id": id_,
            "runtime_s": 1,
            "parents": list(parents),
            "command": f"echo {id_} >> {ran}; {command} && echo x > {id_}.txt",
            "inputs": [f"{parent}.txt" for parent in parents],
            "outputs": [f"{id_}.txt"],
        }

    tasks = [task("a", "true"), task("b", f"test -e {go}", "a"), task("c", "true", "b")]
    workflows = [{"name": "w", "tasks": tasks}]
    return {"name": name, "deadline": "1h", "fraction": 1, "workflows": workflows}


def submit(client, headers, document):
    answer = client.post("/v1/workflow-sets", json=document, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def state_of(client, headers, name):
    return client.get(f"/v1/work/{name}", headers=headers).json()["state"]


def run_to_its_end(client, headers, set_id):
    answer = client.post(f"/v1/workflow-sets/{set_id}/run", headers=headers)
    assert answer.status_code == 202, answer.text
    return end_of(client, headers, answer.json()["run"])


def end_of(client, headers, run):
    until(lambda: state_of(client, headers, run) != "running", run)
    return run


def publish_pool(store, name, owner):
    ledger, nothing = PoolLedger(store.engine, owner), PoolStatus(now_s=0.0)
    document = PoolDocument(name=name, max_workers=8)
    decided, _ = decide_now(ledger.read(), document, nothing, PoolMemory())
    ledger.publish_pool(name, entry_of(document, "run", decided, nothing))


def form_in(page, button):
    """The address and the hidden fields of the form with this button, as a browser sends them."""
    for action, inside in re.findall(
        r'<form method="post" action="([^"]+)">(.*?)</form>', page, re.DOTALL
    ):
        if f">{button}</button>" in inside:
            hidden = r'<input type="hidden" name="(\w+)" value="([^"]*)">'
            return action, dict(re.findall(hidden, inside))
    raise AssertionError(f"no button '{button}' in {page}")


def has_button(page, button):
    return f">{button}</button>" in page


def test_a_failed_run_is_retried_with_what_failed_because_of_it(client, ann, tmp_path):
    set_id = submit(client, ann, flaky(tmp_path))
    assert client.post("/v1/work/flaky/retry", headers=ann).status_code == 409  # has not run
    first, ran = run_to_its_end(client, ann, set_id), tmp_path / "ran"
    assert state_of(client, ann, first) == "broken"
    assert "c" not in ran.read_text().split()
    (tmp_path / "go").touch()
    ran.unlink()
    once = {**ann, "Idempotency-Key": "again"}
    second = client.post("/v1/work/flaky/retry", json={}, headers=once).json()["run"]
    assert client.post("/v1/work/flaky/retry", json={}, headers=once).json()["run"] == second
    assert second != first
    end_of(client, ann, second)
    assert ran.read_text().split() == ["b", "c"]
    assert state_of(client, ann, "flaky") == "kept"
    nothing_left = client.post(f"/v1/work/{second}/retry", headers=ann)
    assert (nothing_left.status_code, "are done" in nothing_left.text) == (409, True)
    ran.unlink()
    chosen = client.post(f"/v1/work/{second}/retry", json={"tasks": ["w-1/c"]}, headers=ann)
    assert chosen.status_code == 202, chosen.text
    end_of(client, ann, chosen.json()["run"])
    assert ran.read_text().split() == ["c"]
    wrong = client.post(f"/v1/work/{set_id}/retry", json={"tasks": ["w-1/d"]}, headers=ann)
    assert (wrong.status_code, "no task 'w-1/d'" in wrong.text) == (422, True)


def test_a_failed_task_and_a_failed_run_are_retried_from_their_pages(client, ann, tmp_path):
    set_id, page = submit(client, ann, flaky(tmp_path)), {**ann, **PAGE}
    assert not has_button(client.get(f"/sets/{set_id}", headers=page).text, "Retry failed")
    run_to_its_end(client, ann, set_id)
    ran = tmp_path / "ran"
    done = client.get(f"/sets/{set_id}/tasks/w-1/a", headers=page).text
    assert not has_button(done, "Run again")
    never_began = client.get(f"/sets/{set_id}/tasks/w-1/c", headers=page)
    assert "No attempt has started" in never_began.text
    assert f"/sets/{set_id}/tasks/w-1/c" in client.get(f"/sets/{set_id}", headers=page).text
    for path, button in (
        (f"/sets/{set_id}/tasks/w-1/b", "Run again"),
        (f"/sets/{set_id}", "Retry failed"),
    ):
        action, fields = form_in(client.get(path, headers=page).text, button)
        other_origin = {**page, "Origin": "http://evil.example"}
        assert client.post(action, data=fields, headers=other_origin).status_code == 403
        ran.unlink()
        if button == "Retry failed":
            (tmp_path / "go").touch()
        answer = client.post(action, data=fields, headers=page)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/sets/{set_id}")
        end_of(client, ann, client.get(f"/v1/work/{set_id}", headers=ann).json()["run"])
        assert ran.read_text().split()[0] == "b"
    assert ran.read_text().split() == ["b", "c"]
    after = client.get(f"/sets/{set_id}", headers=page).text
    assert not has_button(after, "Retry failed")
    assert "<strong>Met:</strong>" in after


def test_a_name_tells_what_it_is(client, ann, bag, store, tmp_path):
    set_id = submit(client, ann, flaky(tmp_path))
    planned = client.get("/v1/work/flaky", headers=ann).json()
    assert (planned["kind"], planned["id"], planned["run"]) == ("set", set_id, None)
    assert planned["state"] == "planned"
    (tmp_path / "go").touch()
    run = run_to_its_end(client, ann, set_id)
    publish_pool(store, "nodes", "ann")
    for name, kind, id_ in (
        ("flaky", "set", set_id),
        (set_id, "set", set_id),
        (run, "run", run),
        ("sweep", "bag", bag),
        (bag, "bag", bag),
        ("nodes", "pool", "pool:nodes"),
        ("pool:nodes", "pool", "pool:nodes"),
    ):
        work = client.get(f"/v1/work/{name}", headers=ann).json()
        assert (work["kind"], work["id"]) == (kind, id_)
        for link in work["links"].values():
            assert client.get(link, headers=ann).status_code == 200, link
    assert state_of(client, ann, "sweep") == "done"
    attempts = client.get(f"/v1/work/{run}/logs", headers=ann).json()["attempts"]
    assert [a["task"] for a in attempts] == ["a", "b", "c"]
    (attempt,) = client.get("/v1/work/flaky/logs?task=w-1/b", headers=ann).json()["attempts"]
    assert (attempt["exit"], attempt["folder"]) == (0, None)
    assert client.get("/v1/work/flaky/logs?task=w-1/x", headers=ann).status_code == 404
    lines = client.get("/v1/work/sweep/logs?task=1", headers=ann).text.splitlines()
    assert [json.loads(line)["out"] for line in lines] == ["of the bag 2\n"]
    assert len(client.get("/v1/work/sweep/logs", headers=ann).text.splitlines()) == 2
    same = client.get(f"/v1/workflow-sets/{set_id}/explain?task=w-1/b", headers=ann).json()
    assert client.get("/v1/work/flaky/explain?task=w-1/b", headers=ann).json() == same
    assert client.get("/v1/work/sweep/explain?task=1", headers=ann).json()["state"] == "done"
    assert client.get("/v1/work/nodes/explain", headers=ann).json()["name"] == "nodes"
    assert client.get("/v1/work/flaky/explain", headers=ann).status_code == 422
    assert client.get("/v1/work/sweep/explain?task=b", headers=ann).status_code == 422


def test_what_is_not_done_with_a_kind_of_work_is_refused_with_the_reason(client, ann, bag, store):
    publish_pool(store, "nodes", "ann")
    for name, verb, reason in (
        ("nodes", "cancel", "Ctrl-C"),
        ("nodes", "resume", "vgrads pool run"),
        ("nodes", "retry", "no tasks of its own"),
        (bag, "retry", "has nothing to retry"),
    ):
        answer = client.post(f"/v1/work/{name}/{verb}", headers=ann)
        assert (answer.status_code, reason in answer.json()["detail"]) == (409, True), answer.text
    assert client.get("/v1/work/nodes/logs", headers=ann).status_code == 409
    for verb in ("cancel", "resume"):
        answer = client.post(f"/v1/work/{bag}/{verb}", headers=ann)
        assert (answer.status_code, "has ended" in answer.text) == (409, True)


def test_a_bag_is_cancelled_and_one_of_the_command_line_is_not_resumed(vgrads, write, tmp_path):
    vgrads("sites", "add", write("sites.toml", SITE))
    vgrads("sites", "open", "here", "local")
    with Store() as store:
        BagStore(store.engine).add(new_bag("bag-0123456789", "bag-0123456789", 0, "left", "", 3))
    with serving(tmp_path / "home") as served, httpx2.Client(base_url=served.url) as client:
        bag = {"name": "long", "command": "sleep {n}", "parameters": {"n": [1000]}}
        assert client.post("/v1/bags", json=bag).status_code == 201
        assert client.post("/v1/work/long/resume").status_code == 202
        assert client.post("/v1/work/long/cancel").status_code == 202
        until(lambda: state_of(client, {}, "long") == "cancelled")
        refused = client.post("/v1/work/left/resume")
        assert (refused.status_code, "vgrads bags resume" in refused.text) == (409, True)


def test_runs_are_cancelled_and_resumed(client, ann, store, tmp_path):
    document = flaky(tmp_path)
    document["workflows"][0]["tasks"][0]["command"] = "sleep 1000"
    set_id = submit(client, ann, document)
    assert client.post("/v1/work/flaky/cancel", headers=ann).status_code == 409
    run = client.post(f"/v1/workflow-sets/{set_id}/run", headers=ann).json()["run"]
    assert client.post("/v1/work/flaky/resume", headers=ann).status_code == 202
    active = client.post("/v1/work/flaky/retry", headers=ann)
    assert (active.status_code, "has not ended" in active.text) == (409, True)
    assert client.post(f"/v1/work/{run}/cancel", headers=ann).status_code == 202
    assert state_of(client, ann, end_of(client, ann, run)) == "cancelled"
    assert client.post(f"/v1/work/{run}/resume", headers=ann).status_code == 409
    of_command_line = store.add_run(set_id)
    for verb in ("resume", "cancel"):
        answer = client.post(f"/v1/work/{of_command_line}/{verb}", headers=ann)
        assert answer.status_code == (409 if verb == "resume" else 202), answer.text
    refused = client.post(f"/v1/work/{of_command_line}/retry", headers=ann)
    assert (refused.status_code, "vgrads retry run-" in refused.text) == (409, True)


def test_a_run_whose_last_manager_died_is_resumed(client, ann, store, tmp_path):
    (tmp_path / "go").touch()
    set_id = submit(client, ann, flaky(tmp_path))
    run = store.add_run(set_id)  # taken over by a command that died: no longer in the queue
    with store.engine.begin() as connection:
        connection.exec_driver_sql("""UPDATE run SET how = '{"engine": "vgrads"}'""")
    assert client.post(f"/v1/work/{run}/resume", headers=ann).status_code == 202
    assert state_of(client, ann, end_of(client, ann, run)) == "kept"


def test_an_ambiguous_name_is_refused_with_the_ids_and_an_unknown_name_is_not_there(
    client, ann, bag, tmp_path
):
    set_id = submit(client, ann, flaky(tmp_path, "sweep"))
    (tmp_path / "go").touch()
    assert client.get("/v1/work/sweep", headers=ann).json()["id"] == bag
    run = run_to_its_end(client, ann, set_id)
    for method, path in (("GET", "/v1/work/sweep"), ("POST", "/v1/work/sweep/cancel")):
        answer = client.request(method, path, headers=ann)
        assert answer.status_code == 409
        assert answer.headers["content-type"] == "application/problem+json"
        assert sorted(answer.json()["ids"]) == sorted([run, bag])
    for path in ("", "/logs", "/explain?task=a"):
        unknown = client.get(f"/v1/work/never{path}", headers=ann)
        assert (unknown.status_code, "never" in unknown.json()["detail"]) == (404, True)


def test_work_of_others_is_not_there_and_scopes_are_as_everywhere(
    client, ann, token, store, tmp_path
):
    bob, looks, operator = token("bob", "submit"), token("ann", "read"), token("op", "operate")
    set_id = submit(client, ann, flaky(tmp_path))
    (tmp_path / "go").touch()
    run = run_to_its_end(client, ann, set_id)
    bag = "bag-0123456789"
    BagStore(store.engine).add(new_bag(bag, bag, 0, "sweep", "ann", 3))
    publish_pool(store, "nodes", "ann")
    names = ("flaky", set_id, run, "sweep", bag, "nodes", "pool:nodes")
    for name in names:
        requests = [("GET", ""), ("GET", "/logs"), ("GET", "/explain")]
        requests += [("POST", "/cancel"), ("POST", "/resume"), ("POST", "/retry")]
        for method, path in requests:
            answer = client.request(method, f"/v1/work/{name}{path}", headers=bob)
            unknown = client.request(method, f"/v1/work/x-{name}{path}", headers=bob)
            assert answer.status_code == unknown.status_code == 404
            assert unknown.json()["detail"].replace(f"x-{name}", name) == answer.json()["detail"]
            if method == "POST":
                assert client.post(f"/v1/work/{name}{path}", headers=looks).status_code == 403
        for headers in (looks, operator):
            assert client.get(f"/v1/work/{name}", headers=headers).status_code == 200
    hers = submit(client, bob, flaky(tmp_path))
    assert client.get("/v1/work/flaky", headers=bob).json()["id"] == hers
    form = {"key": "k"}
    assert client.post(f"/sets/{set_id}/retry", data=form, headers=bob).status_code == 404
    assert client.post(f"/sets/{set_id}/retry", data=form, headers=looks).status_code == 403
    assert client.post(f"/sets/{set_id}/retry", data=form).status_code in (401, 303)
