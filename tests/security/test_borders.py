"""What is checked before a request is read, and what one client can take from the others."""

import asyncio
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest
import uvicorn
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.serving import SMALL, Served, bearer, serving
from tests.waiting import until
from vgrads.portal.connections import MOST_OF_ADDRESS, ConnectionLimits, connections_with
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.access import Principal
from vgrads.portal.records.bags import BagStore, new_bag
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.checked_routes import MOST_PARSED, bounded, required_scopes
from vgrads.portal.web.embedding.forecast_access import ForecastAccess
from vgrads.portal.web.guard import COOKIE, RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

RUN = "run-0123456789"


@pytest.fixture
def app(store):
    bounds = Bounds(places=Places(planners=0))
    limits = RequestLimits(tokens=True, at_once=3)
    return make_app(store, load_catalog(DATA / "sites.toml"), bounds, limits)


def status_of(app, method, path, headers, receive):
    """The status of a request of which nothing but the head has come."""
    sent = []

    async def send(message):
        sent.append(message)

    head = {"Content-Type": "application/json", "Content-Length": "1000", **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1234),
        "headers": [(k.lower().encode(), v.encode()) for k, v in head.items()],
    }
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"]


async def unread():
    raise AssertionError("the body was read")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/v1/runs/{RUN}/releases"),
        ("POST", "/v1/joint-submissions/mine"),
        ("POST", f"/v1/runs/{RUN}/completions"),
        ("POST", "/v1/workflow-sets"),
        ("PUT", "/v1/pools/mine"),
    ],
)
def test_a_token_without_the_scope_is_refused_before_the_body_is_read(app, store, method, path):
    assert status_of(app, method, path, bearer(store, "ann", "read"), unread) == 403
    assert status_of(app, method, path, {}, unread) == 401


