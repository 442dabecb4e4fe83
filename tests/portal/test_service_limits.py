"""The service from outside: what is asked before who it is, what tasks of others get to see, what
is left open."""

import http.server
import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.serving import SMALL, bearer
from tests.portal.test_live import state
from tests.waiting import until
from vgrads.execmgr.engines.agents import AgentEngine
from vgrads.execmgr.tasks.folder import AWAY, TaskFolder
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import InputError
from vgrads.portal.charts.gantt import render_html
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.jobs.webhook import Webhook
from vgrads.portal.records.access import AccessControl
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import COOKIE, RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.portal.web.serving import make_service
from vgrads.portal.web.settings import load_settings
from vgrads.vgrid.catalog import load_catalog

LOCAL_SITE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'


@pytest.fixture
def make(store):
    opened = []

    def application(sites=DATA / "sites.toml", tokens=True, **limits):
        bounds = Bounds(places=Places(planners=0))
        app = make_app(store, load_catalog(sites), bounds, RequestLimits(tokens=tokens, **limits))
        client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
        client.__enter__()
        opened.append(client)
        return client

    yield application
    for client in opened:
        client.__exit__(None, None, None)


def test_nothing_of_a_body_is_read_before_authentication(make, store):
    client, read = make(), []

    def body():
        for _ in range(100):
            read.append(1)
            yield b"x" * 65536

    answer = client.post(
        "/v1/workflow-sets", content=body(), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.headers["connection"]) == (401, "close")
    assert client.post("/login", content=b"x" * 10_000).status_code == 413
    wrong = client.post(
        "/v1/workflow-sets", json={"name": 3}, headers={"Authorization": "Bearer vg_wrong"}
    )
    assert wrong.status_code == 401  # and not 422: it was not looked at
    assert (
        client.post("/v1/workflow-sets", json={"name": 3}, headers=bearer(store)).status_code == 422
    )


def test_wrong_tokens_are_slowed_and_right_ones_pass(make, store):
    client, mine = make(), bearer(store)
    answers = [
        client.get("/v1/workflow-sets", headers={"Authorization": f"Bearer vg_{n}"}).status_code
        for n in range(30)
    ]
    assert set(answers[:10]) == {401}
    assert set(answers[10:]) == {429}
    assert client.get("/v1/workflow-sets", headers=mine).status_code == 200


def test_what_was_closed_does_not_open_when_the_last_token_is_gone(store):
    settings = load_settings(db=store.url, sites=DATA / "sites.toml")

    def status():
        with TestClient(make_service(settings, store), base_url="http://127.0.0.1") as client:
            return client.get("/v1/workflow-sets").status_code

    assert status() == 200  # nobody ever made a token: whoever is on this machine
    access = AccessControl(store.engine)
    _, row = access.create("ann", ["operate"], 3600.0)
    assert status() == 401
    assert access.revoke(row.id)
    assert access.tokens() == []
    assert status() == 401


def test_an_unauthenticated_client_makes_no_rows_and_no_labels(make, store, vgrads):
    client = make()
    for word in ("POST", "BREW", "X" * 50):
        assert client.request(word, "/v1/workflow-sets", content=b"x").status_code == 401
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM audit").scalar() == 0
    message = client.get("/metrics", headers=bearer(store, "prometheus", "metrics"))
    assert message.status_code == 200
    assert "BREW" not in message.text
    assert 'method="OTHER"' in message.text
    assert client.get("/metrics", headers=bearer(store, "bob", "read")).status_code == 403


def test_a_login_ends_at_once(make, store):
    client = make()
    secret = bearer(store)["Authorization"].partition(" ")[2]
    assert client.post("/login", json={"token": secret}).status_code == 200
    session = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    assert client.get("/v1/workflow-sets", headers=session).status_code == 200
    assert client.post("/logout", headers=session).status_code == 200
    client.cookies.clear()
    assert client.get("/v1/workflow-sets", headers=session).status_code == 401


def test_another_scheme_is_another_origin(make, store):
    client, mine = make(), bearer(store)
    for origin, status in (("https://127.0.0.1", 403), ("http://127.0.0.1", 201)):
        answer = client.post("/v1/workflow-sets", json=SMALL, headers={**mine, "Origin": origin})
        assert answer.status_code == status
    behind = make(url="https://vgrads.example")
    answer = behind.post(
        "/v1/workflow-sets", json=SMALL, headers={**mine, "Origin": "https://vgrads.example"}
    )
    assert answer.status_code == 201


def test_sets_are_taken_as_yaml_and_what_cannot_be_read_is_reported(make, store):
    client, mine = make(), bearer(store)
    yaml = {**mine, "Content-Type": "application/yaml"}
    text = "name: s\ndeadline: 1h\nworkflows:\n  - {name: w, tasks: [{id: a, runtime_s: 60}]}\n"
    assert client.post("/v1/workflow-sets", content=text, headers=yaml).status_code == 201
    for broken in (
        "deadline: 2026-02-30\n",
        "a: !!int abc\n",
        f"a: {'9' * 5000}\n",
        'name: "a\\0b"\n',
        "\x00",
    ):
        answer = client.post("/v1/workflow-sets", content=broken, headers=yaml)
        assert (answer.status_code, answer.json()["status"]) == (422, 422)
    floods = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
        f"b{n}: &b{n} [{','.join(['*' + ('a' if not n else f'b{n - 1}')] * 9)}]\n" for n in range(9)
    )
    assert (
        "aliases" in client.post("/v1/workflow-sets", content=floods, headers=yaml).json()["detail"]
    )
    body = client.get("/openapi.json", headers=mine).json()["paths"]["/v1/workflow-sets"]["post"][
        "requestBody"
    ]
    assert "application/yaml" in body["content"]


