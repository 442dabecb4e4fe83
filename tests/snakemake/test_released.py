"""Sets whose tasks are released one by one: seen through the client, over a real service and real
processes."""

import json
import threading
from dataclasses import replace
from functools import partial

import pytest

from tests import waiting
from tests.conftest import DATA
from tests.execmgr.test_execmgr import execution_for
from tests.execmgr.test_survival import World
from tests.planner.test_planner import chain, slot
from tests.portal.test_live import DIAMOND, served
from vgrads.drivers.simulated import SiteBehaviour
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.core.states import Release
from vgrads.execmgr.mailbox import Mail
from vgrads.execmgr.runner import Runner
from vgrads.kernel.errors import InputError
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

pytestmark = pytest.mark.more

until = partial(waiting.until, seconds=120.0)

RELEASED = DIAMOND | {
    "released": True,
    "deadline": "120s",
    "workflows": [DIAMOND["workflows"][0] | {"count": 1}],
}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    yield store
    store.close()


@pytest.fixture
def client(store, tmp_path):
    sites = tmp_path / "sites.toml"
    sites.write_text('[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n')
    AccessControl(store.engine).grant("here", "local")
    with served(store, sites) as client:
        yield client


class Recorder:
    """What a run has answered so far, heard in a thread."""

    def __init__(self, client, run):
        self.rows = []
        self._thread = threading.Thread(target=self._listen, args=(client, run), daemon=True)
        self._thread.start()

    def _listen(self, client, run):
        for row in client.answers(run.run_id):
            self.rows.append(row)

    def states(self, task):
        return [row["state"] for row in self.rows if row.get("task") == task]

    def wait(self, task, state):
        until(lambda: state in self.states(task))

    def end(self):
        until(lambda: self.rows and self.rows[-1]["event"] == "end")
        return self.rows[-1]["state"]


def leave(task, command, **more):
    return {"workflow": "w-1", "task": task, "command": command, **more}


def begun(client, document=RELEASED):
    run = client.run(client.submit(document))
    return run, Recorder(client, run)


def test_tasks_begin_when_they_are_released_and_in_no_other_order(client, tmp_path):
    run, recorder = begun(client)
    note = tmp_path / "note.txt"
    client.release(run.run_id, [leave("b", f"echo b >> {note}"), leave("a", f"echo a >> {note}")])
    recorder.wait("b", "done")
    assert recorder.states("c") == []
    client.release(run.run_id, [leave("c", f"echo c >> {note}"), leave("d", f"echo d >> {note}")])
    assert recorder.end() == "kept"
    assert note.read_text().split() == ["a", "b", "c", "d"]
    assert {row["site"] for row in recorder.rows if row["state"] == "running"} <= {"here"}
    with pytest.raises(InputError, match="has ended"):
        client.release(run.run_id, [leave("a", "true")])


def test_what_failed_by_itself_may_be_released_again_and_is_abandoned_only_on_request(
    client, tmp_path
):
    run, recorder = begun(client)
    client.release(run.run_id, [leave("a", "echo no >&2; exit 3")])
    recorder.wait("a", "failed")
    failed = next(row for row in recorder.rows if row["state"] == "failed")
    assert failed["code"] == 3
    assert "no" in failed["reason"]
    client.release(run.run_id, [leave("a", "exit 3")])  # the same code twice is no verdict here
    until(lambda: recorder.states("a").count("failed") == 2)
    client.release(run.run_id, [leave("a", "true"), leave("b", "true")])
    recorder.wait("b", "done")
    client.release(run.run_id, give_up=[{"workflow": "w-1", "task": "c", "reason": "no use"}])
    assert recorder.end() == "broken"
    assert [
        row["reason"] for row in recorder.rows if row["task" if "task" in row else "run"] == "c"
    ] == ["no use"]
    assert recorder.states("d") == ["lost"]


def test_the_graph_grows_while_it_runs(client, tmp_path):
    run, recorder = begun(client)
    client.release(run.run_id, [leave("a", "true")])
    recorder.wait("a", "done")
    more = [
        {
            "workflow": "w-1",
            "task": f"x{n}",
            "document": {"id": f"x{n}", "runtime_s": 1.0, "parents": ["a"]},
        }
        for n in range(3)
    ]
    client.release(run.run_id, [leave(f"x{n}", "true") for n in range(3)], add=more)
    recorder.wait("x2", "done")
    client.release(run.run_id, [leave("b", "true"), leave("c", "true"), leave("d", "true")])
    assert recorder.end() == "kept"
    chart = client.gantt(run.set_id)
    assert {p["task"] for p in chart["placements"]} >= {"x0", "x1", "x2", "d"}


def test_what_cannot_be_added_is_reported_and_the_rest_goes_on(client):
    run, recorder = begun(client)
    wide = {
        "workflow": "w-1",
        "task": "wide",
        "document": {"id": "wide", "runtime_s": 1.0, "procs": 64},
    }
    odd = {
        "workflow": "w-1",
        "task": "odd",
        "document": {"id": "odd", "runtime_s": 1.0, "parents": ["nobody"]},
    }
    client.release(run.run_id, add=[wide])
    recorder.wait("wide", "lost")
    client.release(run.run_id, [leave(task, "true") for task in "abcd"], add=[odd])
    assert recorder.end() == "kept"
    reasons = {row["task"]: row["reason"] for row in recorder.rows if row["state"] == "lost"}
    assert "wide" in reasons["wide"]
    assert "nobody" in reasons["odd"]


