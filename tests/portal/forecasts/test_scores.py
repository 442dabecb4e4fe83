"""From the answer of a command or of the service to its score, pages, metrics and plans."""

import json
import math
import re
import urllib.request

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session, select

from tests.conftest import DATA
from tests.portal.forecasts.logs_that_grow import JOBS, scored, write_log
from tests.portal.serving import LEAD, serving
from vgrads.api.queues.forecast_scores import WATCHED, ScoredForecast, score, watch
from vgrads.portal.jobs.forecasts.plans import score_bags, scored_promises
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.tables import ForecastRow
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

SITES = """
[[site]]
name = "here"
kind = "batch"
procs = 64
[[site.queue]]
name = "all"
history = "grows.swf.gz"
max_walltime = "24h"
[[site.queue]]
name = "empty"
"""


def waits(count):
    return np.random.default_rng(1).exponential(300.0, count).round()


@pytest.fixture
def grows(tmp_path):
    """A log of which the first part exists."""
    return write_log(tmp_path / "grows.swf.gz", waits(JOBS))


@pytest.fixture
def client(store, tmp_path, grows):
    (tmp_path / "sites.toml").write_text(SITES)
    bounds = Bounds(places=Places(planners=0))
    app = make_app(store, load_catalog(tmp_path / "sites.toml"), bounds)
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        opened.service = app.state.service
        yield opened


def shape(document):
    return {entry["quantile"]: entry for entry in document["quantiles"]}


def test_an_answer_about_a_file_is_scored_when_the_file_grows(vgrads, grows):
    common = ("--procs", 4, "--walltime", "1h", "--method", "qbets", "--json")
    bound = vgrads("bound", grows, *common).json["bound_s"]
    chance = vgrads("probability", grows, "--within", "5m", *common).json["probability"]
    assert vgrads("trajectory", grows, "--start-by", "5m", *common).code == 0
    before = vgrads("score", grows, "*", "--json").json
    assert (before["records"]["issued"], before["scored"]) == (3, 0)
    later = waits(JOBS + 12)  # a job that waits would have started, and ended by its limit
    write_log(grows, later)
    after = vgrads("score", grows, "*", "--json").json
    wait_s = later[JOBS]  # the job ten minutes after the last start of the shorter log, or later
    assert after["scored"] == after["records"]["scored"] == 3
    assert shape(after)[0.95]["coverage"] == float(wait_s <= bound)
    assert any(row["stated"] == pytest.approx(chance) for row in after["reliability"])
    assert "3 answers" in vgrads("score", grows, "*").out
    assert vgrads("score", grows, "--json").json == after
    everything = vgrads("score", "--json").json
    assert [entry["queue"] for entry in everything["queues"]] == ["*"]


def test_an_answer_about_the_past_is_recorded_and_not_scored(vgrads, grows):
    answer = vgrads("bound", grows, "--procs", 4, "--method", "qbets", "--at", 60_000, "--json")
    assert answer.code == 0
    records = vgrads("score", grows, "*", "--json").json["records"]
    assert (records["issued"], records["retrospective"], records["scored"]) == (1, 1, 0)


def test_every_answer_of_the_service_is_recorded_and_scored(client, grows):
    base = "/v1/sites/here/queues/all"
    shape_ = {"procs": 4, "walltime_s": 3600}
    assert client.get(f"{base}/bound", params=shape_).status_code == 200
    assert client.get(f"{base}/probability", params=shape_ | {"within_s": 60}).status_code == 200
    assert client.get(f"{base}/trajectory", params=shape_ | {"start_by_s": 300}).status_code == 200
    question = {"site": "here", "queue": "all", **shape_}
    assert client.post("/v1/forecasts", json={"questions": [question]}).status_code == 200
    assert client.get("/sites/here/all?procs=4&hours=1").status_code == 200
    client.service.forecasts.score()
    before = client.get(f"{base}/score").json()
    assert (before["records"]["issued"], before["records"]["scored"]) == (5, 0)
    write_log(grows, waits(JOBS + 12))
    client.service.forecasts.score()
    after = client.get(f"{base}/score").json()
    assert after["records"]["scored"] == 5
    assert "5 answers" in client.get("/sites/here/all/score").text
    assert "here/all" in client.get("/scores").text
    metrics = client.get("/metrics").text
    assert 'vgrads_forecast_records{queue="all",site="here",state="scored"} 5.0' in metrics
    assert re.search(r'forecast_coverage{quantile="0.95",queue="all",site="here"} [01]', metrics)


