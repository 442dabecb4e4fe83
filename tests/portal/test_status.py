"""What people see in the portal of what was done elsewhere: runs of the command line, old rows,
sites that are gone."""

import html
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.serving import LEAD, SMALL
from tests.waiting import until
from vgrads.api.config import embedded_data
from vgrads.execmgr.tasks.output import read_tail
from vgrads.kernel.units import format_chance
from vgrads.portal.charts.exports import export
from vgrads.portal.charts.gantt import STATE_COLOURS, readable, render_svg, workflow_colours
from vgrads.portal.charts.layout import (
    actual_bars,
    actual_lanes,
    horizon,
    planned_bars,
    planned_lanes,
)
from vgrads.portal.charts.pages import hours
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NAUGHTY = 'a b"c<script>'


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))


@pytest.fixture
def looking(home):
    """A service over the database that the command line writes to, and its store."""
    with Store() as store:
        catalog = load_catalog(embedded_data() / "sites.toml")
        with TestClient(make_app(store, catalog), follow_redirects=False) as client:
            yield client, store


def submit(client, document=SMALL):
    answer = client.post("/v1/workflow-sets", json=document)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


# what the command line ran


@pytest.mark.more
def test_a_set_that_the_command_line_ran_has_every_page(vgrads, looking):
    client, _ = looking
    done = vgrads("run", DATA / "lead.yaml", "--json")
    assert done.code == 0, done.err
    row = client.get("/v1/workflow-sets").json()[0]
    assert row["runs"][0]["state"] == "kept"
    base = f"/sets/{row['id']}"
    page = client.get(base, headers=PAGE)
    assert page.status_code == 200
    assert "lead" in page.text
    assert f'href="{base}"' in client.get("/", headers=PAGE).text
    what_if = client.get(f"{base}/what-if", headers=PAGE)
    assert (what_if.status_code, 'max="8"' in what_if.text) == (200, True)
    would = client.post(f"/v1/workflow-sets/{row['id']}/what-if", json={"budget_usd": 0})
    assert would.status_code == 200, would.text
    assert would.json()["cost_usd"] == 0
    chart = client.get(f"/v1/workflow-sets/{row['id']}/gantt").json()
    assert (chart["state"], len(chart["workflows"])) == ("kept", 8)


def test_a_queue_whose_site_is_gone_has_a_page_that_says_so(vgrads, write, home):
    entry = '[[site]]\nname = "here"\nkind = "batch"\nprocs = 64\n[[site.queue]]\nname = "q"\n'
    assert vgrads("sites", "add", write("more.toml", entry)).code == 0
    with Store() as store, TestClient(make_app(store, choose_catalog(None))) as client:
        gone = client.get("/sites/mercury/default", headers=PAGE)
        assert gone.status_code == 404
        assert "no queue" in gone.text
        assert gone.headers["content-type"].startswith("text/html")
        assert client.get("/sites/mercury/default/record.svg", headers=PAGE).status_code == 404


# mistakes in a browser


WRONG = {
    "/?page=nonsense": 422,
    "/sets/set-0123456789": 404,
    "/sets/none": 404,
    "/sets/set-0123456789/what-if": 404,
    "/sites/none/none": 404,
    "/sites/mercury/default?procs=abc": 422,
    "/sites/mercury/default?hours=-1": 422,
    "/nowhere": 404,
    "/static/none.js": 404,
    "/login/oidc": 404,
    "/v1/workflow-sets/none": 404,
    "/v1/workflow-sets/set-0123456789/gantt?format=svg": 404,
    "/v1/workflow-sets?limit=abc": 422,
}


@pytest.mark.parametrize(("path", "status"), WRONG.items())
def test_a_mistake_in_a_browser_is_a_page_and_elsewhere_a_problem_document(looking, path, status):
    client, _ = looking
    page = client.get(path, headers=PAGE)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "<h1>" in page.text
    plain = client.get(path)
    assert (plain.status_code, plain.headers["content-type"]) == (
        status,
        "application/problem+json",
    )


# how it stands


