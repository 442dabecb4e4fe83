"""A plan says in a line which of its queues fail their score, or have a short history."""

import gzip
import json

import pytest
from fastapi.testclient import TestClient

from tests.portal.forecasts.logs_that_grow import scored, swf
from tests.portal.serving import SMALL
from vgrads.api.queues.forecast_scores import WATCHED
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog

SITES = """
[[site]]
name = "here"
kind = "batch"
procs = 64
[[site.queue]]
name = "all"
history = "short.swf.gz"
max_walltime = "24h"
"""
SHORT = "here/all: 59 jobs have started in its history, fewer than 60"


@pytest.fixture
def sites(tmp_path):
    """Return a site whose queue has so many jobs."""

    def written(jobs):
        (tmp_path / "short.swf.gz").write_bytes(gzip.compress(swf([10.0] * jobs).encode()))
        path = tmp_path / "sites.toml"
        path.write_text(SITES)
        return path

    return written


def planned_by_the_service(store, sites):
    """Return the plan of a set, and the text of its page."""
    app = make_app(store, load_catalog(sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        set_id = client.post("/v1/workflow-sets", json=SMALL).json()["id"]
        plan = client.get(f"/v1/workflow-sets/{set_id}/plan").json()
        return plan, client.get(f"/sets/{set_id}").text


@pytest.mark.parametrize(("jobs", "notes"), [(59, 1), (60, 0)])
def test_a_short_history_is_named_in_every_interface(vgrads, store, sites, write, jobs, notes):
    file = sites(jobs)
    answer = vgrads("plan", write("set.json", json.dumps(SMALL)), "--sites", file, "--json")
    plan, page = planned_by_the_service(store, file)
    for lines in (answer.json["notes"], plan["notes"]):
        assert sum(SHORT in line for line in lines) == notes
    assert (SHORT in " ".join(answer.err.split())) == bool(notes)
    assert (SHORT in page) == bool(notes)


def test_a_queue_that_fails_its_score_is_named_on_the_page_too(store, sites):
    file = sites(200)
    scored(store, "here", "all", 150, WATCHED)
    plan, page = planned_by_the_service(store, file)
    (note,) = (line for line in plan["notes"] if line.startswith("here/all: "))
    assert "covered 75.0% of the waits" in note
    assert note in page


def test_a_queue_of_which_both_hold_is_named_with_both(store, sites):
    file = sites(59)
    scored(store, "here", "all", 150, WATCHED)
    plan, _ = planned_by_the_service(store, file)
    (note,) = (line for line in plan["notes"] if line.startswith("here/all: "))
    assert "covered 75.0% of the waits" in note
    assert SHORT.removeprefix("here/all: ") in note


@pytest.mark.more
def test_a_queue_whose_backtest_was_bad_is_named_with_what_it_covered(vgrads, store, sites, write):
    """Waits grow by half after each forty jobs, thirty times; in the end all start at once."""
    file = sites(1)
    waits = [10.0 * 1.5 ** (n // 40) for n in range(1200)] + [10.0] * 800
    history = file.with_name("short.swf.gz")
    history.write_bytes(gzip.compress(swf(waits).encode()))
    plan = ("plan", write("set.json", json.dumps(SMALL)), "--sites", file, "--json")
    before = vgrads(*plan).json["notes"]
    assert not any("backtest" in note for note in before)
    (row,) = vgrads("backtest", history, "--json").json["rows"]
    assert row["coverage"] < 0.9
    answer = vgrads(*plan)
    (note,) = (line for line in answer.json["notes"] if line.startswith("here/all: "))
    assert f"covered {row['coverage']:.1%} of {row['scored']:,} waits" in note
    assert note in " ".join(answer.err.split())
    assert note in planned_by_the_service(store, file)[0]["notes"]
