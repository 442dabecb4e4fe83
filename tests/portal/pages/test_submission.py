"""The form with which a set is submitted: its errors, its fields, its promise, its run."""

import asyncio
import html
import json
import re
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select
from sqlmodel import Session
from starlette.exceptions import HTTPException

from tests.conftest import DATA
from tests.portal.pages.gallery import STORM
from tests.waiting import until
from vgrads.kernel.errors import InputError
from vgrads.portal.client import Client
from vgrads.portal.jobs.alarm_delivery import AT_TERMINAL
from vgrads.portal.jobs.service_sites import ServiceSites
from vgrads.portal.jobs.supervisor import Places, Supervisor
from vgrads.portal.jobs.worker import check_set, plan_stored_set
from vgrads.portal.records.access import EVERYBODY_HERE
from vgrads.portal.records.tables import RunRow, SetRow, WorkRow
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.portal.web.sets.promise_questions import PromiseQuestions, WrittenSet
from vgrads.portal.web.sets.questions import StillWaiting
from vgrads.portal.web.sets.submission import SubmissionForm, mistake_of
from vgrads.portal.web.sets.submit_pages import TEMPLATES
from vgrads.vgrid.catalog import load_catalog

pytestmark = pytest.mark.more  # needs the gallery, a set in every state
PAGE = {"Accept": "text/html"}
TEXT = "name: x\ndeadline: 2h\nworkflows:\n  - {name: w, tasks: [{id: a, runtime_s: 60}]}\n"
SET = '{"name": "x", "deadline": "2h", "workflows": [{"name": "w", "tasks": [{"id": "a"}]}]}'
IN_TIME = re.compile(r'class="chance"><strong>(over )?\d+\W%</strong>\s+for about \$\d')


def form_of(text=TEXT, **fields):
    return {"text": text, "key": "k", **fields}


def ask(client, text=TEXT, **fields):
    return client.post("/submit/promise", data=form_of(text, **fields), headers=PAGE).text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (TEXT.replace("deadline", "deadlin"), 2, "did you mean &#39;deadline&#39;"),
        (TEXT.replace("id: a", "id: a, size: 3"), 4, "unknown key"),
        (TEXT.replace("2h", "soon"), 2, "deadline"),
        (TEXT.replace("tasks: [{id: a, runtime_s: 60}]", "file: no.json"), 4, "no.json"),
        (TEXT + "at_least: 2\n", 5, "the set has 1 workflow"),
        (TEXT + "at_least: }\n", 5, "cannot be parsed"),
        (TEXT + "at_least: [", 5, "cannot be parsed"),
    ],
)
def test_an_error_stands_at_its_line(client, text, line, words):
    for page in (ask(client, text), client.post("/submit", data=form_of(text), headers=PAGE).text):
        problem = page.partition('id="problem"')[2].partition("</div>")[0]
        assert words in problem
        assert f'data-line="{line}"' in problem
        assert re.search(r'<textarea id="text"[^>]*aria-invalid="true"', page)
        assert re.search(r'<textarea id="text"[^>]*aria-describedby="problem"', page)
        assert "<strong>Cannot" not in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("deadline", "3", "write 3h or 3m"),
        ("deadline", "soon", "soon"),
        ("due", "2001-01-01T10:00", "in the past"),
        ("at_least", "0", "at least 1"),
        ("at_least", "2", "the set has 1 workflow"),
        ("at_least", "150%", "not in (0, 1]"),
        ("probability", "100%", "nothing is certain"),
        ("budget_usd", "much", "not a number"),
        ("budget_usd", "-1", "outside its range"),
        ("site", "", "choose at least one"),
        ("site", "elsewhere", "no site &#39;elsewhere&#39;"),
    ],
)
def test_an_error_of_a_field_is_shown_at_the_field(client, field, value, words):
    page = ask(client, **{field: value})
    assert words in page.partition('id="problem"')[2].partition("</div>")[0]
    place = 'id="sites"' if field == "site" else f'name="{field}"'
    assert re.search(rf'{place}[^>]*aria-invalid="true"', page)
    assert page.count('aria-invalid="true"') == 1


