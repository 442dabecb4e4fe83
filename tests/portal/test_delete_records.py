"""Sets and bags that have ended are deleted, with all that the database has of them; their folders
stay."""

import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session, SQLModel, select

from tests.conftest import DATA
from tests.portal.serving import SMALL, bearer, serving
from tests.waiting import until
from vgrads.api.config import dispatcher_folder, run_folder, set_folder
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.folder import reserve_number
from vgrads.dispatch.storage.status import exclusive, is_worked_on, write_status
from vgrads.portal.jobs.bags import Submission, submit
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.tables import AuditRow
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

CATALOG = load_catalog(DATA / "sites.toml")
BAG = BagDocument(name="b", commands=["true"], runtime_s=1)


@pytest.fixture
def client(store):
    """The service, for ann; it plans and runs sets."""
    bounds = Bounds(places=Places(planners=0))
    app = make_app(store, CATALOG, bounds, RequestLimits(tokens=True))
    with TestClient(app, base_url="http://127.0.0.1", headers=bearer(store)) as opened:
        yield opened


@pytest.fixture
def idle(store):
    """The service, for ann; it does no work."""
    bounds = Bounds(places=Places(planners=0))
    app = make_app(store, CATALOG, bounds, RequestLimits(tokens=True))
    return TestClient(app, base_url="http://127.0.0.1", headers=bearer(store))


def submit_set(client, **head):
    answer = client.post("/v1/workflow-sets", json=SMALL, headers=head)
    assert answer.status_code == 201, answer.text
    return f"/v1/workflow-sets/{answer.json()['id']}"


def rows_of(store, *ids):
    """The tables with rows that name one of these ids, without the audit."""
    names = []
    with Session(store.engine) as session:
        for table in SQLModel.metadata.sorted_tables:
            rows = session.execute(select(table)).all() if table.name != "audit" else []
            names += [table.name for row in rows if any(i in str(row) for i in ids)]
    return set(names)


def test_a_set_goes_with_its_runs_and_its_folders_stay(client, store, vgrads):
    path = submit_set(client, **{"Idempotency-Key": "k"})
    set_id = path.rpartition("/")[2]
    run_id = client.post(f"{path}/run").json()["run"]
    until(lambda: client.get(f"{path}/status").json()["state"] in ("kept", "broken"), "its end", 60)
    assert {"workflow_set", "run", "run_event", "work"} <= rows_of(store, set_id, run_id)
    run_folder(run_id).mkdir(parents=True, exist_ok=True)
    (run_folder(run_id) / "result").write_text("42")

    answer = client.delete(f"{path}/records")
    assert (answer.status_code, answer.content) == (204, b"")
    assert rows_of(store, set_id, run_id) == {"forecast"}  # the record of what was promised
    assert set_folder(set_id).is_dir()
    assert (run_folder(run_id) / "result").read_text() == "42"
    for part in ("", "/plan", "/gantt", "/status", "/tasks", "/events"):
        assert client.get(path + part).status_code == 404, part
    assert client.delete(f"{path}/records").status_code == 404
    assert client.get("/v1/workflow-sets").json() == client.get("/v1/runs").json() == []
    assert set_id not in client.get("/").text
    assert vgrads("status", "--json").json["runs"] == []
    assert submit_set(client, **{"Idempotency-Key": "k"}) != path  # the key was deleted too
    with Session(store.engine) as session:
        written = [(r.user, r.action, r.object, r.status) for r in session.exec(select(AuditRow))]
    assert ("ann", "DELETE", f"{path}/records", 204) in written


def test_a_set_stays_while_it_is_planned_or_run(idle, store):
    path = submit_set(idle, Prefer="respond-async")
    answer = idle.delete(f"{path}/records")
    assert (answer.status_code, answer.json()["detail"][:24]) == (409, "the set is being planned")
    assert idle.get(path).json()["state"] == "planning"
    set_id, operator = store.add_set("s", {}, {}, {}), bearer(store, "op", "operate")
    earlier, later = store.add_run(set_id), store.add_run(set_id)
    url = f"/v1/workflow-sets/{set_id}/records"
    store.set_run_state(later, "kept")
    for state, code in (("running", 409), ("interrupted", 409), ("cancelled", 204)):
        store.set_run_state(earlier, state)
        assert idle.delete(url, headers=operator).status_code == code, state
        assert (store.get_set(set_id) is None) == (code == 204)