def test_errors_are_pages_for_people_and_carry_the_headers(make, store):
    client, mine = make(), bearer(store)
    page = client.get("/sets/set-0123456789", headers={**mine, "Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (404, "text/html")
    client.app.state.service.overview.entries = lambda *_: 1 / 0  # a fault nobody expected
    for accept, kind in (("text/html", "text/html"), ("*/*", "application/problem+json")):
        fault = client.get("/", headers={**mine, "Accept": accept})
        assert (fault.status_code, fault.headers["content-type"].partition(";")[0]) == (500, kind)
        assert "default-src 'none'" in fault.headers["content-security-policy"]
        assert "ZeroDivision" not in fault.text


def test_tasks_of_a_set_that_came_by_http_see_nothing_of_the_service(
    make, store, write, tmp_path, monkeypatch
):
    monkeypatch.setenv("VGRADS_OIDC__CLIENT_SECRET", "hush")
    monkeypatch.setenv("SOME_SETTING", "of the service")
    client = make(write("sites.toml", LOCAL_SITE))
    AccessControl(store.engine).grant("here", "ann")
    task = {
        "id": "a",
        "runtime_s": 1,
        "command": "ls -a > a.txt; env >> a.txt",
        "outputs": ["a.txt"],
    }
    document = {
        "name": "s",
        "deadline": "60s",
        "env": {"MINE": "yes"},
        "workflows": [{"name": "w", "tasks": [task]}],
    }
    mine = bearer(store)
    set_id = client.post("/v1/workflow-sets", json=document, headers=mine).json()["id"]
    run_id = client.post(f"/v1/workflow-sets/{set_id}/run", headers=mine).json()["run"]
    until(lambda: store.get_run(run_id).state not in ("running", "interrupted"), "the end")
    assert store.get_run(run_id).state == "kept"
    observed = (tmp_path / "home" / "runs" / run_id / "w-1" / "results" / "a.txt").read_text()
    assert "MINE=yes" in observed
    for secret in ("vgrads.db", "hush", "SOME_SETTING"):
        assert secret not in observed
    bad = document | {"env": {"LD PRELOAD": "x"}}
    assert client.post("/v1/workflow-sets", json=bad, headers=mine).status_code == 422


def test_what_is_stored_is_nobody_elses_to_read(store, tmp_path, vgrads):
    assert vgrads("token", "create", "ann").code == 0
    assert vgrads("db", "backup", tmp_path / "copy.db").code == 0
    for path in (tmp_path / "home", tmp_path / "home" / "vgrads.db", tmp_path / "copy.db"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_name_that_looks_like_markup_ends_no_script():
    name = "<!--<script>"
    gantt = {
        "name": name,
        "deadline_s": 60,
        "needed": 1,
        "now_s": None,
        "workflows": [name],
        "cost_usd": 0,
        "promise": {"probability": 0.9, "standard_error": 0.0},
        "placements": [],
        "slots": [],
    }
    page = render_html(gantt)
    data = page.partition('id="gantt-data">')[2].partition("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["name"] == name


@pytest.mark.parametrize("url", ["http://x/\r\nA: b", "ftp://x/", "http://", "http://x/a b"])
def test_webhooks_that_cannot_be_are_refused(url):
    with pytest.raises(InputError, match="is not an http or https URL"):
        Webhook(url, "secret", "run-1")


def test_a_webhook_goes_where_it_was_addressed_to_and_nowhere_else():
    requested = []

    class Detour(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            requested.append(self.path)
            self.send_response(302 if self.path == "/hook" else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Detour)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = Webhook(
        f"http://127.0.0.1:{server.server_port}/hook", "secret", "run-1", pause=lambda _: 0.0
    )
    hook(None, state(), [])
    hook.outcome = {"state": "kept"}
    hook.close()
    server.shutdown()
    server.server_close()
    assert set(requested) == {"/hook"}
    assert hook.undelivered == 1


def listening():
    """Addresses and ports that this process listens on (IPv4)."""
    mine = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of the look itself
            mine.add(str(descriptor.readlink()))
    result = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        address, port = fields[1].split(":")
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
            result.add((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return result


def test_only_the_port_for_agents_is_open_to_others_and_two_runs_fit_on_a_machine(tmp_path):
    before = listening()
    engines = []
    for n in range(2):
        (tmp_path / f"set{n}").mkdir()
        place = TaskFolder(tmp_path / f"run{n}", tmp_path / f"set{n}", AWAY)
        engines.append(AgentEngine(f"run{n}", WallClock(), place))
    contacts = [engine.environment("here")["VGRADS_CONTACT"] for engine in engines]
    opened = listening() - before
    assert {f"tls://here:{port}" for _, port in opened} == set(contacts)
    assert len(set(contacts)) == 2
    for engine in engines:
        engine.close()
    assert listening() <= before
