"""Rules of alarms of an owner, in every interface, and the acknowledgement of alarms."""

import pytest
from fastapi.testclient import TestClient

from tests.waiting import until
from vgrads.api.config import embedded_data
from vgrads.portal.records.owner_rules import OwnerRules
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.alarm_rules import AlarmEscalation, AlarmRule, QuietHours

TASK = {"id": "a", "runtime_s": 1500}
SLOW = {
    "name": "slow",
    "deadline": "1h",
    "runtime_spread": 0.5,
    "workflows": [{"name": "w", "tasks": [TASK]}],
}
RULES = """
alarms:
  - {to: [mail], when: [late, site fails], quiet: "22:00-07:00"}
  - {not_begun_after: 20m, above_usd: 5, escalate: {to: [boss], after: 30m}}
"""
READ = (
    AlarmRule(to=("mail",), when=("late", "site fails"), quiet=QuietHours(start=1320, end=420)),
    AlarmRule(
        when=("on track",),
        not_begun_after_s=1200.0,
        above_usd=5.0,
        escalation=AlarmEscalation(to=("boss",), after_s=1800.0),
    ),
)


def test_rules_of_the_operator_are_set_shown_and_reset(vgrads, tmp_path):
    assert vgrads("alarms", "rules").out.startswith("the usual rule: ")
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    shown = vgrads("alarms", "rules", file)
    assert shown.code == 0 and "not_begun_after: 1200.0" in shown.out
    with Store() as store:
        assert OwnerRules(store.engine).find("local") == READ
    again = tmp_path / "again.yaml"
    again.write_text(shown.out)  # what is shown can be stored
    assert vgrads("alarms", "rules", again).out == shown.out
    assert vgrads("alarms", "rules", "--reset", "--json").json == {"alarms": None}
    assert vgrads("alarms", "rules", file, "--reset").code == 2


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        ("alarms: [{quiet: night}]", "alarms.0.quiet"),
        ("alarms: [{quiet: '07:00-07:00'}]", "begins when it ends"),
        ("alarms: [{escalate: {to: [boss]}}]", "alarms.0.escalate.after"),
        ("alarms: [{escalate: {to: [boss], after: 1s}}]", "alarms.0.escalate.after"),
        ("alarms: [{above_usd: -1}]", "alarms.0.above_usd"),
        ("rules: []", "alarms"),
        ("[", "rules.yaml"),
        ("", "the file is empty"),
    ],
)
def test_bad_rules_are_one_error_and_change_nothing(vgrads, tmp_path, rules, where):
    file = tmp_path / "rules.yaml"
    file.write_text(rules)
    answer = vgrads("alarms", "rules", file)
    assert answer.code == 2 and where in answer.err, answer.err
    assert vgrads("alarms", "rules", "--json").json == {"alarms": None}


def test_a_run_has_the_rules_of_its_owner_unless_its_set_has_some(vgrads, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("alarms: [{below: 0.99}]")
    assert vgrads("alarms", "rules", file).code == 0
    task = "tasks: [{id: a, runtime_s: 400}]"
    document = f"name: s\ndeadline: 20m\nruntime_spread: 0.5\nworkflows: [{{name: w, {task}}}]\n"
    for more, states in (("", ["below 0.99"]), ("alarms: []\n", [])):
        path = tmp_path / "set.yaml"
        path.write_text(document + more)
        run_id = vgrads("run", path, "--json").json["run"]
        (shown,) = vgrads("status", run_id, "--json").json["runs"]
        assert [alarm["state"] for alarm in shown["alarms"]][:1] == states


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A service with a set that runs at simulated sites, slowly, whose alarm is due at once; its
    id."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    with Store() as store:
        catalog = load_catalog(embedded_data() / "sites.toml")
        with TestClient(make_app(store, catalog), follow_redirects=False) as client:
            rules = {"alarms": [{"below": 0.9999}]}
            stored = client.put("/v1/alarm-rules", json=rules)
            assert stored.status_code == 200 and stored.json()["alarms"][0]["below"] == 0.9999
            assert client.get("/v1/alarm-rules").json() == stored.json()
            bad = client.put("/v1/alarm-rules", json={"alarms": [{"quiet": "night"}]})
            assert bad.status_code == 422 and "quiet" in bad.text
            set_id = client.post("/v1/workflow-sets", json=SLOW).json()["id"]
            path = f"/v1/workflow-sets/{set_id}"
            early = client.post(f"{path}/alarms/acknowledge", json={})
            assert early.status_code == 409, early.text
            assert client.post(f"{path}/run?speed=20").status_code == 202
            until(lambda: alarms(client, set_id))
            yield client, set_id
            client.delete(path)


def alarms(client, set_id):
    return client.get(f"/v1/workflow-sets/{set_id}/status").json().get("alarms")


@pytest.mark.more
@pytest.mark.parametrize("way", ["REST", "page", "command"])
def test_an_alarm_is_acknowledged(running, vgrads, way):
    client, set_id = running
    (alarm, *_) = alarms(client, set_id)
    assert (alarm["number"], alarm["acknowledged_by"], alarm["escalated"]) == (1, "", False)
    page = client.get(f"/sets/{set_id}").text
    assert "I take care of it" in page and "acknowledge" in page
    assert alarms(client, set_id)[0]["acknowledged_by"] == ""  # no GET changes anything
    if way == "REST":
        path = f"/v1/workflow-sets/{set_id}/alarms/acknowledge"
        assert client.post(path, json={"upto": 99}).status_code == 422
        answer = client.post(path, json={"upto": 1})
        assert answer.status_code == 202 and answer.json()["upto"] == 1
    elif way == "page":
        answer = client.post(f"/sets/{set_id}/acknowledge", data={"upto": "1"})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/sets/{set_id}")
    else:
        answer = vgrads("alarms", "acknowledge", set_id)
        assert answer.code == 0 and answer.out.startswith("acknowledged "), answer.err
    until(lambda: alarms(client, set_id)[0]["acknowledged_by"] == "local")
    if way == "page":
        assert "I take care of it" not in client.get(f"/sets/{set_id}").text
