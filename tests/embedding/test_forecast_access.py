"""Who else may query forecasts: pages of allowed origins, tokens for forecasts alone, anybody."""

import re

import pytest
import yaml
from fastapi.testclient import TestClient

from tests.conftest import DATA, ROOT
from tests.portal.serving import SMALL, bearer
from tests.waiting import until
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.access import AccessControl, Principal
from vgrads.portal.records.tables import AuditRow
from vgrads.portal.web.app import make_app
from vgrads.portal.web.embedding.forecast_access import PUBLIC_RATE, ForecastAccess
from vgrads.portal.web.guard import COOKIE, RequestLimits
from vgrads.portal.web.service import Bounds
from vgrads.portal.web.settings import load_settings
from vgrads.vgrid.catalog import load_catalog

PORTAL = "https://ondemand.example.org"
BOUND = "/v1/sites/mayhem/queues/default/bound?procs=4&walltime_s=7200"
QUESTION = {"site": "mayhem", "queue": "default", "procs": 4, "walltime_s": 7200}
OTHER = QUESTION | {"site": "mercury"}
MISSING = QUESTION | {"site": "atlantis"}
CORS = "access-control-allow-origin"


def client_of(store, tokens=True, **access):
    """A client of an application with this access to forecasts."""
    limits = RequestLimits(tokens=tokens, forecasts=ForecastAccess(**access))
    bounds = Bounds(places=Places(planners=0))
    app = make_app(store, load_catalog(DATA / "sites.toml"), bounds, limits)
    return TestClient(app, base_url="http://127.0.0.1")


def preflight(client, path, method, origin=PORTAL):
    head = {"Origin": origin, "Access-Control-Request-Method": method}
    return client.options(path, headers=head)


# pages of other origins


def test_a_page_of_an_allowed_origin_may_query_forecasts(store):
    with client_of(store, origins=[PORTAL]) as client:
        allowed = preflight(client, BOUND, "GET")
        assert (allowed.status_code, allowed.content) == (204, b"")
        assert allowed.headers[CORS] == PORTAL
        assert allowed.headers["access-control-allow-methods"] == "GET"
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        head = bearer(store, "ood", "forecast") | {"Origin": PORTAL}
        answer = client.get(BOUND, headers=head)
        assert (answer.status_code, answer.headers[CORS]) == (200, PORTAL)
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        assert answer.headers["vary"] == "Origin"
        assert preflight(client, "/v1/forecasts", "POST").headers[CORS] == PORTAL
        several = client.post("/v1/forecasts", json={"questions": [QUESTION]}, headers=head)
        assert (several.status_code, several.headers[CORS]) == (200, PORTAL)


def test_an_error_can_be_read_by_the_page_too(store):
    with client_of(store, origins=[PORTAL]) as client:
        refused = client.get(BOUND, headers={"Origin": PORTAL})
        assert (refused.status_code, refused.headers[CORS]) == (401, PORTAL)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", PORTAL + ".evil.example", PORTAL + ":444", ""]
)
def test_an_origin_that_is_not_configured_gets_no_permission(store, origin):
    with client_of(store, origins=[PORTAL]) as client:
        head = bearer(store, "ood", "forecast") | {"Origin": origin}
        refused = preflight(client, BOUND, "GET", origin)
        answers = [refused, client.get(BOUND, headers=head)]
        assert refused.status_code in (401, 405)
        assert answers[1].status_code == 200  # which its page cannot read
        answers.append(client.post("/v1/forecasts", json={"questions": []}, headers=head))
        assert answers[2].status_code == 403
        for answer in answers:
            assert not [n for n in answer.headers if n.startswith("access-control")], origin
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_an_allowed_origin_may_query_nothing_but_forecasts(store):
    """Its changes are refused, and what it reads has no permission."""
    with client_of(store, tokens=False, origins=[PORTAL]) as client:
        head = {"Origin": PORTAL}
        assert client.post("/v1/workflow-sets", json=SMALL, headers=head).status_code == 403
        assert client.post(BOUND, headers=head).status_code == 403
        for path in ("/v1/sites", "/v1/workflow-sets", "/", "/metrics", "/v1/token"):
            assert CORS not in client.get(path, headers=head).headers
            assert CORS not in preflight(client, path, "GET").headers
        for method in ("POST", "DELETE", "PUT"):
            assert CORS not in preflight(client, BOUND, method).headers
        assert CORS not in preflight(client, "/v1/forecasts", "GET").headers


