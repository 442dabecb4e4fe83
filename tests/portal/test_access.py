"""Who may do what: tokens, scopes, owners, sessions, origins, rates, sites that are open, OpenID
Connect."""

import base64
import hashlib
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.conftest import DATA
from tests.portal.serving import SMALL
from tests.waiting import until
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import COOKIE, RequestLimits
from vgrads.portal.web.oidc import Provider
from vgrads.portal.web.service import Bounds
from vgrads.portal.web.serving import make_service
from vgrads.portal.web.settings import OidcSettings, load_settings
from vgrads.vgrid.catalog import load_catalog

LOCAL_SITE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'
REAL = {
    "name": "real",
    "deadline": "60s",
    "workflows": [
        {
            "name": "w",
            "tasks": [
                {"id": "a", "runtime_s": 1, "command": "echo ran > a.txt", "outputs": ["a.txt"]}
            ],
        }
    ],
}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    yield store
    store.close()


@pytest.fixture
def make(store):
    """An application that asks for tokens, and tokens of its users."""
    opened = []

    def application(sites=DATA / "sites.toml", oidc=None, **limits):
        app = make_app(
            store,
            load_catalog(sites),
            Bounds(places=Places(planners=0)),
            RequestLimits(tokens=True, **limits),
            oidc,
        )
        client = TestClient(app, base_url="http://127.0.0.1")
        client.__enter__()
        opened.append(client)
        return client

    yield application
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def token(store):
    def create(user, *scopes, lifetime_s=3600.0):
        secret = AccessControl(store.engine).create(user, scopes, lifetime_s)[0]
        return {"Authorization": f"Bearer {secret}"}

    return create


