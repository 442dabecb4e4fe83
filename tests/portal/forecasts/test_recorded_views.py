"""Records state in which view of its queue an answer was learned."""

import pytest
from fastapi.testclient import TestClient

from tests.conftest import DATA
from tests.portal.forecasts.listed_site import listed_site
from tests.portal.forecasts.logs_that_grow import JOBS, scored, write_log
from tests.portal.forecasts.test_journal import forecast
from tests.portal.forecasts.test_scores import waits
from tests.waiting import until
from vgrads.api.queues.issued import issued_of
from vgrads.portal.jobs.forecasts.plans import ON_DEMAND
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.vgrid.catalog import load_catalog


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A real site; the history of its queue has only jobs that have ended."""
    (tmp_path / "site").mkdir()
    site = listed_site(tmp_path / "site", monkeypatch)
    write_log(site.folder / "ended.swf.gz", waits(JOBS))
    site.sites.write_text(site.sites.read_text().replace("batch.txt", "ended.swf.gz"))
    return site


def recorded(store):
    """Return the kind and the view of every record."""
    ForecastRecords(store.engine).fold(ForecastJournal(store.url))
    return set(store.reader.rows("SELECT kind, view FROM forecast"))


@pytest.mark.parametrize(("answers", "view"), [(True, "full"), (False, "ended")])
def test_a_service_records_the_view_of_its_answers(store, cluster, answers, view):
    """All jobs where the site lists its queue; where it does not, those of its history."""
    if not answers:
        (cluster.folder / "failing").touch()
    app = make_app(store, load_catalog(cluster.sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        site = app.state.service.catalog.site("cluster")
        if answers:
            until(lambda: app.state.service.queues.snapshot(site) is not None)
        base, shape = "/v1/sites/cluster/queues/batch", {"procs": 4, "walltime_s": 3600}
        for path, more in (("bound", {}), ("trajectory", {"start_by_s": 600})):
            assert client.get(f"{base}/{path}", params=shape | more).status_code == 200
        question = {"site": "cluster", "queue": "batch", **shape}
        assert client.post("/v1/forecasts", json={"questions": [question]}).status_code == 200
        assert client.get("/sites/cluster/batch?procs=4&hours=1").status_code == 200
    assert recorded(store) == {(kind, view) for kind in ("bound", "trajectory", "forecast")}


def test_a_command_records_the_view_of_a_file(vgrads, store, tmp_path):
    log = write_log(tmp_path / "grows.swf.gz", waits(JOBS))
    assert vgrads("bound", log, "--procs", 4, "--json").code == 0
    assert recorded(store) == {("bound", "ended")}


@pytest.mark.more
def test_slots_of_plans_and_runs_have_the_view_of_their_queue(vgrads, store):
    """Promises, and slots of a cloud, have none."""
    assert vgrads("run", DATA / "lead.yaml", "--json").code == 0
    assert recorded(store) >= {("slot", "ended"), ("promise", "")}
    rows = store.reader.rows("SELECT job, queue, view FROM forecast WHERE kind = 'slot'")
    assert {bool(job) for job, _, _ in rows} == {False, True}
    for job, queue, view in rows:
        assert view == ("" if queue == ON_DEMAND else "ended"), (job, queue)


def test_records_of_before_have_no_view(store):
    """In a journal that was not stored yet."""
    document = forecast(1, view="ended").as_json()
    del document["view"]
    assert issued_of(document).view == ""
    ForecastJournal(store.url).write([document])
    assert recorded(store) == {("bound", "")}


def test_a_score_names_the_views_of_its_answers(vgrads, store):
    """In each interface, with the coverage of each view."""
    for view, covered in (("full", 24), ("ended", 18), ("", 3)):
        scored(store, "mayhem", "default", covered, 4 if view == "" else 25, view)
    document = vgrads("score", "mayhem/default", "--json").json
    rows = [tuple(row.values()) for row in document["views"]]
    assert rows == [("full", 25, 25, 0.96), ("ended", 25, 25, 0.72), (None, 4, 4, 0.75)]
    text = vgrads("score", "mayhem/default").out
    app = make_app(store, load_catalog(DATA / "sites.toml"), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        page = client.get("/sites/mayhem/default/score").text
        assert client.get("/v1/sites/mayhem/queues/default/score").json() == document
    for words in ("ended: jobs that have ended", "not recorded", "0.720", "3 of 4"):
        assert (words in text, words in page) == (True, True), words