def test_a_session_does_not_count_on_a_page_of_another_origin(store):
    """Browsers send its cookie to a neighbour of the same domain."""
    secret, _ = AccessControl(store.engine).create("ann", ["submit"], 60.0)
    with client_of(store, origins=[PORTAL]) as client:
        session = {"Cookie": f"{COOKIE}={secret}"}
        assert client.get(BOUND, headers=session).status_code == 200
        answer = client.get(BOUND, headers=session | {"Origin": PORTAL})
        assert answer.status_code == 401
        assert "access-control-allow-credentials" not in answer.headers


def test_without_origins_nothing_changes(store):
    with client_of(store, tokens=False) as client:
        answer = client.get(BOUND, headers={"Origin": PORTAL})
        assert "vary" not in answer.headers and CORS not in answer.headers
        assert preflight(client, BOUND, "GET").status_code == 405


# tokens for forecasts alone


def test_a_token_for_forecasts_reads_bounds_and_no_counts_of_jobs(store):
    with client_of(store) as client:
        ann = bearer(store, "ann", "read")
        until(  # what is learned meanwhile would change the second answer
            lambda: client.get(BOUND, headers=ann).json()["method"] == "state", "learned states", 60
        )
        whole = client.get(BOUND, headers=ann).json()
        few = client.get(BOUND, headers=bearer(store, "ood", "forecast")).json()
        assert few == {name: whole[name] for name in few}
        assert set(few) == {"bound_s", "probability", "confidence", "method"}
        assert {"jobs", "since", "cluster", "history"} <= set(whole)
        head = bearer(store, "ood", "forecast")
        within = BOUND.replace("bound", "probability") + "&within_s=60"
        answer = client.get(within, headers=head).json()
        assert set(answer) == {"probability", "within_s", "confidence", "method"}
        path = BOUND.replace("bound", "trajectory") + "&start_by_s=3600"
        assert client.get(path, headers=head).json()["trajectory"]


def test_a_token_for_forecasts_cannot_have_the_model_explained_or_trained_for_ever(store):
    with client_of(store) as client:
        head = bearer(store, "ood", "forecast")
        assert client.get(BOUND + "&explain=true", headers=head).status_code == 403
        for name in ("probability", "confidence"):
            answer = client.get(BOUND + f"&{name}=0.9012", headers=head)
            assert (answer.status_code, answer.json()["field"]) == (422, name)
        assert client.get(BOUND + "&probability=0.29", headers=head).status_code == 200


def test_a_token_for_one_queue_finds_no_other(store):
    with client_of(store) as client:
        head = bearer(store, "ood", "forecast:mayhem/default")
        assert client.get(BOUND, headers=head).status_code == 200
        more_of = {"bound": "", "probability": "&within_s=60", "trajectory": "&start_by_s=60"}
        for name, more in more_of.items():
            path = BOUND.replace("bound", name) + more
            other = client.get(path.replace("mayhem", "mercury"), headers=head)
            missing = client.get(path.replace("mayhem", "atlantis"), headers=head)
            assert other.status_code == missing.status_code == 404
            assert other.text.replace("mercury", "atlantis") == missing.text
        body = {"questions": [QUESTION, OTHER, MISSING]}
        first, other, missing = client.post("/v1/forecasts", json=body, headers=head).json()[
            "forecasts"
        ]
        assert "error" not in first
        assert other["error"].replace("mercury", "atlantis") == missing["error"]


def test_scopes_of_queues_are_checked_where_a_token_is_created(store, vgrads):
    access = AccessControl(store.engine)
    for scope in ("forecast:", "forecast:mayhem", "forecast:/q", "forecast:s/", "forecast:a b/c"):
        with pytest.raises(InputError, match="unknown scope") as error:
            access.create("ood", [scope], 60.0)
        assert "forecast:SITE/QUEUE" in error.value.fix
    created = vgrads("token", "create", "ood", "--scope", "forecast:mayhem/default", "--json")
    assert created.json["scopes"] == ["forecast:mayhem/default"]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ("", (False, False)),
        ("metrics", (False, False)),
        ("forecast", (True, True)),
        ("forecast:a/b", (True, False)),
        ("forecast:a/bc", (False, False)),
        ("metrics forecast:a/b", (True, False)),
        ("read", (True, True)),
        ("pool forecast:a/b", (True, True)),
        ("operate", (True, True)),
    ],
)
def test_each_scope_has_its_queues(scopes, expected):
    who = Principal("ann", frozenset(scopes.split()))
    assert (who.may_forecast("a", "b"), who.may_forecast("a", "c")) == expected
    assert who.may("forecast") == any(s != "metrics" for s in scopes.split())