def submit(client, headers, document=SMALL):
    answer = client.post("/v1/workflow-sets", json=document, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


OPEN = {"/healthz", "/readyz"}


def test_nothing_but_health_is_answered_without_a_token(make):
    client = make()
    paths = client.get("/openapi.json").json()["paths"]
    fill = {
        "{set_id}": "set-0123456789",
        "{run_id}": "run-0123456789",
        "{grid_id}": "grid-0123456789",
    }
    for path, methods in paths.items():
        concrete = path
        for name, value in fill.items():
            concrete = concrete.replace(name, value)
        concrete = concrete.replace("{", "").replace("}", "")
        for method in methods:
            query = {"within_s": 1, "start_by_s": 1, "task": "a/b"}
            body = (
                {"workflow": "w", "task": "t", "ok": True}
                if path.endswith("/completions")
                else SMALL
            )
            if path == "/v1/virtual-grids":
                body = {
                    "name": "g",
                    "duration": "1h",
                    "deadline": "6h",
                    "groups": [{"name": "x", "nodes": 1}],
                }
            if path.endswith("/what-if"):
                body = {}
            answer = client.request(
                method, concrete, params=query, json=body if method == "post" else None
            )
            assert (answer.status_code in (200,)) == (path in OPEN), (method, path, answer.text)
            if path not in OPEN:
                assert answer.status_code == 401, (method, path, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get("/metrics").status_code == 401
    assert client.get("/", follow_redirects=False).headers["location"] == "/login"
    assert client.get("/sites/mayhem/default/record.svg").status_code == 401


def test_scopes_are_enforced(make, token):
    client = make()
    reader, user, operator = token("ann", "read"), token("ann", "submit"), token("op", "operate")
    assert client.post("/v1/workflow-sets", json=SMALL, headers=reader).status_code == 403
    set_id = submit(client, user)
    for headers in (reader, user, operator):
        assert client.get(f"/v1/workflow-sets/{set_id}", headers=headers).status_code == 200
    log = (DATA / "histories" / "mayhem.swf.gz").read_bytes()
    assert client.post("/v1/sites/mayhem/history", content=log, headers=user).status_code == 403
    assert client.post("/v1/sites/mayhem/history", content=log, headers=operator).status_code == 201


def test_users_see_their_own_sets_and_operators_all(make, token):
    client = make()
    ann, bob, operator = token("ann", "submit"), token("bob", "submit"), token("op", "operate")
    mine = submit(client, ann)
    paths = ("", "/plan", "/gantt", "/events", "/explain?task=a", "/promise")
    for path in paths:
        assert client.get(f"/v1/workflow-sets/{mine}{path}", headers=bob).status_code == 404, path
    assert client.post(f"/v1/workflow-sets/{mine}/run", headers=bob).status_code == 404
    assert client.post(f"/v1/workflow-sets/{mine}/what-if", json={}, headers=bob).status_code == 404
    assert client.post(f"/v1/workflow-sets/{mine}/plan", headers=bob).status_code == 404
    assert client.delete(f"/v1/workflow-sets/{mine}", headers=bob).status_code == 404
    assert client.get("/v1/workflow-sets", headers=bob).json() == []
    assert [s["owner"] for s in client.get("/v1/workflow-sets", headers=operator).json()] == ["ann"]
    assert client.post(f"/v1/workflow-sets/{mine}/run", headers=operator).status_code == 202
    required = {
        "name": "g",
        "duration": "1h",
        "deadline": "6h",
        "groups": [{"name": "x", "nodes": 1}],
    }
    grid = client.post("/v1/virtual-grids", json=required, headers=ann).headers["location"]
    assert client.get(grid, headers=ann).status_code == 200
    assert client.get(grid, headers=bob).status_code == 404


def test_tokens_expire_and_are_revoked(make, token, store):
    client = make()
    short = token("ann", "read", lifetime_s=0.3)
    until(lambda: client.get("/v1/sites", headers=short).status_code == 401, seconds=10)
    headers = token("ann", "read")
    assert client.get("/v1/sites", headers=headers).status_code == 200
    (row,) = [t for t in AccessControl(store.engine).tokens() if t.expires_s > time.time()]
    assert AccessControl(store.engine).revoke(row.id)
    until(lambda: client.get("/v1/sites", headers=headers).status_code == 401, seconds=10)
    assert not AccessControl(store.engine).revoke(row.id)


def test_only_digests_are_stored(store, tmp_path, token):
    secret = token("ann", "read")["Authorization"].split()[1]
    store.close()
    assert secret not in (tmp_path / "test.db").read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    ("user", "scopes", "lifetime_s", "field"),
    [
        ("", ["read"], 1, "user"),
        ("a b", ["read"], 1, "user"),
        ("a", ["root"], 1, "scopes"),
        ("a", [], 1, "scopes"),
        ("a", ["read"], 0, "expires"),
        ("a", ["read"], 1e12, "expires"),
    ],
)
def test_tokens_that_cannot_be(store, user, scopes, lifetime_s, field):
    with pytest.raises(InputError) as refused:
        AccessControl(store.engine).create(user, scopes, lifetime_s)
    assert refused.value.where == field


def test_people_log_in_with_a_token_and_out(make, token):
    client = make()
    secret = token("ann", "submit")["Authorization"].split()[1]
    assert client.post("/login", json={"token": "wrong"}).status_code == 401
    answer = client.post("/login", json={"token": secret})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert secret.lower() not in cookie  # the session has a secret of its own
    page = client.get("/")
    assert "ann" in page.text
    session = client.cookies[COOKIE]
    assert client.post("/logout").status_code == 200
    client.cookies.clear()
    client.cookies.set(COOKIE, session)
    until(lambda: client.get("/", follow_redirects=False).status_code == 303, seconds=10)


def test_pages_of_other_sites_change_nothing(make, token):
    client = make()
    headers = token("ann", "submit")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:81"):
        answer = client.post("/v1/workflow-sets", json=SMALL, headers={**headers, "Origin": origin})
        assert answer.status_code == 403
    same = client.post(
        "/v1/workflow-sets", json=SMALL, headers={**headers, "Origin": "http://127.0.0.1"}
    )
    assert same.status_code == 201
    form = client.post(
        "/v1/workflow-sets",
        content=json.dumps(SMALL),
        headers={**headers, "Content-Type": "text/plain"},
    )
    assert form.status_code == 422


def test_answers_forbid_what_pages_do_not_need(make):
    headers = make().get("/login").headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_who_asks_too_often_waits(make, token):
    client = make(rate="5/minute")
    ann, bob = token("ann", "read"), token("bob", "read")
    codes = [client.get("/v1/sites", headers=ann).status_code for _ in range(7)]
    assert codes == [200] * 5 + [429] * 2
    answer = client.get("/v1/sites", headers=ann)
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert client.get("/v1/sites", headers=bob).status_code == 200


def test_guessing_secrets_is_slow(make):
    client = make()
    codes = [
        client.get("/v1/sites", headers={"Authorization": f"Bearer vg_{n}"}).status_code
        for n in range(14)
    ]
    assert codes[:10] == [401] * 10
    assert codes[-1] == 429


def test_what_changes_something_is_written_down(make, token, store, vgrads, monkeypatch, tmp_path):
    client = make()
    set_id = submit(client, token("ann", "submit"))
    client.delete(f"/v1/workflow-sets/{set_id}", headers=token("bob", "submit"))
    monkeypatch.setenv("VGRADS_DB", store.url)
    rows = vgrads("db", "audit", "--json").json["audit"]
    assert [(r["user"], r["action"], r["status"]) for r in rows] == [
        ("bob", "DELETE", 404),
        ("ann", "POST", 201),
    ]
    assert "ann" in vgrads("db", "audit", "--user", "ann").out


# sites that are open


def test_commands_run_only_where_the_operator_opened_a_site(make, token, store, tmp_path):
    sites = tmp_path / "sites.toml"
    sites.write_text(LOCAL_SITE)
    client = make(sites)
    ann, bob = token("ann", "submit"), token("bob", "submit")
    AccessControl(store.engine).grant("here", "ann")
    mine, others = submit(client, ann, REAL), submit(client, bob, REAL)
    refused = client.post(f"/v1/workflow-sets/{others}/run", headers=bob)
    assert refused.status_code == 422
    assert "sites open here bob" in refused.json()["detail"]
    run = client.post(f"/v1/workflow-sets/{mine}/run", headers=ann).json()["run"]
    until(
        lambda: (
            client.get(f"/v1/workflow-sets/{mine}", headers=ann).json()["runs"][0]["state"]
            != "running"
        )
    )
    assert client.get(f"/v1/workflow-sets/{mine}", headers=ann).json()["runs"][0]["state"] == "kept"
    assert list((tmp_path / "runs" / run).rglob("a.txt"))
    AccessControl(store.engine).withdraw("here", "ann")
    assert client.post(f"/v1/workflow-sets/{mine}/run", headers=ann).status_code == 422


# addresses and settings


def test_a_service_for_others_begins_only_with_tokens(store):
    for host in ("0.0.0.0", "192.0.2.7", "example.org"):
        with pytest.raises(InputError, match="token create"):
            make_service(load_settings(host=host), store)
    AccessControl(store.engine).create("op", ["operate"], 60.0)
    make_service(load_settings(host="0.0.0.0"), store)


def test_a_loopback_service_answers_to_its_own_names_only(store):
    with TestClient(
        make_service(load_settings(planners=0), store), base_url="http://localhost"
    ) as client:
        assert client.get("/v1/sites").status_code == 200
        assert client.get("/v1/sites", headers={"Host": "rebound.example"}).status_code == 400


def test_once_there_is_a_token_it_is_requested(store):
    AccessControl(store.engine).create("op", ["operate"], 60.0)
    with TestClient(
        make_service(load_settings(planners=0), store), base_url="http://localhost"
    ) as client:
        assert client.get("/v1/sites").status_code == 401


def test_settings_come_from_file_environment_and_options_in_this_order(write, monkeypatch):
    file = write(
        "v.toml",
        (
            'port = 1000\nrate = "5/second"\nplanners = 1\n[oidc]\nissuer = "https://a"\n'
            'client_id = "x"\n'
        ),
    )
    monkeypatch.setenv("VGRADS_PLANNERS", "3")
    monkeypatch.setenv("VGRADS_OIDC__CLIENT_SECRET", "s")
    service_settings = load_settings(file, port=2000)
    assert (service_settings.port, service_settings.rate, service_settings.planners) == (
        2000,
        "5/second",
        3,
    )
    assert (service_settings.oidc.issuer, service_settings.oidc.client_secret) == ("https://a", "s")
    monkeypatch.setenv("VGRADS_CONFIG", str(file))
    assert load_settings().port == 1000


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("port = 99999", "port"),
        ("colour = 1", "colour"),
        ('rate = "often"', "rate"),
        ('keep = "long"', "keep"),
        ("planners = -1", "planners"),
        ('[oidc]\nissuer = "ftp://x"\nclient_id = "c"', "oidc.issuer"),
        ("=", "parsed"),
    ],
)
def test_bad_settings_name_the_field(vgrads, write, text, field):
    answer = vgrads("config", "check", "--config", write("v.toml", text))
    assert answer.code == 2
    assert field in answer.err
    assert "v.toml" in answer.err


