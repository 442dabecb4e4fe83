"""An action is described once: commands, functions, the client and REST have its options, with the
same effect and the same refusals."""

import inspect
import json

import pytest
import typer
from fastapi.testclient import TestClient

import vgrads as package
from scripts.interfaces.__main__ import render_all
from scripts.interfaces.registry import CLIENT_METHODS, COMMAND_MODULES, FUNCTION_MODULES
from tests.conftest import DATA
from tests.portal.serving import LEAD
from vgrads.api.config import embedded_data
from vgrads.kernel.errors import InputError
from vgrads.operations.fields import Request, describe_fields
from vgrads.operations.plans.requests import (
    ExecutionOptions,
    PlanningOptions,
    list_changed_options,
    read_stored_options,
)
from vgrads.portal.cli.options import app
from vgrads.portal.client import Client
from vgrads.portal.main import COMMANDS, load_commands
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

REQUESTS = sorted(
    {command.request for module in COMMAND_MODULES.values() for command in module},
    key=lambda of: of.__name__,
)


def test_generated_files_are_what_the_requests_say():
    for path, text in render_all().items():
        assert path.read_text() == text, f"{path} is stale: make interfaces"


@pytest.mark.parametrize("of", REQUESTS, ids=lambda of: of.__name__)
def test_each_field_has_a_meaning_that_is_a_sentence(of):
    for field in describe_fields(of):
        assert field.about.help[:1].isupper() and field.about.help.endswith((".", ")")), field.name


def test_every_planning_option_is_in_every_interface():
    load_commands([])
    words = {field.word for field in describe_fields(PlanningOptions)}
    for function in (package.plan, package.run):
        assert words <= set(inspect.signature(function).parameters)
    assert words <= set(inspect.signature(Client.submit).parameters)
    names = {parameter.name for parameter in _command("plan").params}
    assert words <= names and words <= {parameter.name for parameter in _command("run").params}


def test_each_command_is_found_without_importing_all_others():
    load_commands([])
    named = {name for names in COMMANDS.values() for name in names}
    assert named == set(typer.main.get_command(app).commands)


def _command(name):
    return typer.main.get_command(app).commands[name]


@pytest.fixture
def service(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'test.db'}")
    with TestClient(make_app(store, load_catalog(embedded_data() / "sites.toml"))) as client:
        yield client
    store.close()


def _plan_of_service(service, **options):
    answer = service.post("/v1/workflow-sets", json=LEAD, params=options)
    assert answer.status_code == 201, answer.text
    return service.get(f"/v1/workflow-sets/{answer.json()['id']}/plan").json()


OPTIONS = {"seed": 5, "policy": "no-replication", "effort": 0, "probability": 0.5}
FLAGS = ("--seed", 5, "--policy", "no-replication", "--effort", 0, "--probability", 0.5)


def _decided(plan):
    return {name: plan[name] for name in ("placements", "promise", "cost_usd", "policy")}


