"""The pages of sets and bags in every state in which somebody may open them."""

import html
import json
import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from jinja2 import UndefinedError

from tests.portal.pages.gallery import TIGHT
from tests.portal.serving import LEAD, SMALL
from tests.waiting import until
from vgrads.api.config import dispatcher_folder, embedded_data
from vgrads.portal.charts import pages
from vgrads.portal.records.bags import BagStore, new_bag
from vgrads.portal.records.sets import NewSet, Sets
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
UNLIKELY = TIGHT | {"name": "unlikely"}
IMPOSSIBLE = SMALL | {"name": "impossible", "deadline": "5s"}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A service whose sets are planned, and its store."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as store, TestClient(application(store), follow_redirects=False) as client:
        yield client, store


def application(store, limits=None):
    return make_app(store, load_catalog(embedded_data() / "sites.toml"), limits=limits)


def submit(client, document):
    answer = client.post("/v1/workflow-sets", json=document)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def open_page(client, path):
    answer = client.get(path, headers=PAGE)
    assert answer.status_code == 200, (path, answer.status_code, answer.text[-500:])
    return answer.text


def open_all(client, set_id):
    """Everything that the page of a set shows and links to; the text of the page itself."""
    for path in ("/status", "/tasks", "/run", "/cancel"):
        open_page(client, f"/sets/{set_id}{path}")
    page = open_page(client, f"/sets/{set_id}")
    assert set_id in open_page(client, "/")
    return page


