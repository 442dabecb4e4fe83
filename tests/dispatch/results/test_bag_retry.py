"""Tasks of a bag that are done again: by the command, by REST, from the page, twice, and while the
bag works."""

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.conftest import ROOT
from tests.portal.serving import serve_this_machine
from tests.waiting import until
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.storage.retries import AttemptRounds, apply_requests
from vgrads.dispatch.storage.retry_requests import request_retry
from vgrads.kernel.errors import InputError
from vgrads.portal.client import Client
from vgrads.workflows.generated.wavefront import Wavefront


def picky(folder, **fields):
    """Six tasks; one succeeds where its file is in the folder."""
    return {
        "name": "picky",
        "command": f"test -f {folder}/{{x}} && echo run {{x}} >> {folder}/ran && echo got {{x}}",
        "parameters": {"x": {"range": [6]}},
        "retries": 1,
        **fields,
    }


def allow(folder, *numbers):
    for number in numbers:
        (folder / str(number)).touch()


def runs(folder):
    return sorted(int(line.split()[1]) for line in (folder / "ran").read_text().splitlines())


def run(vgrads, write, folder, **fields):
    answer = vgrads("bags", "run", write("bag.json", json.dumps(picky(folder, **fields))), "--json")
    (bag,) = answer.json["bags"]
    return answer.code, bag


def ends(vgrads, bag):
    return [json.loads(line) for line in vgrads("bags", "logs", bag, "--json").out.splitlines()]


def test_failed_tasks_are_done_again_in_the_same_bag(vgrads, write, tmp_path):
    allow(tmp_path, 0, 3, 5)
    code, bag = run(vgrads, write, tmp_path)
    assert (code, bag["state"], bag["done"], bag["failed"]) == (1, "failed", 3, 3)
    allow(tmp_path, 1)
    answer = vgrads("retry", "picky", "--failed", "--json")
    (again,) = answer.json["bags"]
    assert (answer.code, again["id"], again["state"]) == (1, bag["id"], "failed")
    assert (again["done"], again["failed"]) == (4, 2)
    allow(tmp_path, 2, 4)
    answer = vgrads("retry", bag["id"], "--json")
    (again,) = answer.json["bags"]
    assert (answer.code, again["state"], again["done"], again["failed"]) == (0, "done", 6, 0)
    assert runs(tmp_path) == list(range(6))  # what was done was not repeated
    final = [(end["task"], end["code"]) for end in ends(vgrads, bag["id"]) if end["final"]]
    # each decided its task: tasks 2 and 4 failed for good twice
    assert sorted(final) == sorted([(n, 0) for n in range(6)] + [(n, 1) for n in (1, 2, 2, 4, 4)])
    assert "has ended: done" in vgrads("bags", "resume", bag["id"]).err


def test_named_tasks_are_done_again_though_they_are_done(vgrads, write, tmp_path):
    allow(tmp_path, *range(6))
    fields = {"command": f"date +%s%N > {{x}}.txt; echo run {{x}} >> {tmp_path}/ran"}
    code, bag = run(vgrads, write, tmp_path, **fields, outputs=["{x}.txt"])
    folder = tmp_path / "home" / "dispatchers" / bag["id"] / "bags" / "0000" / "results"
    before = {path.name: path.read_text() for path in folder.glob("?.txt")}
    assert (code, len(before)) == (0, 6)
    assert vgrads("bags", "retry", bag["id"], 2, 5).code == 0
    assert runs(tmp_path) == [0, 1, 2, 2, 3, 4, 5, 5]
    changed = {name for name, text in before.items() if (folder / name).read_text() != text}
    assert changed == {"2.txt", "5.txt"}