def test_a_service_plans_as_the_command_and_the_function(service, vgrads, tmp_path):
    file = tmp_path / "lead.json"
    document = LEAD | {"workflows": [{"file": str(DATA / "lead.json"), "count": 8}]}
    file.write_text(json.dumps(document))
    command = vgrads("plan", file, *FLAGS, "--as-stated", "--json").json
    function = package.plan(file, **OPTIONS, as_stated=True).to_json()
    served = _plan_of_service(service, **OPTIONS, as_stated=True)
    assert command["policy"] == "no-replication"
    assert _decided(command) == _decided(function) == _decided(served)
    assert _decided(_plan_of_service(service)) != _decided(served)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"policy": "fastest"}, "policy"),
        ({"promise_model": "guess"}, "promise"),
        ({"seed": -1}, "seed"),
        ({"probability": 1.5}, "probability"),
        ({"effort": 5000}, "effort"),
        ({"effort": 11}, "effort"),
        ({"at": "yesterday"}, "at"),
        ({"seeds": 3}, "seeds"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_stored(service, options, field):
    answer = service.post("/v1/workflow-sets", json=LEAD, params=options)
    assert answer.status_code == 422, answer.text
    assert field in answer.json()["field"] + answer.json()["detail"]
    assert service.get("/v1/workflow-sets").json() == []


def test_options_of_a_set_hold_for_its_next_plan(service):
    answer = service.post("/v1/workflow-sets", json=LEAD, params=OPTIONS)
    set_id = answer.json()["id"]
    first = service.get(f"/v1/workflow-sets/{set_id}/plan").json()
    assert service.post(f"/v1/workflow-sets/{set_id}/plan").status_code == 202
    again = service.get(f"/v1/workflow-sets/{set_id}/plan").json()
    assert _decided(first) == _decided(again)


@pytest.mark.more
def test_what_if_requests_the_probability_of_the_set_unless_it_is_changed(service):
    answer = service.post("/v1/workflow-sets", json=LEAD, params={"probability": 0.5})
    path = f"/v1/workflow-sets/{answer.json()['id']}"
    service.get(f"{path}/plan")
    other = service.post(f"{path}/what-if", json={"deadline": "3h"}).json()
    assert other["promise"]["requested"] == 0.5
    own = service.post(f"{path}/what-if", json={"deadline": "3h", "probability": 0.8}).json()
    assert own["promise"]["requested"] == 0.8


def test_a_changed_set_has_the_options_of_the_set(service):
    answer = service.post("/v1/workflow-sets", json=LEAD, params=OPTIONS)
    form = {"key": "k", "deadline_s": 9000}
    page = service.post(f"/sets/{answer.json()['id']}/change", data=form, follow_redirects=False)
    changed = page.headers["location"].removeprefix("/sets/")
    plan = service.get(f"/v1/workflow-sets/{changed}/plan").json()
    assert (plan["policy"], plan["promise"]["requested"]) == ("no-replication", 0.5)


def test_stored_options_are_those_that_were_stored():
    options = PlanningOptions(seed=7, effort=0.0, policy="heft")
    stored = json.loads(json.dumps(list_changed_options(options, PlanningOptions)))
    assert stored == {"seed": 7, "effort": 0.0, "policy": "heft"}
    assert read_stored_options(stored) == options
    assert read_stored_options({}) == PlanningOptions()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PlanningOptions(seed=-1), "seed"),
        (lambda: PlanningOptions(probability=1.0), "probability"),
        (lambda: ExecutionOptions(speed=0.0), "speed"),
    ],
)
def test_ranges_hold_whoever_makes_the_request(make, field):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.where == field


def test_a_plan_cannot_be_changed_while_it_is_run():
    planned = package.plan(DATA / "lead.yaml", effort=0)
    with pytest.raises(InputError, match="cannot change a plan") as error:
        package.run(planned, seed=3, sites="here")
    assert error.value.where == "seed, sites"


def test_client_methods_send_every_option():
    sent = []

    class Recorder(Client):
        def _ask(self, method, path, body=None, more=()):
            sent.append((method, path))
            return {"id": "set-1", "run": "run-1", "state": "planned"}

    client = Recorder("http://localhost")
    client.submit({}, seed=0, effort=0.0, as_stated=True)
    client.run("set-1", replan=False)
    path, _, query = sent[0][1].partition("?")
    assert path == "/v1/workflow-sets" and {"effort=0.0", "as_stated=true"} <= set(query.split("&"))
    assert sent[-1][1] == "/v1/workflow-sets/set-1/run?replan=false&engine=vgrads&rerun=false"


def test_every_registered_request_checks_its_fields():
    requests = [*REQUESTS, *(method.request for method in CLIENT_METHODS)]
    for module in FUNCTION_MODULES.values():
        requests += [of for function in module for of in function.requests.values()]
    assert all(issubclass(of, Request) for of in requests)
