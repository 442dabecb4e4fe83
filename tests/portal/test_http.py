"""The service: sets in, plans and charts out, errors as problem documents."""

import re
import time

import pytest
from fastapi.testclient import TestClient

from tests.portal.serving import LEAD, SMALL
from tests.waiting import until
from vgrads.api.config import embedded_data
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import load_catalog


@pytest.fixture
def client(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    with TestClient(make_app(store, load_catalog(embedded_data() / "sites.toml"))) as client:
        yield client
    store.close()


def submit(client, document):
    answer = client.post("/v1/workflow-sets", json=document)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"/v1/workflow-sets/{answer.json()['id']}"
    return answer.json()["id"]


def test_a_set_is_planned_and_its_plan_and_chart_can_be_read(client):
    set_id = submit(client, LEAD)
    plan = client.get(f"/v1/workflow-sets/{set_id}/plan").json()
    assert (plan["feasible"], plan["needed"]) == (True, 1)
    gantt = client.get(f"/v1/workflow-sets/{set_id}/gantt").json()
    assert len(gantt["placements"]) == len(plan["placements"])
    assert client.get(f"/v1/workflow-sets/{set_id}").json()["document"]["name"] == "lead"
    assert client.get("/healthz").json() == {"status": "ok"}
    assert "/v1/workflow-sets" in client.get("/openapi.json").json()["paths"]
    assert f"/sets/{set_id}" in client.get("/").text
    assert "<svg" in client.get(f"/sets/{set_id}").text


def test_a_set_is_run_in_the_background(client):
    set_id = submit(client, SMALL)
    assert client.post(f"/v1/workflow-sets/{set_id}/run").status_code == 202
    deadline = time.monotonic() + 30
    runs = []
    while time.monotonic() < deadline and (not runs or runs[0]["state"] == "running"):
        runs = client.get(f"/v1/workflow-sets/{set_id}").json()["runs"]
    assert runs[0]["state"] in ("kept", "broken")
    gantt = client.get(f"/v1/workflow-sets/{set_id}/gantt").json()
    assert any(p["actual"] for p in gantt["placements"])
    assert re.search("<strong>(Met|Missed):", client.get(f"/sets/{set_id}").text)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"fraction": 2}, "fraction"),
        ({"deadline": "soon"}, "deadline"),
        ({"deadline": "2001-01-01T00:00:00Z"}, "deadline"),
        ({"probability": 3}, "probability"),
        ({"colour": "red"}, "colour"),
        ({"workflows": []}, "workflows"),
        ({"workflows": [{"file": "../../etc/passwd"}]}, "workflows.file"),
        ({"workflows": [{"file": "/etc/passwd"}]}, "workflows.file"),
        ({"workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": -1}]}]}, "runtime_s"),
        (
            {
                "workflows": [
                    {"name": "w", "tasks": [{"id": "a", "runtime_s": 1, "parents": ["a"]}]}
                ]
            },
            "cycle",
        ),
    ],
)
def test_bad_sets_are_problem_documents_that_name_the_field(client, change, field):
    answer = client.post("/v1/workflow-sets", json={**SMALL, **change})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in answer.json()["detail"] + str(answer.json().get("field"))


