"""An answer that its own record contradicts says so, in every interface; others do not."""

import numpy as np
import pytest

from tests.portal.forecasts.logs_that_grow import JOBS, SHAPE, recommended, scored, write_log
from tests.portal.forecasts.scored_service import add_site, served
from tests.portal.forecasts.test_scores import waits
from vgrads.api.queues.forecast_scores import WATCHED, QueueRecord

OPTIONS = ("--procs", 4, "--walltime", "1h")
BASE = "/v1/sites/here/queues/all"


@pytest.fixture
def sites(vgrads, store, tmp_path):
    """A site, in a file and in the database."""
    return add_site(vgrads, tmp_path)


def warning_of(store, vgrads, sites, probability):
    """Return the warning of the same submission by command, over REST, in a list and on the
    page."""
    wishes = {"start_by_s": 7200, "probability": probability}
    words = ("here/all", *OPTIONS, "--start-by", "2h", "--probability", probability)
    command = vgrads("trajectory", *words, "--json").json
    assert probability <= command["probability"] < probability + 0.1
    text = " ".join(vgrads("trajectory", *words).out.split())
    question = {"site": "here", "queue": "all", **SHAPE, **wishes}
    with served(store, sites) as client:
        rest = client.get(f"{BASE}/trajectory", params=SHAPE | wishes).json()
        (answer,) = client.post("/v1/forecasts", json={"questions": [question]}).json()["forecasts"]
        page = client.get(f"/sites/here/all?procs=4&hours=1&start_by=2h&probability={probability}")
        assert client.get(f"{BASE}/bound", params=SHAPE).json()["warning"] is None
    warning = command["warning"]
    assert rest["warning"] == answer["best_submission"]["warning"] == warning
    for shown in (text, page.text):
        assert ("recommended submissions" in shown) == (warning is not None)
        assert warning is None or f"Warning: {warning}." in shown
    return warning


@pytest.mark.parametrize(("started", "contradicts"), [(12, True), (13, False), (18, False)])
def test_submissions_that_led_to_too_few_starts_are_stated(
    vgrads, store, sites, started, contradicts
):
    """With probability .9, 12 of 20 or fewer have a chance below 1 in 1,000; 13 have not."""
    recommended(store, started, 20)
    text = (
        "of the last 20 recommended submissions with a probability of 0.90 on average, 12 led to "
        "a start in time: such probabilities are too high at present"
    )
    assert warning_of(store, vgrads, sites, 0.9) == (text if contradicts else None)


def test_statements_of_another_kind_or_probability_contradict_no_submission(vgrads, store, sites):
    scored(store, "here", "all", 100, 100, wait_s=90.0)  # that of .8 is to wait 50 s at most
    recommended(store, 0, 100)
    assert warning_of(store, vgrads, sites, 0.8) is None


@pytest.mark.parametrize(("covered", "warns"), [(179, True), (180, False)])
def test_a_queue_whose_bounds_are_exceeded_is_named_with_each_answer(
    vgrads, store, sites, covered, warns
):
    """Also with a probability and a submission."""
    scored(store, "here", "all", covered, WATCHED)
    text = "the last 200 bounds at probability 0.95 covered 89.5% of the waits"
    ranked = vgrads("where", "--sites", sites, *OPTIONS, "--json").json
    answers, texts = [*ranked["queues"]], []
    questions = (
        ("bound", {}, ()),
        ("probability", {"within_s": 600}, ("--within", "10m")),
        ("trajectory", {"start_by_s": 7200}, ("--start-by", "2h")),
    )
    for operation, _, options in questions:
        answers.append(vgrads(operation, "here/all", *OPTIONS, *options, "--json").json)
        texts.append(" ".join(vgrads(operation, "here/all", *OPTIONS, *options).out.split()))
    with served(store, sites) as client:
        for operation, more, _ in questions:
            answers.append(client.get(f"{BASE}/{operation}", params=SHAPE | more).json())
    assert len(answers) == 7
    for answer in answers:
        assert (text in (answer["warning"] or "")) == warns
    for shown in texts:
        assert (f"Warning: {text}" in shown) == warns


def test_an_answer_about_the_past_has_no_warning_of_the_present(vgrads, store, tmp_path):
    log = write_log(tmp_path / "grows.swf.gz", waits(JOBS))
    scored(store, str(log), "*", 150, WATCHED)
    assert "covered 75.0%" in vgrads("bound", log, *OPTIONS, "--json").json["warning"]
    past = vgrads("bound", log, *OPTIONS, "--at", 60_000, "--json").json
    assert past["warning"] is None


@pytest.mark.parametrize("url", [None, "nothing://there"])
def test_an_answer_about_a_file_needs_no_database(vgrads, tmp_path, monkeypatch, url):
    """And makes none."""
    if url is not None:
        monkeypatch.setenv("VGRADS_DB", url)
    answer = vgrads("bound", write_log(tmp_path / "l.swf.gz", waits(JOBS)), *OPTIONS, "--json")
    assert (answer.code, answer.json["warning"]) == (0, None)
    assert list(tmp_path.rglob("*.db")) == []


def test_records_of_right_probabilities_rarely_contradict():
    """By chance 1 in 1,000, whatever the probabilities are."""
    random, contradictions = np.random.default_rng(5), 0
    for _ in range(2000):
        stated = random.uniform(0.8, 0.9, 60)
        came_true = random.random(60) < stated
        pairs = zip(stated.tolist(), came_true.tolist(), strict=True)
        contradictions += QueueRecord(submissions=tuple(pairs)).contradiction(0.85) is not None
    assert contradictions <= 6


def test_few_statements_contradict_nothing():
    missed = ((0.95, False),)
    assert QueueRecord(submissions=19 * missed).contradiction(0.95) is None
    assert QueueRecord(submissions=20 * missed).contradiction(0.95) is not None
    assert QueueRecord(submissions=20 * missed).contradiction(0.85) is None
