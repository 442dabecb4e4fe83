"""Targets of alarms at the command line and over REST: bad input, owners, and that no interface
shows the secret of a URL."""

import io
import json
import logging
import sqlite3
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import IntegrityError

from tests.conftest import DATA
from tests.portal.listeners import HttpListener, no_server
from tests.portal.serving import bearer
from vgrads.api.config import home
from vgrads.kernel.errors import InputError
from vgrads.operations.alarms import AddTargetRequest
from vgrads.portal.jobs.alarm_delivery import AllowedTargets, deliver
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.alarm_targets import MOST_TARGETS, AlarmTarget, AlarmTargets
from vgrads.portal.records.reading.run_rows import InapplicableError
from vgrads.portal.records.tables import AlarmTargetRow
from vgrads.portal.records.upkeep import audit_rows
from vgrads.portal.web.app import make_app
from vgrads.portal.web.guard import RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

SECRET = "hu5h-hu5h"
URL = f"jsons://hooks.example.org/{SECRET}"
ALLOWED = AllowedTargets(("json", "jsons", "mailtos"), ("127.0.0.0/8",))


@pytest.fixture
def client(store):
    """A service with tokens, whose operator permits targets on this machine."""
    bounds = Bounds(places=Places(planners=0), alarms=ALLOWED)
    app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, RequestLimits(tokens=True))
    with TestClient(app, base_url="http://127.0.0.1") as result:
        yield result


def add(client, head, name="hook", url=URL):
    return client.post("/v1/alarm-targets", json={"name": name, "url": url}, headers=head)


# the command line


def test_a_target_is_added_listed_tried_and_removed(vgrads):
    with HttpListener() as server:
        added = vgrads("alarms", "add", "hook", f"json://127.0.0.1:{server.port}/{SECRET}")
        assert (added.code, added.err) == (0, "")
        (entry,) = vgrads("alarms", "list", "--json").json["targets"]
        assert (entry["name"], entry["address"]) == ("hook", "json://127.0.0.1")
        assert "json://127.0.0.1" in vgrads("alarms", "list").out
        assert vgrads("alarms", "test", "hook").out == "delivered to hook\n"
        (document,) = server.documents
        assert document["title"] == "vgrads: test message"
    gone = vgrads("alarms", "test", "hook")
    assert (gone.code, gone.err) == (4, "vgrads: target hook: the connection was refused\n")
    answer = vgrads("alarms", "test", "hook", "--json")
    assert (answer.code, answer.json["ok"]) == (4, False)
    assert vgrads("alarms", "remove", "hook").code == 0
    assert vgrads("alarms", "list", "--json").json == {"targets": []}


def test_a_url_comes_from_standard_input(vgrads, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{URL}\n"))
    assert vgrads("alarms", "add", "hook", "-", "--json").json["address"] == (
        "jsons://hooks.example.org"
    )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("add", "hook", f"foo://{SECRET}"), "URL: no service has URLs that begin with foo://"),
        (("add", "hook", SECRET), "URL: it is no URL"),
        (("add", "hook", f"jsons://{SECRET}" + "x" * 2000), "URL: has more than 2000 characters"),
        (("add", "hook", f"jsons://x/{SECRET} y"), "URL: contains spaces"),
        (("add", "a b", URL), "NAME: 'a b' is not a valid name"),
        (("add", "x" * 65, URL), "NAME: has more than 64 characters"),
        (("add", "there", URL), "NAME: there is a target 'there' already"),
        (("add", "hook", URL, URL), "unexpected argument 'jsons://…'"),
        (("remove", "hook"), "NAME: no target 'hook'"),
        (("test", "hook"), "NAME: no target 'hook'"),
    ],
)
def test_bad_input_is_a_line_without_the_secret(vgrads, arguments, what):
    assert vgrads("alarms", "add", "there", URL).code == 0
    answer = vgrads("alarms", *arguments)
    assert answer.code == 2
    assert what in answer.err and len(answer.err.splitlines()) == 1, answer.err
    assert SECRET not in answer.err + answer.out


def test_the_database_with_the_secrets_is_closed_to_others(vgrads):
    assert vgrads("alarms", "add", "hook", URL).code == 0
    file = home() / "vgrads.db"
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT owner, url FROM alarm_target").fetchall() == [
            ("local", URL)
        ]
    connection.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


# REST