RAW = '{"name":"s","deadline":%s,"workflows":[{"name":"w","count":%s,"tasks":[{"id":"a","runtime_s":%s,"procs":%s}]}]}'
HOSTILE = {
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 50_000,
    "not a number": RAW % ('"1h"', 1, "NaN", 1),
    "infinite": RAW % ('"1h"', 1, "1e400", 1),
    "huge integer": RAW % ('"1h"', 1, 1, "9" * 400),
    "too many": RAW % ('"1h"', 100_000, 1, 1),
    "far deadline": RAW % ("1e308", 1, 1, 1),
    "negative deadline": RAW % (-5, 1, 1, 1),
    "object deadline": RAW % ("{}", 1, 1, 1),
    "long duration": RAW % (f'"{"9" * 5000}h"', 1, 1, 1),
    "null": "null",
    "text": '"x"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_are_refused_in_order(client, name):
    answer = client.post(
        "/v1/workflow-sets", content=HOSTILE[name], headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/v1/workflow-sets").json() == []


def test_unknown_things_are_404_and_malformed_ids_422(client):
    assert client.get("/v1/workflow-sets/set-0123456789").status_code == 404
    assert client.get("/v1/workflow-sets/..%2f..").status_code in (404, 422)
    assert client.get("/v1/nothing").headers["content-type"] == "application/problem+json"
    assert client.post("/v1/workflow-sets", content=b"{").status_code == 422


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("workflow-sets/none", "no workflow set 'none'"),
        ("workflow-sets/none/plan", "no workflow set 'none'"),
        ("workflow-sets/set-012345678", "no workflow set 'set-012345678'"),
        ("bags/none", "no bag 'none'"),
        ("bags/bag-0123456789/tasks/x", "no task 'x'"),
        ("virtual-grids/none", "no virtual grid 'none'"),
    ],
)
def test_an_id_of_another_form_is_one_that_does_not_exist(client, path, detail):
    answer = client.get(f"/v1/{path}")
    assert (answer.status_code, answer.json()["detail"]) == (404, detail)


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        ("GET", "workflow-sets?limit=many", None, "limit: must be a whole number, is 'many'"),
        ("GET", "workflow-sets?limit=0", None, "limit: must be at least 1, is '0'"),
        (
            "GET",
            "workflow-sets/set-0123456789/gantt?format=gif",
            None,
            "format: 'gif' is none of json, html, svg, png, pdf, trace",
        ),
        ("POST", "joint-submissions/x", b"{}", "ticket: is missing"),
        ("POST", "joint-submissions/x", b"3", "body: must be a mapping of keys to values, is 3"),
        ("POST", "forecasts", b"", "body: is missing"),
        ("POST", "forecasts", b"{}", "questions: is missing"),
        ("POST", "forecasts", b"[]", "body: must be a mapping of keys to values, is []"),
        (
            "POST",
            "forecasts",
            b'{"questions": [',
            "body: is not JSON: Expecting value at character 15",
        ),
        (
            "POST",
            "forecasts",
            b'{"questions": 3}',
            "questions: must be a list, is 3",
        ),
        (
            "POST",
            "forecasts",
            b'{"questions": [{"site": 3}]}',
            "questions.0.site: 2 errors: site: must be text: put it in quotes, is 3; "
            "queue: is missing",
        ),
        (
            "POST",
            "forecasts",
            b'{"questions": [], "x": 3}',
            "questions: needs at least 1 entry",
        ),
    ],
)
def test_a_wrong_request_is_answered_in_the_words_of_wrong_files(
    client, method, path, body, detail
):
    answer = client.request(
        method, f"/v1/{path}", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)
    assert answer.json()["field"] == detail.partition(":")[0]


def test_a_set_that_cannot_be_promised_is_stored_and_not_run(client):
    wide = {
        **SMALL,
        "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 1, "procs": 10**6}]}],
    }
    set_id = submit(client, wide)
    assert client.get(f"/v1/workflow-sets/{set_id}/plan").json()["feasible"] is False
    assert client.post(f"/v1/workflow-sets/{set_id}/run").status_code == 409


SET_DOCUMENT = {
    "name": "storm",
    "duration": "2h",
    "deadline": "6h",
    "groups": [{"name": "x", "coupling": "tight", "nodes": 16}],
}


