"""The instant to submit is chosen at a level that follows the outcomes of earlier recommendations,
in every interface; each says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portal.forecasts.logs_that_grow import JOBS, SHAPE, recommended, write_log
from tests.portal.forecasts.scored_service import add_site, served
from tests.portal.forecasts.test_scores import waits
from vgrads.api.queues.forecast_scores import QueueRecord, ScoredForecast, pair_promises
from vgrads.portal.records.reading.forecast_scores import read_stored_record
from vgrads.vgrid.varq_record import adapt, compute_required_level

OPTIONS = ("--procs", 4, "--walltime", "1h")


@pytest.fixture
def grid(vgrads, store, tmp_path):
    """A site, in a file and in the database."""
    return add_site(vgrads, tmp_path)


def plain_words(text):
    return " ".join(text.replace("\u202f", " ").split())


def trajectory_of(store, vgrads, grid, probability):
    """Return the answer of the command and its text, after comparison with REST, list and page."""
    wishes = {"start_by_s": 7200, "probability": probability}
    words = ("here/all", *OPTIONS, "--start-by", "2h", "--probability", probability)
    command = vgrads("trajectory", *words, "--json").json
    text = plain_words(vgrads("trajectory", *words).out)
    question = {"site": "here", "queue": "all", **SHAPE, **wishes}
    with served(store, grid) as client:
        base = "/v1/sites/here/queues/all"
        rest = client.get(f"{base}/trajectory", params=SHAPE | wishes).json()
        (answer,) = client.post("/v1/forecasts", json={"questions": [question]}).json()["forecasts"]
        url = f"/sites/here/all?procs=4&hours=1&start_by=2h&probability={probability}"
        page = plain_words(client.get(url).text)
    assert rest | {"reason": None} == command  # a service that learns says so
    best = answer["best_submission"]
    for name in ("level", "level_reason", "warning"):
        assert best[name] == command[name]
    assert best["meets_request"] == (command["submit_in_s"] is not None)
    for shown in (text, page):
        assert ("an instant must reach" in shown.lower()) == (command["level_reason"] is not None)
        assert command["level_reason"] is None or command["level_reason"][1:] + "." in shown
    return command, text, page


def test_broken_promises_raise_the_level_and_each_interface_says_so(vgrads, store, grid):
    plain, _, _ = trajectory_of(store, vgrads, grid, 0.75)
    assert (plain["level"], plain["level_reason"]) == (0.75, None)
    assert plain["probability"] >= 0.75
    recommended(store, 26, 30, probability=0.78, promised=0.75)
    answer, _, _ = trajectory_of(store, vgrads, grid, 0.75)
    level = 0.75 + 4 * 0.03 * 0.75  # four in a row
    assert answer["level"] == pytest.approx(level)
    assert answer["level_reason"] == (
        "an instant must reach probability 0.84 here, not 0.75: of the last 30 submissions "
        "recommended for 0.75, 26 led to a start in time (the newest count most)"
    )
    assert answer["probability"] >= level > plain["probability"]
    assert answer["submit_in_s"] < plain["submit_in_s"]
    assert answer["trajectory"] == plain["trajectory"]


def test_what_the_level_answers_is_no_warning_but_where_no_instant_reaches_it_is(
    vgrads, store, grid
):
    recommended(store, 0, 30, probability=0.99, promised=0.5)
    answer, _, _ = trajectory_of(store, vgrads, grid, 0.5)
    assert answer["level"] == pytest.approx(0.95)
    assert answer["submit_in_s"] is not None
    assert answer["warning"] is None
    recommended(store, 0, 30, probability=0.995, promised=0.98)
    refused, text, page = trajectory_of(store, vgrads, grid, 0.98)
    assert refused["level"] == pytest.approx(0.998)
    assert refused["submit_in_s"] is None
    assert "No submission reaches probability 0.998" in text
    assert "No instant reaches a probability of 99.8 %" in page


@pytest.mark.parametrize(
    ("started", "of", "promised"), [(0, 19, 0.75), (30, 30, 0.75), (0, 30, 0.5), (0, 30, None)]
)
def test_few_good_and_other_outcomes_change_nothing(vgrads, store, grid, started, of, promised):
    """Of what was recommended for another probability, and of what sufficed for none."""
    recommended(store, started, of, probability=0.99, promised=promised)
    answer, _, _ = trajectory_of(store, vgrads, grid, 0.75)
    assert (answer["level"], answer["level_reason"]) == (0.75, None)


def test_recommended_submissions_are_on_record_as_promises_where_they_suffice(vgrads, tmp_path):
    later = [*waits(JOBS), *[5.0] * 12, *[3000.0] * 6, *[5.0] * 24]
    log = tmp_path / "grows.swf.gz"
    words = (log, *OPTIONS, "--method", "qbets", "--start-by", "25m", "--json")
    for jobs in (JOBS, JOBS + 12):  # the next job starts at once, or too late
        write_log(log, later[:jobs])
        answers = [vgrads("trajectory", *words, "--probability", p).json for p in (0.5, 0.9999)]
        assert [answer["submit_in_s"] is None for answer in answers] == [False, True]
    write_log(log, later)
    assert vgrads("score", log, "*", "--json").json["scored"] == 4
    record = read_stored_record(str(log), "*")
    assert record.promises == ((0.5, True), (0.5, False))
    assert len(record.submissions) == 4


# the record


def promise(job_s, in_time, promised=0.9, within_s=60.0):
    return ScoredForecast(
        probabilities=((within_s, 0.95),),
        wait_s=1.0 if in_time else 5000.0,
        job_submit_s=job_s,
        promised=promised,
    )


def test_promises_are_in_the_order_of_their_outcomes_and_one_job_counts_once():
    newest_first = [
        promise(100.0, in_time=True),
        promise(100.0, in_time=False),  # of the same job, older
        promise(100.0, in_time=False, promised=0.5),
        promise(90.0, in_time=False, within_s=600.0),  # known after the other
        promise(120.0, in_time=False, promised=None),
        promise(None, in_time=True),
    ]
    assert pair_promises(newest_first) == [(0.9, True), (0.5, False), (0.9, False)]


@given(st.lists(st.booleans(), max_size=80), st.sampled_from([0.5, 0.75, 0.9, 0.95]))
def test_the_level_follows_the_outcomes_and_stays_possible(outcomes, probability):
    level = compute_required_level(probability, outcomes).level
    allowed = 1.0 - probability
    for outcome in outcomes:
        allowed = adapt(allowed, probability, outcome)
    expected = 1.0 - allowed if len(outcomes) >= 20 else probability
    assert level == pytest.approx(expected)
    assert probability <= level < 1.0
    record = QueueRecord(promises=tuple((probability, outcome) for outcome in outcomes))
    assert record.level(probability).level == level
    assert record.level(0.6).level == 0.6
