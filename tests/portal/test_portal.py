"""The portal's own work: plans in the background, keys, revisions, pages of lists, what-if,
pictures, uploads."""

import gzip
import itertools
import json
import lzma
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session

from tests.conftest import DATA
from tests.portal.serving import LEAD, SMALL, serving
from tests.waiting import until
from vgrads.api.config import embedded_data
from vgrads.kernel.errors import InputError
from vgrads.portal.client import Client
from vgrads.portal.jobs.worker import run_set
from vgrads.portal.records.heartbeat import new_owner
from vgrads.portal.records.reading.run_rows import InapplicableError
from vgrads.portal.records.run_lease import RunLease
from vgrads.portal.records.sets import NewSet, Sets
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import LeaseRow
from vgrads.portal.records.work import PLAN, RUN, Works
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

MAYHEM = DATA / "histories" / "mayhem.swf.gz"


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    catalog = load_catalog(embedded_data() / "sites.toml")
    with TestClient(make_app(store, catalog, Bounds(history=30 * 2**20))) as client:
        yield client
    store.close()


def submit(client, document=SMALL, **headers):
    answer = client.post("/v1/workflow-sets", json=document, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


@pytest.mark.more  # a service of its own
def test_a_service_imports_nothing_from_the_folder_in_which_it_stands(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("drivers", "planner", "pool", "portal", "socket"):
        (folder / f"{name}.py").write_text("raise SystemExit('a file of the user was imported')\n")
    with serving(tmp_path, folder=folder) as service:
        client = service.client()
        assert client.wait(client.run(client.submit(LEAD))) == "kept"
    assert "a file of the user" not in service.log.read_text()


# asked twice, done once


def test_a_set_with_a_key_is_handed_over_once(client):
    key = {"Idempotency-Key": "storm-7"}
    first = client.post("/v1/workflow-sets", json=SMALL, headers=key)
    again = client.post("/v1/workflow-sets", json=SMALL, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    other = client.post("/v1/workflow-sets", json=SMALL | {"name": "other"}, headers=key)
    assert other.status_code == 422
    assert other.json()["field"] == "Idempotency-Key"
    assert len(client.get("/v1/workflow-sets").json()) == 1


def test_many_with_a_single_key_at_the_same_time_are_one(client):
    ids = []
    threads = [
        Thread(target=lambda: ids.append(submit(client, SMALL, **{"Idempotency-Key": "k"})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ids) == 8
    assert len(set(ids)) == 1


def test_a_set_that_cannot_be_planned_is_not_stored_and_its_key_is_free_again(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    log = tmp_path / "log.swf.gz"
    log.write_bytes(MAYHEM.read_bytes())
    sites = tmp_path / "sites.toml"
    sites.write_text(
        '[[site]]\nname = "m"\nkind = "batch"\nprocs = 64\n[[site.queue]]\nname = "q"\n'
        'history = "log.swf.gz"\n'
    )
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    with TestClient(make_app(store, load_catalog(sites))) as client:
        log.unlink()
        key = {"Idempotency-Key": "k"}
        refused = client.post("/v1/workflow-sets", json=SMALL, headers=key)
        assert (refused.status_code, refused.json()["field"]) == (422, None)
        assert "history of a queue" in refused.json()["detail"]
        assert str(tmp_path) not in refused.text
        assert client.get("/v1/workflow-sets").json() == []
        log.write_bytes(MAYHEM.read_bytes())
        assert client.post("/v1/workflow-sets", json=SMALL, headers=key).status_code == 201
    store.close()


def test_a_run_with_a_key_is_begun_once(client):
    set_id = submit(client)
    key = {"Idempotency-Key": "run-1"}
    runs = {
        client.post(f"/v1/workflow-sets/{set_id}/run", headers=key).json()["run"] for _ in range(3)
    }
    assert len(runs) == 1
    until(lambda: client.get(f"/v1/workflow-sets/{set_id}").json()["runs"][0]["state"] != "running")
    assert len(client.get(f"/v1/workflow-sets/{set_id}").json()["runs"]) == 1


def test_a_set_has_one_active_run(client):
    base = f"/v1/workflow-sets/{submit(client)}"
    run = client.post(f"{base}/run?speed=1").json()["run"]
    for path in (f"{base}/run", f"{base}/run?speed=2"):
        refused = client.post(path)
        assert (refused.status_code, refused.json()["ids"]) == (409, [run])
        assert "has not ended" in refused.json()["detail"]
    assert [row["id"] for row in client.get(base).json()["runs"]] == [run]
    assert client.post(f"/v1/work/{run}/cancel").status_code == 202
    until(lambda: client.get(base).json()["runs"][0]["state"] == "cancelled")
    assert client.post(f"{base}/run").status_code == 202


def test_of_runs_that_are_requested_at_once_a_single_run_begins(tmp_path):
    check_that_a_single_run_begins(f"sqlite:///{tmp_path / 'test.db'}")


def check_that_a_single_run_begins(url, count=8):
    """Request runs of one set at the same time."""
    with Store(url) as store, ThreadPoolExecutor(count) as threads:
        set_id, ready = store.add_set("s", {}, {}, {}), Barrier(count)

        def request(_):
            ready.wait(60.0)
            try:
                return Sets(store.engine).add_run(set_id, {})["run"]
            except InapplicableError as error:
                return error.parts[0]

        assert len(set(threads.map(request, range(count)))) == 1
        assert len(store.list_runs(set_id)) == 1


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_keys_that_are_none(client, key):
    answer = client.post("/v1/workflow-sets", json=SMALL, headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


# revisions and conditions


def test_plans_have_revisions_and_can_be_replanned(client):
    set_id = submit(client, LEAD)
    base = f"/v1/workflow-sets/{set_id}"
    plan = client.get(f"{base}/plan")
    tag = plan.headers["etag"]
    assert client.get(f"{base}/plan", headers={"If-None-Match": tag}).status_code == 304
    assert client.post(f"{base}/plan", headers={"If-Match": '"9-x"'}).status_code == 412
    assert client.post(f"{base}/plan", headers={"If-Match": tag}).status_code == 202
    anew = client.get(f"{base}/plan")  # waits for it
    assert anew.headers["etag"] != tag
    assert client.get(base).json()["revision"] == 2
    assert client.post(f"{base}/run", headers={"If-Match": tag}).status_code == 412
    assert client.post(f"{base}/run", headers={"If-Match": anew.headers["etag"]}).status_code == 202


def test_the_chart_has_a_tag_that_changes_with_the_run(client):
    set_id = submit(client)
    base = f"/v1/workflow-sets/{set_id}"
    tag = client.get(f"{base}/gantt").headers["etag"]
    assert client.get(f"{base}/gantt", headers={"If-None-Match": tag}).status_code == 304
    client.post(f"{base}/run")
    until(lambda: client.get(base).json()["runs"][0]["state"] != "running")
    after = client.get(f"{base}/gantt", headers={"If-None-Match": tag})
    assert after.status_code == 200
    assert after.json()["state"] in ("kept", "broken")
    body = client.get(base)
    assert client.get(base, headers={"If-None-Match": body.headers["etag"]}).status_code == 304


@pytest.mark.more
def test_the_plan_that_was_shown_equals_the_same_that_is_run(client):
    set_id = submit(client, LEAD)
    base = f"/v1/workflow-sets/{set_id}"
    planned = client.get(f"{base}/gantt").json()["placements"]
    client.post(f"{base}/run")
    until(lambda: client.get(base).json()["runs"][0]["state"] != "running")
    ran = client.get(f"{base}/gantt").json()["placements"]
    names = ("workflow", "task", "copy", "slot", "start_s")
    assert [[p[n] for n in names] for p in ran[: len(planned)]] == [
        [p[n] for n in names] for p in planned
    ]
    assert client.get(base).json()["revision"] == 1


def test_lists_come_in_pages_without_loss_or_repetition(client):
    ids = [submit(client, SMALL | {"name": f"s{n}"}) for n in range(7)]
    observed, path = [], "/v1/workflow-sets?limit=3"
    while path:
        answer = client.get(path)
        observed += [row["id"] for row in answer.json()]
        link = answer.headers.get("link", "")
        path = link.partition(">")[0].removeprefix("<") if link else ""
    assert observed == ids[::-1]
    assert client.get("/v1/workflow-sets?after=nonsense").status_code == 422
    cursor = client.get("/v1/workflow-sets?limit=3").headers["link"].partition("after=")[2]
    rest = client.get(f"/v1/workflow-sets?after={cursor.partition('>')[0]}").json()
    assert "s3" in {row["name"] for row in rest}


def test_who_does_not_want_to_wait_gets_a_set_that_is_being_planned(client):
    answer = client.post("/v1/workflow-sets", json=LEAD, headers={"Prefer": "respond-async"})
    assert answer.json()["state"] in ("planning", "planned")
    assert client.get(f"/v1/workflow-sets/{answer.json()['id']}/plan").json()["feasible"]


# what if, why, how sure as it went


@pytest.mark.more
def test_what_if_tells_of_other_wishes_and_keeps_nothing(client):
    set_id = submit(client, LEAD | {"at_least": 6, "budget_usd": 40})
    base = f"/v1/workflow-sets/{set_id}"
    before = client.get(f"{base}/plan").json()

    def would(**wishes):
        answer = client.post(f"{base}/what-if", json=wishes)
        assert answer.status_code == 200, answer.text
        return answer.json()

    promised = before["promise"]["probability"]
    assert would()["promise"]["probability"] == promised
    repeated = would(deadline=before["deadline_s"], fraction="6/8", budget_usd=40)
    assert repeated["promise"]["probability"] == promised
    assert would(budget_usd=41)["promise"]["probability"] == pytest.approx(promised, abs=0.03)
    free, paid = (would(fraction="8/8", deadline="100m", budget_usd=usd) for usd in (0, 80))
    assert free["cost_usd"] == 0
    assert free["promise"]["probability"] < paid["promise"]["probability"]
    assert would(fraction="8/8")["needed"] == 8
    assert not would(deadline=600)["feasible"]
    assert client.get(f"{base}/plan").json() == before
    for wrong, field in (
        ({"deadline": "soon"}, "deadline"),
        ({"fraction": 7}, "fraction"),
        ({"colour": 1}, "colour"),
    ):
        answer = client.post(f"{base}/what-if", json=wrong)
        assert answer.status_code == 422
        assert field in answer.json()["detail"] + str(answer.json()["field"])


def test_a_task_is_explained(client):
    set_id = submit(client, LEAD)
    message = client.get(
        f"/v1/workflow-sets/{set_id}/explain", params={"task": "lead-1/wrf"}
    ).json()
    assert "Phase" in message["text"]
    assert (
        client.get(f"/v1/workflow-sets/{set_id}/explain", params={"task": "none"}).status_code
        == 422
    )


@pytest.mark.more
def test_the_promise_over_time_begins_as_promised_and_ends_at_what_came(client):
    set_id = submit(client, LEAD)
    base = f"/v1/workflow-sets/{set_id}"
    assert client.get(f"{base}/promise").json() == {"run": None, "points": []}
    client.post(f"{base}/run")
    until(lambda: client.get(base).json()["runs"][0]["state"] == "kept")
    points = client.get(f"{base}/promise").json()["points"]
    assert points[0]["probability"] == client.get(base).json()["promise"]["probability"]
    assert (
        abs(points[1]["probability"] - points[0]["probability"]) < 0.05
    )  # asked for, nothing seen yet
    assert (points[-1]["probability"], points[-1]["done"] >= 1) == (1.0, True)
    assert [p["at_s"] for p in points] == sorted(p["at_s"] for p in points)


@pytest.mark.more
@pytest.mark.parametrize(
    ("form", "begins"),
    [("html", b"<!doctype"), ("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")],
)
def test_charts_are_written_as_pictures(client, form, begins):
    set_id = submit(client, LEAD)
    answer = client.get(f"/v1/workflow-sets/{set_id}/gantt", params={"format": form})
    assert answer.status_code == 200
    assert answer.content.startswith(begins)


def test_a_trace_has_every_bar_at_its_time(client):
    set_id = submit(client, LEAD)
    chart = client.get(f"/v1/workflow-sets/{set_id}/gantt").json()
    events = client.get(f"/v1/workflow-sets/{set_id}/gantt?format=trace").json()["traceEvents"]
    bars = {
        (e["name"], round(e["ts"]), round(e["dur"]))
        for e in events
        if e["ph"] == "X" and e["name"] != "slot"
    }
    assert bars == {
        (
            f"{p['workflow']}/{p['task']}",
            round(p["start_s"] * 1e6),
            round((p["end_s"] - p["start_s"]) * 1e6),
        )
        for p in chart["placements"]
    }
    spans = sorted(
        (e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"
    )
    for item, following in itertools.pairwise(spans):  # one row, one thing at a time
        assert item[:2] != following[:2] or item[3] <= following[2] + 1.0


# histories


def test_an_uploaded_history_rules_from_then_on(client):
    base = "/v1/sites/mayhem/queues/default/bound"
    before = client.get(base).json()
    other = (DATA / "histories" / "mercury.swf.gz").read_bytes()
    answer = client.post("/v1/sites/mayhem/history", content=other)
    assert answer.status_code == 201, answer.text
    assert answer.json()["jobs"] > 100
    after = client.get(base).json()
    assert after != before
    assert after == client.get("/v1/sites/mercury/queues/default/bound").json()
    assert (
        client.post(
            "/v1/sites/mayhem/history?queue=default", content=MAYHEM.read_bytes()
        ).status_code
        == 201
    )
    assert client.get(base).json() == before


PLAIN = gzip.decompress(MAYHEM.read_bytes())
BAD = {
    "empty": lambda: b"",
    "noise": lambda: b"\x00\xff" * 500,
    "cut off": lambda: MAYHEM.read_bytes()[:2000],
    "html": lambda: b"<html></html>",
    "bomb": lambda: gzip.compress(b"0" * (40 * 2**20)),
    "xz bomb": lambda: lzma.compress(b"0" * (40 * 2**20), preset=0),
    "no jobs": lambda: b"; Version: 2.2\n",
    "words": lambda: b"this is no log\n" * 10,
}


@pytest.mark.parametrize("name", BAD)
def test_uploads_that_are_no_logs_change_nothing(client, name, tmp_path):
    base = (
        "/v1/sites/mayhem/queues/default/bound?method=qbets"  # the state may be learned in between
    )
    before = client.get(base).json()
    answer = client.post("/v1/sites/mayhem/history", content=BAD[name]())
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == "body"
    assert str(tmp_path) not in answer.text
    assert client.get(base).json() == before
    assert not list((tmp_path / "uploads").iterdir())


def test_uploads_of_every_packing_and_to_wrong_places(client):
    for body in (PLAIN, gzip.compress(PLAIN), lzma.compress(PLAIN)):
        assert client.post("/v1/sites/mayhem/history?format=swf", content=body).status_code == 201
    form = client.post(
        "/v1/sites/mayhem/history", files={"file": ("any name/../x", gzip.compress(PLAIN))}
    )
    assert (form.status_code, form.json()["jobs"] > 100) == (201, True)
    empty = client.post("/v1/sites/mayhem/history", data={"queue": "x"}, files={})
    assert empty.status_code == 422
    assert client.post("/v1/sites/none/history", content=PLAIN).status_code == 404
    assert client.post("/v1/sites/ec2/history", content=PLAIN).status_code == 422
    assert (
        client.post("/v1/sites/mayhem/history?queue=none", content=PLAIN).json()["field"] == "queue"
    )
    assert (
        client.post("/v1/sites/mayhem/history?format=zip", content=PLAIN).json()["field"]
        == "format"
    )
    assert client.post("/v1/sites/..%2f..%2fetc/history", content=PLAIN).status_code == 404


def test_large_bodies_are_refused_before_and_while_they_come(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    app = make_app(
        store, load_catalog(DATA / "sites.toml"), limits=RequestLimits(body=10_000, upload=20_000)
    )
    with TestClient(app) as client:
        assert (
            client.post("/v1/workflow-sets", json=SMALL | {"name": "x" * 20_000}).status_code == 413
        )

        def drip():
            for _ in range(50):
                yield b"x" * 1000

        assert client.post("/v1/sites/mayhem/history", content=drip()).status_code == 413
        assert client.post("/v1/workflow-sets", json=SMALL).status_code == 201
    store.close()


# a service that is killed


def test_a_run_whose_last_manager_still_lives_waits_for_its_end(client, caplog):
    """That of a service that was killed ends a moment after the next service has begun."""
    store = client.app.state.service.store
    set_id = submit(client)
    run_id = store.add_run(set_id)
    other = RunLease(store.engine, run_id)
    other.take()
    catalog = load_catalog(embedded_data() / "sites.toml")
    work = Thread(target=run_set, args=(store, catalog, run_id))
    work.start()
    until(lambda: "is managed by" in caplog.text, "the refusal")
    assert (work.is_alive(), store.get_run(run_id).state) == (True, "running")
    other.leave()
    work.join(60)
    assert store.get_run(run_id).state == "kept"


@pytest.mark.more
def test_plans_and_runs_survive_a_service_that_is_killed(tmp_path):
    heavy = {
        "name": "heavy",
        "deadline": "10h",
        "workflows": [
            {
                "name": "w",
                "count": 60,
                "tasks": [{"id": f"t{i}", "runtime_s": 60} for i in range(12)],
            }
        ],
    }
    with serving(tmp_path) as service:
        client = service.client()
        warm = client.submit(LEAD)
        run = client.run(warm, speed=300)
        events = client.events(run)
        next(events)
        request = urllib.request.Request(
            f"{service.url}/v1/workflow-sets",
            json.dumps(heavy).encode(),
            {"Content-Type": "application/json", "Prefer": "respond-async"},
        )
        with urllib.request.urlopen(request) as answer:
            waiting = json.loads(answer.read())["id"]
        service.kill()
        service.begin()
        client = service.client()
        until(lambda: client.read(waiting)["state"] == "planned", "the plan", 300)
        assert client.plan(waiting)["feasible"]
        assert client.wait(run) == "kept"
        assert [r["state"] for r in client.read(warm)["runs"]] == ["kept"]
        assert service.end() in (0, -15)


def test_work_is_done_once_taken_over_and_abandoned_only_for_processes_that_died(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'w.db'}") as store:
        set_id = Sets(store.engine).add("ann", NewSet("s", "{}"), False)["id"]
        works, mine, other = Works(store.engine), new_owner(), "elsewhere:1:x"
        work = works.claim(mine, [PLAN])
        assert (work.set_id, work.tries) == (set_id, 0)
        assert works.claim(other, [PLAN]) is None  # somebody is at work
        for _ in range(5):  # a service that ends in order takes nobody's chances
            works.release(mine)
            work = works.claim(mine, [PLAN])
        assert work.tries == 0
        for died in range(1, 4):
            works.release(mine, work)
            work = works.claim(mine, [PLAN])
            assert work.tries == died
        machine, _, began, nonce = new_owner().split(":")
        dead = f"{machine}:999999999:{began}:{nonce}"
        works.release(mine)
        assert works.claim(dead, [PLAN])
        assert works.claim(mine, [PLAN])  # its process is gone
        works.finish(work, True)
        assert works.claim(mine, [PLAN]) is None
        assert works.open_kinds() == {PLAN: 0, RUN: 0}


def test_small_sets_and_users_without_work_come_first(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'w.db'}") as store:
        sets, works, mine = Sets(store.engine), Works(store.engine), new_owner()

        def add(user, tasks):
            return sets.add(user, NewSet("s", "{}", tasks=tasks), False)["id"]

        large = [add("ann", 2400) for _ in range(3)]
        unknown, small, of_ben = add("ann", None), add("ann", 200), add("ben", 900)
        first = works.claim(mine, [PLAN], is_small=True)
        assert (first.set_id, first.is_small) == (small, True)
        assert works.claim(mine, [PLAN], {first.id}, is_small=True) is None
        busy, claimed = {first.id}, []
        while work := works.claim(mine, [PLAN], busy, is_small=False):
            busy.add(work.id)
            claimed.append(work.set_id)
        assert claimed == [of_ben, *large, unknown]  # a small set of ann is being planned


@pytest.mark.more
def test_a_run_whose_process_dies_again_and_again_is_abandoned(tmp_path):
    with serving(tmp_path) as service:
        client = service.client()
        set_id = client.submit(LEAD)
        run = client.run(set_id, speed=1)

        def manager():
            with (
                Store(f"sqlite:///{tmp_path / 'vgrads.db'}") as store,
                Session(store.engine) as session,
            ):
                row = session.get(LeaseRow, run.run_id)
                return int(row.owner.split(":")[1]) if row else 0

        killed = set()
        for _ in range(3):
            until(lambda: manager() not in killed | {0}, "its manager", 60)
            killed.add(manager())
            os.kill(manager(), signal.SIGKILL)
        until(lambda: client.read(set_id)["runs"][0]["state"] == "failed", "the end", 60)
        reason = client.read(set_id)["runs"][0]["outcome"]["reason"]
        assert "died 3 times: it was ended by SIGKILL" in reason
        assert service.ready()


def test_a_port_that_is_taken_is_reported(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "vgrads", "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(
            command,
            env={**os.environ, "VGRADS_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 4
    assert "cannot listen" in done.stderr.splitlines()[-1]


@pytest.mark.more
def test_a_run_by_an_outside_engine_goes_on_after_a_restart(tmp_path):
    sites = tmp_path / "sites.toml"
    sites.write_text('[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n')
    chain = {
        "name": "chain",
        "deadline": "120s",
        "workflows": [
            {
                "name": "w",
                "tasks": [
                    {"id": "a", "runtime_s": 2},
                    {"id": "b", "runtime_s": 2, "parents": ["a"]},
                ],
            }
        ],
    }
    with serving(tmp_path, "--sites", sites) as service:
        client = service.client()
        set_id = client.submit(chain)
        run = client.run(set_id, engine="outside")
        turn = client.permit(run, "w-1", "a")
        assert client.end(run, "w-1", "a", replica=turn["copy"], ok=True)
        turn = client.permit(run, "w-1", "b")
        service.kill()
        service.begin()
        client = service.client()
        turn = client.permit(run, "w-1", "b")  # offered again
        assert client.end(run, "w-1", "b", replica=turn["copy"], ok=True)
        assert client.wait(run) == "kept"


@pytest.mark.more  # a service of its own
def test_a_service_that_is_queried_to_ends_soon_though_somebody_listens(tmp_path):
    with serving(tmp_path) as service:
        client = service.client()
        run = client.run(client.submit(LEAD), speed=1)
        events = client.events(run)
        next(events)
        service.process.terminate()
        assert service.process.wait(30) in (0, -15)
        assert (
            "graceful shutdown exceeded" not in service.log.read_text()
        )  # no stream had to be cut


@pytest.mark.more
def test_an_upload_that_is_cut_off_leaves_nothing(tmp_path):
    with serving(tmp_path) as service:
        # its state may be learned in between
        url = f"{service.url}/v1/sites/mayhem/queues/default/bound?method=qbets"
        before = urllib.request.urlopen(url).read()
        with socket.create_connection(("127.0.0.1", service.port)) as raw:
            raw.sendall(
                b"POST /v1/sites/mayhem/history HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Length: 999999\r\n\r\n"
            )
            raw.sendall(PLAIN[:50_000])
            until(lambda: list(tmp_path.glob("uploads/*/history")), "the upload")
            service.kill()
        service.begin()
        assert urllib.request.urlopen(url).read() == before
        assert not list(tmp_path.glob("uploads/*"))


def test_the_client_asks_only_for_what_the_description_has(client):
    """Every request of the client is one of the OpenAPI's."""
    paths = client.get("/openapi.json").json()["paths"]
    existing = {
        (
            method.upper(),
            path.replace("{set_id}", "S")
            .replace("{run_id}", "R")
            .replace("{workflow}", "w")
            .replace("{task}", "t"),
        )
        for path, methods in paths.items()
        for method in methods
    }
    requested = set()

    class Spy(Client):
        def _ask(self, method, path, body=None, more=None):
            requested.add((method, path.partition("?")[0]))
            return {"id": "S", "run": "R", "permits": [{}], "counted": True}

    spy = Spy("http://x")
    run = spy.run(spy.submit({}))
    for call in (spy.read, spy.plan, spy.gantt, spy.what_if, spy.cancel):
        call("S")
    spy.permit(run, "w", "t")
    spy.end(run, "w", "t", ok=True)
    assert requested <= existing
    assert len(requested) == 9


def test_a_client_whose_key_was_used_is_reported(tmp_path):
    with serving(tmp_path) as service:
        client = service.client()
        assert client.submit(SMALL, key="k") == client.submit(SMALL, key="k")
        with pytest.raises(InputError, match="another request"):
            client.submit(LEAD, key="k")
