"""Ended work is archived: no longer listed, nothing of it deleted, and listed again on demand."""

import json
import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from tests.portal.pages.charts import large_chart
from tests.portal.pages.test_page_states import PAGE, application
from tests.portal.serving import SMALL, bearer
from vgrads.portal.records.bags import BagStore, new_bag
from vgrads.portal.records.migrate import move
from vgrads.portal.records.reading.archived import is_archived
from vgrads.portal.records.store import Store
from vgrads.portal.web.guard import RequestLimits

BAG = "bag-0123456789"


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A client of a service without work, and its store: with an ended set and an ended bag."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as store:
        set_id = store.add_set("storm", {}, {"deadline_s": 60.0}, large_chart(1, 1))
        store.end_run(store.add_run(set_id), "kept", {"in_time": 1, "needed": 1}, {})
        bag = new_bag(BAG, BAG, 0, "sweep", "local", 3)
        BagStore(store.engine).add(replace(bag, state="done", summary=json.dumps({"done": 3})))
        yield TestClient(application(store), follow_redirects=False, headers=PAGE), store, set_id


def listed(client, query=""):
    """The names of the front page."""
    page = client.get(f"/{query}")
    assert page.status_code == 200, page.text
    return re.findall(r'dir="auto">([^<]+)</a>', page.text)


def test_what_is_archived_is_listed_only_in_the_archive(service):
    client, store, set_id = service
    assert sorted(listed(client)) == ["storm", "sweep"]
    assert listed(client, "?archived=yes") == []
    for name in (set_id, "sweep"):
        answer = client.put(f"/v1/work/{name}/archived")
        assert answer.json() == {"id": set_id if name == set_id else BAG, "archived": True}
    assert listed(client) == []
    assert "All work is archived" in client.get("/").text
    assert sorted(listed(client, "?archived=yes")) == ["storm", "sweep"]
    assert listed(client, "?archived=yes&kind=bag") == ["sweep"]
    assert listed(client, "?archived=yes&find=storm") == ["storm"]
    assert client.get(f"/v1/workflow-sets/{set_id}").json()["archived"]
    assert len(client.get(f"/v1/workflow-sets/{set_id}").json()["runs"]) == 1
    assert client.delete(f"/v1/work/{set_id}/archived").json()["archived"] is False
    assert listed(client) == ["storm"]
    assert client.get("/?archived=maybe").status_code == 422
    run_id = store.add_run(set_id)
    store.end_run(run_id, "broken", {}, {})
    assert client.put(f"/v1/work/{run_id}/archived").json()["id"] == set_id


def test_pages_archive_with_a_form_and_list_again(service):
    client, _, set_id = service
    for path, name in ((f"/sets/{set_id}", "storm"), (f"/bags/{BAG}", "sweep")):
        for archived, label in (("true", "Archive"), ("false", "List again")):
            page = client.get(path).text
            assert f'action="{path}/archive"' in page
            assert f'name="archived" value="{archived}"' in page
            assert label in page
            answer = client.post(f"{path}/archive", data={"archived": archived})
            assert (answer.status_code, answer.headers["location"]) == (303, path)
            assert (name in listed(client)) == (archived == "false")
        assert client.post(f"{path}/archive", data={"archived": "?"}).status_code == 422


def test_what_has_not_ended_is_not_archived(service):
    client, store, set_id = service
    run_id = store.add_run(set_id)
    BagStore(store.engine).reopen(BAG)
    for name, words in ((set_id, "has not ended"), (run_id, "has not ended"), (BAG, "waiting")):
        answer = client.put(f"/v1/work/{name}/archived")
        assert (answer.status_code, words in answer.text) == (409, True), answer.text
    planned = client.post("/v1/workflow-sets", json=SMALL, headers={"Prefer": "respond-async"})
    answer = client.put(f"/v1/work/{planned.json()['id']}/archived")
    assert (answer.status_code, "being planned" in answer.text) == (409, True)
    assert client.put(f"/v1/work/{'w' * 200}/archived").status_code == 404
    assert client.put(f"/v1/work/{'ع' * 200}/archived").status_code == 404
    assert client.put(f"/v1/work/{'w' * 201}/archived").status_code in (404, 422)


def test_what_begins_anew_is_listed_again(service):
    client, store, set_id = service
    for name in (set_id, BAG):
        client.put(f"/v1/work/{name}/archived")
    run_id = store.add_run(set_id)
    BagStore(store.engine).reopen(BAG)
    assert sorted(listed(client)) == ["storm", "sweep"]
    store.end_run(run_id, "kept", {}, {})
    assert "storm" in listed(client)  # not put away a second time by itself
    assert is_archived(10.0, 10.0)
    assert not is_archived(10.0, 11.0)
    assert not is_archived(None, None)


def test_only_its_owner_archives_a_set(service):
    _, store, set_id = service
    limits = RequestLimits(tokens=True)
    with TestClient(application(store, limits), follow_redirects=False) as client:
        other = bearer(store, "bob", "submit")
        assert client.put(f"/v1/work/{set_id}/archived", headers=other).status_code == 404
        form = {"archived": "true"}
        answer = client.post(f"/sets/{set_id}/archive", data=form, headers=other)
        assert answer.status_code == 404
        reader = bearer(store, "ann", "read")
        assert client.put(f"/v1/work/{set_id}/archived", headers=reader).status_code == 403


def test_the_command_archives_by_name_and_undoes_it(service, vgrads):
    client, _, set_id = service
    done = vgrads("archive", "storm", "--json")
    assert (done.code, done.json) == (0, {"id": set_id, "archived": True})
    assert listed(client) == ["sweep"]
    assert "listed again" in vgrads("archive", "storm", "--undo").out
    assert sorted(listed(client)) == ["storm", "sweep"]
    missing = vgrads("archive", "nobody")
    assert (missing.code, "no run 'nobody'" in missing.err) == (2, True)


def test_a_database_of_the_version_before_has_nothing_archived(service):
    client, store, set_id = service
    client.put(f"/v1/work/{set_id}/archived")
    move(store.engine, "0304", lose_data=True)
    move(store.engine, "0305")
    with store.engine.connect() as connection:
        rows = connection.execute(text("SELECT archived_s FROM workflow_set")).all()
    assert rows == [(None,)]
    assert sorted(listed(client)) == ["storm", "sweep"]
