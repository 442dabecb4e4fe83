"""The recipes for Galaxy and JupyterHub, run by the programs that they are for, against a
service."""

import pytest

from tests.embedding import portals
from tests.embedding.forecasts_stand_in import in_front_of
from tests.services.fixtures import there

GALAXY = """
import importlib.util, sys, types

def asbool(value):
    return str(value).lower() in ("true", "yes", "on", "1")

if importlib.util.find_spec("galaxy") is None:
    names = ("", ".util", ".model", ".app", ".tools", ".tool_util", ".tool_util.version")
    for name in names:
        module = sys.modules[f"galaxy{name}"] = types.ModuleType(f"galaxy{name}")
        module.__path__, module.__getattr__ = [], lambda name: type(name, (), {})
    sys.modules["galaxy.util"].asbool = asbool
    sys.modules["galaxy"].util = sys.modules["galaxy.util"]
    sys.modules["galaxy"].model = sys.modules["galaxy.model"]
"""
"""What Total Perspective Vortex imports of Galaxy and a ranking does not use, where Galaxy itself,
hundreds of megabytes, is not installed. `VGRADS_PORTALS`: a Python that has it."""
RANK = """
import json
from tpv.core.loader import TPVConfigLoader
from tpv.core.entities import Destination

config = TPVConfigLoader.from_url_or_path(RECIPE).config
tool = config.tools["default"]
def destination(name, queue, tags):
    context = {"vgrads_queue": queue} if queue else {}
    return Destination(evaluator=tool.evaluator, id=name, runner="slurm", context=context,
                       scheduling={"prefer": tags})
destinations = [destination(*row) for row in ROWS]
context = {"entity": tool, "cores": 4, "mem": 8}
ranked = tool.rank_destinations(destinations, context)
print(json.dumps({"ranked": [d.id for d in ranked]}))
"""
SPAWN = """
import asyncio, json, sys
sys.path.insert(0, FOLDER)
from vgrads_progress import ForecastSlurmSpawner

async def events():
    spawner = ForecastSlurmSpawner(**TRAITS)
    spawner.job_id, spawner.job_status = "1", "PENDING "
    async for event in spawner.progress():
        yield event["message"]
        spawner.job_status = "RUNNING node1"

async def collect():
    return [message async for message in events()]

print(json.dumps({"messages": asyncio.run(collect())}))
"""
TRAITS = {"req_partition": "default", "req_nprocs": "4", "req_runtime": "2:00:00"}
pytestmark = pytest.mark.services


@pytest.fixture(scope="module", autouse=True)
def environment():
    there("" if portals.PYTHON.exists() else "needs make .venv/portals/ready")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with portals.service(tmp_path_factory.mktemp("service")) as (service, token):
        yield service.url, token("forecast")


def rank(rows, **variables):
    recipe = str(portals.DEPLOY / "galaxy" / "tpv_rank.yml")
    program = f"RECIPE, ROWS = {recipe!r}, {rows!r}\n{GALAXY}{RANK}"
    return portals.run_there(program, **variables)


QUEUES = [f"{site}/default" for site in ("kittyhawk", "mercury", "mayhem")]


def test_galaxy_tries_destinations_in_the_order_of_their_waits(served):
    url, token = served
    shape = {"procs": 4, "walltime_s": 14400.0, "probability": 0.95}
    waits = {name: portals.bound_s(url, name, token, **shape) for name in QUEUES}
    assert len(set(waits.values())) == 3
    rows = [(name, name, []) for name in [*QUEUES, "atlantis/default"]]
    rows.insert(0, ("without", "", []))
    with in_front_of(url) as front:
        result = rank(rows, VGRADS_URL=front, VGRADS_TOKEN=token)
    assert result["ranked"][:3] == sorted(QUEUES, key=waits.get)
    assert set(result["ranked"][3:]) == {"without", "atlantis/default"}
    assert result["err"] == ""


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "", "http://127.0.0.1:{port}"])
def test_galaxy_goes_on_in_its_own_order_without_an_answer(tmp_path, url):
    """Refused, not configured, and not the service."""
    rows = [(name, name, tags) for name, tags in zip(QUEUES, ([], ["fast"], []), strict=True)]
    with portals.pages(tmp_path) as port:
        result = rank(rows, VGRADS_URL=url.format(port=port))
    expected = rank([(name, "", tags) for name, _, tags in rows])
    assert result["ranked"] == expected["ranked"]
    assert "not ranked by wait" in result["err"]


def spawn(**variables):
    folder = str(portals.DEPLOY / "jupyterhub")
    program = f"FOLDER, TRAITS = {folder!r}, {TRAITS!r}\n{SPAWN}"
    return portals.run_there(program, **variables)["messages"]


def test_the_page_of_a_pending_server_says_when_its_job_starts(served):
    url, token = served
    pending, running = spawn(VGRADS_URL=url, VGRADS_TOKEN=token, VGRADS_SITE="mercury")
    shape = {"procs": 4, "walltime_s": 7200.0}
    low, high = (
        -(-portals.bound_s(url, QUEUES[1], token, **shape, probability=p) // 60)
        for p in (0.5, 0.95)
    )
    interval = f"{low:.0f} to {high:.0f}" if low < high else f"{high:.0f}"
    assert pending == (
        f"Pending in queue... Jobs like this start within {interval} min (1 of 2 to 19 of 20 jobs)."
    )
    assert running == "Cluster job running... waiting to connect"


def test_without_a_forecast_the_page_says_what_it_said(served):
    url, _ = served
    usual = ["Pending in queue...", "Cluster job running... waiting to connect"]
    assert spawn(VGRADS_URL=url, VGRADS_SITE="mercury") == usual  # no token: refused
    assert spawn() == usual


def test_time_limits_are_read_as_slurm_reads_them():
    folder = str(portals.DEPLOY / "jupyterhub")
    program = (
        f"import sys; sys.path.insert(0, {folder!r})\nimport doctest, json, vgrads_progress\n"
        "print(json.dumps({'failed': doctest.testmod(vgrads_progress).failed}))"
    )
    assert portals.run_there(program)["failed"] == 0