def test_the_service_shows_no_path_of_a_file_that_was_asked_about(client, vgrads, grows):
    """Forecasts from the command line, where the file stands for a site."""
    assert vgrads("bound", grows, "--procs", 4, "--json").code == 0
    assert vgrads("score", grows, "*", "--json").json["records"]["issued"] == 1
    base = "/v1/sites/here/queues/all/bound"
    assert client.get(base, params={"procs": 4, "walltime_s": 3600}).status_code == 200
    client.service.forecasts.score()
    for address in ("/scores", "/v1/scores", "/metrics"):
        text = client.get(address).text
        assert str(grows.parent) not in text, address
        assert "here" in text


def test_an_unknown_queue_has_no_score(client, vgrads, tmp_path):
    assert client.get("/v1/sites/here/queues/none/score").status_code == 404
    assert client.get("/v1/sites/here/queues/empty/score").status_code == 404
    assert client.get("/v1/sites/here/queues/all/score").json()["scored"] == 0
    assert client.get("/sites/none/all/score").status_code == 404
    sites = ("--sites", tmp_path / "sites.toml")
    for arguments, field in (
        (("here", "none"), "QUEUE: no queue 'none'"),
        (("none", "all"), "SITE: no site 'none'"),
        (("here",), "QUEUE: site 'here' has 2 queues (its queues: here/all, here/empty)"),
        (("here", "empty"), "QUEUE: queue 'here/empty' has no history"),
        (("here/none",), "QUEUE: no queue 'none'"),
        (("none/all",), "SITE: no site 'none'"),
        (("none",), "SITE: no site 'none'"),
        (("here/empty",), "QUEUE: queue 'here/empty' has no history"),
    ):
        answer = vgrads("score", *arguments, *sites)
        assert answer.code == 2
        assert field in answer.err


@pytest.mark.parametrize(("covered", "warns"), [(179, True), (180, False)])
def test_a_warning_appears_by_itself(client, covered, warns):
    """On the page, in the metrics, and with the answers."""
    scored(client.service.store, "here", "all", covered, WATCHED)
    client.service.forecasts.score()
    text = "the last 200 bounds at probability 0.95 covered 89.5% of the waits"
    for path in ("/sites/here/all", "/sites/here/all/score", "/scores"):
        assert (text in client.get(path).text) == warns, path
    metrics = client.get("/metrics").text
    assert f'vgrads_forecast_warning{{queue="all",site="here"}} {float(warns)}' in metrics
    question = {"site": "here", "queue": "all"}
    answer = client.post("/v1/forecasts", json={"questions": [question]}).json()["forecasts"][0]
    assert (answer["warning"] is not None) == warns


def test_a_plan_warns_of_the_queues_that_it_uses(vgrads, store):
    """And no plan of others."""
    for name in ("kittyhawk", "mayhem", "mercury"):
        scored(store, name, "default", 150, WATCHED)
    scored(store, "elsewhere", "default", 150, WATCHED)
    (plan,) = (vgrads("plan", DATA / "lead.yaml", "--json").json,)
    used = {slot["site"] for slot in plan["slots"] if slot["kind"] == "batch"}
    warned = {note.partition("/")[0] for note in plan["notes"] if "covered 75.0%" in note}
    assert used
    assert warned == used


