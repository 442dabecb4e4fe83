"""A page for each state of a set, as a person reads it: is it in time, what is wrong, what can I
do? Without a browser."""

import asyncio
import html
import json
import re

import pytest
from fastapi.testclient import TestClient

from tests.portal.pages.gallery import IMPOSSIBLE, STORM, Gallery
from tests.portal.serving import SMALL
from tests.waiting import until
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.kernel.progress import report_progress, send_progress
from vgrads.kernel.promise_state import promise_state
from vgrads.portal.jobs.run_attempts import RunAttempts
from vgrads.portal.jobs.worker import plan_stored_set, workflow_set_of
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.store import Store
from vgrads.portal.records.work import PLAN, ProgressRecorder, Works
from vgrads.portal.web.app import make_app
from vgrads.portal.web.set_display import (
    AT_RISK,
    BELOW,
    ON_TRACK,
    PromiseSummary,
    display_state,
)
from vgrads.portal.web.set_document import changed_document
from vgrads.portal.web.sets.remedies import remedies, rounded_up
from vgrads.workflows.sets import SetDocument

pytestmark = pytest.mark.more  # runs a set in every state

PAGE = {"Accept": "text/html"}
EXPECTED = {
    "received": ("Received.", "Requested: 6 of 8 workflows within 2h"),
    "planning": ("Planning", "placing workflows, 120 of 298"),
    "planned": ("Ready to run:", "6 workflows are done within 2h"),
    "below": ("Below the request:", "97 % requested"),
    "impossible": ("Impossible as requested:", "takes 1h 23m on the fastest site"),
    "not-planned": ("Not planned.", "the history of a queue cannot be read"),
    "running": ("On track", "6 of 8 workflows are done by"),
    "at-risk": ("At risk", "8 of 8 workflows are done by"),
    "met": ("Met:", "6 were needed"),
    "missed": ("Missed:", "8 were needed"),
    "cancelled": ("Cancelled by ann.", "The promised probability was"),
    "failed": ("Failed:", "its process died 3 times"),
}
"""The first words of the sentence, and words that follow."""
CHART = {"planned", "below", "running", "at-risk", "met", "missed", "cancelled", "failed"}
ACTIVE = {"running", "at-risk"}
LIVE = {"received", "planning"} | ACTIVE
NAMES = ["<img src=x onerror=alert(1)>&\"'", "ع" * 200, "مجموعة العواصف \u202ex", "w" * 200]


def read(client, path):
    answer = client.get(path, headers=PAGE)
    assert answer.status_code == 200, answer.text[-500:]
    return answer.text


def read_state(gallery, client, state):
    """The page of a set; of one that runs, once the probability of its promise is computed."""
    status = f"/v1/workflow-sets/{gallery.ids[state]}/status"
    if state in ACTIVE:
        until(lambda: client.get(status).json()["promise_now"] is not None, "the probability")
    return read(client, f"/sets/{gallery.ids[state]}")