def test_settings_are_tried_and_shown_without_secrets(vgrads, write, monkeypatch, tmp_path):
    monkeypatch.setenv("VGRADS_OIDC__CLIENT_SECRET", "hidden")
    file = write("v.toml", '[oidc]\nissuer = "https://a"\nclient_id = "x"\n')
    answer = vgrads("config", "check", "--config", file, "--json")
    assert answer.code == 0
    assert "hidden" not in answer.out
    assert "mayhem" in answer.json["sites"]
    assert vgrads("config", "check", "--config", write("w.toml", 'host = "0.0.0.0"')).code == 2
    monkeypatch.delenv("VGRADS_OIDC__CLIENT_SECRET")
    monkeypatch.setenv("VGRADS_DB", "postgresql+psycopg://u:geheim@127.0.0.1:9/x?connect_timeout=2")
    gone = vgrads("config", "check")
    assert gone.code == 4
    assert "geheim" not in gone.err
    monkeypatch.setenv("VGRADS_DB", "nonsense")
    assert vgrads("config", "check").code == 2


def test_tokens_are_created_listed_and_revoked_on_the_command_line(vgrads, write):
    created = vgrads(
        "token", "create", "ann", "--scope", "submit", "--expires", "2d", "--json"
    ).json
    assert created["token"].startswith("vg_")
    (row,) = vgrads("token", "list", "--json").json["tokens"]
    assert (row["user"], row["scopes"]) == ("ann", "submit")
    assert created["token"] not in vgrads("token", "list").out
    assert vgrads("token", "revoke", row["id"]).code == 0
    assert vgrads("token", "revoke", row["id"]).code == 2
    assert vgrads("token", "create", "ann", "--scope", "all").code == 2
    site = '[[site]]\nname = "build"\nkind = "local"\nprocs = 2\n'
    unknown = vgrads("sites", "open", "build", "ann")
    assert (unknown.code, "unknown site 'build'" in unknown.err) == (2, True)
    assert vgrads("sites", "add", write("build.toml", site)).code == 0
    assert vgrads("sites", "open", "build", "ann").code == 0
    assert vgrads("sites", "open", "build", "ann", "--close").code == 0
    assert vgrads("sites", "open", "build", "ann", "--close").code == 2