ROUTES = {
    "read": """
        GET /v1/workflow-sets
        GET /v1/workflow-sets/{set_id}
        GET /v1/workflow-sets/{set_id}/gantt
        GET /v1/workflow-sets/{set_id}/plan
        POST /v1/workflow-sets/{set_id}/what-if
        GET /v1/workflow-sets/{set_id}/events
        GET /v1/workflow-sets/{set_id}/status
        GET /v1/workflow-sets/{set_id}/request
        GET /v1/workflow-sets/{set_id}/tasks
        GET /v1/workflow-sets/{set_id}/tasks/{workflow}/{task}
        GET /v1/workflow-sets/{set_id}/explain
        GET /v1/workflow-sets/{set_id}/promise
        GET /v1/runs
        GET /v1/sites
        GET /v1/scores
        GET /v1/where
        GET /v1/virtual-grids/{grid_id}
        GET /v1/virtual-grids/{grid_id}/gantt
        GET /v1/joint-submissions/{name}/{ticket}
        GET /v1/runs/{run_id}/answers
        GET /v1/bags
        GET /v1/bags/{bag_id}
        GET /v1/bags/{bag_id}/tasks/{task}
        GET /v1/bags/{bag_id}/outputs/{name:path}
        GET /v1/bags/{bag_id}/results
        GET /v1/bags/{bag_id}/events
        GET /v1/managers
        GET /v1/pools
        GET /v1/pools/{name}
        GET /sites/{site}/{queue}/record.svg
        GET /v1/work/{name}
        GET /v1/work/{name}/logs
        GET /v1/work/{name}/explain
        GET /v1/alarm-targets
        GET /v1/alarm-rules
    """,
    "submit": """
        POST /v1/workflow-sets
        POST /v1/workflow-sets/{set_id}/plan
        POST /v1/workflow-sets/{set_id}/run
        PATCH /v1/workflow-sets/{set_id}/request
        POST /sets/{set_id}/request
        POST /sets/{set_id}/delete
        POST /sets/{set_id}/archive
        POST /bags/{bag_id}/archive
        PUT /v1/work/{name}/archived
        DELETE /v1/work/{name}/archived
        DELETE /v1/workflow-sets/{set_id}
        DELETE /v1/workflow-sets/{set_id}/records
        POST /v1/virtual-grids
        POST /v1/runs/{run_id}/permits/{workflow}/{task}
        POST /v1/runs/{run_id}/completions
        POST /v1/runs/{run_id}/releases
        POST /v1/joint-submissions/{name}
        POST /v1/bags
        POST /v1/bags/{bag_id}/tasks
        PUT /v1/bags/{bag_id}/parts/{digest}
        POST /v1/bags/{bag_id}/close
        POST /v1/bags/{bag_id}/drop
        POST /v1/bags/{bag_id}/retry
        PATCH /v1/bags/{bag_id}/goal
        POST /bags/{bag_id}/retry
        POST /bags/{bag_id}/goal
        DELETE /v1/bags/{bag_id}
        DELETE /v1/bags/{bag_id}/records
        POST /submit
        POST /submit/promise
        POST /sets/{set_id}/change
        POST /sets/{set_id}/plan
        POST /sets/{set_id}/run
        POST /sets/{set_id}/cancel
        POST /sets/{set_id}/retry
        POST /v1/work/{name}/cancel
        POST /v1/work/{name}/resume
        POST /v1/work/{name}/retry
        POST /v1/alarm-targets
        PUT /v1/alarm-rules
        POST /v1/workflow-sets/{set_id}/alarms/acknowledge
        POST /sets/{set_id}/acknowledge
        DELETE /v1/alarm-targets/{name}
        POST /v1/alarm-targets/{name}/test
    """,
    "operate": """
        POST /v1/sites/{site}/history
        POST /tokens
        POST /tokens/{token_id}/revoke
    """,
    "metrics": "GET /metrics",
    "forecast": """
        GET /v1/sites/{site}/queues/{queue}/bound
        GET /v1/sites/{site}/queues/{queue}/probability
        GET /v1/sites/{site}/queues/{queue}/trajectory
        GET /v1/sites/{site}/queues/{queue}/score
        POST /v1/forecasts
    """,
    "pool": """
        PUT /v1/managers/{name}
        DELETE /v1/managers/{name}
        PUT /v1/pools/{name}
        DELETE /v1/pools/{name}
    """,
    "": """
        GET /
        GET /sets/{set_id}
        GET /sets/{set_id}/run
        GET /sets/{set_id}/cancel
        GET /sets/{set_id}/delete
        GET /sets/{set_id}/request
        GET /history
        GET /sets/{set_id}/status
        GET /sets/{set_id}/tasks
        GET /sets/{set_id}/graph
        GET /sets/{set_id}/tasks/{workflow}/{task}
        GET /sets/{set_id}/what-if
        GET /submit
        GET /sites
        GET /sites/{site}/{queue}
        GET /sites/{site}/{queue}/score
        GET /scores
        GET /bags
        GET /bags/{bag_id}
        GET /bags/{bag_id}/why
        GET /pools
        GET /pools/{name}
        GET /docs
        GET /api
        GET /tokens
        GET /tokens/{token_id}/revoke
        GET /login
        POST /login
        POST /login/form
        POST /logout
        GET /login/oidc
        GET /login/oidc/back
        GET /healthz
        GET /readyz
        GET /v1/token
    """,
}
"""The scope that each route requires; those without one are pages, which send people to the login,
and the entrance."""
ROLES = ("", "read", "submit", "operate", "metrics", "pool", "forecast", "forecast:nosite/noqueue")
OPEN_PAGES = ("/login", "/logout", "/healthz", "/readyz", "/api")
IDS = {
    "set_id": "set-0123456789",
    "run_id": RUN,
    "grid_id": "grid-0123456789",
    "bag_id": "bag-0123456789",
}


def table():
    """(scope, method, path) of each route."""
    lines = [(s, line.split()) for s, text in ROUTES.items() for line in text.strip().split("\n")]
    return [(scope, method, path) for scope, (method, path) in lines]