def test_a_single_copy_of_each_task_however_unsure(store, client):
    document = RELEASED | {"probability": 0.999, "runtime_spread": 1.0}
    placements = client.plan(client.submit(document))["placements"]
    assert len(placements) == len({p["task"] for p in placements}) == 4


def test_bad_mail_is_refused_whole(client):
    run, recorder = begun(client)
    for bad, what in (
        (leave("a", ""), "command"),
        (leave("a", "x" * 200_000), "longer than"),
        (leave("a", "a\0b"), "NUL"),
        (leave("a", "true", memory_mib=-1), "memory_mib"),
    ):
        with pytest.raises(InputError, match=what):
            client.release(run.run_id, [leave("b", "true"), bad])
    other = client.run(client.submit(DIAMOND), engine="outside")
    with pytest.raises(InputError, match="released"):
        client.release(other.run_id, [leave("a", "true")])
    client.cancel(other.set_id)
    client.release(run.run_id, [leave(task, "true") for task in "abcd"])
    assert recorder.end() == "kept"


def test_a_task_that_the_run_does_not_have_is_refused_at_once(client):
    run, recorder = begun(client)
    for unknown, what in (
        (leave("e", "true"), "no task 'e'"),
        (leave("a", "true") | {"workflow": "w 1"}, "no workflow 'w 1'"),
    ):
        with pytest.raises(InputError, match=what):
            client.release(run.run_id, [leave("b", "true"), unknown])
        with pytest.raises(InputError, match=what):
            client.release(run.run_id, give_up=[{k: unknown[k] for k in ("workflow", "task")}])
    added = {"workflow": "w 1", "task": "x", "document": {"id": "x", "runtime_s": 1.0}}
    with pytest.raises(InputError, match="no workflow 'w 1'"):
        client.release(run.run_id, add=[added])
    client.release(run.run_id, add=[added | {"workflow": "w-1"}])
    client.release(run.run_id, [leave(task, "true") for task in "xabcd"])
    assert recorder.end() == "kept"
    assert recorder.states("x")[-1] == "done"


def test_one_name_of_a_workflow_whatever_its_spelling(client):
    """Two callers of one set whose names differ only in characters that a name cannot have."""
    tasks = [{"id": "a", "runtime_s": 1.0}]
    answers = {}

    def join(name, ticket):
        document = {
            "ticket": ticket,
            "of": 2,
            "deadline": "120s",
            "workflow": {"name": name, "tasks": tasks},
        }
        answers[name] = client.gather("both", document, lambda _: None, pause_s=0.1)

    threads = [
        threading.Thread(target=join, args=(name, f"ticket-{position}"))
        for position, name in enumerate(("my flow", "my_flow"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    names = {answer["workflow"] for answer in answers.values()}
    assert names == {"my_flow-1", "my_flow-2"}
    released = [{"workflow": name, "task": "a", "command": "true"} for name in sorted(names)]
    run_id = answers["my flow"]["run"]
    client.release(run_id, released)
    rows = [row for row in client.answers(run_id) if row["event"] != "end"]
    assert {row["workflow"] for row in rows if row["state"] == "done"} == names


def test_whoever_releases_tasks_and_falls_silent_is_not_waited_for(tmp_path):
    """In virtual time: ten minutes after the last sign everything is given back."""
    execution = execution_for(
        [replace(chain("w", 10.0, 10.0), name="w")], [slot("a", end_s=7200.0)]
    )
    workflow_set = replace(execution.snapshot.workflow_set, released=True)
    execution = replace(execution, snapshot=replace(execution.snapshot, workflow_set=workflow_set))
    world = World(execution, SiteBehaviour())
    leave = Release(number=1, command="true")
    box = Letters([Mail(upto=1, released=((("w", "t0"), leave),))])
    around = replace(world.around(MemoryJournal()), mailbox=box)
    state = Runner("r", execution, around).run()
    assert set(state.done) == {("w", "t0")}
    assert "for 10 minutes" in state.cancelled
    assert [a.state for a in box.notes if a.task == ("w", "t0")][-1] == "done"


class Letters:
    """A mailbox that is a list."""

    def __init__(self, mails):
        self.mails, self.notes = mails, []

    def take(self, after):
        return next((mail for mail in self.mails if mail.upto > after), None)

    def answer(self, answers):
        self.notes += answers


def test_where_no_command_runs_nothing_is_released(store, vgrads, tmp_path):
    with served(store, DATA / "sites.toml") as client:
        set_id = client.submit(RELEASED)
        client.plan(set_id)
        with pytest.raises(InputError, match="simulated"):
            client.run(set_id)
    path = tmp_path / "set.json"
    path.write_text(json.dumps(RELEASED))
    message = vgrads("run", path)
    assert message.code == 2
    assert "service" in message.err
