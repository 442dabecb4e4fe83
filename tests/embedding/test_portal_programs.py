"""The recipes for Galaxy and JupyterHub, run by the programs that they are for, against a
service."""

import re
import socket
from contextlib import closing
from functools import partial

import pytest

from tests.embedding import portals
from tests.services.fixtures import there
from tests.waiting import until

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
import json, os
from tpv.core.loader import TPVConfigLoader
from tpv.core.entities import Destination

tool = TPVConfigLoader.from_url_or_path(RECIPE).config.tools["default"]

def destination(name, queue, tags):
    context = {"vgrads_queue": queue} if queue else {}
    tags = {"prefer": tags}
    more = {"runner": "slurm", "context": context, "scheduling": tags}
    return Destination(evaluator=tool.evaluator, id=name, **more)

orders = []
for variables in CASES:
    os.environ.update(variables)
    context = {"entity": tool, "cores": 4, "mem": 8}
    ranked = tool.rank_destinations([destination(*row) for row in ROWS], context)
    orders.append([d.id for d in ranked])
print(json.dumps({"orders": orders}))
"""
SPAWN = """
import asyncio, doctest, json, os, sys
sys.path.insert(0, FOLDER)
import vgrads_progress
vgrads_progress.TIMEOUT_S = 30.0  # the machine may be busy

async def messages(variables):
    os.environ.update(variables)
    spawner = vgrads_progress.ForecastSlurmSpawner(**TRAITS)
    spawner.job_id, spawner.job_status = "1", "PENDING "
    messages = []
    async for event in spawner.progress():
        messages.append(event["message"])
        spawner.job_status = "RUNNING node1"
    return messages

async def collect():
    return [await messages(variables) for variables in CASES]

failed = doctest.testmod(vgrads_progress).failed
print(json.dumps({"messages": asyncio.run(collect()), "failed": failed}))
"""
RECIPE = portals.DEPLOY / "galaxy" / "tpv_rank.yml"
UNRANKED = re.compile(r"^(?:WARNING:vgrads:)?destinations are not ranked by wait", re.MULTILINE)
TRAITS = {"req_partition": "default", "req_nprocs": "4", "req_runtime": "2:00:00"}
QUEUES = [f"{site}/default" for site in ("kittyhawk", "mercury", "mayhem")]
pytestmark = pytest.mark.services


@pytest.fixture(scope="module", autouse=True)
def environment():
    there("" if portals.PYTHON.exists() else "needs make .venv/portals/ready")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with portals.service(tmp_path_factory.mktemp("service")) as (service, token):
        forecast = token("forecast")
        for queue in QUEUES:
            until(partial(portals.learned, service.url, queue, forecast), f"{queue} learned", 60)
        yield service.url, forecast


def rank(rows, *cases, recipe=RECIPE):
    stated = f"RECIPE, ROWS, CASES = {str(recipe)!r}, {rows!r}, {cases!r}"
    return portals.run_there(f"{stated}\n{GALAXY}{RANK}")


def test_galaxy_tries_destinations_in_the_order_of_their_waits(served, tmp_path):
    url, token = served
    patient = tmp_path / RECIPE.name  # the machine may be busy
    patient.write_text(RECIPE.read_text().replace("timeout=1)", "timeout=30)"))
    assert patient.read_text() != RECIPE.read_text()
    shape = {"procs": 4, "walltime_s": 14400.0, "probability": 0.95}
    waits = {name: portals.bound_s(url, name, token, **shape) for name in QUEUES}
    assert len(set(waits.values())) == 3
    rows = [(name, name, []) for name in [*QUEUES, "atlantis/default"]]
    rows.insert(0, ("without", "", []))
    result = rank(rows, {"VGRADS_URL": url, "VGRADS_TOKEN": token}, recipe=patient)
    (order,) = result["orders"]
    assert order[:3] == sorted(QUEUES, key=waits.get)
    assert order[3:] == ["without", "atlantis/default"]
    assert not UNRANKED.search(result["err"])


def test_galaxy_goes_on_in_its_own_order_without_an_answer(tmp_path):
    """No address, one where nobody listens, one of another program, one that does not answer."""
    tags = ["slow", "fast"]
    rows = [(name, name, tags[:n]) for n, name in enumerate(QUEUES)]
    silent = socket.create_server(("127.0.0.1", 0))
    with portals.pages(tmp_path) as port, closing(silent):
        nobody, another = "http://127.0.0.1:9", f"http://127.0.0.1:{port}"
        urls = [nobody, another, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        result = rank(rows, {}, *({"VGRADS_URL": url} for url in urls))
    (expected,) = rank([(name, "", prefers) for name, _, prefers in rows], {})["orders"]
    assert result["orders"] == [expected] * 4
    assert len(UNRANKED.findall(result["err"])) == 4


def test_the_page_of_a_pending_server_says_when_its_job_starts(served):
    """And without a token, or a service, what it says without this."""
    url, token = served
    refused = {"VGRADS_URL": url, "VGRADS_SITE": "mercury"}
    folder = str(portals.DEPLOY / "jupyterhub")
    cases = [{}, refused, refused | {"VGRADS_TOKEN": token}]
    stated = f"FOLDER, TRAITS, CASES = {folder!r}, {TRAITS!r}, {cases!r}"
    result = portals.run_there(f"{stated}\n{SPAWN}")
    shape = {"procs": 4, "walltime_s": 7200.0}
    low, high = (
        -(-portals.bound_s(url, QUEUES[1], token, **shape, probability=p) // 60)
        for p in (0.5, 0.95)
    )
    interval = f"{low:.0f} to {high:.0f}" if low < high else f"{high:.0f}"
    more = f" Jobs like this start within {interval} min (1 of 2 to 19 of 20 jobs)."
    pending, running = "Pending in queue...", "Cluster job running... waiting to connect"
    assert result["messages"] == [[pending, running]] * 2 + [[pending + more, running]]
    assert result["failed"] == 0