# OpenID Connect, with a provider that speaks HTTP


class Provided:
    """A provider: vouches for one person; can be told to lie."""

    def __init__(self, **lies):
        self.key, self.lies, self.requests = RSAKey.generate_key(2048, {"kid": "k"}), lies, {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.give(self, outer.documents().get(self.path))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.give(self, outer.token(dict(urllib.parse.parse_qsl(body))))

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def give(handler, document):
        body = json.dumps(document).encode()
        handler.send_response(200 if document is not None else 404)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        handler.wfile.write(body)

    def documents(self):
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [self.key.as_dict(private=False)]},
        }

    def authorize(self, location):
        """What the person's browser is sent to; a code comes back."""
        self.requests = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(location).query))
        return {"code": "c0de", "state": self.requests["state"]}

    def token(self, form):
        proof = (
            base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
            .decode()
            .rstrip("=")
        )
        if proof != self.requests["code_challenge"] or form["code"] != "c0de":
            return {"error": "invalid_grant"}
        claims = {
            "iss": self.url,
            "aud": "vgrads",
            "exp": time.time() + 60,
            "nonce": self.requests["nonce"],
            "email": "ann@example.org",
            "email_verified": True,
        } | self.lies
        key = RSAKey.generate_key(2048) if self.lies.get("forged") else self.key
        return {
            "access_token": "a",
            "token_type": "Bearer",
            "id_token": jwt.encode({"alg": "RS256", "kid": "k"}, claims, key),
        }


@pytest.fixture
def provide():
    created = []

    def provider(**lies):
        created.append(Provided(**lies))
        return created[-1]

    yield provider
    for provider in created:
        provider.server.shutdown()
        provider.server.server_close()


def begin(make, provider):
    settings = OidcSettings(issuer=provider.url, client_id="vgrads", operators=("ann@example.org",))
    client = make(oidc=Provider(settings))
    away = client.get("/login/oidc", follow_redirects=False)
    assert away.status_code == 303
    return client, provider.authorize(away.headers["location"])


def test_people_log_in_through_their_organisation(make, provide):
    client, back = begin(make, provide())
    assert client.get("/login/oidc/back", params=back, follow_redirects=False).status_code == 303
    page = client.get("/")
    assert "ann@example.org (operator)" in page.text
    again = client.get("/login/oidc/back", params=back, follow_redirects=False)
    assert again.status_code == 401  # once


@pytest.mark.parametrize(
    "lies",
    [
        {"iss": "https://other"},
        {"aud": "other"},
        {"exp": 1.0},
        {"nonce": "x"},
        {"forged": True},
        {"email": ""},
        {"email_verified": False},
    ],
    ids=str,
)
def test_a_provider_that_does_not_vouch_opens_nothing(make, provide, lies):
    client, back = begin(make, provide(**lies))
    answer = client.get("/login/oidc/back", params=back, follow_redirects=False)
    assert answer.status_code == 401
    assert COOKIE not in client.cookies


def test_a_login_that_another_browser_began_opens_nothing(make, provide):
    client, back = begin(make, provide())
    client.cookies.clear()
    assert client.get("/login/oidc/back", params=back, follow_redirects=False).status_code == 401
    assert client.get("/login/oidc/back", params={"state": "x", "code": "y"}).status_code == 401


def test_a_provider_that_is_not_there(make):
    client = make(oidc=Provider(OidcSettings(issuer="http://127.0.0.1:9", client_id="vgrads")))
    answer = client.get("/login/oidc", follow_redirects=False)
    assert answer.status_code == 503
    assert make().get("/login/oidc").status_code == 404
