"""`vgrads doctor` on real homes, real services and a real TLS server."""

import json
import os
import socket
from contextlib import closing

import pytest
from sqlalchemy import text

from tests.portal.serving import bearer, serving
from tests.ports import free_ports
from tests.security.web_servers import NotVgrads, certificate, web_server
from tests.services import postgres
from tests.services.fixtures import there
from tests.waiting import until
from vgrads.exchange.keys import open_keys
from vgrads.portal.doctor.ports import ListeningSocket, is_for_agents, read_ports
from vgrads.portal.records.store import Store

HEADER = b"SQLite format 3\0"
OF_MACHINE = ("clock", "python of accounts")
"""Checks whose result is that of the machine, not of the home."""


@pytest.fixture
def doctor(vgrads, monkeypatch):
    """Call it; return its exit status, and the state and text of each check."""
    monkeypatch.delenv("VGRADS_TOKEN", raising=False)

    def call(*arguments, token=""):
        if token:
            monkeypatch.setenv("VGRADS_TOKEN", token)
        answer = vgrads("doctor", *arguments, "--json")
        assert "Traceback" not in answer.err
        document = answer.json
        states = [check["state"] for check in document["checks"]]
        assert document["wrong"] == states.count("wrong")
        assert document["doubtful"] == states.count("doubtful")
        return answer.code, {check["name"]: check for check in document["checks"]}

    return call


def state(checks, *names):
    return [checks[name]["state"] for name in names]


@pytest.fixture
def home(tmp_path, vgrads):
    """A home with a database of this version that no process uses."""
    with Store():
        pass
    return tmp_path / "home"


def contents(folder):
    """Path → time of change and size of all files."""
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }


def test_a_missing_home_is_reported_and_not_created(doctor, tmp_path):
    code, checks = doctor()
    assert code == 0
    assert state(checks, "home", "database", "backup") == ["doubtful", "doubtful", "unknown"]
    assert not (tmp_path / "home").exists()


def test_a_sound_home_and_nothing_in_it_changes(doctor, vgrads, home):
    assert vgrads("db", "backup", home / "vgrads-1.db").code == 0
    before = contents(home)
    code, checks = doctor()
    states = {check["state"] for name, check in checks.items() if name not in OF_MACHINE}
    assert (code, states) == (0, {"ok"})
    assert contents(home) == before


def test_a_home_in_use_is_read_and_its_files_stay(doctor, home):
    with Store() as store:
        store.add_set("s", {}, {}, {})
        before = contents(home)
        code, checks = doctor()
        assert (code, checks["database"]["state"], checks["integrity"]["state"]) == (0, "ok", "ok")
        assert contents(home).keys() == before.keys()


@pytest.mark.more
def test_a_new_home_is_private_whatever_was_stored_first(vgrads, doctor, tmp_path, request):
    before = os.umask(0o022)
    request.addfinalizer(lambda: os.umask(before))
    assert vgrads("demo", "--gantt", tmp_path / "g.html").code == 0
    code, checks = doctor()
    assert (code, *state(checks, "home", "private files")) == (0, "ok", "ok")


@pytest.mark.parametrize(
    ("name", "mode", "check"),
    [
        ("", 0o755, "home"),
        ("vgrads.db", 0o644, "private files"),
        ("vgrads-1.db", 0o640, "private files"),
        ("dispatchers/a/key.pem", 0o604, "private files"),
        ("dispatchers/a/secret", 0o604, "private files"),
    ],
)
def test_files_that_others_may_read(doctor, vgrads, home, name, mode, check):
    assert vgrads("db", "backup", home / "vgrads-1.db").code == 0
    open_keys(home / "dispatchers" / "a").context()
    assert doctor()[0] == 0
    (home / name).chmod(mode)
    code, checks = doctor()
    assert (code, checks[check]["state"]) == (1, "wrong")
    assert f"{mode:04o}" in checks[check]["message"]
    assert str(home / name).rstrip("/") in checks[check]["fix"]


def test_settings_with_a_secret_are_private(doctor, home, write):
    settings = write("vgrads.toml", '[oidc]\nissuer = "https://x"\nclient_id = "v"\n')
    settings.chmod(0o644)
    assert doctor("--config", settings)[1]["private files"]["state"] == "ok"
    settings.write_text(settings.read_text() + 'client_secret = "s"\n')
    code, checks = doctor("--config", settings)
    assert (code, checks["private files"]["state"]) == (1, "wrong")


def test_settings_and_sites_that_cannot_be_read(doctor, home, write, monkeypatch):
    code, checks = doctor("--config", write("vgrads.toml", "port = = 1\n"))
    assert (code, checks["settings"]["state"]) == (1, "wrong")
    code, checks = doctor("--config", write("vgrads.toml", 'sites = "none.toml"\n'))
    assert (code, checks["sites"]["state"]) == (1, "wrong")
    monkeypatch.setenv("VGRADS_SITES", str(write("s.toml", '[[site]]\nname = "m"\nkind = "?"\n')))
    assert doctor()[1]["sites"]["state"] == "wrong"


