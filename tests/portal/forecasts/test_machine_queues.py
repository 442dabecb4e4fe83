"""Partitions that share nodes are collected, learned and explained as one machine."""

import time

import pytest

from tests.portal.forecasts.slurm_commands import HEADER, use_commands
from vgrads.api.queues.histories import cached_forecast
from vgrads.api.queues.history_files import open_history
from vgrads.api.queues.live_queue import make_present_forecast
from vgrads.api.queues.site_snapshots import SiteSnapshot
from vgrads.drivers.api import QueuedJob
from vgrads.portal.records.reading.sites import read_stored_catalog

SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 64
cores_per_node = 16
driver = "slurm"
[[site.queue]]
name = "batch"
[[site.queue]]
name = "debug"
[[site.queue]]
name = "gpu"
"""
SINFO = """#!/bin/sh
cat <<end
batch|up|1-00:00:00|64/0/0/64|n[1-4]
debug|up|30:00|16/0/0/16|n1
long|up|infinite|32/0/0/32|n[3-4]
gpu|up|infinite|0/32/0/32|g[1-2]
end
"""
PARTITIONS = ("batch", "debug", "batch", "long", "gpu")
JOBS = 3000


def accounting():
    lines = [HEADER]
    for n in range(JOBS):
        submit_s = 1_700_000_000 + 60 * n
        begin_s = submit_s + 10 + (n * 37) % 500
        lines.append(
            f"{n}|u{n % 5}|a|{PARTITIONS[n % 5]}|{submit_s}|{submit_s}|{begin_s}|{begin_s + 300}|"
            f"COMPLETED|00:10:00|1|{1 + n % 8}|{1 + n % 8}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def collected(vgrads, tmp_path, monkeypatch):
    (tmp_path / "sacct.txt").write_text(accounting())
    use_commands(tmp_path, monkeypatch, SINFO)
    (tmp_path / "sites.toml").write_text(SITES)
    assert vgrads("sites", "add", tmp_path / "sites.toml").code == 0
    return vgrads("sites", "collect", "cluster", "--since", "1d")


def test_a_history_has_the_jobs_of_all_queues_on_its_nodes(collected, vgrads):
    assert "batch shares nodes with debug, long" in collected.out
    assert "gpu shares" not in collected.out
    queues = read_stored_catalog().site("cluster").queues
    assert queues[0].history == queues[1].history  # learned once
    log = open_history(queues[0].history)
    assert log.named_queues == {"batch", "debug", "long"}
    assert len(log) == JOBS * 4 // 5
    assert len(log.only_queue(queues[1].of_log)) == JOBS // 5
    assert open_history(queues[2].history).named_queues == {"gpu"}
    again = vgrads("sites", "collect", "cluster", "--json").json
    assert (again["added"], again["changed"]) == (0, 0)
    assert [q["jobs"] for q in again["queues"]] == [JOBS * 2 // 5, JOBS // 5, JOBS // 5]


def test_the_explanation_names_the_queues_whose_jobs_count(collected, vgrads):
    question = ("bound", "cluster/debug", "--procs", 4, "--walltime", "10m", "--explain")
    assert "Jobs of batch, long count too" in vgrads(*question).out
    assert vgrads(*question, "--json").json["explanation"]["queues"] == ["batch", "long"]
    alone = ("bound", "cluster/gpu", "--procs", 4, "--walltime", "10m", "--explain", "--json")
    assert vgrads(*alone).json["explanation"]["queues"] == []


def test_only_jobs_of_the_machine_count_in_a_live_queue(collected):
    queue = read_stored_catalog().site("cluster").queues[1]
    log = open_history(queue.history)
    forecast = cached_forecast(queue.history, queue.of_log, log.end_s)
    jobs = [
        QueuedJob(queue=name, user="u", procs=8, requested_s=600.0, waited_s=5.0)
        for name in ("batch", "debug", "long", "gpu", "debug,gpu")
    ]
    snapshot = SiteSnapshot(taken_unix_s=time.time(), jobs=tuple(jobs))
    now, view = make_present_forecast(forecast, log, "debug", snapshot)
    assert len(now.state.waiting) == 4  # that of gpu takes other nodes
    assert (view.source, view.waiting, view.running) == ("site", 4, 0)


def test_a_check_of_the_site_names_shared_nodes(collected, vgrads):
    (row,) = vgrads("sites", "check", "--json").json["sites"]
    assert "queue 'debug' shares 1 node with 'batch': their jobs take the same nodes" in row["can"]
    assert not any("'gpu' shares" in text for text in row["can"])