@pytest.mark.more
def test_the_page_begins_with_the_promise_as_it_stands_now(looking):
    client, _ = looking
    set_id = submit(client, LEAD | {"at_least": 6, "budget_usd": 40})
    base = f"/v1/workflow-sets/{set_id}"
    before = client.get(f"/sets/{set_id}", headers=PAGE).text
    assert "Ready to run:" in before
    assert client.post(f"{base}/run?speed=60").status_code == 202  # it must not end meanwhile
    until(lambda: client.get(f"{base}/status").json().get("promise_now") is not None)
    message = client.get(f"{base}/status").json()
    assert message["promised"] == client.get(base).json()["promise"]["probability"]
    assert 0.0 <= message["promise_now"] <= 1.0
    assert (message["workflows"]["needed"], message["workflows"]["of"], message["simulated"]) == (
        6,
        8,
        True,
    )
    due, started = (datetime.fromisoformat(message[name]) for name in ("due", "started"))
    assert (due - started).total_seconds() == 7200.0
    page = client.get(f"/sets/{set_id}", headers=PAGE).text
    assert " now</strong>" in page
    assert "that 6 of 8 workflows are done by <time datetime=" in page

    def has_its_cost():  # another plan may have another
        usd = client.get(f"{base}/status").json()["cost_usd"]
        return f"of ${usd:.2f}" in client.get(f"/sets/{set_id}", headers=PAGE).text

    until(has_its_cost)
    assert "of 8 workflows done, 6 needed" in client.get("/", headers=PAGE).text
    assert client.delete(base).status_code == 202
    until(lambda: client.get(base).json()["runs"][0]["state"] == "cancelled")
    assert "Cancelled" in client.get(f"/sets/{set_id}/status", headers=PAGE).text


# run and cancel are asked about


def test_what_costs_something_is_confirmed_also_without_scripts(looking):
    client, _ = looking
    set_id = submit(client, LEAD | {"name": NAUGHTY, "at_least": 6, "budget_usd": 40})
    base, cost = f"/sets/{set_id}", client.get(f"/v1/workflow-sets/{set_id}").json()["cost_usd"]
    requested = client.get(f"{base}/run", headers=PAGE).text
    assert f"Run for ${cost:.2f}" in requested
    assert NAUGHTY not in requested
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', requested))
    fields = {name: html.unescape(value) for name, value in fields.items()} | {"speed": "60"}
    stopped = client.post(f"{base}/run", data=fields | {"speed": "0"}, headers=PAGE)
    assert stopped.status_code == 422  # of a clock that stands still
    for _ in range(2):  # a second click begins nothing
        assert client.post(f"{base}/run", data=fields, headers=PAGE).status_code == 303
    assert len(client.get(f"/v1/workflow-sets/{set_id}").json()["runs"]) == 1
    old = fields | {"plan": '"9-planned"', "key": "other"}
    refused = client.post(f"{base}/run", data=old, headers=PAGE)
    assert (refused.status_code, refused.headers["content-type"][:9]) == (412, "text/html")
    until(lambda: "are spent" in client.get(f"{base}/cancel", headers=PAGE).text)
    assert client.post(f"{base}/cancel", headers=PAGE).status_code == 303
    until(
        lambda: client.get(f"/v1/workflow-sets/{set_id}").json()["runs"][0]["state"] == "cancelled"
    )
    assert client.post(f"{base}/cancel", headers=PAGE).status_code == 409


# tasks and what they printed


def test_every_task_is_in_a_table_and_what_it_printed_is_shown_on_demand(vgrads, write, looking):
    client, _ = looking
    payload = {
        "name": "told",
        "deadline": "5m",
        "workflows": [
            {
                "name": "w",
                "tasks": [
                    {
                        "id": "says",
                        "runtime_s": 1,
                        "command": "echo '<b>heard'; echo down >&2; exit 3",
                    },
                    {"id": "after", "runtime_s": 1, "parents": ["says"], "command": "true"},
                ],
            }
        ],
    }
    sites = write(
        "sites.toml", '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n'
    )
    done = vgrads("run", write("told.json", json.dumps(payload)), "--sites", sites, "--json")
    assert done.code == 1, done.err
    row = client.get("/v1/workflow-sets").json()[0]
    base, page = f"/v1/workflow-sets/{row['id']}", f"/sets/{row['id']}"
    tasks = client.get(f"{base}/tasks").json()
    logs = vgrads("logs", tasks["run"], "--json").json["attempts"]
    quiet = ("stdout", "stderr", "folder")
    assert [{k: v for k, v in a.items() if k not in quiet} for a in tasks["attempts"]] == [
        {k: v for k, v in a.items() if k not in quiet} for a in logs
    ]
    item = client.get(f"{base}/tasks/{logs[0]['workflow']}/says").json()["attempts"][0]
    assert (item["exit"], item["stdout"], item["stderr"], item["folder"]) == (
        3,
        "<b>heard\n",
        "down\n",
        None,
    )
    table = client.get(page, headers=PAGE).text
    assert "/<wbr>says" in table
    assert "/<wbr>after" in table  # never begun
    shown = client.get(f"{page}/tasks/{logs[0]['workflow']}/says", headers=PAGE)
    assert "&lt;b&gt;heard" in shown.text
    assert "<h2>Attempt 1: failed, exit 3</h2>" in shown.text
    assert client.get(f"{base}/tasks/none/none").status_code == 404
    assert client.get("/v1/workflow-sets/set-0123456789/tasks").status_code == 404


