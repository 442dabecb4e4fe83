"""Messages about the promise of a run: their text, repeated deliveries, and a real run."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.execmgr.test_execmgr import execution_for, ready, simulate
from tests.execmgr.test_promise_states import exit_2
from tests.planner.test_planner import chain, make_set, slot
from tests.portal.listeners import HttpListener
from tests.waiting import until
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.plans.set_files import load_set
from vgrads.execmgr.core.states import AlarmRecord, PromiseChecked, Tick
from vgrads.execmgr.core.step import step
from vgrads.planner.plan import Relaxation
from vgrads.portal.jobs.alarm_delivery import AlarmSettings
from vgrads.portal.jobs.alarm_messages import AlarmMessages
from vgrads.portal.jobs.alarm_text import RunAddress, alarm_text
from vgrads.portal.jobs.runs import create_run
from vgrads.portal.jobs.worker import check_document, workflow_set_of
from vgrads.portal.records.alarm_targets import AlarmTarget, AlarmTargets
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.tables import RunRow
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.alarm_rules import AlarmRule
from vgrads.workflows.sets import SetDocument, build_set
from vgrads.workflows.written import write_document

SET = """
name: storm
deadline: 10m
sites: here
{alarms}
workflows:
  - name: w
    tasks:
      - {{id: a, runtime_s: 1, command: "exit {status}"}}
