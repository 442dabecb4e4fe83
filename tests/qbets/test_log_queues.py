"""Histories of several queues: which one counts for a queue of a site."""

import numpy as np
import pytest
from fastapi.testclient import TestClient

from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.traces.history import read_history
from vgrads.traces.log_queue import ALL_QUEUES, SiteQueue
from vgrads.traces.records import JobLog
from vgrads.traces.swf import write_swf
from vgrads.vgrid.catalog import load_catalog

SITE = """
[[site]]
name = "m"
kind = "batch"
procs = 64
[[site.queue]]
name = "{queue}"
history = "log.swf"
{more}
"""
SET = """
name: s
deadline: 2h
workflows:
  - {name: w, tasks: [{id: a, runtime_s: 600}]}
"""
BUSY, IDLE = 200, 2000


def a_log():
    """Jobs of the queue 'busy' wait for six hours, those of 'idle' not at all."""
    count = BUSY + IDLE
    busy = np.arange(count) % 11 == 0
    return JobLog(
        name="log",
        submit_s=600.0 * np.arange(count),
        wait_s=np.where(busy, 21_600.0, 0.0),
        run_s=np.full(count, 60.0),
        procs=np.full(count, 4),
        request_s=np.full(count, 3600.0),
        user=np.arange(count) % 7,
        queue=np.where(busy, 1, 2),
        started=np.ones(count, bool),
        unix_start_s=1e9,
        max_procs=64,
        queue_names={1: "busy", 2: "idle"},
    )


@pytest.fixture
def sites(write):
    write("log.swf", write_swf(a_log()))

    def put(queue="busy", more=""):
        return write("sites.toml", SITE.format(queue=queue, more=more))

    return put


def promise(vgrads, write, path):
    """The probability that is promised for a set within two hours, and what is said on stderr."""
    answer = vgrads("plan", write("set.yaml", SET), "--sites", path, "--json", "--at", "1e6")
    assert answer.code in (0, 3), answer
    return answer.json["promise"]["probability"] if answer.code == 0 else 0.0, answer.err


@pytest.mark.more
def test_a_plan_rests_on_the_queue_of_the_same_name(vgrads, write, sites):
    own, _ = promise(vgrads, write, sites())
    stated, _ = promise(vgrads, write, sites(more="log_queue = 'busy'"))
    assert own == stated < 0.5
    every, _ = promise(vgrads, write, sites(more="log_queue = '*'"))
    other, _ = promise(vgrads, write, sites(more="log_queue = 'idle'"))
    assert 0.5 < min(every, 0.9) <= min(other, 0.9)  # above the request, less is cheaper
    assert (
        promise(vgrads, write, sites("Busy"))[0] == every
    )  # case counts; the log has no such queue


def test_list_and_check_say_which_queue_of_the_log_counts(vgrads, sites):
    for queue, more, taken, text in (
        ("busy", "", "busy", "200 jobs of queue 'busy' of its log"),
        ("idle", "", "idle", "2,000 jobs of queue 'idle' of its log"),
        ("other", "", None, "2,200 jobs of all 2 queues of its log"),
        ("other", "log_queue = 1", "1", "200 jobs of queue '1' of its log"),
        ("busy", "log_queue = '*'", None, "2,200 jobs of all 2 queues of its log"),
    ):
        path = sites(queue, more)
        listed = vgrads("sites", "list", path, "--json").json["sites"][0]["queues"][0]["history"]
        assert (listed["log_queue"], listed["log_queues"]) == (taken, 2)
        (checked,) = vgrads("sites", "check", path, "--json").json["sites"][0]["histories"]
        assert (checked["queue"], checked["log_queue"], checked["jobs"]) == (
            queue,
            taken,
            listed["jobs"],
        )
        for command in ("list", "check"):
            assert text in " ".join(vgrads("sites", command, path).out.replace("│", " ").split())


def test_sites_of_the_database_and_uploaded_histories_do_the_same(vgrads, sites, tmp_path):
    path = sites()
    assert vgrads("sites", "add", path).code == 0
    job = ("--procs", 4, "--at", a_log().end_s / 2, "--json")  # when a file shows all jobs, too
    own = vgrads("bound", "m/busy", *job).json
    assert own == vgrads("bound", tmp_path / "log.swf", "--queue", "busy", *job).json
    row = vgrads("sites", "list", "--json").json["sites"][0]["queues"][0]["history"]
    assert (row["log_queue"], row["jobs"]) == ("busy", BUSY)
    with Store() as store, TestClient(make_app(store, load_catalog(path))) as client:
        for log, jobs in ((a_log().only_queue("idle"), IDLE), (a_log(), BUSY)):
            sent = client.post("/v1/sites/m/history?queue=busy", content=write_swf(log))
            assert sent.json()["jobs"] == len(log)
            (site,) = client.get("/v1/sites").json()
            assert site["queues"][0]["history"]["jobs"] == jobs


def test_a_job_that_was_submitted_to_several_queues_counts_for_each(write):
    head = "JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit\n"
    lines = [
        f"{n}|u|{queue}|2024-01-0{n}T00:00:00|2024-01-0{n}T01:00:00|2024-01-0{n}T02:00:00|COMPLETED|4|02:00:00\n"
        for n, queue in enumerate(("a", "b", "a,b", "c"), 1)
    ]
    log = read_history(write("log.txt", head + "".join(lines)))
    assert [len(log.only_queue(SiteQueue(name))) for name in ("a", "b", "c", "d", "A")] == [
        2,
        2,
        1,
        4,
        4,
    ]
    assert len(log.only_queue(ALL_QUEUES)) == 4