@pytest.mark.more
def test_a_run_scores_its_own_slots_and_its_promise(vgrads):
    run = vgrads("run", DATA / "lead.yaml", "--json").json
    document = vgrads("score", "--json").json
    promises = document["promises"]
    assert (promises["promises"], promises["kept"]) == (1, int(run["outcome"]["kept"]))
    assert promises["promised"] == pytest.approx(run["promise"]["probability"])
    assert promises["open"] == 1  # that of the plan
    assert sum(entry["records"]["scored"] for entry in document["queues"]) >= 1


def test_a_plan_over_http_has_a_record_of_its_owner(store):
    app = make_app(store, load_catalog(DATA / "sites.toml"), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        assert opened.post("/v1/workflow-sets", json=LEAD).status_code == 201
        app.state.service.forecasts.score()
        assert opened.get("/v1/scores").json()["promises"]["open"] == 1


def test_records_are_pruned(vgrads, store):
    scored(store, "here", "all", 10, 20)
    assert vgrads("db", "prune", "--json").json["forecasts"] == 0
    assert vgrads("db", "prune", "--keep", "1d", "--json").json["forecasts"] == 20


# scores


def test_scores_of_forecasts_with_a_known_distribution():
    """Quantiles of the true distribution are covered as often as they say."""
    draws = np.random.default_rng(3).exponential(100.0, 500)
    bounds = tuple((q, -100.0 * np.log(1 - q)) for q in (0.5, 0.75, 0.9, 0.95))
    result = score(
        [
            ScoredForecast(bounds=bounds, probabilities=((100.0, 0.632),), wait_s=w)
            for w in draws.tolist()
        ]
    )
    for row in result["quantiles"]:
        assert row["coverage"] == pytest.approx(row["quantile"], abs=0.05)
    assert result["reliability"][0]["observed"] == pytest.approx(0.632, abs=0.06)
    assert result["slurm"] is None


def test_jobs_without_an_estimate_of_slurm_are_left_out_of_the_comparison():
    bounds = ((0.5, 10.0),)
    forecasts = [
        ScoredForecast(bounds=bounds, wait_s=12.0, estimate_s=20.0, was_queried=True),
        ScoredForecast(bounds=bounds, wait_s=999.0, was_queried=True),
        ScoredForecast(bounds=bounds, wait_s=999.0),
    ]
    comparison = score(forecasts)["slurm"]
    assert (comparison["jobs"], comparison["left_out"]) == (1, 2)
    assert comparison["median_error_s"] == {"vgrads": 2.0, "slurm": 8.0}


def test_only_the_newest_500_count():
    old, new = ScoredForecast(bounds=((0.95, 1.0),), wait_s=2.0), ScoredForecast(wait_s=0.0)
    assert shape(score([new] * 500 + [old]))[0.95]["bounds"] == 0
    assert score([old] * 600)["scored"] == 500


def test_fewer_bounds_than_are_watched_raise_no_warning():
    assert watch([False] * (WATCHED - 1)).warning is None
    assert watch([False] * WATCHED).warning is not None
    assert watch([True] * WATCHED + [False] * 500).warning is None


def test_records_are_json(client):
    """Bounds that cannot be stated are null."""
    question = {"site": "here", "queue": "all"}
    client.post("/v1/forecasts", json={"questions": [question], "quantiles": [0.9999]})
    client.service.forecasts.score()
    json.loads(client.get("/v1/scores").text, parse_constant=pytest.fail)


@pytest.mark.more
def test_an_answer_of_a_service_that_is_killed_is_recorded(vgrads, tmp_path):
    """At once after it: the next to look at the journal stores it."""
    (tmp_path / "home").mkdir()
    with serving(tmp_path / "home") as served:
        url = f"{served.url}/v1/sites/mayhem/queues/default/bound?procs=4"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert json.load(answer)["bound_s"] > 0
        served.kill()
        records = vgrads("score", "mayhem", "default", "--json").json["records"]
    assert (records["issued"], records["open"]) == (1, 1)


def test_bags_with_goals_score_their_first_promise(vgrads, write):
    for n, (deadline, seconds) in enumerate((("5m", 0.05), ("1s", 2.0))):
        bag = {
            "name": f"b{n}",
            "command": f"sleep {seconds}; echo {{x}}",
            "parameters": {"x": {"range": [3]}},
            "runtime_s": seconds,
            "deadline": deadline,
            "probability": 0.9,
        }
        assert (
            vgrads("bags", "run", write("bag.yaml", json.dumps(bag)), "--sites", "here").code == 0
        )
    promises = vgrads("score", "--json").json["promises"]
    assert (promises["promises"], promises["kept"], promises["open"]) == (2, 1, 0)
    assert promises["promised"] == pytest.approx(0.5, abs=0.05)
    assert promises["brier"] < 0.02


FIRST = {
    **{"deadline_s": 100.0, "fraction": 1.0, "at_least": None, "these": True},
    **{"probability": 0.9, "budget_usd": None},
}


@pytest.mark.parametrize(
    ("after", "at_s", "reached_s", "done", "first", "last"),
    [
        ({"deadline_s": 50.0}, 20.0, 40.0, 10, True, True),
        ({"deadline_s": 50.0}, 20.0, 80.0, 10, True, False),
        ({"deadline_s": 50.0}, 20.0, None, 9, False, False),
        ({"deadline_s": 300.0}, 20.0, 80.0, 10, True, True),
        ({"deadline_s": 300.0}, 20.0, 200.0, 10, None, True),  # nodes were released for it
        ({"deadline_s": 300.0}, 120.0, 200.0, 10, False, True),  # it was missed before
        ({"fraction": 0.5}, 20.0, 60.0, 6, None, True),
        ({"fraction": 0.5}, 20.0, 60.0, 10, True, True),
        ({"probability": 0.5}, 20.0, 130.0, 10, False, False),
    ],
)
def test_a_changed_goal_has_two_promises(after, at_s, reached_s, done, first, last):
    """The first is of the first goal, or open where the change decided; the last of the last."""
    goal = FIRST | after
    bag = {
        **{"came_s": 0.0, "tasks": 10, "done": done, "ended_s": reached_s or 300.0},
        "goal": {
            **{"reached_s": reached_s, "due_s": goal["deadline_s"], "required": 10},
            "promises": [[1.0, 0.95], [10.0, 0.9], [at_s, 0.6], [at_s + 5.0, 0.99]],
            "changes": [
                {"at_s": at_s - 9.0, "before": FIRST, "after": None, "refused": "too late"},
                {"at_s": at_s, "before": FIRST, "after": goal, "refused": ""},
            ],
        },
    }
    bag["goal"]["required"] = math.ceil(goal["fraction"] * 10)
    scored = scored_promises(bag)
    assert [promise.covered for promise in scored] == [first, last]
    assert [promise.probability for promise in scored] == [0.95, 0.6]
    assert [promise.within_s for promise in scored] == [100.0, goal["deadline_s"] - at_s]


def test_both_promises_of_a_changed_goal_are_recorded_once(store):
    change = {"at_s": 20.0, "before": FIRST, "after": FIRST | {"deadline_s": 50.0}, "refused": ""}
    goal = {"reached_s": 60.0, "due_s": 50.0, "required": 10, "changes": [change]}
    goal["promises"] = [[1.0, 0.9], [20.0, 0.4]]
    bag = {"number": 3, "came_s": 0.0, "tasks": 10, "done": 10, "ended_s": 60.0, "goal": goal}
    for _ in range(2):
        score_bags(lambda: store.engine, "bag-1", [bag])
    with Session(store.engine) as session:
        rows = {row.job: row.covered for row in session.exec(select(ForecastRow))}
        assert len(list(session.exec(select(ForecastRow)))) == 2
    assert rows == {"bag-1/3": True, "bag-1/3/last": False}