def test_a_set_that_was_received_and_another_that_cannot_be_planned(tmp_path, monkeypatch):
    """The service is not begun: nobody takes the set out of the queue."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as store:
        client, sets = TestClient(application(store)), Sets(store.engine)
        set_id = sets.add("local", NewSet("small", json.dumps(SMALL)), real=False)["id"]
        assert "<strong>Received.</strong>" in open_all(client, set_id)
        sets.fail(set_id, "the history of a queue cannot be read")
        page = open_all(client, set_id)
        assert "the history of a queue cannot be read" in page
        assert "<strong>Not planned.</strong>" in page


def test_a_set_that_is_planned_and_planned_again(served):
    client, store = served
    set_id = submit(client, SMALL)
    assert "Ready to run:" in open_all(client, set_id)
    sets = Sets(store.engine)
    sets.fail(set_id, "no site answers")  # the plan before stays
    assert "no site answers" in open_all(client, set_id)
    with store.engine.begin() as connection:  # planned again: nobody has begun with it
        connection.exec_driver_sql("UPDATE workflow_set SET state = 'planning'")
    assert "<strong>Received.</strong>" in open_all(client, set_id)


@pytest.mark.more
def test_a_set_that_is_planned_below_the_request_and_another_that_is_impossible(served):
    client, _ = served
    below = submit(client, UNLIKELY)
    promise = client.get(f"/v1/workflow-sets/{below}/plan").json()["promise"]
    assert promise["probability"] < promise["requested"]
    page = open_all(client, below)
    assert "Below the request:" in page
    assert page.count(f'action="/sets/{below}/change"') >= 1
    page = open_page(client, f"/sets/{below}/what-if")
    assert re.search(r'class="chance"><strong>\d+\s%</strong>', page)  # that of its plan
    assert "97\u202f% requested" not in page
    assert 'data-again="no"' in page  # nothing is computed before somebody asks
    # it counts on the wider slots of the set's plan, which are not offered at first
    other = client.post(f"/v1/workflow-sets/{below}/what-if", json={"deadline": "99m"}).json()
    assert other["promise"]["probability"] > promise["probability"] - 0.1  # it is planned briefly
    impossible = submit(client, IMPOSSIBLE)
    assert "Impossible as requested:" in open_all(client, impossible)
    open_page(client, f"/sets/{impossible}/what-if")


@pytest.mark.more
def test_other_values_are_computed_without_scripts(served):
    client, _ = served
    set_id = submit(client, SMALL | {"budget_usd": 5})
    query = "deadline_s=3600&needed=1&unlimited=true&key=page"
    page = open_page(client, f"/sets/{set_id}/what-if?{query}")
    assert re.search(r'class="chance"><strong>[\w\s]*\d+\s%</strong>', page)
    assert '<output id="deadline-text">1h</output>' in page
    assert '<output id="budget-text">no limit</output>' in page
    renews = re.compile(r'http-equiv="refresh" content="3;url=([^"]+)"')
    rows = []
    while renewed := renews.search(page):  # one point more each time
        rows.append(page.count("<td>…</td>"))
        page = open_page(client, html.unescape(renewed[1]))
    assert rows == sorted(rows, reverse=True)
    assert len(set(rows)) == len(rows) >= 10
    assert "All 17 points are computed." in page
    page = open_page(client, f"/sets/{set_id}/what-if?deadline_s=1")
    assert re.search("<strong>Cannot be promised</strong></p><p>[^<]+: time: ", page)
    assert '<output id="budget-text">$5.00</output>' in page  # unchanged
    wrong = client.get(f"/sets/{set_id}/what-if?deadline_s=-1", headers=PAGE)
    assert (wrong.status_code, "deadline_s" in wrong.text) == (422, True)


def test_a_set_is_planned_again_without_scripts(served):
    client, _ = served
    set_id = submit(client, SMALL)
    page = open_page(client, f"/sets/{set_id}")
    assert f'action="/sets/{set_id}/plan"' in page
    answer = client.post(f"/sets/{set_id}/plan", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sets/{set_id}")
    until(lambda: client.get(f"/v1/workflow-sets/{set_id}").json()["revision"] == 2)


def test_a_set_that_runs_is_stored_and_is_cancelled(served):
    client, _ = served
    retained, cancelled = submit(client, SMALL), submit(client, LEAD)
    base = f"/v1/workflow-sets/{cancelled}"
    assert client.post(f"{base}/run?speed=60").status_code == 202
    open_all(client, cancelled)  # its manager may not have begun yet
    until(lambda: client.get(f"{base}/status").json().get("tasks"))
    open_all(client, cancelled)
    assert client.post(f"/sets/{cancelled}/cancel", headers=PAGE).status_code == 303
    until(lambda: client.get(f"{base}/status").json()["state"] == "cancelled")
    assert "<strong>Cancelled:</strong>" in open_all(client, cancelled)
    assert client.post(f"/v1/workflow-sets/{retained}/run").status_code == 202
    until(lambda: client.get(f"/v1/workflow-sets/{retained}/status").json()["state"] == "kept")
    assert "<strong>Met:</strong>" in open_all(client, retained)
    attempts = client.get(f"/v1/workflow-sets/{retained}/tasks").json()["attempts"]
    attempt = next(entry for entry in attempts if entry["state"] == "done")
    logs = open_page(client, f"/sets/{retained}/tasks/{attempt['workflow']}/{attempt['task']}")
    assert re.search("(Replica . of ., a|A)ttempt 1: done, exit 0", logs)


@pytest.mark.parametrize("state", ["running", "interrupted", "failed", "broken", "cancelled"])
def test_a_run_of_which_nothing_was_written_down(served, state):
    client, store = served
    set_id = submit(client, SMALL)
    run_id = store.add_run(set_id)
    assert "<strong>Starting.</strong>" in open_all(client, set_id)
    store.end_run(run_id, state, {"reason": "its process ended again and again"}, {})
    assert "again and again" in open_all(client, set_id)


def test_a_run_that_missed_its_deadline(served):
    client, store = served
    set_id = submit(client, SMALL)
    outcome = {"kept": False, "in_time": 0, "needed": 1}
    chart = json.loads(Sets(store.engine).text(set_id, "gantt"))
    store.end_run(store.add_run(set_id), "broken", outcome, chart)
    assert "<strong>Missed:</strong> 0 workflows were done in time" in open_all(client, set_id)


STATES = ("waiting", "running", "interrupted", "cancelled", "failed")


@pytest.mark.parametrize("state", STATES)
def test_a_bag_of_which_nothing_was_measured(served, state):
    """Its folder comes first: the service works on a bag as soon as its row is there. Each has its
    own id: the service of the test before may still end its work."""
    client, store = served
    bag_id = f"bag-012345678{STATES.index(state)}"
    dispatcher_folder(bag_id).mkdir(parents=True)
    row = new_bag(bag_id, bag_id, 0, "empty", "local", 3)
    BagStore(store.engine).add(replace(row, state=state))
    for path in ("/?kind=bag", f"/bags/{bag_id}", f"/bags/{bag_id}/why"):
        assert "empty" in open_page(client, path)


def test_a_bag_that_its_dispatcher_could_not_read_keeps_its_name(served):
    client, store = served
    folder = dispatcher_folder("bag-0123456789")
    folder.mkdir(parents=True)
    unread = {"number": 0, "name": "bag 0", "state": "failed", "reason": "it cannot be served"}
    (folder / "status.json").write_text(json.dumps({"now_s": 0.0, "bags": [unread]}))
    row = new_bag("bag-0123456789", "bag-0123456789", 0, "empty", "local", 3)
    BagStore(store.engine).add(replace(row, state="failed"))
    page = open_page(client, "/bags/bag-0123456789")
    assert "<h1>empty</h1>" in page
    assert "it cannot be served" in page


def test_a_page_shows_the_entries_of_a_dictionary_never_its_methods():
    page = pages.environment("vgrads.portal.web").from_string(
        "{{ a.copy }}, {{ a.get('copy') }}, {{ b.values }}"
    )
    assert page.render(a={"copy": 1}, b={"values": 2}) == "1, 1, 2"
    for undefined in ("copy", "pop", "values", "other"):
        template = pages.environment("vgrads.portal.web").from_string(f"{{{{ a.{undefined} }}}}")
        with pytest.raises(UndefinedError, match=undefined):
            template.render(a={})


def test_a_run_whose_manager_was_killed_before_it_began_is_cancelled_from_its_page(served):
    client, store = served
    set_id = submit(client, SMALL)
    store.add_run(set_id)
    assert client.post(f"/sets/{set_id}/cancel", headers=PAGE).status_code == 303
    page = open_all(client, set_id)
    assert "Cancelled:</strong> before it began" in page
    assert client.post(f"/v1/workflow-sets/{set_id}/run").status_code == 202


def test_a_bag_of_the_command_line_whose_dispatcher_is_gone_is_not_cancelled_by_the_service(served):
    client, store = served
    BagStore(store.engine).add(new_bag("bag-0123456789", "bag-0123456789", 0, "left", "", 3))
    refused = client.delete("/v1/bags/bag-0123456789")
    assert (refused.status_code, "vgrads bags cancel" in refused.text) == (409, True)
