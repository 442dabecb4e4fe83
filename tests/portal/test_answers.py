"""Real answers of a service are as described, with no field more."""

import json
import urllib.error
import urllib.request

import pytest

from tests.portal.contract import content_of, differences
from tests.portal.listeners import no_server
from tests.portal.serving import Served, serve_this_machine
from tests.waiting import until

pytestmark = pytest.mark.more

SET = {
    "name": "small",
    "deadline": "1h",
    "workflows": [
        {
            "name": "w",
            "tasks": [
                {"id": "a", "runtime_s": 1, "command": "echo hi"},
                {"id": "b", "runtime_s": 1, "command": "echo b", "parents": ["a"]},
            ],
        }
    ],
}
MANAGER = {
    **{"id": "1", "project": "p", "period_s": 60, "waiting": 1, "running": 1, "procs": 2},
    **{"contact": "c", "certificate": "x", "slot": "s", "key": "k"},
    "capacity": {
        **{"low": 1, "value": 2, "high": 3, "bottleneck": "network", "tasks": 1, "cycle_s": 1},
        **{"execution_s": 1, "resources": {"network": [1, 2, 3]}},
    },
}
POOL = {
    **{"id": "1", "period_s": 60, "procs": 2, "policy": "capacity", "max_workers": 3},
    **{"decisions": {"m": 1}, "reasons": ["one waits"]},
}
GRID = {
    **{"name": "storm", "duration": "2h", "deadline": "6h"},
    "groups": [{"name": "solvers", "coupling": "tight", "nodes": 16}],
}
LOG = "\n".join(f"{n} {n * 100} 10 60 1 -1 -1 1 100 -1 1 1 1 -1 1 -1 -1 -1" for n in range(1, 200))
JOINT = {
    **{"ticket": "a" * 8, "of": 1, "deadline": "1h"},
    "workflow": {"name": "w", "tasks": [{"id": "a", "runtime_s": 60}]},
}


