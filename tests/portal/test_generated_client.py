"""A client that is generated of the description of a running service, and used."""

import json
import subprocess
import urllib.request

import pytest

from tests.embedding import portals
from tests.portal.serving import Served
from tests.services.fixtures import there

pytestmark = pytest.mark.services

_PROGRAM = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
from generated.client import Client
from generated.api.forecasts import read_wait_bound
from generated.api.workflow_sets import list_workflow_sets, read_workflow_set, submit_workflow_set
from generated.models import Problem, SetDocument

client = Client(base_url=sys.argv[1])
document = SetDocument.from_dict(json.loads(sys.argv[3]))
submitted = submit_workflow_set.sync(client=client, body=document)
end_s = time.monotonic() + 60.0
while (read := read_workflow_set.sync(submitted.id, client=client)).promise is None:
    assert time.monotonic() < end_s, "it is not planned"
    time.sleep(0.1)
listed = list_workflow_sets.sync(client=client, limit=1)
bound = read_wait_bound.sync("mayhem", "default", client=client, procs=4)
missing = read_workflow_set.sync("set-0123456789", client=client)
assert isinstance(missing, Problem)
print(json.dumps({
    "id": submitted.id, "read": read.id, "listed": [entry.id for entry in listed],
    "name": read.name, "promise": read.promise.probability, "bound_s": bound.bound_s,
    "year": read.created.year, "problem": missing.type_,
}))
"""
SMALL = {
    "name": "small",
    "deadline": "1h",
    "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 60}]}],
}


def tool(name):
    """A program beside the interpreter of that environment."""
    return str(portals.PYTHON.with_name(name))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    there("" if portals.PYTHON.exists() else "needs make .venv/portals/ready")
    served = Served(tmp_path_factory.mktemp("home"))
    yield served
    served.leave()


@pytest.fixture(scope="module")
def description(served, tmp_path_factory):
    """The description, as a file."""
    path = tmp_path_factory.mktemp("description") / "openapi.json"
    with urllib.request.urlopen(f"{served.url}/openapi.json", timeout=60) as answer:
        path.write_bytes(answer.read())
    return path


def test_the_description_is_valid(description):
    done = subprocess.run(
        [tool("openapi-spec-validator"), str(description)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_generated_client_submits_reads_lists_and_asks(served, description, tmp_path):
    command = [tool("openapi-python-client"), "generate", "--path", str(description)]
    command += ["--output-path", str(tmp_path / "generated"), "--meta", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    operations = [
        operation["operationId"]
        for path, methods in json.loads(description.read_text())["paths"].items()
        for operation in methods.values()
    ]
    modules = {path.stem for path in (tmp_path / "generated" / "api").rglob("*.py")}
    assert set(operations) - modules == {"add_tasks"}  # a stream of lines, which it cannot send
    arguments = [served.url, str(tmp_path), json.dumps(SMALL)]
    done = subprocess.run(
        [str(portals.PYTHON), "-c", _PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["id"] == result["read"] == result["listed"][0]
    assert (result["name"], result["problem"]) == ("small", "/problems/not-found")
    assert result["promise"] > 0.5 and result["bound_s"] >= 0 and result["year"] > 2000
