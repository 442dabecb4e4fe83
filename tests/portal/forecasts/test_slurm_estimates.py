"""Slurm's own start estimates beside ours, from a stand-in for its commands."""

import time

import pytest
from fastapi.testclient import TestClient

from tests.portal.forecasts.logs_that_grow import JOBS, write_log
from tests.portal.forecasts.test_scores import waits
from vgrads.api.queues.issued import ForecastOutcome, IssuedForecast
from vgrads.portal.jobs.forecasts.estimates import take_estimates
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.reading.forecast_scores import queue_score
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 64
driver = "slurm"
[[site.queue]]
name = "all"
history = "grows.swf.gz"
[[site]]
name = "simulated"
kind = "batch"
procs = 64
[[site.queue]]
name = "all"
history = "grows.swf.gz"
"""
SBATCH = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *--ntasks=7*) echo "allocation failure: nothing is stated" >&2; exit 1 ;;
esac
when=$(date -d "now + 100 seconds" +%Y-%m-%dT%H:%M:%S)
echo "sbatch: Job 1 to start at $when using 4 processors on nodes n1 in partition all" >&2
"""
SQUEUE = """#!/bin/sh
exit 0
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The log of what was submitted for a test; commands of Slurm come first on the path."""
    (tmp_path / "bin").mkdir()
    calls = tmp_path / "calls"
    for name, text in (("sbatch", SBATCH.format(log=calls)), ("squeue", SQUEUE)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    write_log(tmp_path / "grows.swf.gz", waits(JOBS))
    (tmp_path / "sites.toml").write_text(SITES)
    return calls


def issued(number, procs=4, site="cluster", age_s=0.0):
    now_s = time.time() - age_s
    return IssuedForecast(
        site=site,
        queue="all",
        procs=procs,
        walltime_s=3600.0 + number,
        instant_s=now_s,
        issued_s=now_s,
        kind="bound",
        method="state",
        bounds=((0.5, 110.0), (0.95, 300.0)),
    )


def test_estimates_are_taken_at_the_instant_of_the_forecasts(store, slurm, tmp_path, vgrads):
    """For each shape once; what Slurm does not state is left out of the comparison, and counted."""
    records, catalog = ForecastRecords(store.engine), load_catalog(tmp_path / "sites.toml")
    stated, refused = issued(1), issued(2, procs=7)
    old, elsewhere = issued(3, age_s=600.0), issued(4, site="simulated")
    records.add([stated, refused, old, elsewhere])
    assert take_estimates(records, catalog) == 2
    assert take_estimates(records, catalog) == 0
    assert slurm.read_text().count("--test-only") == 2
    rows = records.matchable("cluster", "all", 0.0)
    observed = {
        r.id: ForecastOutcome(submit_s=r.instant_s + 1.0, wait_s=120.0, observed_s=1e6)
        for r in rows
    }
    records.put_waits(rows, observed)
    comparison = queue_score(store.reader, "cluster", "all")["slurm"]
    assert (comparison["jobs"], comparison["left_out"]) == (1, 2)
    assert comparison["median_error_s"]["vgrads"] == 10.0
    assert comparison["median_error_s"]["slurm"] == pytest.approx(20.0, abs=2.0)
    app = make_app(store, catalog, Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        page = client.get("/sites/cluster/all/score").text
    assert "On the same 1 job" in page
    assert "2 jobs are left out" in page
    text = vgrads("score", "cluster", "all", "--sites", tmp_path / "sites.toml").out
    assert "Median error on the same 1 job: vgrads 10s, Slurm's own estimate" in text
    assert "2 jobs are left out" in text


def test_a_live_answer_takes_the_estimate_once_it_is_printed(vgrads, slurm, tmp_path):
    assert vgrads("sites", "add", tmp_path / "sites.toml").code == 0
    answer = vgrads("bound", "cluster/all", "--procs", 4, "--live", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["bound_s"] > 0
    assert slurm.read_text().count("--test-only") == 1
    score = vgrads("score", "cluster", "all", "--json").json
    assert (score["records"]["issued"], score["records"]["open"]) == (1, 1)
