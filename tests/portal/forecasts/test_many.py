"""Many questions in one call, and the ranking of queues."""

import pytest
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.forecasts.learning import learn
from tests.portal.forecasts.logs_that_grow import JOBS, write_log
from tests.portal.forecasts.test_scores import SITES, waits
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

SHAPE = {"procs": 4, "walltime_s": 3600.0}
MORE = """
[[site]]
name = "cloud"
kind = "cloud"
procs = 64
cores_per_node = 8
price_usd_per_hour = 0.68
boot = "4m"
[[site]]
name = "cheap"
kind = "cloud"
procs = 64
cores_per_node = 8
price_usd_per_hour = 0.5
boot = "9m"
[[site]]
name = "small"
kind = "cloud"
procs = 8
cores_per_node = 8
price_usd_per_hour = 0.01
"""


@pytest.fixture
def sites(tmp_path):
    write_log(tmp_path / "grows.swf.gz", waits(JOBS))
    (tmp_path / "sites.toml").write_text(SITES + MORE)
    return tmp_path / "sites.toml"


@pytest.fixture
def client(store, sites):
    app = make_app(store, load_catalog(sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        yield opened


def question(**fields):
    return {"site": "here", "queue": "all", **SHAPE, **fields}


def ask(client, *questions, **more):
    return client.post("/v1/forecasts", json={"questions": list(questions), **more})


def test_answers_are_those_of_single_questions_in_their_order(client, sites):
    service = client.app.state.service
    queue = load_catalog(sites).site("here").queues[0]
    # a state that is learned between the questions would change their answers
    learn(service.learned, queue)
    shapes = [{"procs": n, "walltime_s": 600.0 * n} for n in (4, 1, 9)]
    shapes.append({"procs": 1, "walltime_s": 0.0})
    answer = ask(client, *(question(**s) for s in shapes), within_s=[60, 600], quantiles=[0.9])
    forecasts = answer.json()["forecasts"]
    assert [{k: f[k] for k in SHAPE} for f in forecasts] == shapes
    base = "/v1/sites/here/queues/all"
    for forecast, shape in zip(forecasts, shapes, strict=True):
        bound = client.get(f"{base}/bound", params=shape | {"probability": 0.9}).json()
        assert forecast["bounds"] == [{"quantile": 0.9, "bound_s": bound["bound_s"]}]
        same = ("method", "jobs", "since", "reason")
        assert {k: forecast[k] for k in same} == {k: bound[k] for k in same}
        for point in forecast["curve"]:
            single = client.get(
                f"{base}/probability", params=shape | {"within_s": point["within_s"]}
            ).json()
            assert point["probability"] == single["probability"]
        assert forecast["best_submission"] is None
        assert forecast["warning"] is None


def test_the_best_instant_to_submit_is_that_of_the_trajectory(client):
    by = {"start_by_s": 3600.0, "probability": 0.9}
    forecast = ask(client, question(**by)).json()["forecasts"][0]
    best = forecast["best_submission"]
    assert best["meets_request"] == (best["probability"] >= 0.9)
    assert 0 <= best["submit_in_s"] <= 3600
    assert best["walltime_s"] == 3600.0 + 3600.0 - best["submit_in_s"]


@pytest.mark.parametrize(
    ("wrong", "field", "text"),
    [
        (question(site="elsewhere"), "site", "no site 'elsewhere'"),
        (question(queue="renamed"), "queue", "no queue 'renamed' at site 'here'"),
        (question(queue="empty"), "queue", "has no history"),
        (question(queue="all,empty"), "queue", "names several queues"),
        (question(procs=65), "procs", "permits (64)"),
        (question(procs=0), "procs", "0"),
        (question(walltime_s=1e6), "walltime_s", "permits"),
        (question(walltime_s="long"), "walltime_s", "long"),
        (question(speed=1), "speed", "unknown"),
        ({"queue": "all"}, "site", "missing"),
        ("a word", "document", "mapping"),
    ],
)
def test_a_wrong_question_has_an_error_in_its_place(client, wrong, field, text):
    """Which names the field; where nothing else was asked, it is that of the call."""
    first, error, last = ask(client, question(), wrong, question(procs=2)).json()["forecasts"]
    assert "error" not in first
    assert "error" not in last
    assert error["field"] == field
    assert error["error"].startswith(f"{field}: ")
    assert text in error["error"]
    alone = ask(client, wrong)
    assert alone.status_code == 422
    assert alone.json()["field"] == f"questions.0.{field}"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"questions": [question()] * 1001}, "questions"),
        ({"questions": []}, "questions"),
        ({}, "questions"),
        ({"questions": [question()], "quantiles": [1.0]}, "quantiles.0"),
        ({"questions": [question()], "within_s": [-1]}, "within_s.0"),
        ({"questions": [question()], "speed": 1}, "speed"),
    ],
)
def test_a_wrong_call_is_refused_with_the_field(client, body, field):
    answer = client.post("/v1/forecasts", json=body)
    assert answer.status_code == 422
    assert answer.json()["field"] == field