def test_what_cannot_be_retried_is_refused_with_the_reason(vgrads, write, tmp_path):
    allow(tmp_path, *range(6))
    _, bag = run(vgrads, write, tmp_path)
    for arguments, text in (
        ((), "all tasks are done"),
        ((6,), "has no task 6"),
        (("x",), "'x' is no number of a task"),
        (("99999999999999999999",), "has no task 99999999999999999999"),
        (("--failed", 1), "cannot be combined"),
    ):
        answer = vgrads("retry", bag["id"], *arguments)
        assert (answer.code, text in answer.err) == (2, True), answer
    assert "no run 'other'" in vgrads("retry", "other").err
    assert vgrads("status", bag["id"], "--json").json["bags"][0]["state"] == "done"
    lost = tmp_path / "home" / "dispatchers" / bag["id"] / "bags" / "0000" / "given"
    (lost / "retries.ndjson").mkdir()  # no request can be written there
    answer = vgrads("retry", bag["id"], 1)
    assert (answer.code, "the request cannot be stored" in answer.err) == (2, True)


def test_a_cancelled_bag_goes_on_and_a_working_one_is_left_to_its_dispatcher(
    vgrads, write, tmp_path
):
    fields = {
        "command": f"echo run {{x}} >> {tmp_path}/ran; "
        f"until test -f {tmp_path}/{{x}}; do sleep .02; done"
    }
    path = write("bag.json", json.dumps(picky(tmp_path, **fields)))
    first = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "bags", "run", str(path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    until((tmp_path / "ran").exists)
    (bag,) = vgrads("bags", "status", "--json").json["bags"]
    running = runs(tmp_path)[0]
    answer = vgrads("retry", bag["id"], running)
    assert (answer.code, f"task {running} of bag" in answer.err) == (2, True), answer
    assert "has not ended, and no task has failed" in vgrads("retry", bag["id"]).err
    assert vgrads("cancel", bag["id"]).code == 0
    assert first.wait(30) == 1
    (bag,) = vgrads("bags", "status", "--json").json["bags"]
    assert bag["state"] == "cancelled"
    allow(tmp_path, *range(6))
    answer = vgrads("retry", bag["id"], "--json")
    (bag,) = answer.json["bags"]
    assert (answer.code, bag["state"], bag["done"], bag["dropped"]) == (0, "done", 6, 0)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    served = serve_this_machine(tmp_path_factory.mktemp("home"))
    yield served
    served.leave()


def post(service, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(service.url + path, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_bag_of_a_service_is_retried_by_rest_and_from_its_page(service, tmp_path):
    client = Client(service.url)
    allow(tmp_path, 0, 3, 5)
    bag = client.submit_bag(picky(tmp_path))

    def state():
        return client.read_bag(bag)["state"]

    until(lambda: state() == "failed")
    allow(tmp_path, 1)
    status, text = post(service, f"/v1/bags/{bag}/retry")
    assert (status, json.loads(text).get("tasks")) == (202, 3), text
    until(lambda: (state(), client.read_bag(bag)["done"]) == ("failed", 4))
    status, text = post(service, f"/v1/bags/{bag}/retry", {"tasks": [6]})
    assert (status, "has no task 6" in text) == (422, True)
    for body in ({"tasks": [-1]}, {"tasks": ["1"]}, {"task": 1}, {"tasks": [True]}):
        assert post(service, f"/v1/bags/{bag}/retry", body)[0] == 422
    with urllib.request.urlopen(f"{service.url}/bags/{bag}") as page:
        assert f'action="/bags/{bag}/retry"' in page.read().decode()
    allow(tmp_path, 2)
    for _ in range(2):  # the second has nothing left to do, or finds the bag at work
        assert post(service, f"/bags/{bag}/retry")[0] in (200, 409)
    until(lambda: (state(), client.read_bag(bag)["done"]) == ("failed", 5))
    allow(tmp_path, 4)
    assert post(service, "/v1/work/picky/retry", {"tasks": ["4"]})[0] == 202
    until(lambda: state() == "done")
    assert runs(tmp_path) == list(range(6))
    status, text = post(service, f"/v1/bags/{bag}/retry")
    assert (status, "all tasks are done" in text) == (409, True)
    with urllib.request.urlopen(f"{service.url}/bags/{bag}") as page:
        assert f'action="/bags/{bag}/retry"' not in page.read().decode()
    assert post(service, "/v1/bags/bag-0123456789/retry")[0] == 404


# without processes


def played(bag, outcome):
    core = Core(State(), Rules(), lambda _: None)
    core.add(0, bag, 0.0)
    agents = VirtualAgents(core, outcome)
    for number in range(2):
        agents.join(f"h{number}", procs=2)
    agents.run(over=lambda: core.state.bags[0].over)
    return core, agents


def test_what_was_never_ready_becomes_ready_after_a_retry():
    order = Wavefront(4, 4)
    bag = BagSpec(name="b", commands=Listed(["true"] * order.size), order=order, retries=0)
    broken = {5}
    core, agents = played(bag, lambda _, task, __: (0.1, int(task in broken)))
    counts = core.state.bags[0].tasks.counts
    assert counts[3] == 1 and counts[4] > 0
    broken.clear()
    core.retry(0, None, agents.now_s, 0)
    core.state.check()
    agents.run(over=lambda: core.state.bags[0].over)
    core.state.check()
    assert core.state.bags[0].tasks.counts == [0, 0, order.size, 0, 0, 0]


def test_attempts_before_and_after_a_retry_are_told_apart(tmp_path):
    bag = BagSpec(name="b", commands=Listed(["true"] * 9), retries=1)
    core, agents = played(bag, lambda _, task, __: (0.1, int(task in (2, 3, 8))))
    (tmp_path / "bags" / "0000" / "given").mkdir(parents=True)
    attempts = core.state.bags[0].tasks.attempts
    assert (attempts[2], attempts[8]) == (2, 2)
    request_retry(tmp_path, 0, None)
    assert apply_requests(tmp_path, 0, core, agents.now_s)
    assert not apply_requests(tmp_path, 0, core, agents.now_s)
    rounds = AttemptRounds(tmp_path, 0)
    assert [rounds.of(2, 2), rounds.of(2, 3), rounds.of(1, 1), rounds.of(8, 3)] == [0, 1, 0, 1]
    request_retry(tmp_path, 0, [8])  # it waits: nothing changes, and the request is done with
    assert apply_requests(tmp_path, 0, core, agents.now_s)
    rounds.look()
    assert (rounds.of(8, 3), core.state.bags[0].retried) == (1, 2)


def test_a_bag_that_comes_back_does_not_take_all_hosts():
    """An owner who was away has no credit: the one who works keeps a share."""
    core = Core(State(), Rules(), lambda _: None)
    specs = [
        BagSpec(name=n, owner=n, commands=Listed(["true"] * c), retries=0)
        for n, c in (("a", 4), ("b", 4000))
    ]
    core.add(0, specs[0], 0.0)
    agents = VirtualAgents(core, lambda bag, *_: (1.0, int(bag == 0 and agents.now_s < 50)))
    agents.join("h", procs=2)
    agents.run(over=lambda: core.state.bags[0].over)
    core.add(1, specs[1], agents.now_s)
    agents.run(over=lambda: core.state.bags[1].tasks.counts[2] >= 200)
    core.retry(0, None, agents.now_s, 0)
    owners = core.state.owners
    assert owners["a"].had >= owners["b"].had


def test_an_unreadable_request_is_an_error_with_its_file(tmp_path):
    given = tmp_path / "bags" / "0000" / "given"
    given.mkdir(parents=True)
    (given / "retries.ndjson").write_text("{\n")
    core, _ = played(BagSpec(name="b", commands=Listed(["true"])), lambda *_: (0.1, 0))
    with pytest.raises(InputError, match="line 1"):
        apply_requests(tmp_path, 0, core, 1.0)