def test_a_deadline_is_a_duration_or_a_time_of_the_clock_in_the_zone_of_the_reader():
    form = SubmissionForm(**form_of(due="2050-06-01T10:30", zone_min=120))
    assert form.change() == {"deadline": "2050-06-01T10:30:00+02:00"}
    with pytest.raises(InputError, match="not both") as raised:
        SubmissionForm(**form_of(due="2050-06-01T10:30", deadline="2h")).change()
    assert raised.value.where == "due"


def test_fields_win_over_the_text_of_a_set_that_is_submitted(client, gallery):
    text = json.dumps(STORM | {"name": "with-fields", "fraction": None})
    wished = {"deadline": "3h", "at_least": "75%", "probability": "80%", "budget_usd": "$25"}
    answer = client.post("/submit", data=form_of(text, **wished) | {"key": "f"}, headers=PAGE)
    set_id = answer.headers["location"].rpartition("/")[2]
    document = json.loads(gallery.sets.text(set_id, "document"))
    names = ("deadline", "fraction", "at_least", "probability", "budget_usd")
    assert [document[name] for name in names] == ["3h", 0.75, None, 0.8, 25]
    gallery.remove(set_id)


def test_the_promise_follows_the_fields_and_nothing_is_stored(client, gallery):
    def rows():
        with Session(gallery.store.engine) as session:
            tables = (SetRow, WorkRow, RunRow)
            return [session.scalar(select(func.count()).select_from(table)) for table in tables]

    before, text = rows(), json.dumps(STORM)
    as_written = ask(client, text)
    assert IN_TIME.search(as_written)
    assert "6 of 8 workflows within 2h" in as_written
    assert re.search(r'id="run"[^>]*value="(\d+\.\d\d)">Run for \$\1</button>', as_written)
    shorter = ask(client, text, deadline="30m")
    assert "Cannot be promised" in shorter
    assert "the deadline is 30m away" in shorter
    assert re.search(r'id="run"[^>]*hidden>', shorter)
    later = re.search(r'name="deadline" value="([^"]+)">\s*<b>Later deadline', shorter)[1]
    longer = ask(client, text, deadline=later)
    assert IN_TIME.search(longer)
    assert f"6 of 8 workflows within {later}" in longer
    assert rows() == before


