"""The request of a run that goes on is changed over REST, on its page and by the command."""

import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from tests.portal.serving import LEAD
from tests.waiting import until
from vgrads.api.config import embedded_data
from vgrads.execmgr.core.states import PromiseChecked, RequestRecord
from vgrads.portal.client import Client
from vgrads.portal.jobs.forecasts.plans import first_outcome
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A service with a set that runs at simulated sites, slowly; its id."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as store:
        catalog = load_catalog(embedded_data() / "sites.toml")
        with TestClient(make_app(store, catalog), follow_redirects=False) as client:
            answer = client.post("/v1/workflow-sets", json=LEAD | {"at_least": 6})
            set_id = answer.json()["id"]
            assert client.post(f"/v1/workflow-sets/{set_id}/run?speed=20").status_code == 202
            status = f"/v1/workflow-sets/{set_id}/status"
            until(lambda: client.get(status).json().get("promise_now") is not None)
            yield client, set_id
            client.delete(f"/v1/workflow-sets/{set_id}")


@pytest.mark.more
def test_a_change_is_shown_before_it_is_made_and_applied_once(running):
    client, set_id = running
    path = f"/v1/workflow-sets/{set_id}/request"
    first = client.get(path)
    (request,) = first.json()["history"]
    assert (request["needed"], request["deadline_s"], request["refused"]) == (6, 7200.0, "")
    change = {"deadline": "4h", "at_least": "50%"}
    shown = client.patch(path, params={"preview": True}, json=change)
    assert shown.status_code == 202, shown.text
    assert (shown.json()["before"]["needed"], shown.json()["after"]["needed"]) == (6, 4)
    assert shown.json()["message"] is None
    assert len(client.get(path).json()["history"]) == 1
    assert client.patch(path, json=change).status_code == 428
    tag = {"If-Match": first.headers["ETag"]}
    sent = client.patch(path, json=change, headers=tag)
    assert sent.status_code == 202, sent.text
    assert client.patch(path, json=change, headers=tag).status_code == 412  # two at once
    until(lambda: len(client.get(path).json()["history"]) == 2)
    (_, changed) = client.get(path).json()["history"]
    assert (changed["needed"], changed["refused"]) == (4, "")
    assert changed["deadline_s"] >= 4 * 3600.0
    assert changed["promise"] == pytest.approx(sent.json()["after"]["promise"], abs=0.1)
    assert client.get(f"/v1/workflow-sets/{set_id}/status").json()["deadline_s"] >= 4 * 3600.0