def text_of(fragment):
    """The words of a part of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", fragment)).split())


def sentence_of(page):
    (sentence,) = re.findall(r'<p class="sentence">(.*?)</p>', page, re.DOTALL)
    return text_of(sentence)


def figures_of(page):
    return [text_of(number) for number in re.findall(r'<div class="fact"><b>(.*?)</b>', page)]


@pytest.mark.parametrize("state", EXPECTED)
def test_a_page_answers_in_its_first_sentence(gallery, client, state):
    page = read_state(gallery, client, state)
    first, then = EXPECTED[state]
    sentence = sentence_of(page)
    assert sentence.startswith(first)
    assert then in sentence or then in text_of(page)
    assert ('id="gantt"' in page) == (state in CHART)  # no empty chart
    assert ('http-equiv="refresh"' in page) == (state in LIVE)  # it renews without scripts too
    assert not re.search(r"\b\d{4,} s\b", page)  # durations for people


@pytest.mark.parametrize("state", EXPECTED)
def test_a_run_in_trouble_says_what_delayed_it(gallery, client, state):
    page = read_state(gallery, client, state)
    part = re.search(r'<ul class="delays">(.*?)</ul>', page, re.DOTALL)
    lines = [html.unescape(line) for line in re.findall(r"<li>(.*?)</li>", part[1])] if part else []
    status = client.get(f"/v1/workflow-sets/{gallery.ids[state]}/status").json()
    assert lines == (status.get("delays", []) if state in {"at-risk", "missed", "failed"} else [])


@pytest.mark.parametrize("state", EXPECTED)
def test_no_figure_repeats_the_sentence(gallery, client, state):
    page = read_state(gallery, client, state)
    words = sentence_of(page)
    repeated = [f for f in figures_of(page) if re.search(rf"(?<!\w){re.escape(f)}(?!\w)", words)]
    # a count of slots may be the same number as one of workflows
    assert [figure for figure in repeated if not figure.isdigit()] == []
    assert len(figures_of(page)) >= (3 if state in CHART - {"planned"} else 0)


def test_a_set_below_its_request_warns_and_offers_remedies(gallery, client):
    page = read(client, f"/sets/{gallery.ids['below']}")
    assert 'class="answer tone-warn"' in page
    assert "Run anyway …" in page
    assert 'class="button main"' not in page
    titles = re.findall(r"<button type=\"submit\"><b>([^<]+)</b>", page)
    kinds = {title.partition(":")[0] for title in titles}
    assert kinds
    assert kinds <= {"Fewer workflows", "More money", "Later deadline"}
    confirm = read(client, f"/sets/{gallery.ids['below']}/run")
    assert "below the 97 % requested" in text_of(confirm)


@pytest.mark.parametrize("state", ["below", "impossible"])
def test_a_button_submits_the_changed_set_that_then_meets_the_request(
    gallery, client, state, monkeypatch
):
    monkeypatch.setenv("VGRADS_EFFORT", "1")
    page = read(client, f"/sets/{gallery.ids[state]}")
    forms = re.findall(r'action="/sets/[^"]+/change">(.*?)</form>', page, re.DOTALL)
    for form in forms:
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        for _ in range(2):  # a second click adds nothing
            answer = client.post(f"/sets/{gallery.ids[state]}/change", data=fields, headers=PAGE)
            assert answer.status_code == 303
        created = answer.headers["location"].removeprefix("/sets/")
        plan_stored_set(gallery.store, gallery.catalog, created)
        promise = gallery.sets.head(created).summary["promise"]
        error = 3 * promise["standard_error"]  # its search may end elsewhere
        assert promise["probability"] >= promise["requested"] - error, fields
    assert forms


@pytest.mark.parametrize("state", EXPECTED)
def test_parts_that_are_opened_directly_are_pages(gallery, client, state):
    for part in ("status", "tasks", "graph"):
        page = read(client, f"/sets/{gallery.ids[state]}/{part}")
        assert "<header" in page
        assert f'href="/sets/{gallery.ids[state]}"' in page


def test_the_graph_shows_the_state_of_each_task(gallery, client):
    set_id = gallery.ids["running"]
    graph = read(client, f"/sets/{set_id}/graph?workflow=lead-2")
    assert len(re.findall(r'class="node state-(\w+)"', graph)) == 6
    rows = client.get(f"/v1/workflow-sets/{set_id}/gantt").json()["placements"]
    done = {p["task"] for p in rows if p["workflow"] == "lead-2" and p["state"] == "done"}
    assert graph.count('class="node state-done"') == len(done) > 0
    assert client.get(f"/sets/{set_id}/graph?workflow=none", headers=PAGE).status_code == 404


# while the service is busy


def test_a_table_of_a_busy_service_has_exit_codes_and_durations(gallery, client):
    service = client.app.state.service
    run = service.newest_run(gallery.ids["met"])

    async def never(*_):
        await asyncio.Event().wait()

    busy = RunAttempts(service.live, never, gallery.store.url, patience_s=0.01)
    rows, complete = asyncio.run(busy.of(run))
    whole, _ = asyncio.run(service.attempts.of(run))
    assert not complete
    ended = [row for row in rows if row["state"] == "done"]
    assert len(ended) > 40
    assert all(row["exit"] == 0 and row["seconds"] > 0 for row in ended)
    keys = {(row["workflow"], row["task"], row["copy"]) for row in rows}
    assert keys == {(row["workflow"], row["task"], row["copy"]) for row in whole}


# planning


def test_planning_reports_its_phases_in_order(gallery):
    reports = []
    set_id = gallery.add(IMPOSSIBLE | {"name": "phases"})
    with send_progress(reports.append):
        plan_stored_set(gallery.store, gallery.catalog, set_id)
    assert reports == []  # those of a stored set go to its row
    with send_progress(reports.append):
        grid = open_grid(
            gallery.catalog, notify=report_progress, observed=gallery.store.acquisitions()
        )
        plan_set(workflow_set_of(SetDocument.model_validate(IMPOSSIBLE)), grid)
    phases = list(dict.fromkeys(report.phase for report in reports))
    assert phases[0].startswith("learning from the history of")
    assert phases[-1] == "looking for changes that meet the request"
    assert "placing workflows" in phases
    assert all(report.done <= report.total for report in reports if report.total)


def test_progress_is_stored_with_the_work_and_shown(gallery, client):
    set_id = gallery.add(STORM | {"name": "progress"})
    works = Works(gallery.store.engine)
    assert works.planning(set_id).taken is False
    work, busy = None, []
    while work is None or work.set_id != set_id:
        work = works.claim("me", [PLAN], busy)
        busy.append(work.id)
    record = ProgressRecorder(gallery.store.engine, set_id, interval_s=0.0)
    with send_progress(record):
        report_progress("placing workflows", 2, 9)
    shown = works.planning(set_id)
    assert (shown.taken, shown.phase, shown.done, shown.total) == (True, "placing workflows", 2, 9)
    assert "placing workflows, 2 of 9" in read(client, f"/sets/{set_id}/status")
    works.finish(work, True)
    assert works.planning(set_id) is None


# words and remedies


def test_a_run_is_at_risk_when_its_probability_is_clearly_below_the_request():
    promise = PromiseSummary(feasible=True, probability=0.9, requested=0.9, needed=1)
    for now, expected in ((0.9, ON_TRACK), (0.86, ON_TRACK), (0.84, AT_RISK), (0.0, AT_RISK)):
        word = promise_state(now, promise.requested)
        assert display_state("planned", "running", promise, word) == expected
    low = PromiseSummary(feasible=True, probability=0.6, requested=0.9)
    assert display_state("planned", None, low) == BELOW
    assert display_state("planned", "running", low) == ON_TRACK  # not computed yet


def test_remedies_are_in_human_units_and_leave_out_what_helps_nobody():
    promise = PromiseSummary(deadline_s=7200.0, needed=8, budget_usd=10.0)
    change = {"probability": 0.95, "cost_usd": 3.0}
    rows = [
        {"unit": "s", "amount": 1234.5, **change},
        {"unit": "workflows", "amount": 3.0, **change},
        {"unit": "USD", "amount": 2.005, **change},
        {"unit": "processors", "amount": 64.0, **change},
        {"unit": "s", "amount": 155_476_800.0, **change},
        {"unit": "workflows", "amount": 8.0, **change},
    ]
    result = [(r.field, r.value, r.title) for r in remedies({"relaxations": rows}, promise)]
    assert result == [
        ("deadline_s", "8460", "Later deadline: 2h 21m"),
        ("needed", "5", "Fewer workflows: 5"),
        ("budget_usd", "12.01", "More money: $12.01"),
    ]
    assert rounded_up(60.2) == 61.0


def test_a_changed_set_keeps_all_else():
    text = json.dumps({"name": "n", "deadline": "2h", "fraction": 0.5, "workflows": []})
    changed = changed_document(text, 7200.0, {"needed": 3, "deadline_s": 9000.0})
    assert changed["at_least"] == 3
    assert changed["fraction"] is None
    assert (changed["deadline"], changed["name"]) == (9000.0, "n")
    instant = json.dumps({"deadline": "2030-01-01T10:00:00+00:00"})
    moved = changed_document(instant, 3600.0, {"deadline_s": 7200.0})
    assert moved["deadline"] == "2030-01-01T11:00:00+00:00"


def test_a_set_is_deleted_after_a_question(gallery, client):
    set_id = gallery.planned(SMALL | {"name": "to-be-deleted"})
    gallery.run(set_id)
    page = read(client, f"/sets/{set_id}")
    assert f'href="/sets/{set_id}/delete"' in page
    question = read(client, f"/sets/{set_id}/delete")
    assert "Deleted from the records: its plan and 1 run, also" in text_of(question)
    assert gallery.sets.head(set_id) is not None  # a question changes nothing
    answer = client.post(f"/sets/{set_id}/delete", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert client.get(f"/sets/{set_id}", headers=PAGE).status_code == 404
    assert client.post(f"/sets/{set_id}/delete").status_code == 404


def test_a_set_that_runs_is_not_deleted(gallery, client):
    set_id = gallery.ids["running"]
    assert f"/sets/{set_id}/delete" not in read(client, f"/sets/{set_id}")
    assert client.post(f"/sets/{set_id}/delete").status_code == 409


def test_a_change_of_nonsense_is_refused(gallery, client):
    path = f"/sets/{gallery.ids['below']}/change"
    for fields in ({"deadline_s": "-1"}, {"needed": "0"}, {"budget_usd": "x"}, {"needed": "99"}):
        answer = client.post(path, data={"key": "nonsense", **fields}, headers=PAGE)
        assert answer.status_code == 422, fields


# the dashboard


def names_on(page):
    return re.findall(r'<a href="/sets/set-\w+" dir="auto">([^<]*)</a>', page)


def test_the_dashboard_begins_with_what_is_at_risk(gallery, client):
    """The probabilities of active runs are computed after a view, for the next one."""
    until(lambda: names_on(read(client, "/"))[0] == "lead-at-risk")
    page = read(client, "/")
    assert names_on(page)[0] == "lead-at-risk"
    row = page[page.index("lead-at-risk") :].partition("</tr>")[0]
    assert "at risk" in row
    assert re.search(r"\b1h \d+m left", row)  # the countdown
    assert re.search(r"\$\d\.\d\d of \$3\.00", text_of(row))
    assert f'href="/sets/{gallery.ids["at-risk"]}/request"' in row  # what to do


def test_sets_and_bags_are_in_one_list_by_what_they_need(gallery, client):
    page = read(client, "/")
    titles = re.findall(r'<h2 class="group">([^<]+) <', page)
    assert titles == ["Needs you", "Running", "Coming", "Ended"]
    ended = page[page.index('<h2 class="group">Ended') :]
    assert f"/bags/{gallery.bags['nightly']}" in ended
    bags = read(client, "/?kind=bag")
    assert names_on(bags) == [] and "60 of 60 tasks done" in bags
    assert "1 of 31 tasks" not in bags and "30 of 31 tasks done, 1 failed" in bags
    row = bags[bags.index(gallery.bags["nightly"]) :].partition("</tr>")[0]
    assert ">met<" in row  # its goal
    assert client.get("/bags", follow_redirects=False).headers["location"] == "/?kind=bag"
    needs = page[page.index("lead-below") :].partition("</tr>")[0]
    assert "See what meets it" in needs
    ready = page[page.index("lead-ready") :].partition("</tr>")[0]
    assert re.search(r"Run for \$\d", ready)


def test_the_dashboard_is_searched_filtered_ordered_and_counted(gallery, client):
    missed = read(client, "/?state=missed")
    assert names_on(missed) == ["lead-missed"]
    assert re.search(r"1 missed</a>", missed)
    assert names_on(read(client, "/?find=LEAD+met")) == ["lead-met"]
    assert "Nothing matches." in read(client, "/?find=nothing-of-that-name")
    ordered = names_on(read(client, "/?order=name&find=lead-"))
    assert ordered == sorted(ordered)
    for wrong in ("state=lost", "order=luck", "page=0", "page=x", f"find={'x' * 201}"):
        assert client.get(f"/?{wrong}", headers=PAGE).status_code == 422, wrong


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_text(gallery, client, name):
    set_id = gallery.add(STORM | {"name": name})
    page, home = read(client, f"/sets/{set_id}"), read(client, f"/?find={set_id}")
    assert html.escape(name, quote=False)[:20] in page.replace("&#34;", '"').replace("&#39;", "'")
    assert "<img src=x" not in page + home
    assert len(names_on(home)) == 1
    gallery.remove(set_id)


def test_an_empty_and_a_large_list(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    with Store(f"sqlite:///{tmp_path / 'v.db'}") as store:
        own = Gallery(store)
        client = TestClient(make_app(store, own.catalog))
        assert "Nothing has been submitted yet." in read(client, "/")
        own.ids["met"] = own.planned(STORM)
        own.many(160)
        page = read(client, "/")
        assert "161 in all" in page
        assert len(names_on(page)) == 50
        last = read(client, "/?page=4")
        assert "151–161 of 161" in last
        assert len(names_on(last)) == 11
        assert names_on(read(client, "/?page=9")) == names_on(last)
        head = Sets(store.engine).head(own.ids["met"])
        own.sets.fail(head.id, "changed")  # a list notices changes
        assert "161 in all" in read(client, "/")


def test_an_unreadable_set_is_refused_on_the_submit_page_with_its_text(client):
    answer = client.post("/submit", data={"text": "a: [", "key": "k"}, headers=PAGE)
    assert answer.status_code == 422
    assert "cannot be parsed" in answer.text
    assert "a: [</textarea>" in answer.text
