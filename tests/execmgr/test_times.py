"""Where the time of tasks went: measured where it went, journalled, told by command, page and
metrics."""

import json

from vgrads.execmgr.core.journal import event_from_json, event_to_json
from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.execmgr.core.times import Times
from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.records.reading.forecast_scores import read_all_scores
from vgrads.portal.records.store import Store
from vgrads.portal.web.figures import ServiceMetrics
from vgrads.portal.web.meters import Meters

SET = """
name: timed
deadline: 1h
at_least: 1
workflows:
  - name: w
    tasks:
      - {id: make, runtime_s: 1, procs: 1, command: "head -c 3000000 /dev/zero > big; sleep 0.3", outputs: [big]}
      - {id: use, runtime_s: 1, procs: 1, parents: [make], inputs: [big], outputs: [sum], command: "python3 -c 'x = sum(range(3000000))'; cksum big > sum"}
"""
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n'


def test_every_planned_task_tells_its_times(vgrads, write, tmp_path):
    ran = vgrads("run", write("set.yaml", SET), "--sites", write("sites.toml", SITES), "--json")
    assert ran.code == 0, ran.err
    run = ran.json["run"] if "run" in ran.json else ran.json["id"]
    rows = {row["task"]: row for row in vgrads("logs", run, "--json").json["attempts"]}
    created, used = rows["make"]["times"], rows["use"]["times"]
    assert 0.3 <= created["ran_s"] < rows["make"]["seconds"] + 0.1
    assert created["commit_s"] > 0 and created["own_s"] > 0 and created["peak_mib"] > 0
    assert created.get("cpu_s", 0.0) < created["ran_s"] / 2 < used["cpu_s"] + created["ran_s"] / 2
    assert 2.8 < used["in_mib"] < 2.9  # MiB of what the other one made
    with Store(f"sqlite:///{tmp_path}/home/vgrads.db") as store:
        payload = {
            (sample.labels["of"], sample.labels["part"]): sample.value
            for family in ServiceMetrics(
                store, LiveGantt(store), Meters(), lambda: read_all_scores(store.reader)
            ).collect()
            if family.name == "vgrads_task_seconds"
            for sample in family.samples
        }
    assert abs(payload["runs", "ran"] - created["ran_s"] - used["ran_s"]) < 1e-3


def test_times_are_stored_as_they_are_and_left_out_where_there_are_none():
    plain = ReplicaEnded(at_s=1.0, key=("w", "t", 0), ok=True)
    assert "times" not in event_to_json(plain)
    full = ReplicaEnded(at_s=1.0, key=("w", "t", 0), ok=True, times=Times(ran_s=2.5, peak_mib=7.0))
    for event in (plain, full):
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
    later = Times(commit_s=1.0, peak_mib=3.0)
    assert Times(ran_s=2.0, peak_mib=5.0).and_then(later) == Times(
        ran_s=2.0, commit_s=1.0, peak_mib=5.0
    )


def test_a_bag_tells_where_its_tasks_time_goes(vgrads, write):
    bag = write(
        "bag.yaml", 'name: b\ncommand: "sleep 0.2; echo {n}"\nparameters: {n: {range: [6]}}\n'
    )
    assert vgrads("bags", "run", bag).code == 0
    listed = vgrads("bags", "status", "--json").json["bags"][0]
    ends = [
        json.loads(line) for line in vgrads("bags", "logs", listed["id"], "--json").out.splitlines()
    ]
    assert all(end["ran_s"] >= 0.2 and end["cpu_s"] < end["ran_s"] for end in ends)
    means = listed["times"]
    assert abs(means["ran_s"] - sum(end["ran_s"] for end in ends) / len(ends)) < 1e-3
    assert means["commit_s"] > 0 and 0 < means["own_s"] < 1