"""


@pytest.fixture
def put(tmp_path):
    def write(status=2, alarms=""):
        path = tmp_path / "set.yaml"
        path.write_text(SET.format(status=status, alarms=alarms))
        return path

    return write


def test_the_owner_gets_a_message_before_the_deadline(vgrads, put):
    with HttpListener() as server:
        assert vgrads("alarms", "add", "hook", f"json://127.0.0.1:{server.port}/").code == 0
        answer = vgrads("run", put(), "--json")
        assert answer.code == 1
        documents = server.documents
    *_, document = documents  # its first failure may not repeat: the promise is at risk then
    assert document["title"] == "vgrads: the promise of storm is failing"
    lines = document["message"].splitlines()
    assert "Why: your command of w-1/a fails: exit code 2." in lines
    run_id = answer.json["run"]
    assert lines[-1] == f"More: vgrads status {run_id}"
    (shown,) = vgrads("status", run_id, "--json").json["runs"]
    *_, alarm = shown["alarms"]
    assert (alarm["state"], alarm["sent_to"], alarm["failed"]) == ("failing", ["hook"], [])
    assert alarm["at"] < shown["due"]
    assert ": failing; sent to hook\n" in vgrads("status", run_id).out


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        ("[{when: [tardy]}]", "alarms.0.when.0"),
        ("[{to: []}]", "alarms.0.to"),
        ("[{below: 2}]", "alarms.0.below"),
        ("[{below: 0.5, for: soon}]", "alarms.0.for"),
        ("[{for: 10m}]", "'for' needs 'below'"),
        ("[{who: [mail]}]", "alarms.0.who"),
    ],
)
def test_a_bad_rule_is_one_error_that_names_the_field(vgrads, put, rules, where):
    answer = vgrads("plan", put(alarms=f"alarms: {rules}"))
    assert answer.code == 2
    assert where in answer.err and len(answer.err.splitlines()) == 1, answer.err


def test_rules_survive_being_written_again(put):
    rules = "alarms: [{to: [mail], below: 0.5, for: 10m}, {when: [missed]}]"
    workflow_set, _ = load_set(put(alarms=rules))
    assert workflow_set.alarms == (
        AlarmRule(to=("mail",), when=("on track",), below=0.5, for_s=600.0),
        AlarmRule(when=("missed",)),
    )
    assert build_set(SetDocument(**write_document(workflow_set)), None, "").alarms == (
        workflow_set.alarms
    )
    submitted = check_document(write_document(workflow_set), 10)
    assert workflow_set_of(SetDocument(**json.loads(submitted.text))).alarms == workflow_set.alarms


def test_the_text_says_what_by_when_why_and_what_would_help():
    execution = execution_for([chain("w", 100.0)], [slot("a")], deadline_s=3600.0)
    change = Relaxation(
        change="later deadline", amount=1800.0, unit="s", probability=0.95, cost_usd=2.0
    )
    execution = replace(execution, plan=replace(execution.plan, relaxations=(change,)))
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), exit_2(("w", "t0", 0), 10.0))
    state, _ = step(execution, state, PromiseChecked(at_s=11.0, probability=0.3))
    address = RunAddress("run-1", datetime(2026, 11, 29, 12, tzinfo=UTC), "https://x.org/sets/1")
    title, body = alarm_text(execution, state, AlarmRecord(1, 11.0, 0, "at risk"), address)
    assert title == "vgrads: the promise of s is at risk"
    assert "1 workflow is needed by 2026-11-29 13:00 UTC, 0 done so far." in body
    assert "Probability now: 0.300; requested: 0.9." in body
    assert "Sufficient when it was planned: later deadline (by 30m; promise 0.950, $2.00)" in body
    help_now = "May help: a later deadline: https://x.org/sets/1/request"
    assert body.endswith(f"\n{help_now}\nhttps://x.org/sets/1")
    alarm, more = AlarmRecord(1, 11.0, 0, "at risk"), replace(change, change="larger budget")
    at_terminal = RunAddress("run-1", address.began)
    _, body = alarm_text(execution, state, alarm, at_terminal)
    assert "May help: a later deadline: vgrads change run-1\n" in body
    _, body = alarm_text(execution, state, alarm, address, (more,))
    assert "Sufficient now: larger budget" in body and "when it was planned" not in body
    assert "Change it: https://x.org/sets/1/request\n" in body and "May" not in body
    _, body = alarm_text(execution, state, alarm, address, ())
    assert "No change of the request was found that would suffice now; to try: " in body
    state, _ = step(execution, state, PromiseChecked(at_s=80.0, probability=0.9))
    title, body = alarm_text(execution, state, AlarmRecord(2, 80.0, 0, "on track"), address)
    assert title.endswith("is on track again") and "Why" not in body and "May" not in body


def results_of(store, url, pauses_s, hurry):
    """What becomes of a message to a target with this URL, and to one that was removed."""
    run = RunRow(id="run-1", set_id="set-1", state="running", started=datetime.now(UTC))
    AlarmTargets(store.engine).add("local", AlarmTarget("hook", url, False), "json://")
    record = RunRecord(store.engine, "run-1")
    sender = AlarmMessages(store.engine, record, run, AlarmSettings(), pauses_s)
    assert sender.targets(AlarmRule()) == ("hook",)
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    alarm = AlarmRecord(1, 11.0, 0, "at risk", targets=("hook", "gone"))
    sender.send(execution, simulate(execution, Tick(at_s=0.0))[0], alarm)
    results = []

    def are_complete():
        sender.under_way(is_last_try=hurry)
        results.extend(sender.results())
        return len(results) == 2

    until(are_complete)
    assert not sender.under_way(is_last_try=False)
    return results


@pytest.mark.parametrize(("pauses_s", "hurry"), [((0.01, 0.01), False), ((9e3, 9e3), True)])
def test_a_target_that_fails_is_tried_again_then_recorded(store, pauses_s, hurry):
    with HttpListener(status=500) as server:
        url = f"json://127.0.0.1:{server.port}/"
        gone, failed = results_of(store, url, pauses_s, hurry)
        tries = len(server.requests)
    assert gone == (1, "gone", False, "no target has this name")
    assert (failed.target, failed.ok) == ("hook", False) and failed.reason
    assert tries in ({1, 2} if hurry else {3})


def test_a_simulated_run_records_what_was_due_and_sends_nothing(vgrads, put):
    path = put(alarms="alarms: [{below: 0.99}]\nruntime_spread: 0.5")
    text = path.read_text().replace("sites: here\n", "").replace("runtime_s: 1", "runtime_s: 400")
    path.write_text(text.replace("10m", "20m"))
    with HttpListener() as server:
        assert vgrads("alarms", "add", "hook", f"json://127.0.0.1:{server.port}/").code == 0
        run_id = vgrads("run", path, "--json").json["run"]
        assert not server.requests
    (shown,) = vgrads("status", run_id, "--json").json["runs"]
    alarm, *_ = shown["alarms"]
    assert (alarm["state"], alarm["sent_to"], alarm["failed"]) == ("below 0.99", [], [])


def body_of_message(store, run, execution, state):
    """The text of a message at risk, as a target gets it."""
    with HttpListener() as server:
        url = f"json://127.0.0.1:{server.port}/"
        AlarmTargets(store.engine).add("local", AlarmTarget("hook", url, False), "json://")
        sender = AlarmMessages(store.engine, RunRecord(store.engine, run.id), run, AlarmSettings())
        sender.send(execution, state, AlarmRecord(1, 900.0, 0, "at risk", targets=("hook",)))
        until(lambda: server.requests)
        return server.documents[0]["message"]


def test_a_message_names_the_changes_that_suffice_now(store, tmp_path):
    sites = tmp_path / "sites.toml"
    sites.write_text('[[site]]\nname = "cloud"\nkind = "cloud"\nprocs = 4\nboot = "1m"\n')
    workflow_set = make_set([chain("w", 600.0)], deadline_s=2000.0)
    planned = plan_set(workflow_set, open_grid(load_catalog(sites)))
    run = create_run(store, planned, RunOptions(run_id="run-1", folder=tmp_path))
    state, _ = simulate(run.execution, Tick(at_s=0.0))
    late = state._replace(now_s=1900.0)
    body = body_of_message(store, store.get_run("run-1"), run.execution, late)
    assert "Sufficient now: a later deadline (by " in body


def test_a_message_whose_changes_cannot_be_computed_is_sent(store):
    execution = execution_for([chain("w", 100.0)], [slot("a")])
    change = Relaxation(change="more", amount=1.0, unit="USD", probability=0.95, cost_usd=2.0)
    execution = replace(execution, plan=replace(execution.plan, relaxations=(change,)))
    run = RunRow(id="not stored", set_id="set-1", state="running", started=datetime.now(UTC))
    body = body_of_message(store, run, execution, simulate(execution, Tick(at_s=0.0))[0])
    assert "Sufficient when it was planned: more (by 1 USD; promise 0.950, $2.00)." in body