def test_a_remedy_without_scripts_wins_over_the_field_before_it(client):
    wished = [("text", TEXT), ("key", "k"), ("deadline", "30s"), ("deadline", "1h")]
    answer = client.post(
        "/submit/promise",
        content="&".join(f"{name}={value}" for name, value in wished).replace("\n", "%0A"),
        headers=PAGE | {"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert "1 of 1 workflow within 1h" in answer.text


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_a_set_that_services_accept(client, name):
    page = client.get(f"/submit?template={name}", headers=PAGE).text
    assert re.search(rf'<option value="{name}"[^>]* selected>', page)
    text = (DATA / TEMPLATES[name][0]).read_bytes()
    assert check_set(text, "yaml", 1000).name in page


def test_the_place_of_a_field_of_the_form_is_not_a_line_of_the_text():
    form = SubmissionForm(**form_of(TEXT + "at_least: 5\n", at_least="7"))
    with pytest.raises(InputError) as raised:
        check_set(form.text.encode(), "yaml", 10, form.change())
    mistake = mistake_of(form, raised.value)
    assert (mistake.field, mistake.line) == ("at_least", None)


class Computations:
    """A supervisor whose computations end when a test says so."""

    def __init__(self):
        self.futures = []

    async def enqueue(self, *_):
        self.futures.append(Future())
        return self.futures[-1]

    def ahead_of(self, future):
        return self.futures.index(future)


def service_over(computations, catalog):
    """A service with these computations."""
    return SimpleNamespace(
        supervisor=computations,
        catalog=catalog,
        granted=lambda _: frozenset(),
        store=SimpleNamespace(url=""),
        bounds=Bounds(),
    )


def questions_over(computations, catalog):
    return PromiseQuestions(service_over(computations, catalog))


def test_the_newest_question_of_a_form_counts(gallery):
    async def type_twice():
        computations = Computations()
        questions = questions_over(computations, gallery.catalog)

        async def question(text, wait_s=30.0, form="form"):
            return await questions.ask(EVERYBODY_HERE, form, WrittenSet(text, {}), wait_s)

        older = asyncio.create_task(question("a"))
        while not computations.futures:
            await asyncio.sleep(0)
        assert await question("a", 0.01) == StillWaiting(0)  # the same question
        assert await question("c", 0.01, "another form") == StillWaiting(1)
        assert await question("b", 0.01) == StillWaiting(2)
        with pytest.raises(HTTPException) as replaced:
            await older
        assert replaced.value.status_code == 409
        assert [future.cancelled() for future in computations.futures] == [True, False, False]
        computations.futures[2].set_result({"feasible": True})
        assert await question("b") == {"feasible": True}
        assert len(computations.futures) == 3

    asyncio.run(type_twice())


def test_a_user_asks_so_many_questions_in_a_minute(gallery):
    async def type_on():
        questions = questions_over(Computations(), gallery.catalog)
        last = WrittenSet("59", {})
        for number in range(60):
            await questions.ask(EVERYBODY_HERE, "form", WrittenSet(f"{number}", {}), 0.0)
        await questions.ask(EVERYBODY_HERE, "form", last, 0.0)  # the same, which goes on
        with pytest.raises(HTTPException) as refused:
            await questions.ask(EVERYBODY_HERE, "another form", WrittenSet("60", {}), 0.0)
        assert refused.value.status_code == 429
        assert int(refused.value.headers["Retry-After"]) >= 1

    asyncio.run(type_on())


def test_a_computation_has_its_place_in_line(store, gallery):
    sites = ServiceSites(gallery.catalog, store.reader)
    places = Places(planners=0, runs=0)  # one at a time
    supervisor = Supervisor(store, lambda _: gallery.catalog, places, sites, AT_TERMINAL)
    go_on = threading.Event()

    async def queue():
        first = await supervisor.enqueue(go_on.wait, 30)
        later = [await supervisor.enqueue(int) for _ in range(2)]
        assert [supervisor.ahead_of(future) for future in (first, *later)] == [0, 1, 2]
        go_on.set()
        await asyncio.gather(*map(asyncio.wrap_future, (first, *later)))
        assert supervisor.ahead_of(later[1]) == 0

    asyncio.run(queue())


@pytest.mark.parametrize(("most_usd", "runs"), [("100", 1), ("0", 0)])
def test_run_starts_a_set_that_costs_no_more_than_shown(store, most_usd, runs):
    """Otherwise the page that asks comes next."""
    catalog, bounds = load_catalog(DATA / "sites.toml"), Bounds(places=Places(planners=0))
    with TestClient(make_app(store, catalog, bounds), follow_redirects=False) as client:
        answer = client.post(
            "/submit", data=form_of(json.dumps(STORM), run_for=most_usd), headers=PAGE
        )
        assert answer.status_code == 303
        set_id, _, rest = answer.headers["location"].removeprefix("/sets/").partition("/")
        assert client.app.state.service.sets.head(set_id).summary["cost_usd"] > 0
        assert rest == ("" if runs else "run")
        assert len(store.list_runs(set_id)) == runs
        until(lambda: all(run.state == "kept" for run in store.list_runs(set_id)))


def test_a_set_is_planned_on_the_chosen_sites_alone(client, gallery):
    page = client.get("/submit", headers=PAGE).text
    names = re.findall(r'name="site" value="([^"]+)" checked', page)
    assert names == [site.name for site in gallery.catalog.sites]
    text = json.dumps(STORM | {"name": "on-two", "at_least": 1})
    shown = ask(client, text, site=["", "kittyhawk", "mayhem"])
    assert re.search(r'class="chance"><strong>[^<]*%</strong>\s+at no cost', shown)
    assert re.findall(r'name="site" value="([^"]+)" checked', shown) == ["kittyhawk", "mayhem"]
    form = form_of(text, site=["", "kittyhawk", "mayhem"]) | {"key": "two"}
    set_id = client.post("/submit", data=form, headers=PAGE).headers["location"].rpartition("/")[2]
    assert json.loads(gallery.sets.text(set_id, "options")) == {
        "only_sites": ["kittyhawk", "mayhem"]
    }
    again = client.get(f"/submit?like={set_id}", headers=PAGE).text
    assert re.findall(r'name="site" value="([^"]+)" checked', again) == ["kittyhawk", "mayhem"]
    plan_stored_set(gallery.store, gallery.catalog, set_id)
    plan = json.loads(gallery.sets.text(set_id, "plan"))
    assert {slot["site"] for slot in plan["slots"]} <= {"kittyhawk", "mayhem"}
    assert plan["slots"]


def test_all_sites_are_no_choice(client, gallery):
    names = [site.name for site in gallery.catalog.sites]
    form = form_of(TEXT, site=["", *names]) | {"key": "all"}
    set_id = client.post("/submit", data=form, headers=PAGE).headers["location"].rpartition("/")[2]
    assert gallery.sets.text(set_id, "options") == "{}"
    gallery.remove(set_id)


def test_an_unknown_site_is_refused_over_rest(client):
    answer = client.post(
        "/v1/workflow-sets?only_sites=kittyhawk&only_sites=nowhere", json=json.loads(SET)
    )
    assert answer.status_code == 422
    assert "unknown site 'nowhere'" in answer.text


def test_the_client_names_each_site(gallery_url):
    client = Client(gallery_url)
    with pytest.raises(InputError, match="unknown site 'nowhere'"):
        client.submit(json.loads(SET), only_sites=("kittyhawk", "nowhere"))


def test_json_that_is_no_workflow_is_an_incomplete_set(client):
    page = ask(client, '{"name": "x"}')
    assert "deadline: is missing" in page.partition('id="problem"')[2].partition("</div>")[0]


def test_a_workflow_becomes_a_set_that_is_shown_before_it_is_submitted(client):
    workflow = (DATA / "lead.json").read_text()
    page = client.post("/submit", data=form_of(workflow, deadline="3h"), headers=PAGE)
    assert page.status_code == 200
    assert 'data-new="yes"' in page.text
    text = html.unescape(re.search(r"<textarea[^>]*>(.*?)</textarea>", page.text, re.DOTALL)[1])
    assert text.lstrip().startswith("# From WfFormat: 6 tasks, 6 edges")
    assert "deadline: 3h" in text
    shown = ask(client, workflow)
    assert 'data-new="yes"' in shown
    assert re.search(r'class="chance"><strong>', shown)
    assert 'data-new="no"' in ask(client, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rule all:\n    input: 'x'\n", "is a workflow (Snakefile), which is read where its"),
        ('<adag name="x"><dax id="ID1" file="/etc/passwd"/></adag>', "names the file passwd"),
        ("JOB a a.sub\n", "is a workflow (DAGMan)"),
    ],
)
def test_a_workflow_that_needs_other_files_is_refused(client, text, words):
    page = ask(client, text)
    assert words in html.unescape(page.partition('id="problem"')[2].partition("</div>")[0])
    answer = client.post("/submit", data=form_of(text), headers=PAGE)
    assert answer.status_code == 422
