"""The page of a queue: the predictor that answers, from a history's file to text and pictures."""

import html
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tests.logs import make_log, queued_log
from tests.portal.forecasts.learning import learn
from tests.portal.forecasts.logs_that_grow import UNIX_START, scored, swf
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.operations.queue_questions import JobLimits
from vgrads.portal.charts import queue_record
from vgrads.portal.charts.queue_record import BoundRecord, history_svg, record_of
from vgrads.portal.charts.wait_axis import WaitAxis
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.forecasts.queue_now import best_submission, submission_sentence
from vgrads.portal.web.forecasts.queue_waits import MachineLoad, load_of, usual_shapes
from vgrads.portal.web.forecasts.record_verdict import judge_record
from vgrads.portal.web.service import Bounds
from vgrads.qbets.backtest import backtest
from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.state_forecast import PresentQueue, make_forecast
from vgrads.qbets.views import ENDED
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.varq import Trajectory

WAITS = np.random.default_rng(1).exponential(300.0, 900).round()
PAGE = {"accept": "text/html"}
SITES = """
[[site]]
name = "m"
kind = "batch"
procs = 64
[[site.queue]]
name = "all"
history = "all.swf"
max_walltime = "24h"
[[site.queue]]
name = "few"
history = "few.swf"
[[site.queue]]
name = "none"
"""


@pytest.fixture
def client(store, tmp_path):
    (tmp_path / "all.swf").write_text(swf(WAITS))
    (tmp_path / "few.swf").write_text(swf(WAITS[:9]))
    (tmp_path / "sites.toml").write_text(SITES)
    app = make_app(store, load_catalog(tmp_path / "sites.toml"), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        opened.learned = app.state.service.learned
        opened.queues = {q.name: q for q in app.state.service.catalog.site("m").queues}
        yield opened


def text_of(client, queue, wishes=""):
    """The page of a queue as text, once its state is learned; narrow spaces as spaces."""
    entry = client.queues[queue]
    if entry.history:
        client.get(f"/sites/m/{queue}", headers=PAGE)
        learn(client.learned, entry)
    answer = client.get(f"/sites/m/{queue}{wishes}", headers=PAGE)
    assert answer.status_code == 200
    return answer.text.replace("\u202f", " ")


def numbers(page):
    facts = re.findall(r'class="fact"><b[^>]*>([^<]*)</b><span>([^<]*)', page)
    return {name: value for value, name in facts}


def test_a_page_names_the_method_and_shows_curve_instant_and_jobs(client):
    page = text_of(client, "all", "?procs=4&hours=1")
    assert "Method <code>state</code>" in page
    assert re.search(r'<td class="n">[\d.]+ min</td>', page)
    assert " h</td>" not in page  # waits of minutes
    curve = re.search(r'<svg class="wait-curve".*?</svg>', page).group()
    assert curve.count('class="mark"') == 5
    assert curve.count('class="band"') == 1
    assert ">0</text>" in curve
    assert "1 min</text>" in curve
    assert re.search(r"Submit within the next \d+ min to start within \d+ [^<]* of 90 %", page)
    assert "Half of the jobs of 4 processors for 1h start within " in page
    assert re.search(r"start within [\d.]+ min, 95 in 100 within [\d.]+ min\.", page)
    assert "the end of its history" in page  # a simulated queue has no other present
    assert numbers(page) == {"past answers": "no record yet"}
    assert page.count('href="?procs=') == 9  # three widths, three times
    assert "Waits by week of submission" not in page  # a history of days
    assert "There are too few jobs" not in page
    shown = "The history shows neither waiting nor running jobs as of 2023-11-2"
    assert shown in " ".join(page.split())
    assert '"/sites/m/all/score"' in page


def test_the_page_and_its_picture_state_the_same_method_as_the_api(client):
    page = text_of(client, "all", "?procs=4&hours=1")
    bound = client.get("/v1/sites/m/queues/all/bound?procs=4&walltime_s=3600").json()
    assert bound["method"] == "state"
    shown = re.findall(r'<td class="n">([\d.]+) min</td>', page)[3]
    assert float(shown) == pytest.approx(bound["bound_s"] / 60, rel=0.05)
    picture = client.get("/sites/m/all/record.svg").text.replace("\u202f", " ")
    assert "(method state)" in picture
    assert "10 min</text>" in picture
    assert "hours" not in picture


def test_an_instant_that_cannot_be_reached_is_reported_with_the_best_one(client):
    page = text_of(client, "all", "?procs=4&hours=1&start_by=1m&probability=0.98")
    assert "No instant reaches a probability of 98 %" in page
    assert re.search(r"the best, (now|in \d+ min), reaches \d+ %", page)
    longer = text_of(client, "all", "?procs=4&hours=23.5&start_by=3h")
    assert "between 2 h 30 min and 2 h" in longer  # the queue's limit


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ("procs=4&hours=25", "a requested time of 1d 1h is more than 'm/all' permits (1d)"),
        ("procs=9999&hours=1", "9,999 processors are more than 'm/all' permits (64)"),
    ],
)
def test_a_job_that_can_never_start_is_refused_in_the_same_words(client, shape, reason):
    page = client.get(f"/sites/m/all?{shape}")
    text = html.unescape(page.text)
    assert (page.status_code, reason in text) == (422, True), text
    assert 'name="procs"' in page.text  # the form, to ask again
    procs, hours = (part.partition("=")[2] for part in shape.split("&"))
    address = f"/v1/sites/m/queues/all/bound?procs={procs}&walltime_s={int(hours) * 3600}"
    answer = client.get(address)
    assert (answer.status_code, reason in answer.text) == (422, True), answer.text