# anybody


def test_the_forecasts_of_a_public_queue_need_no_token(store):
    with client_of(store, public=["mayhem/default"]) as client:
        answer = client.get(BOUND)
        assert answer.status_code == 200
        assert set(answer.json()) == {"bound_s", "probability", "confidence", "method"}
        for path in (BOUND.replace("mayhem", "mercury"), BOUND.replace("mayhem", "atlantis")):
            refused = client.get(path)
            assert (refused.status_code, refused.json()["title"]) == (401, "Unauthorized")
        wrong = {"Authorization": "Bearer vg_wrong"}
        assert client.get(BOUND, headers=wrong).status_code == 401


def test_of_many_questions_without_a_token_those_about_public_queues_are_answered(store):
    with client_of(store, public=["mayhem/default"]) as client:
        body = {"questions": [OTHER, QUESTION, MISSING]}
        other, first, missing = client.post("/v1/forecasts", json=body).json()["forecasts"]
        assert "error" not in first
        assert other["error"].replace("mercury", "atlantis") == missing["error"]
        large = client.post("/v1/forecasts", json={"questions": [QUESTION] * 100})
        assert large.status_code == 413
        rows = store.engine.connect().exec_driver_sql("SELECT * FROM audit").all()
        assert rows == [] and AuditRow.__tablename__ == "audit"
    with client_of(store) as client:
        assert client.post("/v1/forecasts", json={"questions": []}).status_code == 401


def test_requests_without_a_token_have_a_rate_of_their_own(store):
    most = int(PUBLIC_RATE.partition("/")[0])
    with client_of(store, public=["mayhem/default"]) as client:
        codes = [client.get(BOUND + "&procs=x").status_code for _ in range(5 * most)]
        assert codes[:most] == [422] * most and 429 in codes
        head = bearer(store, "ood", "forecast")
        assert client.get(BOUND, headers=head).status_code == 200


# settings


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "https://*.example.org",
        "ondemand.example.org",
        "https://ondemand.example.org/",
        "https://Ondemand.example.org",
        "ftp://ondemand.example.org",
        "null",
    ],
)
def test_an_origin_is_written_as_browsers_send_it(write, origin):
    file = write("v.toml", f'origins = ["{origin}"]\n')
    with pytest.raises(InputError, match=r"origins: .* is not an origin"):
        load_settings(file)


def test_origins_and_public_queues_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("VGRADS_ORIGINS", f'["{PORTAL}", "http://localhost:3000"]')
    monkeypatch.setenv("VGRADS_PUBLIC_FORECASTS", '["mayhem/default"]')
    read = load_settings()
    assert read.origins == (PORTAL, "http://localhost:3000")
    assert read.public_forecasts == ("mayhem/default",)


def test_the_check_of_settings_names_a_queue_that_no_site_has(vgrads, write):
    good = write("good.toml", 'public_forecasts = ["mayhem/default"]\n')
    assert vgrads("config", "check", "--config", good).code == 0
    for text in (
        'public_forecasts = ["mayhem/fast"]',
        '[[wait_gauges]]\nsite = "mayhem"\nqueue = "fast"',
    ):
        answer = vgrads("config", "check", "--config", write("bad.toml", text))
        assert answer.code == 2 and "mayhem/fast" in answer.err
    answer = vgrads("config", "check", "--config", write("bad.toml", 'public_forecasts = ["fast"]'))
    assert answer.code == 2 and "SITE/QUEUE" in answer.err


def test_the_settings_of_the_document_are_settings(write):
    text = (ROOT / "docs" / "portals.md").read_text()
    read = load_settings(write("v.toml", re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]))
    assert (read.origins, read.public_forecasts) == ((PORTAL,), ("cluster/batch",))
    assert [(g.procs, g.walltime_s, g.quantiles) for g in read.wait_gauges] == [
        (64, 14400.0, (0.5, 0.95))
    ]


def test_the_settings_for_open_ondemand_name_files_that_are_there():
    folder = ROOT / "deploy" / "ondemand"
    settings = yaml.safe_load((folder / "vgrads.yml").read_text())
    assert [(folder / name).is_file() for name in settings["custom_javascript_files"]] == [True]
    columns = [c for row in settings["dashboard_layout"]["rows"] for c in row["columns"]]
    assert "vgrads_wait" in [name for column in columns for name in column["widgets"]]
    assert (folder / "_vgrads_wait.html.erb").is_file()