def test_the_sites_of_the_database_are_read(doctor, vgrads, home, write):
    sites = write("s.toml", '[[site]]\nname = "m"\nkind = "dedicated"\nprocs = 2\n')
    assert vgrads("sites", "add", sites).code == 0
    assert doctor()[1]["sites"]["message"] == "1 of the database: m"


@pytest.mark.parametrize(
    ("revision", "words"),
    [("0016", "was written by vgrads 0.3.0.dev0"), ("9999", "of a newer vgrads")],
)
def test_an_old_and_a_newer_schema(doctor, home, revision, words):
    with Store() as store, store.engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    before = contents(home)
    code, checks = doctor()
    assert (code, checks["schema version"]["state"]) == (1, "wrong"), checks
    assert words in checks["schema version"]["message"]
    assert contents(home) == before


@pytest.mark.parametrize("body", [b"no database at all" * 99, HEADER + b"\xff" * 4096])
def test_a_damaged_database(doctor, home, body):
    (home / "vgrads.db").write_bytes(body)
    code, checks = doctor()
    assert (code, *state(checks, "database", "schema version")) == (1, "wrong", "unknown")


def test_damage_inside_the_database(doctor, home):
    with Store() as store:
        for n in range(300):
            store.add_set(f"s{n}", {"x": "y" * 2000}, {}, {})
    file = home / "vgrads.db"
    whole = bytearray(file.read_bytes())
    whole[-40 * 4096 :] = b"\xff" * (40 * 4096)
    file.write_bytes(whole)
    code, checks = doctor()
    assert code == 1
    assert "wrong" in state(checks, "database", "integrity")


def test_a_backup_that_does_not_open_and_an_old_one(doctor, vgrads, home):
    backup = home / "vgrads-1.db"
    assert vgrads("db", "backup", backup).code == 0
    os.utime(backup, (0, 0))
    code, checks = doctor()
    assert (code, checks["backup"]["state"]) == (0, "doubtful")
    backup.write_bytes(b"")
    code, checks = doctor()
    assert (code, checks["backup"]["state"]) == (1, "wrong")


@pytest.mark.services
def test_a_database_of_postgresql(doctor, vgrads, home, monkeypatch, tmp_path_factory):
    there(postgres.missing())
    pytest.importorskip("psycopg")
    with postgres.postgres_service(tmp_path_factory.mktemp("postgres")) as url:
        monkeypatch.setenv("VGRADS_DB", url)
        assert doctor()[1]["schema version"]["state"] == "doubtful"
        assert vgrads("token", "list").code == 0
        code, checks = doctor()
        assert (code, *state(checks, "database", "schema version")) == (0, "ok", "ok")
    code, checks = doctor()
    assert (code, checks["database"]["state"]) == (1, "wrong")


def test_the_table_names_each_state_by_a_word_and_then_what_to_do(vgrads, home):
    home.chmod(0o755)
    answer = vgrads("doctor")
    (row,) = [line for line in answer.out.splitlines() if line.split()[:1] == ["home"]]
    assert row.split()[1] == "wrong"
    assert f"home: chmod 700 {home}" in answer.out.partition("What to do")[2]
    assert answer.out.splitlines()[-1].startswith("1 wrong, ")


# services


def test_a_loopback_service_without_tokens(doctor, tmp_path, home):
    with serving(home) as served:
        code, checks = doctor("--service", served.url)
        assert code == 0
        names = ("service", "health", "readiness", "service version", "encryption", "token")
        assert set(state(checks, *names, "authentication", "response headers")) == {"ok"}
        assert "no token is required" in checks["authentication"]["message"]
        listening = checks["listening addresses"]
        expected = ("ok", f"127.0.0.1:{served.port} (service)")
        assert (listening["state"], listening["message"]) == expected


def test_a_service_with_tokens_and_one_that_is_open_on_all_addresses(doctor, vgrads, home):
    with Store() as store:
        secret = bearer(store, "ann", "submit")["Authorization"].removeprefix("Bearer ")
    with serving(home, "--host", "0.0.0.0") as served:
        code, checks = doctor("--service", served.url)
        assert (code, *state(checks, "authentication", "token")) == (0, "ok", "unknown")
        assert checks["listening addresses"]["state"] == "doubtful"
        assert f"0.0.0.0:{served.port}" in checks["listening addresses"]["message"]
        code, checks = doctor("--service", served.url, token=secret)
        assert (code, checks["token"]["message"]) == (0, "accepted: user ann, may submit")
        assert checks["token expiry"]["state"] == "doubtful"  # it is valid for an hour
        code, checks = doctor("--service", served.url, token="vg_wrong")
        assert (code, checks["token"]["state"]) == (1, "wrong")
        assert "vg_wrong" not in json.dumps(checks)
        code, checks = doctor("--service", served.url, token="a\r\nb")
        assert (code, checks["token"]["state"]) == (0, "unknown")
        assert read_ports(served.port)[0].process == served.process.pid


