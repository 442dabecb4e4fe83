"""What vgrads 0.2 kept, before its code had one import name, opens, shows and goes on."""

import json
from collections import Counter

import pytest

from tests.portal.serving import Served
from tests.portal.stored_02 import (
    DONE,
    HALF,
    KILLED,
    LEASED,
    MATRIX,
    PLANNED_SET,
    QUEUED,
    RUN_SET,
    RUNNING,
    SERVED,
    SERVED_BAG,
    WAITING,
    call,
    home,
    printed,
    ran,
    start,
)
from tests.waiting import until
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.store import Store

pytestmark = pytest.mark.long  # what 0.2 left changes no more: before a release

__all__ = ["call", "home"]  # fixtures


def test_books_plans_and_journals_are_whole(home):
    with Store() as store:
        for run in (DONE, KILLED, QUEUED, RUNNING, SERVED):
            record = RunRecord(store.engine, run)
            (execution,) = record.executions()
            assert isinstance(execution, ExecutionPlan)
            execution.plan.check(execution.snapshot)
            assert record.events()
            assert record.setup().options.run_id == run
        tasks = RunRecord(store.engine, KILLED).executions()[0].snapshot.workflow_set.workflows
        (w,) = (task.tasks["w"] for task in tasks if "w" in task.tasks)
        assert w.environment.workdir == str(home.parent / "season")
        plan, snapshot = Sets(store.engine).archived(PLANNED_SET)
        plan.check(snapshot)


def test_it_is_shown(call, home, tmp_path):
    message = call("pool", "status", "--json").json  # first: a pool that is silent is shown no more
    assert [entry["name"] for entry in message["pools"]] == ["shared"]
    assert message["managers"][0]["by_pool"] == {"shared": 2}
    states = {row["run"]: row["state"] for row in call("status", "--json").json["runs"]}
    assert (states[DONE], states[SERVED]) == ("kept", "kept")
    assert {states[run] for run in (KILLED, QUEUED, RUNNING)} == {"running"}
    chart = tmp_path / "chart.svg"
    assert call("gantt", DONE, "-o", chart).code == 0
    assert "<svg" in chart.read_text()
    assert call("explain", KILLED, "chain-1/a").code == 0
    assert call("logs", KILLED, "there-1/w").code == 0
    done = {row["id"]: row["done"] for row in call("bags", "status", "--json").json["bags"]}
    assert (done[HALF], done[WAITING], done[LEASED], done[SERVED_BAG]) == (4, 0, 3, 2)
    assert call("bags", "explain", HALF, 1).out.startswith("task 1: done")
    kinds = call("runtimes", "list", "--json").json
    assert "first" in json.dumps(kinds)
    assert "ann" in call("token", "list").out


def test_a_run_that_was_killed_goes_on(call, home, tmp_path):
    done = ran(tmp_path, "killed")
    assert done == Counter(a=3, w=1)  # a copy of one was begun as well
    (tmp_path / "go").touch()
    answer = call("resume", KILLED, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["outcome"]["in_time"] == 3
    again = ran(tmp_path, "killed")
    assert (again["a"], again["w"]) == (done["a"], done["w"])
    assert (again["b"] >= 2, again["x"] >= 1) == (True, True)
    results = home / "runs" / KILLED
    assert (results / "chain-1" / "results" / "b.txt").read_text() == "set 2026\n" * 2


def test_a_bag_that_was_killed_goes_on(call, tmp_path):
    assert sum(ran(tmp_path, "bag").values()) == 4
    (tmp_path / "go").touch()
    answer = call("bags", "resume", HALF, "--sites", tmp_path / "here.toml", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["bags"][0]["done"] == 8
    assert ran(tmp_path, "bag") == Counter(map(str, range(8)))


def test_a_matrix_that_was_killed_goes_on(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "matrix")
    before = call("matrix", "wavefront.matrix", "--json").json["done"]
    assert 0 < before < 144
    bag = {row["id"]: row for row in call("bags", "status", "--json").json["bags"]}[MATRIX]
    assert bag["done"] <= before / 9
    answer = call("wavefront", "edges.txt", "--python", "f.py:cell", "--block", 3, "-o", "r.txt")
    assert answer.code == 0, answer.err
    cells = [[1] * 13 for _ in range(13)]
    for x in range(1, 13):
        for y in range(1, 13):
            cells[x][y] = (cells[x - 1][y] + cells[x][y - 1] + cells[x - 1][y - 1]) % 9973
    assert (tmp_path / "matrix" / "r.txt").read_text().split()[-1] == str(cells[12][12])


def test_a_pool_that_was_killed_goes_on_with_the_bag_that_it_served(call, tmp_path):
    pool = start(
        tmp_path, "pool", "pool", "run", tmp_path / "pool.yaml", "--sites", tmp_path / "here.toml"
    )
    try:
        (tmp_path / "go").touch()
        bag = start(tmp_path, "lent", "bags", "resume", LEASED, "--contact", "127.0.0.1")
        assert bag.wait(90) == 0, printed(tmp_path, "lent") + printed(tmp_path, "pool")
    finally:
        pool.send_signal(2)
        assert pool.wait(60) == 0, printed(tmp_path, "pool")
    assert ran(tmp_path, "lent") == Counter(map(str, range(6)))


def test_a_service_goes_on(home, tmp_path):
    token = json.loads((tmp_path / "token.json").read_text())["token"]
    (tmp_path / "go").touch()
    service = Served(home)
    try:
        client = service.client(token)
        rows = {row["id"]: row for row in client.list_sets()}
        assert rows[PLANNED_SET]["state"] == rows[RUN_SET]["state"] == "planned"
        assert client.plan(PLANNED_SET)["promise"]["probability"] == pytest.approx(0.99, abs=0.02)
        handle = client.newest_run(RUN_SET)
        assert (handle.run_id, client.wait(handle)) == (SERVED, "kept")
        until(lambda: client.read_bag(SERVED_BAG)["state"] == "done", "its bag", 60)
        assert [end["code"] for end in client.bag_results(SERVED_BAG)] == [0] * 5
    finally:
        service.end()
    assert ran(tmp_path, "served") == Counter(map(str, range(5)))