def test_targets_over_rest(client, store):
    ann, bob = bearer(store), bearer(store, "bob")
    with HttpListener() as server:
        answer = add(client, ann, url=f"json://127.0.0.1:{server.port}/{SECRET}")
        assert answer.status_code == 201, answer.text
        assert answer.json()["address"] == "json://127.0.0.1"
        path = "/v1/alarm-targets/hook"
        (entry,) = client.get("/v1/alarm-targets", headers=ann).json()
        assert entry == answer.json()
        assert client.get("/v1/alarm-targets", headers=bob).json() == []
        for method, route in (("POST", f"{path}/test"), ("DELETE", path)):
            assert client.request(method, route, headers=bob).status_code == 404
        result = client.post(f"{path}/test", headers=ann).json()
        assert result == {"target": "hook", "ok": True, "reason": ""}
        assert len(server.requests) == 1
    result = client.post(f"{path}/test", headers=ann).json()
    assert result == {"target": "hook", "ok": False, "reason": "the connection was refused"}
    assert add(client, bob).status_code == 201  # names are of their owners
    assert client.delete(path, headers=ann).status_code == 204
    assert client.delete(path, headers=ann).status_code == 404


@pytest.mark.parametrize(
    ("document", "status", "field", "what"),
    [
        ({"name": "x", "url": f"foo://{SECRET}"}, 422, "url", "no service has URLs"),
        ({"name": "x", "url": SECRET}, 422, "url", "it is no URL"),
        ({"name": "x", "url": f"slack://{SECRET}"}, 422, "url", "no complete URL of slack"),
        ({"name": "x", "url": f"mailto://{SECRET}@b.org"}, 422, "url", "not permitted targets"),
        ({"name": "x", "url": f"jsons://x/{SECRET}" + "x" * 2000}, 422, "url", "2000 characters"),
        ({"name": "x" * 65, "url": URL}, 422, "name", "64 characters"),
        ({"name": "a/b", "url": URL}, 422, "name", "not a valid name"),
        ({"name": "there", "url": URL}, 409, "name", "there is a target 'there' already"),
        ({"name": "x", "url": [URL]}, 422, "body", "must be texts"),
        ({"name": "x"}, 422, "url", "is missing"),
        ([URL], 422, "body", "must be a mapping"),
    ],
)
def test_bad_input_over_rest(client, store, document, status, field, what):
    head = bearer(store)
    AlarmTargets(store.engine).add("ann", AlarmTarget("there", URL), "jsons://hooks.example.org")
    answer = client.post("/v1/alarm-targets", json=document, headers=head)
    assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
    assert what in answer.json()["detail"]
    assert SECRET not in answer.text


def test_a_service_permits_no_targets_unless_its_operator_does(store):
    """Without tokens, too: any account of the machine may use it."""
    bounds = Bounds(places=Places(planners=0))
    app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, RequestLimits())
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for head in ({}, bearer(store), bearer(store, "ops", "operate"), bearer(store, "local")):
            answer = add(client, head)
            assert answer.status_code == 422
            assert "alarm_schemes" in answer.json()["detail"]


def test_a_personal_service_has_its_users_targets(store):
    bounds = Bounds(places=Places(planners=0), own=True)
    app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, RequestLimits())
    with TestClient(app, base_url="http://127.0.0.1") as client, HttpListener() as server:
        url = f"json://127.0.0.1:{server.port}/"
        assert add(client, {}, url=url).status_code == 201
        assert client.post("/v1/alarm-targets/hook/test").json()["ok"]


def test_limits_hold_for_what_was_added_over_http_and_nothing_else(store, vgrads):
    """Of one owner, whoever delivers."""
    targets = AlarmTargets(store.engine)
    with HttpListener() as server:
        url = f"json://127.0.0.1:{server.port}/"
        assert vgrads("alarms", "add", "own", url).code == 0
        targets.add("local", AlarmTarget("added", url), "json://127.0.0.1")
        both = [targets.find("local", name) for name in ("own", "added")]
        results = deliver(both, "title", "body", AllowedTargets(("json",)))
        assert [result.ok for result in results] == [True, False]
        assert "not a public address" in results[1].reason
        assert "permitted no targets" in vgrads("alarms", "test", "added").err
        assert len(server.requests) == 1


@pytest.mark.more
def test_messages_of_a_user_are_so_many_a_minute(client, store):
    head = bearer(store)
    with no_server() as port:
        assert add(client, head, url=f"json://127.0.0.1:{port}/").status_code == 201
    codes = [add(client, head, f"t{n}", SECRET).status_code for n in range(10)]
    assert codes == [422] * 9 + [429]