def test_what_stands_in_the_place_of_a_log_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    (tmp_path / "stdout.txt").symlink_to(secret)
    os.mkfifo(tmp_path / "stderr.txt")
    assert (read_tail(tmp_path / "stdout.txt"), read_tail(tmp_path / "stderr.txt")) == ("", "")
    assert read_tail(secret) == "key"


# over REST


def test_handing_over_answers_what_is_promised_and_what_it_costs(looking):
    client, _ = looking
    for kind, body in (
        ("application/json", json.dumps(LEAD | {"at_least": 6})),
        (
            "application/yaml",
            (
                "name: lead\ndeadline: 2h\nat_least: 6\nworkflows: [{file: lead.json, count: "
                "8}]\nsites: sites.toml\n"
            ),
        ),
    ):
        answer = client.post("/v1/workflow-sets", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 201, answer.text
        message = answer.json()
        retained = client.get(f"/v1/workflow-sets/{message['id']}").json()
        assert (message["feasible"], message["promise"], message["cost_usd"]) == (
            True,
            retained["promise"],
            retained["cost_usd"],
        )
        assert message["promise"]["probability"] > 0.5


def test_the_list_of_requests_is_reported_in_words_not_in_markup(looking):
    client, _ = looking
    page = client.get("/api", headers=PAGE).text
    assert "`" not in page
    assert "<code>If-Match</code>" in page


# charts


def chart(deadline_s=7200.0, ended_s=300.0, workflows=8, **more):
    """A run that ended long before its deadline, in two slots."""
    names = [f"{NAUGHTY} {i}" for i in range(workflows)]
    slots = [
        {
            "id": f"s-{i}",
            "site": "s",
            "queue": "q",
            "kind": "cloud",
            "procs": 8,
            "start_s": 0.0,
            "end_s": deadline_s,
            "submit_s": 0.0,
            "probability": 0.9,
            "cost_usd": 1.0,
            "state": "ended",
            "actual": {"ready_s": 10.0, "ended_s": ended_s, "reason": ""},
            "ready_p5_s": 1.0,
            "ready_p50_s": 60.0,
            "ready_p95_s": 900.0,
        }
        for i in range(2)
    ]
    bars = [
        {
            "workflow": name,
            "task": "t",
            "copy": i % 2,
            "slot": f"s-{i % 2}",
            "start_s": 20.0,
            "end_s": 2000.0,
            "procs": 1,
            "probability": 0.9,
            "state": "done",
            "actual": {"start_s": 20.0, "end_s": ended_s},
            "reason": "",
        }
        for i, name in enumerate(names)
    ]
    return {
        "name": NAUGHTY,
        "deadline_s": deadline_s,
        "needed": 1,
        "now_s": ended_s,
        "promise": {"probability": 0.9, "standard_error": 0.01},
        "cost_usd": 2.0,
        "decisions": [],
        "workflows": names,
        "slots": slots,
        "placements": bars,
    } | more


def test_a_chart_reaches_as_far_as_there_is_something_to_see():
    short, near = chart(), chart(deadline_s=330.0)
    assert horizon(short, actual_lanes(short), actual_bars(short)) == pytest.approx(312.0)
    assert horizon(near, actual_lanes(near), actual_bars(near)) == pytest.approx(336.6)
    going = chart(state="running")
    assert horizon(going, actual_lanes(going), actual_bars(going)) == pytest.approx(2080.0)
    assert horizon(short, planned_lanes(short), planned_bars(short)) == pytest.approx(7344.0)
    empty = chart(workflows=0, slots=[], ended_s=0.0)
    assert horizon(empty, [], []) > 7200.0


def test_a_picture_fills_its_width_and_says_how_far_the_deadline_is():
    svg = ElementTree.fromstring(render_svg(chart()))
    names = {"s": "http://www.w3.org/2000/svg"}
    right = max(
        float(r.get("x")) + float(r.get("width"))
        for r in svg.findall(".//s:g[@class='bar']/s:rect", names)
    )
    assert right > 0.9 * float(svg.get("viewBox").split()[2])
    output = [text.text for text in svg.findall(".//s:text", names)]
    assert [t for t in output if t.startswith("deadline 2h, ") and "beyond" in t]
    assert {"slot", "copy", "deadline", *STATE_COLOURS} - {"waiting"} <= set(output)
    assert "beyond" not in render_svg(chart(deadline_s=330.0))
    for form in ("png", "pdf"):
        assert len(export(chart(name="a$b$ $x_{", workflows=30), form)) > 5000


def light(colour):
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_labels_can_be_read_on_every_colour_and_neighbours_differ():
    result = workflow_colours([f"w-{i}" for i in range(21)])
    assert len(set(result.values())) == 21
    for colour in result.values():
        item, other = sorted((light(colour), light(readable(colour))))
        assert (other + 0.05) / (item + 0.05) >= 4.5, colour


# queues


def test_a_queue_without_a_history_says_so_and_another_that_is_too_short_has_a_picture_that_does(
    write, home
):
    job = "{0} {1} 5 60 1 -1 -1 1 100 -1 1 1 1 1 1 1 -1 -1\n"
    write(
        "few.swf",
        "; UnixStartTime: 1000000000\n" + "".join(job.format(i + 1, 100 * i) for i in range(9)),
    )
    sites = write(
        "sites.toml",
        '[[site]]\nname = "m"\nkind = "batch"\nprocs = 64\n[[site.queue]]\nname = "none"\n'
        '[[site.queue]]\nname = "few"\nhistory = "few.swf"\n',
    )
    with Store() as store, TestClient(make_app(store, load_catalog(sites))) as client:
        page = client.get("/sites/m/none", headers=PAGE)
        assert (page.status_code, "no history yet" in page.text, "<figure" in page.text) == (
            200,
            True,
            False,
        )
        assert client.get("/sites/m/none/record.svg").status_code == 404
        assert client.get("/sites/m/few", headers=PAGE).status_code == 200
        light, dark = (client.get(f"/sites/m/few/record.svg?dark={d}") for d in ("false", "true"))
        assert light.content.startswith(b"<svg") and dark.content.startswith(b"<svg")
        assert b"Too few waits" in light.content
        assert light.content != dark.content


@pytest.mark.parametrize(
    ("seconds", "message"),
    [(0, "0 h"), (3, "< 0.01 h"), (3600, "1.00 h"), (5400, "1.50 h"), (90000, "25 h")],
)
def test_waits_are_reported_in_hours(seconds, message):
    assert hours(seconds).replace("\u202f", " ") == message


def test_nothing_is_reported_as_certain():
    assert [format_chance(p).replace("\u202f", " ") for p in (1.0, 0.999, 0.967, 0.001, 0.0)] == [
        "over 99 %",
        "over 99 %",
        "97 %",
        "under 1 %",
        "under 1 %",
    ]


# as it happens


@pytest.mark.more
def test_what_tasks_print_is_followed_from_another_process(home, vgrads, tmp_path):
    requested = {
        "name": "talk",
        "deadline": "120s",
        "workflows": [
            {
                "name": "w",
                "tasks": [
                    {
                        "id": "first",
                        "runtime_s": 1,
                        "command": (
                            "echo one; while test ! -e ../../../go; do sleep 0.05; done; echo "
                            "two >&2; printf three"
                        ),
                    },
                    {
                        "id": "second",
                        "runtime_s": 1,
                        "parents": ["first"],
                        "command": "echo four; exit 3",
                    },
                ],
            }
        ],
    }
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(requested))
    sites = tmp_path / "sites.toml"
    sites.write_text('[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n')
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "vgrads"]
    with subprocess.Popen(
        [*command, "run", path, "--sites", sites, "--out", folder], stdout=subprocess.DEVNULL
    ) as run:
        with Store() as store:
            until(lambda: store.list_runs() and store.list_runs()[0].state == "running")
            run_id = store.list_runs()[0].id
        with subprocess.Popen(
            [*command, "logs", run_id, "-f"], stdout=subprocess.PIPE, text=True
        ) as process:
            lines = iter(process.stdout.readline, "")
            assert "running at here" in next(lines)
            assert next(lines) == "w-1/first | one\n"
            (folder / "go").touch()
            rest = "".join(lines)
        assert run.wait(60) == 1
    assert "w-1/first | two\n" in rest
    assert "w-1/first | three\n" in rest
    assert "w-1/second | four\n" in rest
    assert rest.endswith(f"{run_id}: broken\n")
    assert rest.count("w-1/second (attempt 1): failed") == 1
    only = vgrads("logs", run_id, "second", "-f")
    assert (only.code, "one" in only.out, "four" in only.out) == (0, False, True)
    assert vgrads("logs", run_id, "nobody", "-f").code == 2
    assert vgrads("logs", run_id, "-f", "--json").code == 2


def test_tasks_are_selected_by_any_of_their_words(looking):
    client, _ = looking
    set_id = submit(client, LEAD)
    whole = client.get(f"/sets/{set_id}/tasks").text
    some = client.get(f"/sets/{set_id}/tasks", params={"find": "LEAD-1/ wrf"}).text
    assert 0 < some.count("<tr>") < whole.count("<tr>")
    assert "lead-1/<wbr>wrf" in some
    assert "lead-2/" not in some
    none = client.get(f"/sets/{set_id}", params={"find": NAUGHTY}, headers=PAGE).text
    assert "No task has" in none
    assert "<script>c" not in none
    assert NAUGHTY not in none