def test_the_port_of_a_dispatcher_is_open_for_agents(doctor, vgrads, home, write):
    sites = write("s.toml", '[[site]]\nname = "here"\nkind = "local"\nprocs = 1\n')
    assert vgrads("sites", "add", sites).code == 0
    assert vgrads("sites", "open", "here", "ann").code == 0
    with Store() as store:
        secret = bearer(store)["Authorization"].removeprefix("Bearer ")
    with serving(home) as served:
        client = served.client(secret)
        document = {"name": "b", "commands": ["sleep 60"], "sites": ["here"]}
        client.submit_bag(document | {"hosts": {"guests": True}})

        def agents():
            sockets = read_ports(served.port)
            return [str(entry) for entry in sockets if entry.everywhere and entry.use == "agents"]

        until(agents, "the port of the dispatcher", 60)
        (address,) = agents()
        code, checks = doctor("--service", served.url)
        assert (code, checks["listening addresses"]["state"]) == (0, "ok")
        assert f"{address} (agents)" in checks["listening addresses"]["message"]


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:p@x", "nonsense", "http://x?y"])
def test_a_url_that_is_none_is_refused_in_one_line(vgrads, tmp_path, url):
    answer = vgrads("doctor", "--service", url, "--json")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "home").exists()


def test_a_service_that_does_not_answer(doctor, home):
    code, checks = doctor("--service", f"http://127.0.0.1:{free_ports()}")
    assert (code, *state(checks, "service", "health")) == (4, "wrong", "unknown")
    code, checks = doctor("--service", "http://no-such-host.invalid")
    assert (code, checks["service"]["state"]) == (4, "wrong")


# servers that are not right


def test_an_expired_certificate_is_wrong_and_gets_no_token(doctor, home, tmp_path):
    context, _ = certificate(tmp_path, -3)
    NotVgrads.tokens.clear()
    with web_server(context) as port:
        code, checks = doctor("--service", f"https://localhost:{port}", token="vg_secret")
    assert (code, checks["certificate"]["state"]) == (1, "wrong")
    assert "it expired 3 days ago" in checks["certificate"]["message"]
    assert "was not sent" in checks["token"]["message"]
    assert NotVgrads.tokens == []


@pytest.mark.parametrize(("days", "expected"), [(10, "doubtful"), (60, "ok")])
def test_a_certificate_of_a_private_authority(doctor, home, tmp_path, monkeypatch, days, expected):
    context, file = certificate(tmp_path, days)
    NotVgrads.tokens.clear()
    with web_server(context) as port:
        url = f"https://localhost:{port}"
        code, checks = doctor("--service", url)
        assert (code, checks["certificate"]["state"]) == (1, "wrong")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        _, checks = doctor("--service", url, token="vg_secret")
    assert checks["certificate"]["state"] == expected
    assert f"valid for {days} more days" in checks["certificate"]["message"]
    assert NotVgrads.tokens == ["Bearer vg_secret"]


def test_another_server_is_wrong(doctor, home):
    with web_server() as port:
        code, checks = doctor("--service", f"http://127.0.0.1:{port}")
    assert (code, *state(checks, "service", "health")) == (1, "ok", "wrong")
    assert state(checks, "response headers", "readiness") == ["doubtful", "wrong"]


def test_a_redirect_is_reported_and_the_token_does_not_follow_it(doctor, home):
    NotVgrads.tokens.clear()
    with web_server() as other, web_server(target=f"http://localhost:{other}/") as port:
        code, checks = doctor("--service", f"http://127.0.0.1:{port}", token="vg_secret")
        assert (code, checks["health"]["state"]) == (1, "wrong")
        assert f"redirects to http://localhost:{other}/" in checks["health"]["message"]
    assert NotVgrads.tokens == ["Bearer vg_secret"]


def test_no_tls_where_tls_is_expected(doctor, home):
    with web_server() as port:
        code, checks = doctor("--service", f"https://127.0.0.1:{port}")
    assert (code, *state(checks, "service", "certificate")) == (4, "wrong", "unknown")


def test_the_port_of_a_manager_is_one_for_agents(tmp_path):
    def entry(port):
        return ListeningSocket(address="127.0.0.1", port=port, inode=0)

    own, (other, _) = open_keys(tmp_path / "manager").context(), certificate(tmp_path, 60)
    with web_server(own) as port:
        assert is_for_agents(entry(port))
    with web_server(other) as port:
        assert not is_for_agents(entry(port))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    assert not is_for_agents(entry(port))