@pytest.mark.parametrize("start_by", ["soon", "0", "40d", "-1h"])
def test_a_start_that_is_no_duration_of_a_month_is_refused(client, start_by):
    answer = client.get(f"/sites/m/all?start_by={start_by}", headers=PAGE)
    assert answer.status_code == 422
    assert "start_by" in answer.text


def test_a_short_history_is_answered_from_past_waits_or_not_at_all(client):
    page = text_of(client, "few")
    assert "Method <code>qbets</code>" in page
    assert "too few jobs to learn the state" in page
    assert "There are too few waits to say." in page
    assert "wait-curve" not in page
    assert numbers(page) == {"past answers": "no record yet"}
    assert re.search(r"Half of the jobs of 1 processor for 1h start within [\d.]+ min\.", page)
    assert "Too few waits" in client.get("/sites/m/few/record.svg").text


def test_a_queue_without_history_says_so(client):
    page = text_of(client, "none")
    assert "no history yet" in page
    assert "<svg" not in page
    assert client.get("/sites/m/none/record.svg").status_code == 404


@pytest.mark.parametrize(
    ("covered", "of", "sentence"),
    [
        (30, 40, "30 of the last 40 answers at 95 % were right"),
        (300, 300, "300 of the last 300 answers at 95 % were right"),
        (500, 600, "400 of the last 500 answers at 95 % were right"),
    ],
)
def test_the_page_reports_how_its_answers_did(client, store, covered, of, sentence):
    assert "No job that an answer was about has started." in text_of(client, "few")
    scored(store, "m", "few", covered, of)
    client.app.state.service.forecasts.score()
    page = text_of(client, "few")
    assert sentence in page
    assert ("Warning: the last 200 bounds" in page) == (of == 600)


def test_running_jobs_and_free_processors_are_counted():
    log = queued_log(1500)
    forecast = make_forecast(log, log.end_s, AS_QUESTION)
    waiting = [(50.0, JobArrival(procs=8, request_s=60.0)), (900.0, JobArrival(procs=3))]
    running = [(10.0, JobArrival(procs=20, request_s=600.0))]
    present = PresentQueue(taken_s=log.end_s + 100, waiting=waiting, running=running)
    load = load_of(forecast.with_queue(present))
    assert load == MachineLoad(running=1, free=44, most=64)
    assert load_of(make_forecast(make_log(50), 0.0, AS_QUESTION)) is None
    ended = make_forecast(log, log.end_s, replace(AS_QUESTION, view=ENDED))
    assert load_of(ended) is None


# the record