class Checked:
    """Requests to a service; whatever it answers is compared with its description."""

    def __init__(self, served):
        self.served = served
        with urllib.request.urlopen(f"{served.url}/openapi.json", timeout=60) as answer:
            self.description = json.load(answer)
        self.wrong, self.methods = [], set()

    def __call__(self, method, path, body=None, kind="application/json"):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        head = {"Content-Type": kind} if data is not None else {}
        request = urllib.request.Request(f"{self.served.url}{path}", data, head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                status, media, text = (
                    answer.status,
                    answer.headers.get_content_type(),
                    answer.read(),
                )
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
                media = error.headers.get_content_type()
        if media == "application/octet-stream":
            assert media in content_of(self.description, method, path, status)
            return text
        wrong = differences(self.description, method, path, status, media, text.decode())
        self.wrong += [entry for entry in wrong if entry not in self.wrong]
        is_plain = media == "application/json" and text
        return json.loads(text) if is_plain else (status, text.decode())

    def ended(self, path, states):
        """The last answer of something that ends."""
        until(lambda: self("GET", path)["state"] in states, path, 60)
        return self("GET", path)


@pytest.fixture(scope="module")
def working(tmp_path_factory):
    """A service that runs tasks."""
    served = serve_this_machine(tmp_path_factory.mktemp("working"))
    yield Checked(served)
    served.leave()


@pytest.fixture(scope="module")
def planning(tmp_path_factory):
    """A service with queues, and targets of alarms on this machine."""
    home = tmp_path_factory.mktemp("planning")
    settings = home / "vgrads.toml"
    settings.write_text('alarm_schemes = ["json"]\nalarm_networks = ["127.0.0.0/8"]\n')
    served = Served(home, "--config", settings)
    yield Checked(served)
    served.leave()


def test_answers_about_sets_and_runs(working):
    set_id = working("POST", "/v1/workflow-sets", SET)["id"]
    path, run_states = f"/v1/workflow-sets/{set_id}", ("kept", "broken", "failed", "cancelled")
    parts = ("", "/plan", "/gantt", "/status", "/tasks", "/promise")
    for part in parts:
        working("GET", path + part)
    working("GET", f"{path}/explain?task=w-1/a")
    working("POST", f"{path}/what-if", {"deadline": "90m"})
    run_id = working("POST", f"{path}/run")["run"]
    assert working.ended(f"{path}/status", run_states)["state"] == "kept"
    for part in (*parts, "/tasks/w-1/a", "/events"):
        working("GET", path + part)
    for part in ("", "/logs", "/explain?task=w-1/a"):
        working("GET", f"/v1/work/{run_id}{part}")
    assert working("POST", f"/v1/work/{run_id}/retry", {"tasks": ["w-1/a"]})["run"] != run_id
    working.ended(f"{path}/status", run_states)
    working("POST", f"{path}/plan")
    for filters in ("", "?state=planned&name=small", "?limit=1"):
        working("GET", f"/v1/workflow-sets{filters}")
    assert [run["name"] for run in working("GET", "/v1/runs?state=kept")] == ["small"] * 2
    until(lambda: working("GET", path)["state"] == "planned", "the new plan", 60)
    assert working("DELETE", f"{path}/records") == (204, "")
    assert working.wrong == []


def test_answers_about_runs_of_other_engines(working):
    set_id = working("POST", "/v1/workflow-sets", SET)["id"]
    path = f"/v1/workflow-sets/{set_id}"
    run_id = working("POST", f"{path}/run?engine=outside")["run"]
    permits = working("POST", f"/v1/runs/{run_id}/permits/w-1/a?wait_s=20")["permits"]
    end = {"workflow": "w-1", "task": "a", "copy": permits[0]["copy"], "ok": True}
    assert working("POST", f"/v1/runs/{run_id}/completions", end) == {"counted": True}
    assert working("GET", f"{path}/status")["tasks"]["done"] == 1
    assert working("DELETE", path)["run"] == run_id
    assert working.wrong == []


def test_answers_about_released_tasks(working):
    joint = "/v1/joint-submissions/together"
    working("POST", joint, JOINT)
    until(lambda: working("GET", f"{joint}/{'a' * 8}")["state"] != "waiting", "the joint set", 60)
    run_id = working("POST", joint, JOINT)["run"]
    release = {"release": [{"workflow": "w-1", "task": "a", "command": "true"}]}
    assert working("POST", f"/v1/runs/{run_id}/releases", release)["run"] == run_id
    status, text = working("GET", f"/v1/runs/{run_id}/answers")
    assert status == 200 and "event: done" in text
    assert working.wrong == []


def test_answers_about_bags(working):
    document = {
        **{"name": "sweep", "commands": ["true", "echo x > o.txt", "false"], "runtime_s": 1},
        **{"retries": 0, "deadline": "1h"},
    }
    bag_id = working("POST", "/v1/bags", document)["id"]
    path = f"/v1/bags/{bag_id}"
    working("GET", path)
    assert working.ended(path, ("done", "failed", "cancelled"))["state"] == "failed"
    for part in ("/tasks/0", "/tasks/2", "/results", "/events"):
        working("GET", path + part)
    for part in ("", "/explain?task=1", "/logs"):
        working("GET", f"/v1/work/{bag_id}{part}")
    assert working("POST", f"{path}/retry")["tasks"] == 1
    working.ended(path, ("failed",))
    working("DELETE", f"{path}/records")
    assert working.wrong == []


def test_answers_about_open_bags(working):
    bag_id = working("POST", "/v1/bags", {"name": "opened", "open": True, "runtime_s": 1})["id"]
    path = f"/v1/bags/{bag_id}"
    lines = b'"sleep 100"\n' * 6
    assert working("POST", f"{path}/tasks", lines, "application/x-ndjson")["taken"] == 6
    until(lambda: working("GET", path).get("running"), "a running task", 60)
    for task in (0, 5):
        working("GET", f"{path}/tasks/{task}")
    assert working("POST", f"{path}/drop", {"tasks": [5]})["tasks"] == [5]
    working("GET", "/v1/bags")
    working("POST", f"{path}/close")
    working("DELETE", path)
    working.ended(path, ("cancelled",))
    assert working.wrong == []


def test_answers_about_pools(working):
    working("PUT", "/v1/managers/m", MANAGER)
    working("PUT", "/v1/pools/p", POOL)
    for path in ("managers", "pools", "pools/p", "work/pool:p", "work/pool:p/explain", "token"):
        working("GET", f"/v1/{path}")
    for path in ("/v1/managers/m", "/v1/pools/p"):
        assert working("DELETE", path) == (204, "")
    working("GET", "/v1/sites")
    assert working.wrong == []


def test_answers_about_targets_of_alarms(planning):
    with no_server() as port:
        target = {"name": "hook", "url": f"json://127.0.0.1:{port}/"}
        for _ in range(2):  # the second time there is one of this name
            planning("POST", "/v1/alarm-targets", target)
        planning("POST", "/v1/alarm-targets", {"name": "x", "url": "foo://x"})
        assert len(planning("GET", "/v1/alarm-targets")) == 1
        assert not planning("POST", "/v1/alarm-targets/hook/test")["ok"]
    assert planning("DELETE", "/v1/alarm-targets/hook") == (204, "")
    planning("DELETE", "/v1/alarm-targets/hook")
    assert planning.wrong == []


def test_answers_about_queues(planning):
    queue = "/v1/sites/kittyhawk/queues/default"
    for part in (
        "bound?procs=4&explain=true",
        "bound?procs=4&method=qbets",
        "probability?within_s=3600",
        "trajectory?start_by_s=3600",
        "score",
    ):
        planning("GET", f"{queue}/{part}")
    question = {"site": "kittyhawk", "queue": "default", "procs": 4, "start_by_s": 7200}
    questions = {"questions": [question, {"site": "nowhere"}]}
    assert "error" in planning("POST", "/v1/forecasts", questions)["forecasts"][1]
    assert planning("GET", "/v1/where?procs=60")["left_out"]
    for path in ("sites", "scores"):
        planning("GET", f"/v1/{path}")
    upload = "/v1/sites/kittyhawk/history?queue=default"
    assert planning("POST", upload, LOG.encode(), "application/octet-stream")["jobs"] == 199
    assert planning.wrong == []


def test_answers_about_virtual_grids(planning):
    grid_id = planning("POST", "/v1/virtual-grids", GRID)["id"]
    for part in ("", "/gantt"):
        planning("GET", f"/v1/virtual-grids/{grid_id}{part}")
    assert planning.wrong == []


def test_errors_are_as_described(working):
    for method, path, body in (
        ("GET", "/v1/workflow-sets/set-0123456789", None),
        ("GET", "/v1/workflow-sets?limit=0", None),
        ("POST", "/v1/bags", {"name": "x", "commands": []}),
        ("GET", "/v1/work/nothing", None),
        ("GET", "/v1/bags?after=x", None),
    ):
        status, _ = working(method, path, body)
        assert status >= 400, path
    assert working.wrong == []


def test_a_set_without_a_plan_is_as_described(planning):
    """Of which nothing can be placed: with sufficient changes."""
    workflow = {"name": "w", "tasks": [{"id": "a", "runtime_s": 60, "procs": 200}]}
    document = {"name": "wide", "deadline": "1h", "workflows": [workflow]}
    set_id = planning("POST", "/v1/workflow-sets", document)["id"]
    for part in ("", "/plan", "/gantt", "/status"):
        planning("GET", f"/v1/workflow-sets/{set_id}{part}")
    planning("POST", f"/v1/workflow-sets/{set_id}/what-if", {"deadline": "2h"})
    assert planning("GET", f"/v1/workflow-sets/{set_id}")["feasible"] is False
    assert planning.wrong == []
