"""The history of a name: its last runs, in a sentence, a picture and a table."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.portal.pages.test_states import read, text_of
from vgrads.portal.charts.history_chart import PastRun, history_chart
from vgrads.portal.web.sets.history_page import past_run, sentence_of

START = datetime(2026, 11, 1, 6, tzinfo=UTC)


def run_of(number, state="kept", took_s=3600.0, **fields):
    values = {"promised": 0.95, "deadline_s": 7200.0, "spent_usd": 1.5} | fields
    return PastRun(
        path=f"/sets/set-{number}",
        started=START + timedelta(days=number),
        state=state,
        took_s=took_s,
        **values,
    )


def test_the_sentence_counts_runs_with_a_verdict():
    runs = [run_of(1), run_of(2, "broken", 8000.0), run_of(3), run_of(4, "cancelled", None)]
    assert sentence_of(runs) == (
        "2 of the last 3 runs kept the deadline; 95\u202f% was promised on average. "
        "Half of them took less than 1h; they cost $4.50 in all."
    )
    assert sentence_of([runs[3]]) == "No run of this name has ended with a verdict yet."


def test_the_picture_has_a_column_for_each_run_and_bars_within_it():
    runs = [
        run_of(1),
        run_of(2, "broken", 72_000.0),
        run_of(3, "failed", None, promised=None, spent_usd=None),
        run_of(4, took_s=0.0),
    ]
    svg = history_chart(runs)
    assert svg.count("<a href=") == 4 and svg.count("↑") == 1  # ten times the deadline
    for y, height in re.findall(r'<rect [^>]*y="([\d.]+)" [^>]*height="([\d.]+)"', svg):
        assert float(y) >= 16.0 and float(y) + float(height) <= 147.1
    assert svg.count('class="sign good"') == 2 and svg.count('class="sign bad"') == 1


@pytest.mark.parametrize(
    ("finished", "needed", "took_s"), [({"a": 9.0, "b": 4.0}, 1, 4.0), ({}, 1, 50.0), ({}, 0, 50.0)]
)
def test_the_time_is_that_until_enough_was_done(finished, needed, took_s):
    outcome = {"finished_s": finished, "needed": needed, "ended_s": 50.0}
    row = {"set": "s", "started": START.isoformat(), "state": "kept", "outcome": outcome}
    run = past_run(row, {"promise": {"probability": 0.9}, "deadline_s": 60.0})
    assert (run.took_s, run.promised, run.deadline_s) == (took_s, 0.9, 60.0)


def test_the_page_shows_the_runs_of_a_name_and_is_linked(gallery, client):
    page = read(client, f"/sets/{gallery.ids['met']}")
    path = "/history?name=lead-met&amp;owner=ann"
    assert path in page
    history = read(client, path.replace("&amp;", "&"))
    assert re.search(r"\d of the last \d+ runs? kept the deadline", text_of(history))
    assert f"/sets/{gallery.ids['met']}" in history and 'class="history"' in history
    run = gallery.store.list_runs(gallery.ids["met"])[0]
    assert 0.0 < json.loads(run.outcome)["promised"] <= 1.0


def test_a_name_without_runs_and_bad_names(client):
    assert "No set of this name has run." in read(client, "/history?name=nothing&owner=ann")
    for wrong in ("", "?name=", f"?name={'x' * 201}"):
        assert client.get(f"/history{wrong}").status_code == 422
