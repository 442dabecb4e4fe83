"""Status, logs, cancel, resume, explain and retry find runs, sets, bags and pools by id or name."""

import pytest

from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.view import PoolMemory, PoolStatus, decide_now, entry_of
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.reading.run_rows import run_rows
from vgrads.portal.records.sets import NewSet, Sets
from vgrads.portal.records.store import Store
from vgrads.portal.web.set_display import MET
from vgrads.portal.web.work_overview import Overview

SET = """
name: {name}
deadline: 1h
sites: here
workflows:
  - name: w
    tasks: [{{id: a, runtime_s: 1, command: "echo of the run"}}]
"""
BAG = """
name: {name}
command: "echo of the bag {{n}}"
parameters: {{n: [1, 2]}}
"""


@pytest.fixture
def things(vgrads, write):
    def begin(run="", bag=""):
        ids = {}
        if run:
            answer = vgrads("run", write("set.yaml", SET.format(name=run)), "--json")
            ids["run"] = answer.json["run"]
        if bag:
            answer = vgrads("bags", "run", write("bag.yaml", BAG.format(name=bag)), "--json")
            ids["bag"] = answer.json["bags"][0]["id"]
        return ids

    return begin


def test_a_bag_is_found_where_runs_are(vgrads, things):
    ids = things(run="model", bag="sweep")
    for name in ("sweep", ids["bag"]):
        assert vgrads("status", name, "--json").json["bags"][0]["id"] == ids["bag"]
        assert "of the bag 2" in vgrads("logs", name, "1").out
        assert "has ended" in vgrads("resume", name).err
    assert "echo of the bag 2" in vgrads("explain", "sweep", "1").out
    for name in ("model", ids["run"]):
        assert vgrads("status", name, "--json").json["runs"][0]["run"] == ids["run"]
        assert "of the run" in vgrads("logs", name, "a").out


def test_a_name_of_several_is_refused_with_their_ids(vgrads, things):
    first, second = things(run="twice"), things(bag="twice")
    answer = vgrads("status", "twice")
    assert answer.code == 2
    assert first["run"] in answer.err and second["bag"] in answer.err
    answer = vgrads("logs", second["bag"], "w/a")
    assert answer.code == 2 and "no number of a task" in answer.err
    answer = vgrads("cancel", "never")
    assert answer.code == 2 and "no run 'never'" in answer.err


def publish_pool(name, owner=None):
    """A pool that decides, as ``vgrads pool run`` publishes it."""
    with Store() as store:
        ledger, nothing = PoolLedger(store.engine, owner), PoolStatus(now_s=0.0)
        document = PoolDocument(name=name, max_workers=8)
        decided, _ = decide_now(ledger.read(), document, nothing, PoolMemory())
        ledger.publish_pool(name, entry_of(document, "run", decided, nothing))


def test_a_pool_is_found_too_and_says_what_it_cannot_do(vgrads, things):
    things(run="model")
    publish_pool("nodes")
    publish_pool("others")
    for name in ("nodes", "pool:nodes"):
        assert [p["name"] for p in vgrads("status", name, "--json").json["pools"]] == ["nodes"]
        assert vgrads("explain", name, "--json").json["name"] == "nodes"
    for verb, instead in (
        ("logs", "vgrads pool explain nodes"),
        ("cancel", "Ctrl-C"),
        ("resume", "vgrads pool run"),
        ("retry", "no tasks of its own"),
    ):
        answer = vgrads(verb, "nodes")
        assert (answer.code, instead in answer.err) == (2, True), (verb, answer)
    missing = vgrads("explain", "model")
    assert missing.code == 2 and "TASK: is missing" in missing.err


def test_a_pool_and_a_bag_of_the_same_name_are_told_apart_by_their_ids(vgrads, things):
    bag = things(bag="nodes")["bag"]
    publish_pool("nodes")
    answer = vgrads("status", "nodes")
    assert answer.code == 2
    assert bag in answer.err and "pool:nodes" in answer.err
    assert vgrads("status", "pool:nodes", "--json").json["pools"]
    refused = vgrads("retry", bag)
    assert refused.code == 2 and "has nothing to retry" in refused.err


def test_a_matrix_is_found_by_the_name_of_its_file(vgrads, tmp_path, write, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("compare", "#!/bin/sh\necho 1\n").chmod(0o755)
    items = write("a.list", f"{write('x', 'x')}\n")
    assert vgrads("allpairs", items, items, "./compare", "--block", 1).code == 0
    (bag,) = vgrads("status", "allpairs.matrix", "--json").json["bags"]
    assert bag["state"] == "done"
    assert "task 0" in vgrads("explain", bag["id"], "0").out
    assert "has ended" in vgrads("resume", "allpairs.matrix").err


def test_a_set_means_its_newest_run_and_one_that_never_ran_hides_no_name(vgrads, things):
    run = things(run="model")["run"]
    with Store() as store:
        set_id = store.get_run(run).set_id
        never = Sets(store.engine).add("local", NewSet("model", "{}"), real=False)["id"]
        assert vgrads("status", "model", "--json").json["runs"][0]["run"] == run
        newer = store.add_run(set_id)
    for name in ("model", set_id):
        assert vgrads("status", name, "--json").json["runs"][0]["run"] == newer
    answer = vgrads("logs", never)
    assert answer.code == 2 and "has not run" in answer.err


FLAKY = """
name: flaky
deadline: 1h
fraction: 1
sites: here
workflows:
  - name: w
    tasks:
      - {id: a, runtime_s: 1, command: "echo a >> ran; echo a > a.txt", outputs: [a.txt]}
      - id: b
        runtime_s: 1
        parents: [a]
        command: "echo b >> {ran}; test -e {go} && cat a.txt > b.txt"
        inputs: [a.txt]
        outputs: [b.txt]
      - {id: c, runtime_s: 1, parents: [b], command: "echo c >> {ran}; cat b.txt > c.txt",
         inputs: [b.txt], outputs: [c.txt]}
"""


def test_what_failed_is_tried_again_with_what_failed_because_of_it(vgrads, write, tmp_path):
    ran, go = tmp_path / "ran", tmp_path / "go"
    text = FLAKY.replace(">> ran", f">> {ran}").replace("{ran}", str(ran)).replace("{go}", str(go))
    first = vgrads("run", write("set.yaml", text), "--json")
    assert first.code == 1
    before = ran.read_text().split()
    assert before[0] == "a" and "c" not in before
    go.touch()
    (tmp_path / "set.yaml").unlink()  # the stored set is run
    ran.unlink()
    second = vgrads("retry", first.json["run"], "--json")
    assert second.code == 0, second
    assert ran.read_text().split() == ["b", "c"]
    ran.unlink()
    nothing_left = vgrads("retry", second.json["run"])
    assert nothing_left.code == 2 and "are done" in nothing_left.err
    assert vgrads("retry", second.json["run"], "w-1/b").code == 0
    assert ran.read_text().split() == ["b", "c"]
    with Store() as store:  # three runs of a set: a row in lists, in the state of the last one
        (entry,) = Overview(store.reader).sets(None, lambda _: None)
        assert (entry.run.state, entry.state) == ("kept", MET)
        assert len({row["set"] for row in run_rows(store.reader)}) == 1
        assert len(run_rows(store.reader)) == 3
    wrong = vgrads("retry", second.json["run"], "w-1/d")
    assert wrong.code == 2 and "no task 'w-1/d'" in wrong.err