def test_the_record_is_that_of_the_whole_log_for_jobs_of_the_queue():
    log = queued_log(1500)
    log = replace(log, queue=np.arange(1500) % 2 + 1, queue_names={1: "a", 2: "b"})
    whole = backtest(log, "log", "*", replace(AS_QUESTION, view=ENDED))
    record = record_of(log, "b")
    own = whole.scored & (log.queue == 2)
    assert record.by_state
    assert record.changes == ()
    assert np.array_equal(record.submit_s, log.submit_s[own])
    assert np.array_equal(record.bound_s, whole.issued_s[own])
    assert np.array_equal(record.wait_s, log.wait_s[own])


def test_too_few_jobs_for_a_state_are_drawn_with_bounds_from_past_waits():
    log = make_log(300)
    record = record_of(log, None)
    trial = backtest(log, "log", "*", replace(AS_QUESTION, method="qbets", view=ENDED))
    assert not record.by_state
    assert np.array_equal(record.bound_s, trial.issued_s[trial.scored])
    assert "(method qbets)" in history_svg(record)


def test_only_the_newest_part_of_a_long_log_is_replayed(monkeypatch):
    monkeypatch.setattr(queue_record, "_MOST_DRAWN", 400)
    monkeypatch.setattr(queue_record, "_LEARNED_BEFORE", 800)
    log = queued_log(2000)
    record = record_of(log, None)
    assert record.by_state
    assert record.submit_s[0] >= log.submit_s[1600]
    assert len(record.submit_s) > 300
    old = replace(log, queue=np.where(np.arange(2000) < 100, 1, 2), queue_names={1: "a", 2: "b"})
    assert "Too few waits" in history_svg(record_of(old, "a"))


@pytest.mark.parametrize(
    ("scale", "labels", "missing"),
    [
        (5.0, {"0", "1 s", "10 s"}, {"1 h", "1 d"}),
        (300.0, {"0", "1 min", "10 min"}, {"1 d"}),
        (2e4, {"0", "1 h", "5 h", "1 d"}, {"1 s", "10 s"}),
    ],
)
def test_the_axis_has_the_units_of_the_waits(scale, labels, missing):
    waits = np.random.default_rng(2).exponential(scale, 1000)
    record = BoundRecord(
        submit_s=np.arange(1000.0),
        wait_s=waits,
        bound_s=np.full(1000, 3 * scale),
        unix_start_s=UNIX_START,
        level=0.95,
        by_state=True,
    )
    words = set(re.findall(r">([^<>]+)</text>", history_svg(record).replace("\u202f", " ")))
    assert labels <= words
    assert not missing & words


@given(st.floats(0.0, 1e7), st.floats(0.0, 1e8))
def test_an_axis_begins_at_0_and_its_labels_are_apart(usual_s, high_s):
    axis = WaitAxis.up_to(usual_s, high_s)
    ticks = axis.ticks(0.08)
    places = [axis.share(seconds) for seconds, _ in ticks]
    assert ticks[0] == (0.0, "0")
    assert all(later - earlier >= 0.08 for earlier, later in pairwise(places))
    assert places[-1] <= 1.0
    assert axis.wait_at(axis.share(axis.high_s / 2)) == pytest.approx(axis.high_s / 2)


# the best instant


def path(chances, chosen, step_s=600.0):
    return Trajectory(
        submit_s=np.arange(len(chances)) * step_s,
        probabilities=np.array(chances),
        walltimes_s=np.full(len(chances), 3600.0),
        chosen=chosen,
    )


@pytest.mark.parametrize(
    ("chances", "chosen", "begin", "end"),
    [
        ([0.95, 0.93, 0.91, 0.5], 2, "", "20 min"),
        ([0.95, 0.5, 0.91, 0.92, 0.1], 3, "20 min", "30 min"),
        ([0.95, 0.5, 0.3], 0, "", ""),
    ],
)
def test_the_instants_that_suffice_have_no_gap(chances, chosen, begin, end):
    best = best_submission(path(chances, chosen), 0.9)
    spaced = [best[name].replace("\u202f", " ") for name in ("from", "until")]
    assert (best["suffices"], spaced) == (True, [begin, end])


def test_the_best_instant_is_reported_where_none_suffices():
    best = best_submission(path([0.4, 0.7, 0.1], None), 0.9)
    assert (best["suffices"], best["probability"]) == (False, 0.7)
    assert best["until"].replace("\u202f", " ") == "10 min"
    assert not best_submission(path([0.0, 0.0], None), 0.9)["permitted"]