def test_a_virtual_grid_is_offered_stored_and_drawn(client):
    answer = client.post("/v1/virtual-grids", json=SET_DOCUMENT)
    assert answer.status_code == 201, answer.text
    offer = answer.json()
    assert offer["enough"]
    assert offer["groups"][0]["nodes"] >= 16
    assert client.get(answer.headers["Location"]).json() == offer
    lanes = client.get(f"{answer.headers['Location']}/gantt").json()["slots"]
    assert [lane["id"] for lane in lanes] == offer["groups"][0]["slots"]
    assert client.get("/v1/virtual-grids/grid-0123456789").status_code == 404
    late = client.post("/v1/virtual-grids", json=SET_DOCUMENT | {"deadline": "1h"})
    assert late.status_code == 422
    assert "end after the deadline" in late.json()["detail"]


def test_queues_answer_over_http_as_on_the_command_line(client, vgrads):
    log = embedded_data() / "histories" / "mayhem.swf.gz"
    base, same = "/v1/sites/mayhem/queues/default", ("--procs", 8, "--walltime", "1h", "--json")
    query = {"procs": 8, "walltime_s": 3600}

    def ask_queue() -> dict:
        return client.get(f"{base}/bound", params=query).json()

    assert ask_queue()["method"] == "qbets"  # nobody waits for the state to be learned
    until(lambda: ask_queue()["method"] == "state", "an answer by the state", 120.0)
    assert ask_queue() == vgrads("bound", log, *same).json
    past = client.get(f"{base}/bound", params={**query, "method": "bmbp"})
    assert past.json() == vgrads("bound", log, "--method", "bmbp", *same).json
    message = client.get(f"{base}/bound", params={**query, "explain": True}).json()["explanation"]
    assert message == vgrads("bound", log, "--explain", *same).json["explanation"]
    assert message["moved"][0]["reason"] is None or "usually" in message["moved"][0]["reason"]
    within = client.get(f"{base}/probability", params={**query, "within_s": 1800})
    assert within.json() == vgrads("probability", log, "--within", "30m", *same).json
    path = client.get(f"{base}/trajectory", params={**query, "start_by_s": 3600})
    assert path.json() == vgrads("trajectory", log, "--start-by", "1h", *same).json


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("mayhem/queues/none/bound", 404),
        ("none/queues/default/bound", 404),
        ("mayhem/queues/default/bound?procs=0", 422),
        ("mayhem/queues/default/bound?probability=1", 422),
        ("mayhem/queues/default/probability?within_s=nan", 422),
        ("mayhem/queues/default/trajectory?start_by_s=1e8", 422),
    ],
)
def test_wrong_questions_to_queues_are_refused(client, path, code):
    answer = client.get(f"/v1/sites/{path}")
    assert answer.status_code == code
    assert answer.headers["content-type"] == "application/problem+json"


def test_sites_are_listed_without_places_of_files(client):
    rows = client.get("/v1/sites").json()
    assert {row["name"] for row in rows} >= {"mayhem", "ec2"}
    assert "/" not in str([queue["history"] for row in rows for queue in row["queues"]])


def test_a_set_without_run_times_is_planned_by_what_was_learned_and_its_page_says_so(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    requested = {
        "name": "unstated",
        "deadline": "6h",
        "workflows": [
            {
                "name": "w",
                "tasks": [
                    {"id": "a", "kind": "ALIGN"},
                    {"id": "b", "kind": "NEW", "parents": ["a"]},
                ],
            }
        ],
    }
    task_records = [TaskRecord(kind="ALIGN", seconds=100.0 + n, run=str(n)) for n in range(5)]
    RunTimeRecords(store.engine).learn(task_records)
    with TestClient(make_app(store, load_catalog(embedded_data() / "sites.toml"))) as client:
        set_id = submit(client, requested)
        plan = client.get(f"/v1/workflow-sets/{set_id}/plan").json()
        payload = {
            item["kind"]: (item["source"], item["observations"]) for item in plan["run_times"]
        }
        assert payload == {"ALIGN": ("learned", 5), "NEW": ("guess", 0)}
        page = client.get(f"/sets/{set_id}").text
        assert "learned from 5 runs" in page
        assert "a wide guess" in page
        stated = client.get(f"/sets/{submit(client, SMALL)}").text
        assert 'id="run-times"' not in stated
    store.close()