@pytest.mark.more
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "nothing is to be changed"),
        ({"at_least": 9}, "9 of them are requested, 8 workflows are there"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "is in the past"),
        ({"deadline": "soon"}, "deadline"),
        ({"drop_sites": ["nowhere"]}, "drop-site: 'nowhere' is no site of this run"),
        ({"add_sites": ["nowhere"]}, "add-site: 'nowhere' is no site of this run"),
        ({"budget": 3}, "budget"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_its_reason(running, change, words):
    client, set_id = running
    path = f"/v1/workflow-sets/{set_id}/request"
    answer = client.patch(path, json=change, headers={"If-Match": "*"})
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    assert len(client.get(path).json()["history"]) == 1


@pytest.mark.more
def test_the_page_shows_the_new_promise_and_changes_nothing_before_it_is_confirmed(running):
    client, set_id = running
    page = f"/sets/{set_id}/request"
    shown = client.get(page, headers=PAGE).text
    assert "Change what the run has to keep" in shown
    preview = client.post(page, data={"act": "preview", "at_least": "5"}, headers=PAGE)
    assert preview.status_code == 200, preview.text
    assert "5 workflows are done by" in preview.text
    rest = f"/v1/workflow-sets/{set_id}/request"
    assert len(client.get(rest).json()["history"]) == 1
    confirm = preview.text[preview.text.index('value="change"') - 200 :]
    confirm = confirm[: confirm.index("</form>")]
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', confirm))
    fields = {name: value.replace("&#34;", '"') for name, value in fields.items()}
    assert client.post(page, data=fields, headers=PAGE).status_code == 303
    until(lambda: len(client.get(rest).json()["history"]) == 2)
    wrong = client.post(page, data={"budget_usd": "many"}, headers=PAGE)
    assert wrong.status_code == 422
    assert "&#39;many&#39; is not a number" in wrong.text


def test_the_metric_counts_active_runs_by_state(running):
    client, _ = running
    text = client.get("/metrics").text
    states = dict(re.findall(r'vgrads_set_state\{state="([^"]+)"\} (\S+)', text))
    assert set(states) == {"on track", "at risk", "cannot be met", "failing", "missed", "met"}
    assert sum(map(float, states.values())) == 1.0


@pytest.mark.parametrize(
    ("done_s", "change", "expected"),
    [
        ((50.0, 90.0), {"deadline_s": 200.0}, True),
        ((50.0, 150.0), {"deadline_s": 200.0}, None),  # it could wait
        ((50.0,), {"needed": 1}, None),
        ((50.0, 150.0), {"deadline_s": 90.0}, False),
        ((50.0, 150.0), {"deadline_s": 200.0, "at_s": 120.0}, False),  # after the first deadline
    ],
)
def test_the_first_promise_is_scored_as_it_was_given(done_s, change, expected):
    first = SimpleNamespace(deadline_s=100.0, needed=2)
    outcome = SimpleNamespace(done={f"w-{n}": at_s for n, at_s in enumerate(done_s)})
    values = {"at_s": 10.0, "deadline_s": 100.0, "needed": 2} | change
    record = RequestRecord(probability=0.9, budget_usd=None, promise=0.9, message=1, **values)
    assert first_outcome(outcome, first, [record]) is expected


def test_the_client_sends_a_change():
    sent = []

    class Recorder(Client):
        def _ask(self, method, path, body=None, more=()):
            sent.append((method, path, body, dict(more)))
            return {}

    client = Recorder("http://service.example", "t")
    client.change("set-1", deadline="2h", drop_sites=["a"], etag='"run-1-0"')
    client.change("set-1", at_least="75%", preview=True)
    path = "/v1/workflow-sets/set-1/request"
    assert sent == [
        ("PATCH", path, {"deadline": "2h", "drop_sites": ["a"]}, {"If-Match": '"run-1-0"'}),
        ("PATCH", f"{path}?preview=true", {"at_least": "75%"}, {"If-Match": "*"}),
    ]


LATE = """
name: late
deadline: 20s
workflows:
  - name: w
    count: 2
    tasks:
      - {id: long, runtime_s: 6, command: "sleep 6"}
"""


@pytest.mark.more
def test_a_change_survives_the_death_of_its_manager(vgrads, write, tmp_path):
    """It is sent while no manager is there, and applied by the one that continues the run."""
    file = str(write("late.yaml", LATE))
    command = [sys.executable, "-m", "vgrads", "run", file, "--sites", "here"]
    with (tmp_path / "run.log").open("w") as log:
        manager = subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )
    began = tmp_path / "run.log"
    until(lambda: "is ready" in began.read_text(), began.read_text)
    (run,) = runs(vgrads)
    manager.send_signal(signal.SIGKILL)
    manager.wait()
    with Store() as store:  # both promises are of this instant, whatever was computed last
        record = RunRecord(store.engine, run["run"])
        record.lease.take()
        assert record.events()
        record.append([PromiseChecked(at_s=0.5, probability=0.123)])
        record.lease.leave()
    shown = vgrads("change", run["run"], "--deadline", "5m", "--preview", "--json").json
    assert shown["before"]["promise"] > 0.5
    changed = vgrads("change", run["run"], "--deadline", "5m", "--yes", "--json")
    assert changed.code == 0, changed.err
    assert "its manager has not answered yet" in json.loads(changed.out)["message"]
    assert runs(vgrads)[0]["due"] == run["due"]
    resumed = vgrads("resume", run["run"], "--json")
    assert resumed.code == 0, resumed.err
    first_due, (run,) = run["due"], runs(vgrads)
    assert run["state"] == "kept"
    assert run["due"] > first_due
    assert vgrads("status", run["run"], "--json").json["runs"][0]["due"] == run["due"]
    with Store() as store:
        query = "SELECT job, covered FROM forecast WHERE kind = 'promise'"
        scores = dict(store.reader.rows(query))
    assert scores[f"{run['run']}/last"] == 1
    assert run["run"] in scores
    again = vgrads("change", run["run"], "--deadline", "5m")
    assert again.code == 2
    assert "has ended" in again.err


def runs(vgrads):
    return vgrads("status", "--json").json["runs"]