def filled(path, ids):
    """A path with these ids, and other words where any will do."""
    return re.sub(r"\{(\w+)(:path)?\}", lambda part: ids.get(part[1], f"no{part[1]}"), path)


def test_every_route_is_in_the_table(app):
    """A new route needs a row: who may use it?"""
    routes = {
        (" ".join(required_scopes(route.dependant)), method, route.path)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert routes == set(table())


@pytest.mark.parametrize("role", ROLES)
def test_every_route_is_for_those_with_its_scope(app, store, role):
    """And for nobody else."""
    head = bearer(store, "ann", role) if role else {}
    may = Principal("ann", frozenset([role])).may
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        for scope, method, path in table():
            status = client.request(method, filled(path, IDS), headers=head).status_code
            if not scope and not role and not path.startswith(OPEN_PAGES):
                assert status in (303, 307, 308, 401), (method, path, status)
            elif not scope:
                continue
            elif not role:
                assert status == 401, (method, path, status)
            else:
                assert (status == 403) == (not may(scope)), (method, path, status)


@pytest.mark.parametrize("role", ["metrics", "forecast", "forecast:nosite/noqueue"])
def test_pages_are_for_those_who_may_read(app, store, role):
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        head = bearer(store, "ann", role)
        for scope, method, path in table():
            if not scope and not path.startswith((*OPEN_PAGES, "/v1/token")):
                status = client.request(method, filled(path, IDS), headers=head).status_code
                assert status == 403, (method, path, status)


def test_without_a_token_only_the_forecasts_of_public_queues_are_there(store):
    """Every other address answers as if no queue were public, those of other queues too."""
    names = {"site": "mayhem", "queue": "default"}
    catalog, bounds = load_catalog(DATA / "sites.toml"), Bounds(places=Places(planners=0))
    closed = RequestLimits(tokens=True)
    opened = replace(closed, forecasts=ForecastAccess(public=("mayhem/default",)))
    answers = []
    for limits in (closed, opened):
        app = make_app(store, catalog, bounds, limits)
        with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
            for _, method, path in table():
                for ids in (IDS | names, IDS | names | {"site": "mercury"}, IDS):
                    answer = client.request(method, filled(path, ids))
                    answers.append((method, filled(path, ids), answer.status_code, answer.text))
    half = len(answers) // 2
    pairs = zip(answers[:half], answers[half:], strict=True)
    different = {(old[1], old[2]) for old, new in pairs if old != new}
    names = ("bound", "probability", "trajectory", "score")
    queue = "/v1/sites/mayhem/queues/default"
    assert different == {("/v1/forecasts", 401), *((f"{queue}/{name}", 401) for name in names)}


def test_what_belongs_to_another_user_is_not_there(app, store):
    """Each route that names a set, run, bag or pool of ann's answers bob as if there were none."""
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        ann, bob = bearer(store, "ann", "submit", "pool"), bearer(store, "bob", "submit", "pool")
        later = {"Prefer": "respond-async"}
        set_id = client.post("/v1/workflow-sets", json=SMALL, headers=ann | later).json()["id"]
        ids = {"set_id": set_id, "run_id": store.add_run(set_id), "bag_id": bag_of(store, "ann")}
        ids["name"] = set_id
        for _, method, path in table():
            work = path.startswith("/v1/work/")
            names = {f"{{{name}}}" for name in ids if name != "name" or work}
            if not names & set(re.findall(r"\{\w+\}", path)):
                continue
            answer = client.request(method, filled(path, ids), headers=bob)
            assert answer.status_code in (404, 422), (method, path, answer.text)
            assert "ann" not in answer.text.replace("cannot", ""), (method, path)
            assert set_id not in answer.text or set_id in filled(path, ids), (method, path)


def test_a_pool_has_no_history_of_an_earlier_owner_of_its_name(store):
    ann, bob = PoolLedger(store.engine, "ann"), PoolLedger(store.engine, "bob")
    ann.publish_pool("p", {"id": "1", "decided": 3})
    ann.withdraw("pool", "p")
    bob.publish_pool("p", {"id": "2", "decided": 5})
    assert [moment["decided"] for _, moment in bob.moments("p")] == [5]


def bag_of(store, owner):
    """The id of a bag that nobody serves."""
    row = new_bag("bag-0123456789", "bag-0", 0, "b", owner, 1)
    BagStore(store.engine).add(row)
    return row.id


def test_a_body_that_the_framework_parses_is_small(app, store):
    with TestClient(app, base_url="http://127.0.0.1") as client:
        text = json.dumps({"workflow": "w", "task": "t", "ok": True, "x": "y" * MOST_PARSED})
        head = {**bearer(store), "Content-Type": "application/json"}
        answer = client.post(f"/v1/runs/{RUN}/completions", content=text, headers=head)
        assert (answer.status_code, answer.headers["connection"]) == (413, "close")
        assert f"{MOST_PARSED}" in answer.json()["detail"]


def test_a_large_body_is_parsed_beside_other_requests(app, store):
    """And what is wrong in it is named."""
    with TestClient(app, base_url="http://127.0.0.1") as client:
        head = bearer(store)
        answer = client.post("/v1/joint-submissions/x", json={"ticket": "12345678"}, headers=head)
        assert (answer.status_code, answer.json()["field"]) == (422, "of")
        answer = client.post(
            "/v1/joint-submissions/x", content="a: 1", headers=head | {"Content-Type": "text/yaml"}
        )
        assert answer.status_code == 422
        paths = client.get("/openapi.json", headers=head).json()["paths"]
        described = paths["/v1/runs/{run_id}/releases"]["post"]["requestBody"]["content"]
        assert described["application/json"]["schema"]["$ref"].endswith("/MailDocument")


def test_a_body_that_does_not_come_is_given_up():
    async def nothing():
        await asyncio.Event().wait()

    async def wait():
        with pytest.raises(Exception, match="408"):
            await bounded(nothing, 10, silence_s=0.01)()

    asyncio.run(wait())


def test_one_short_request_of_a_user_is_worked_on_at_a_time(store):
    """The others wait, while those of other users are answered."""
    bounds = Bounds(places=Places(planners=0))
    app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, RequestLimits(tokens=True))
    come, go_on = threading.Semaphore(0), threading.Event()

    @app.get("/v1/short")
    def short():
        come.release()
        go_on.wait(30)

    ann, bob = bearer(store), bearer(store, "bob")
    statuses = []
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def get():
            statuses.append(client.get("/v1/short", headers=ann).status_code)

        threads = [threading.Thread(target=get) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            assert come.acquire(timeout=30)
            assert client.get("/v1/workflow-sets", headers=bob).status_code == 200
            assert not come.acquire(timeout=0.2)
        finally:
            go_on.set()
            for thread in threads:
                thread.join(30)
    assert statuses == [200, 200]


def test_one_user_has_no_more_than_so_many_requests_at_once(app, store):
    """Those of others are answered meanwhile."""
    come, go_on = threading.Semaphore(0), threading.Event()

    @app.get("/v1/slow")
    async def slow():
        come.release()
        await asyncio.to_thread(go_on.wait, 30)

    ann, bob = bearer(store), bearer(store, "bob")
    statuses = []
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def get():
            statuses.append(client.get("/v1/slow", headers=ann).status_code)

        threads = [threading.Thread(target=get) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert come.acquire(timeout=30)
        answer = client.get("/v1/workflow-sets", headers=ann)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert client.get("/v1/workflow-sets", headers=bob).status_code == 200
        go_on.set()
        for thread in threads:
            thread.join()
        assert statuses == [200, 200, 200]
        assert client.get("/v1/workflow-sets", headers=ann).status_code == 200


def test_login_and_logout_count_at_once_while_somebody_guesses(app, store):
    """From the same address."""
    with TestClient(app, base_url="http://127.0.0.1") as client:
        secret = bearer(store)["Authorization"].partition(" ")[2]
        for n in range(30):
            wrong = {"Authorization": f"Bearer vg_{n}"}
            assert client.get("/v1/workflow-sets", headers=wrong).status_code in (401, 429)
        for _ in range(3):
            assert client.post("/login", json={"token": secret}).status_code == 200
            session = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
            client.cookies.clear()
            assert client.get("/v1/workflow-sets", headers=session).status_code == 200
            assert client.post("/logout", headers=session).status_code == 200
            client.cookies.clear()
            assert client.get("/v1/workflow-sets", headers=session).status_code in (401, 429)


# connections


async def hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def listening(limits):
    """The address of a server with these limits of connections."""
    config = uvicorn.Config(hello, http=connections_with(limits), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started, "the server")
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def ends(connection):
    """What a connection still brings until it is closed from the other side."""
    connection.settimeout(30)
    return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_request_whose_head_does_not_come_is_given_up(sent):
    with listening(ConnectionLimits(header_s=0.2)) as address:
        with closing(socket.create_connection(address)) as connection:
            connection.sendall(sent)
            assert ends(connection) == b""
        with closing(socket.create_connection(address)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            connection.sendall(sent)  # the second request on a connection
            ends(connection)


def test_an_address_has_no_more_than_so_many_connections():
    def connect(stack, address):
        connection = stack.enter_context(closing(socket.create_connection(address)))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        return connection

    with listening(ConnectionLimits(header_s=60)) as address, ExitStack() as stack:
        first = connect(stack, address)
        for _ in range(MOST_OF_ADDRESS - 1):
            connect(stack, address)
        for _ in range(3):  # each is told why, whatever it has sent
            refused = connect(stack, address)
            refused.sendall(b"\r\n" + b"x" * 10_000)
            answer = ends(refused)
            assert answer.startswith(b"HTTP/1.1 503") and b"trusted_proxies" in answer
        first.sendall(b"\r\n")
        assert first.recv(4096).startswith(b"HTTP/1.1 200")


def test_users_behind_a_trusted_proxy_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_TRUSTED_PROXIES", '["127.0.0.1"]')
    served = Served(tmp_path)
    try:
        head = {"X-Forwarded-For": "192.0.2.7"}
        body, head["Content-Type"] = json.dumps(SMALL).encode(), "application/json"
        request = urllib.request.Request(f"{served.url}/v1/workflow-sets", body, head)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status in (201, 202)
    finally:
        served.end()
    with (
        Store(f"sqlite:///{tmp_path / 'vgrads.db'}") as opened,
        opened.engine.connect() as database,
    ):
        addresses = database.exec_driver_sql("SELECT address FROM audit").scalars().all()
        assert addresses == ["192.0.2.7"]


def test_large_documents_are_checked_in_another_process_with_the_same_answers(tmp_path):
    def send(path, document):
        body, head = json.dumps(document).encode(), {"Content-Type": "application/json"}
        assert len(body) > MOST_PARSED
        request = urllib.request.Request(f"{served.url}{path}", body, head)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    commands = [f"true the task with number {n}" for n in range(40_000)]
    bag = {"name": "large", "commands": commands, "runtime_s": 1}
    with serving(tmp_path) as served:
        status, answer = send("/v1/bags", bag)
        assert (status, answer.get("tasks")) == (201, len(commands)), answer
        status, answer = send("/v1/bags", bag | {"procs": -1})
        assert status == 422 and answer["field"] == "procs", answer
        joint = {"ticket": "a" * 8, "of": 2, "deadline": "1h", "workflow": commands}
        status, answer = send("/v1/joint-submissions/large", joint)
        assert status == 422 and answer["field"].startswith("workflow"), answer