def test_there_are_so_many_targets_of_an_owner(store):
    targets = AlarmTargets(store.engine)
    for n in range(MOST_TARGETS):
        targets.add("ann", AlarmTarget(f"t{n}", URL), "jsons://hooks.example.org")
    with pytest.raises(InapplicableError, match=f"{MOST_TARGETS} targets"):
        targets.add("ann", AlarmTarget("more", URL), "jsons://hooks.example.org")
    targets.add("bob", AlarmTarget("t0", URL), "jsons://hooks.example.org")
    assert targets.find("ann", "t7") == AlarmTarget("t7", URL)
    assert targets.find("ann", "more") is None


# the secret


def test_no_answer_no_log_and_no_audit_entry_shows_the_secret(client, store, caplog):
    caplog.set_level(logging.DEBUG)
    head, texts = bearer(store), []

    def call(method, path, **more):
        answer = client.request(method, f"/v1/alarm-targets{path}", headers=head, **more)
        texts.append(answer.text + str(answer.headers))
        return answer.status_code

    with HttpListener(status=500) as server:
        url = f"json://ann:{SECRET}@127.0.0.1:{server.port}/{SECRET}"
        for name, status in (("hook", 201), ("hook", 409), ("a b", 422)):
            assert call("POST", "", json={"name": name, "url": url}) == status
        assert call("GET", "") == 200
        assert call("POST", "/hook/test") == 200
        assert len(server.requests) == 1
        assert call("DELETE", "/hook") == 204
    rows = audit_rows(store, None, 100)
    assert len(rows) == 5
    written = [record.getMessage() + str(vars(record)) for record in caplog.records]
    assert any("/v1/alarm-targets/hook/test" in text for text in written)
    for text in (*texts, *written, json.dumps(rows)):
        assert SECRET not in text


def test_an_error_of_the_database_does_not_show_the_secret(store):
    """Nor do the objects that tracebacks might print."""
    target = AlarmTarget("hook", URL)
    AlarmTargets(store.engine).add("ann", target, "jsons://hooks.example.org")
    row = {
        "owner": "ann",
        "name": "hook",
        "address": "",
        "limited": True,
        "created": datetime.now(UTC),
    }
    with pytest.raises(IntegrityError) as error:
        store.add(AlarmTargetRow(url=URL, **row))
    assert "INSERT INTO alarm_target" in str(error.value)
    request = AddTargetRequest(name="hook", url=URL)
    for text in (str(error.value), repr(target), repr(request), repr(AlarmTargetRow(url=URL))):
        assert SECRET not in text


def test_the_process_of_a_delivery_has_the_secret_neither_as_argument_nor_variable(vgrads):
    listed = []

    def list_processes():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if b"alarm_program" in command:
                    listed.append(command + (folder / "environ").read_bytes())

    with HttpListener(on_request=list_processes) as server:
        assert vgrads("alarms", "add", "hook", f"json://127.0.0.1:{server.port}/{SECRET}").code == 0
        assert vgrads("alarms", "test", "hook").code == 0
    assert len(listed) >= 1
    assert not [text for text in listed if SECRET.encode() in text]


def test_the_report_of_an_internal_error_has_no_url(vgrads, monkeypatch):
    arguments = ["alarms", "add", "hook", URL]
    monkeypatch.setattr("sys.argv", ["vgrads", *arguments])

    def fail(*_):
        raise RuntimeError("internal")

    monkeypatch.setattr(AlarmTargets, "refuse_another", fail)
    answer = vgrads(*arguments)
    assert answer.code == 70
    report = Path(answer.err.rsplit("attach ", 1)[1].strip())
    text = report.read_text()
    report.unlink()
    assert "alarms add hook 'jsons://…'" in text
    assert SECRET not in text + answer.err


def test_settings_show_what_is_permitted(vgrads, write):
    file = write(
        "vgrads.toml", 'alarm_schemes = ["mailtos", "slack"]\nalarm_networks = ["10.1.0.0/16"]\n'
    )
    settings = vgrads("config", "check", "--config", file, "--json").json["settings"]
    assert settings["alarm_schemes"] == ["mailtos", "slack"]
    assert settings["alarm_networks"] == ["10.1.0.0/16"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('alarm_schemes = ["mailtoss"]', "alarm_schemes: unknown scheme 'mailtoss'"),
        ('alarm_schemes = ["mailtos://"]', "alarm_schemes"),
        ('alarm_networks = ["10.1.0.0/40"]', "alarm_networks"),
    ],
)
def test_wrong_settings_are_named(vgrads, write, line, what):
    answer = vgrads("config", "check", "--config", write("vgrads.toml", f"{line}\n"))
    assert answer.code == 2
    assert what in answer.err


def test_a_name_of_a_request_is_checked_whichever_interface_it_comes_from():
    with pytest.raises(InputError, match="not a valid name"):
        AddTargetRequest(name="../x", url=URL)
