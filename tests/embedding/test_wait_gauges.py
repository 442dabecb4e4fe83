"""Wait bounds as gauges: computed outside of scrapes, read by Prometheus."""

import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import DATA
from tests.embedding import portals
from tests.portal.serving import bearer
from tests.ports import free_ports
from tests.services.fixtures import there
from tests.waiting import until
from vgrads.kernel.errors import InputError
from vgrads.kernel.promise_state import PromiseState
from vgrads.operations.queue_questions import describe_no_record
from vgrads.portal.jobs.forecasts.service_queues import ServiceQueues
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.records.work import PLAN
from vgrads.portal.web.app import make_app
from vgrads.portal.web.embedding.wait_gauges import WaitGauge, WaitGauges
from vgrads.portal.web.service import Bounds
from vgrads.portal.web.settings import load_settings
from vgrads.vgrid.catalog import load_catalog

SHAPES = (
    WaitGauge(site="mayhem", queue="default", procs=4, walltime="2h"),
    WaitGauge(site="atlantis", queue="default"),
    WaitGauge(site="mercury", queue="default", quantiles=(0.5,)),
)
NAME = "vgrads_wait_bound_seconds"
COMPUTED = "vgrads_wait_bound_computed_timestamp_seconds"
LABELS = ("site", "queue", "procs", "walltime", "quantile")
EXAMPLES = portals.DEPLOY / "prometheus"


@pytest.fixture
def gauges(tmp_path, monkeypatch):
    """Gauges of two queues, and of one that is not there."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    catalog, states = load_catalog(DATA / "sites.toml"), LearnedStates()
    yield WaitGauges(SHAPES, ServiceQueues(lambda: catalog, states, describe_no_record))
    states.close()


def samples(text):
    """Labels of each bound, and its value."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {
        tuple(map(sample.labels.get, LABELS)): sample.value
        for sample in (families[NAME].samples if NAME in families else ())
    }


def scrape(gauges):
    registry = CollectorRegistry()
    registry.register(gauges)
    return samples(generate_latest(registry).decode())


def test_a_scrape_reads_what_was_computed_before(gauges, caplog):
    assert scrape(gauges) == {}
    gauges.refresh()
    first = scrape(gauges)
    assert set(first) == {
        ("mayhem", "default", "4", "7200", "0.5"),
        ("mayhem", "default", "4", "7200", "0.95"),
        ("mercury", "default", "1", "3600", "0.5"),
    }
    gauges.refresh()
    assert scrape(gauges).keys() == first.keys()
    warnings = [record.message for record in caplog.records if "atlantis" in record.message]
    assert len(warnings) == 1, warnings


def test_the_gauges_are_the_bounds_that_the_service_returns(store):
    bounds = Bounds(places=Places(planners=0), wait_gauges=SHAPES[2:])
    app = make_app(store, load_catalog(DATA / "sites.toml"), bounds)
    head = bearer(store, "prometheus", "operate")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        gauges = app.state.service.wait_gauges

        def text():
            return client.get("/metrics", headers=head).text

        def is_bound():
            """The queue may be learned in between: then the next bounds agree."""
            gauges.refresh()
            path = "/v1/sites/mercury/queues/default/bound?probability=0.5"
            bound_s = client.get(path, headers=head).json()["bound_s"]
            return samples(text()) == {("mercury", "default", "1", "3600", "0.5"): bound_s}

        until(lambda: COMPUTED in text(), "bounds at the start")
        until(is_bound, "the bound as a gauge", 60)
    until(lambda: "wait gauges" not in [t.name for t in threading.enumerate()], "its thread ends")


@pytest.mark.parametrize(
    "line", ["procs = 0", 'walltime = "soon"', "quantiles = [1.0]", "quantiles = []", "color = 1"]
)
def test_a_shape_is_checked_when_settings_are_read(write, line):
    file = write("v.toml", f'[[wait_gauges]]\nsite = "s"\nqueue = "q"\n{line}\n')
    with pytest.raises(InputError, match="wait_gauges"):
        load_settings(file)


# the real Prometheus


def promtool(*arguments):
    there("" if shutil.which("promtool") else "needs promtool")
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied(folder, port=8080, token="t"):
    """The examples in a folder, with this port and token."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    (folder / "token").write_text(token)
    file = folder / "prometheus.yml"
    text = file.read_text().replace("/etc/prometheus/vgrads.token", str(folder / "token"))
    file.write_text(text.replace(":8080", f":{port}").replace("interval: 60s", "interval: 1s"))
    return file


@pytest.mark.services
def test_promtool_accepts_the_examples_and_the_alerts_fire(tmp_path):
    promtool("check", "config", copied(tmp_path))
    promtool("check", "rules", EXAMPLES / "vgrads_alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", EXAMPLES / "vgrads_alerts_test.yml")


def test_alerts_name_states_and_metrics_that_exist():
    """A rule about another name would never fire."""
    rules = yaml.safe_load((EXAMPLES / "vgrads_alerts.yml").read_text())["groups"][0]["rules"]
    text = " ".join(rule["expr"] for rule in rules)
    states = re.findall(r'vgrads_set_state\{state="([^"]+)"\}', text)
    assert states == [PromiseState.AT_RISK, PromiseState.CANNOT_BE_MET, PromiseState.FAILING]
    assert re.findall(r'vgrads_work\{kind="([^"]+)"\}', text) == [PLAN]
    names = set(re.findall(r"vgrads_\w+", text))
    assert names == {NAME, COMPUTED, "vgrads_set_state", "vgrads_work"}


@contextmanager
def prometheus(file, folder):
    """The address of a Prometheus with these settings."""
    there("" if shutil.which("prometheus") else "needs prometheus")
    port = free_ports()
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        address = f"--web.listen-address=127.0.0.1:{port}"
        process = subprocess.Popen([*command, address], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.services
def test_prometheus_reads_the_gauges_of_a_service(tmp_path):
    with portals.service(tmp_path) as (served, token):
        metrics = token("metrics")
        file = copied(tmp_path / "examples", served.port, metrics)

        def values(url):
            query = urllib.parse.urlencode({"query": NAME})
            try:
                with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=5) as answer:
                    return json.load(answer)["data"]["result"]
            except OSError:
                return []

        with prometheus(file, tmp_path) as url:
            until(lambda: len(values(url)) == 2, f"two bounds ({tmp_path})", 60)
            rows = [row["metric"] for row in values(url)]
    assert {row["quantile"] for row in rows} == {"0.5", "0.95"}
    assert {row["walltime"] for row in rows} == {"7200"}
    assert {row["job"] for row in rows} == {"vgrads"}