@pytest.mark.parametrize(
    ("chances", "chosen", "words"),
    [
        ([0.95, 0.93, 0.5], 1, "Submit within the next 10 min to start by noon with"),
        ([0.95, 0.5, 0.91, 0.1], 2, "Submit in 20 min to start by noon"),
        ([0.95, 0.5, 0.91, 0.92], 3, "Submit between 20 min and 30 min from now to start"),
        ([0.95, 0.5], 0, "Submit now to start by noon with a probability of 90 %."),
        ([0.4, 0.7], None, "of 90 % of a start by noon: the best, in 10 min, reaches 70 %."),
        ([0.0, 0.0], None, "a start by noon: the best has 0."),
    ],
)
def test_the_instant_is_in_words(chances, chosen, words):
    best = best_submission(path(chances, chosen), 0.9)
    sentence = submission_sentence(best, Markup("by noon"), 0.9, 0.9)
    assert words in sentence.replace("\u202f", " ")


# usual jobs, and the verdict on past answers


@given(st.integers(1, 10**6), st.floats(60.0, 1e6) | st.just(math.inf))
def test_usual_jobs_are_those_that_the_queue_permits(procs, walltime_s):
    shapes = usual_shapes(JobLimits(place="it permits", procs=procs, walltime_s=walltime_s))
    assert 1 <= len(shapes) <= 3
    assert len(set(shapes)) == len(shapes)
    assert shapes == sorted(shapes)
    assert all(1 <= p <= procs and 0 < s <= walltime_s for p, s in shapes)


@pytest.mark.parametrize(
    ("bounds", "share", "warning", "word", "tone"),
    [
        (0, None, None, "no record yet", "soft"),
        (12, 1.0, None, "few yet", "soft"),
        (12, 0.5, None, "too low", "warn"),
        (300, 0.96, None, "reliable", "good"),
        (300, 0.96, "unknown outcomes", "too low", "warn"),
    ],
)
def test_a_record_has_one_word_and_one_colour(bounds, share, warning, word, tone):
    verdict = judge_record(bounds, share, warning)
    assert (verdict.word, verdict.tone) == (word, tone)


# all queues


def test_all_queues_are_in_one_table_with_the_jobs_that_they_permit(client):
    client.get("/sites", headers=PAGE)
    for queue in ("all", "few"):
        learn(client.learned, client.queues[queue])
    page = client.get("/sites", headers=PAGE).text.replace("\u202f", " ")
    rows = re.findall(r"<tr>\s*<td><a href=.*?</tr>", page, re.DOTALL)
    assert [re.search(r"</b>/(\w+)</a>", row)[1] for row in rows] == ["all", "few", "none"]
    words = [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in rows]
    for job in ("1 processor, 1h", "4 processors, 4h", "16 processors, 12h"):
        assert job in words[0]
    assert re.search(r"[\d.]+ min ≤ [\d.]+ min 1 processor, 1h", words[0])
    assert "≤" not in words[1]  # too few jobs to say what 95 in 100 wait
    assert "Not predicted: it has no history." in words[2]
    assert all("no record yet" in row for row in words)


def test_a_history_that_cannot_be_read_spoils_only_its_own_row(client):
    Path(client.queues["few"].history).write_text("no log at all\n")
    page = client.get("/sites", headers=PAGE)
    assert page.status_code == 200
    assert "Not predicted: " in page.text
    assert "1 processor, 1h" in page.text


def test_the_next_maintenance_is_announced(store, tmp_path):
    (tmp_path / "all.swf").write_text(swf(WAITS))
    closed = 'closed = ["Tue 06:00/4h"]\n'
    text = SITES.replace('kind = "batch"\n', f'kind = "batch"\n{closed}', 1)
    (tmp_path / "few.swf").write_text(swf(WAITS[:9]))
    (tmp_path / "sites.toml").write_text(text)
    app = make_app(store, load_catalog(tmp_path / "sites.toml"), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        for address in ("/sites", "/sites/m/all"):
            assert ", every week: " in opened.get(address, headers=PAGE).text