def test_only_its_owner_and_the_operator_delete(idle, store):
    bob, reader = bearer(store, "bob"), bearer(store, "ann", "read")
    path = submit_set(idle, Prefer="respond-async")
    bag = submit_bag(store, "bag-0000000001", "done")
    for url in (path, f"/v1/bags/{bag.id}"):
        assert idle.delete(f"{url}/records", headers=bob).status_code == 404
        assert idle.delete(f"{url}/records", headers=reader).status_code == 403
        assert idle.get(url).status_code == 200
    operator = bearer(store, "op", "operate")
    assert idle.delete(f"/v1/bags/{bag.id}/records", headers=operator).status_code == 204


def submit_bag(store, dispatcher, state):
    """A bag of ann's that its dispatcher would do, in this state."""
    folder = dispatcher_folder(dispatcher)
    row, _ = submit(store, dispatcher, BAG, folder, CATALOG, Submission(owner="ann"))
    BagStore(store.engine).note(
        dispatcher, [{"number": row.number, "state": state, "tasks": row.tasks}]
    )
    return row


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_a_bag_goes_and_its_folder_is_of_no_other_bag(idle, store, vgrads, state):
    bags = [submit_bag(store, "service-1", name) for name in ("running", state)]
    assert idle.delete(f"/v1/bags/{bags[0].id}/records").status_code == 409
    path, number = f"/v1/bags/{bags[1].id}", bags[1].number
    answer = idle.delete(f"{path}/records")
    assert (answer.status_code, answer.content) == (204, b"")
    for part in ("", "/tasks/0", "/results", "/events"):
        assert idle.get(path + part).status_code == 404, part
    assert idle.delete(f"{path}/records").status_code == 404
    assert [bag["id"] for bag in idle.get("/v1/bags").json()] == [bags[0].id]
    assert bags[1].id not in idle.get("/").text
    assert bags[1].id not in vgrads("bags", "status", "--json").out
    assert (dispatcher_folder("service-1") / f"bags/{number:04d}/document.json").is_file()
    assert submit_bag(store, "service-1", "running").number > number


def test_the_last_bag_of_a_dispatcher_stays_until_its_nodes_are_released(idle, store):
    bag = submit_bag(store, "service-1", "done")
    folder, url = dispatcher_folder("service-1"), f"/v1/bags/{bag.id}/records"
    with exclusive(folder):
        assert idle.delete(url).status_code == 409
    write_status(folder, {"state": "interrupted", "slots": {"s": 1}, "bags": []})
    assert idle.delete(url).status_code == 409
    write_status(folder, {"state": "ended", "slots": {}, "bags": []})
    assert idle.delete(url).status_code == 204


def test_a_number_is_above_those_of_all_bags(tmp_path):
    """A folder without a document is of a bag that is being submitted: a matrix's blocks are laid
    out first."""
    for name in ("0000", "0007"):
        (tmp_path / "bags" / name).mkdir(parents=True)
        (tmp_path / "bags" / name / "document.json").write_text("{}")
    (tmp_path / "bags" / "0008").mkdir()
    assert [reserve_number(tmp_path, 1), reserve_number(tmp_path, 9)] == [8, 9]


@pytest.mark.more
def test_a_program_deletes_what_it_submitted(tmp_path):
    with serving(tmp_path) as served, served.client() as client:
        run = client.run(client.submit(SMALL))
        assert client.wait(run) in ("kept", "broken")
        bag_id = client.submit_bag({"name": "b", "commands": ["true"], "runtime_s": 1})
        until(lambda: client.read_bag(bag_id)["state"] == "done", "the bag's end", 60)
        client.delete_records(run.set_id)
        folder = tmp_path / "dispatchers" / bag_id
        until(lambda: not is_worked_on(folder), "its dispatcher's end", 60)
        client.delete_bag_records(bag_id)
        assert client.list_sets() == client.list_bags() == []