def test_a_thousand_questions_are_answered_and_recorded(client):
    questions = [question(procs=1 + n % 64, walltime_s=60.0 + n) for n in range(1000)]
    forecasts = ask(client, *questions).json()["forecasts"]
    assert [f["walltime_s"] for f in forecasts] == [q["walltime_s"] for q in questions]
    client.app.state.service.forecasts.score()
    score = client.get("/v1/sites/here/queues/all/score").json()
    assert score["records"]["issued"] == 1000


def test_questions_are_no_changes(client, store, vgrads):
    """They are not in the audit log."""
    assert ask(client, question()).status_code == 200
    assert vgrads("db", "audit", "--json").json["audit"] == []


# where


def test_queues_are_ranked_by_expected_start_with_the_cheapest_cloud(vgrads):
    document = vgrads("where", "--procs", 8, "--walltime", "4h", "--json").json
    starts = [row["expected_start_s"] for row in document["queues"]]
    assert len(starts) == 3
    assert starts == sorted(starts)
    for row in document["queues"]:
        assert row["earliest_start_s"] <= row["expected_start_s"] <= row["latest_start_s"]
    assert document["left_out"] == []


def test_a_job_of_no_requested_time_is_ranked_as_it_is_forecast(vgrads, client):
    row = client.get("/v1/where", params={"walltime_s": 0.0}).json()["queues"][0]
    single = client.get(
        "/v1/sites/here/queues/all/probability", params={"walltime_s": 0.0, "within_s": 600.0}
    )
    assert row["jobs"] == single.json()["jobs"]
    assert vgrads("where", "--walltime", "0", "--json").json["queues"]


def test_queues_that_cannot_be_ranked_are_named_with_the_reason(vgrads, sites):
    options = ("--procs", 16, "--walltime", "90m", "--sites", sites)
    document = vgrads("where", *options, "--json").json
    assert [row["queue"] for row in document["queues"]] == ["all"]
    ((left_out,)) = document["left_out"]
    assert (left_out["queue"], left_out["field"]) == ("empty", "queue")
    assert document["cloud"] == {
        "site": "cheap",
        "node_type": None,
        "nodes": 2,
        "start_s": 540.0,
        "price_usd_per_hour": 0.5,
        "cost_usd": 2.0,
    }
    text = vgrads("where", *options).out
    assert "Cheapest cloud: cheap, 2 nodes, ready in 9m, $2.00." in text
    assert "here/empty left out: queue: queue 'here/empty' has no history" in text


def test_a_job_that_nothing_can_run_is_refused_with_the_option(vgrads, sites):
    answer = vgrads("where", "--procs", 4000, "--sites", sites)
    assert answer.code == 2
    assert "--procs, --walltime: no queue and no cloud" in answer.err


def test_a_ranking_is_recorded(vgrads, sites):
    assert vgrads("where", "--sites", sites, "--json").code == 0
    score = vgrads("score", "here/all", "--sites", sites, "--json").json
    assert score["records"]["issued"] == 1


def test_shipped_sites_have_no_queue_without_an_answer(vgrads):
    answer = vgrads("where", "--sites", DATA / "sites.toml")
    assert answer.code == 0
    assert "mayhem/default" in answer.out
