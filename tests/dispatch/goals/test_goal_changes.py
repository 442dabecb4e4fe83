"""A bag's goal that is changed while it works: applied once, kept, journalled, refused with the
reason; by the command line's function and by REST."""

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.dispatch.test_goals import QUEUE, World, bag, cloud, source, view
from tests.examples import examples
from tests.portal.serving import serve_this_machine
from tests.waiting import until
from vgrads.api.bags.virtual import VirtualBagWork
from vgrads.bags.bag import BagGoal, BagSpec, Listed
from vgrads.dispatch.core.events import GoalChanged
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.snapshot import (
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.fleet.goal_answer import goal_json
from vgrads.dispatch.fleet.goal_changes import apply_goal_requests
from vgrads.dispatch.fleet.goals import GoalControl
from vgrads.dispatch.fleet.site_view import SiteHealth, SiteInventory
from vgrads.dispatch.goal_change import GoalRequest, explain_goal_refusal, read_request
from vgrads.dispatch.storage.goal_age import change_text
from vgrads.dispatch.storage.goal_requests import read_goal_requests, request_goal
from vgrads.dispatch.storage.journal import DispatchJournal, read_state
from vgrads.dispatch.storage.request_lines import StaleRequestError
from vgrads.dispatch.storage.status import read_status
from vgrads.kernel.errors import InputError
from vgrads.operations.bags.goal_change import GoalChange
from vgrads.portal.cli.bags.goal_change import change_goal
from vgrads.portal.jobs.bag_goals import request_goal_change
from vgrads.portal.records.reading.bags import get_bag
from vgrads.portal.records.reading.opening import open_reader

GOAL = BagGoal(deadline_s=100.0, probability=0.9, budget_usd=5.0)
SPEC = BagSpec(name="b", commands=Listed(["true"] * 10), goal=GOAL)
BEGAN = 1000.0


class Life:
    """A dispatcher's core over its journal, which may be killed at any instant."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        (folder / "bags" / "0000" / "given").mkdir(parents=True, exist_ok=True)
        self.begin()

    def begin(self):
        state = read_state(self.folder / "journal")
        self.journal = DispatchJournal(self.folder / "journal")
        self.core = Core(state, Rules(), self.journal.add)
        if 0 not in state.bags:
            self.core.add(0, SPEC, 0.0)
            self.write()
        self.core.attach(0, SPEC)

    def write(self):
        if group := self.journal.take():
            self.journal.write(group)

    def kill(self):
        """What was not written is lost."""
        self.journal.close()
        self.begin()

    def look(self, now_s=10.0):
        """Apply the requests that are there."""
        return apply_goal_requests(
            self.folder, 0, self.core, lambda _: 2.0, now_s, lambda unix_s: unix_s - BEGAN
        )

    @property
    def changes(self):
        return self.core.state.bags[0].goal_changes


REQUESTS = st.builds(
    GoalRequest,
    at_unix_s=st.just(BEGAN + 10.0),
    within_s=st.none() | st.floats(1.0, 500.0),
    fraction=st.none() | st.sampled_from([0.25, 0.5, 1.0]),
    probability=st.none() | st.sampled_from([0.5, 0.99]),
    budget_usd=st.none() | st.sampled_from([1.0, 3.0, 9.0]),  # the first is spent already
)
STEPS = st.lists(REQUESTS | st.sampled_from(["look", "write", "kill", "twice", "compact"]))


@settings(max_examples=examples(100), deadline=None)
@given(steps=STEPS)
def test_each_request_counts_once_whatever_the_order_of_restarts(tmp_path_factory, steps):
    life = Life(tmp_path_factory.mktemp("d"))
    stored = []
    for step in steps:
        if isinstance(step, GoalRequest):
            assert request_goal(life.folder, 0, step.as_json()) == len(stored)
            stored.append(step)
        elif step == "twice" and life.changes:
            apply(life.core.state, life.changes[-1])  # recorded again by mistake
        elif step == "compact":
            life.write()
            life.journal.roll(life.core.state).carry_out()
        elif step in ("look", "write", "kill"):
            getattr(life, step)()
    life.look()
    life.write()
    expected = GOAL
    for request in stored:
        if not (request.budget_usd is not None and request.budget_usd < 2.0):
            expected = request.applied(expected, 10.0 + (request.within_s or 0.0))
    assert [change.request for change in life.changes] == list(range(len(stored)))
    assert life.core.bags[0].goal == expected
    before = list(life.changes)
    life.kill()
    assert life.changes == before and life.core.bags[0].goal == expected
    assert not life.look()
    image = restore_state(unpack_snapshot(pack_snapshot(take_snapshot(life.core.state))))
    assert image.bags[0].goal_changes == before
    life.journal.close()


def test_a_refused_request_changes_nothing_and_is_recorded_with_the_reason(tmp_path):
    life = Life(tmp_path)
    at = {"at_unix_s": BEGAN}
    for request in ({"budget_usd": 1.0}, {"within_s": 5.0}, {"at_least": 11}, {"fraction": 0.5}):
        request_goal(life.folder, 0, at | request)
    assert life.look(now_s=10.0)
    assert [change.refused for change in life.changes] == [
        "a budget of $1.00 is below the $2.00 that are spent",
        "the deadline is before now",
        "11 are more than its 10 tasks",
        "",
    ]
    assert life.core.bags[0].goal == replace(GOAL, fraction=0.5)
    life.core.cancel(0, 11.0, "by ann")
    request_goal(life.folder, 0, at | {"fraction": 0.9})
    assert life.look()
    assert life.changes[-1].refused == "the bag has ended"


def test_a_request_for_another_goal_than_the_present_one_is_stale(tmp_path):
    (tmp_path / "bags" / "0000" / "given").mkdir(parents=True)
    assert request_goal(tmp_path, 0, {"at_unix_s": 1.0}, 0) == 0
    with pytest.raises(StaleRequestError):
        request_goal(tmp_path, 0, {"at_unix_s": 2.0}, 0)
    assert [r["at_unix_s"] for r in read_goal_requests(tmp_path, 0)] == [1.0]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "nothing is to be changed"),
        ({"at_least": "0"}, "is not in (0, 1]"),
        ({"at_least": "101%"}, "is not in (0, 1]"),
        ({"at_least": "-3"}, "is not in (0, 1]"),
        ({"probability": 1.0}, "outside (0, 1)"),
        ({"budget": -1.0}, "is no sum of dollars"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "is in the past"),
        ({"deadline": "soon"}, "soon"),
    ],
)
def test_what_is_no_goal_is_refused(fields, text):
    names = dict.fromkeys(("deadline", "at_least", "budget", "probability"))
    with pytest.raises(InputError) as wrong:
        read_request(**(names | fields), now=datetime.now(UTC))
    assert text in str(wrong.value)


def test_a_share_replaces_a_number_of_tasks_and_the_reverse():
    ten = replace(GOAL, at_least=10)
    share = GoalRequest(at_unix_s=0.0, fraction=0.5).applied(ten, 0.0)
    assert (share.at_least, share.required(40)) == (None, 20)
    assert GoalRequest(at_unix_s=0.0, at_least=7).applied(share, 0.0).required(40) == 7
    more = {"is_over": False, "spent_usd": 0.0, "left_s": None}
    assert explain_goal_refusal(GoalRequest(at_unix_s=0.0, at_least=50), most=None, **more) == ""


def test_a_change_is_a_line_with_what_has_changed():
    change = {
        **{"at_s": 75.0, "refused": "", "before": {"deadline_s": 3600.0, "at_least": None}},
        "after": {"deadline_s": 5400.0, "at_least": 1200},
    }
    assert change_text(change, 15.0) == (
        "goal, after 1m: deadline 1h → 1h 30m; at least none → 1,200"
    )
    refused = change | {"after": None, "refused": "the bag has ended"}
    assert change_text(refused) == "goal, after 1m 15s: a change was refused: the bag has ended"


# nodes


class Changing(VirtualBagWork):
    """A dispatcher whose user changes a goal once so many tasks are done; ``before``: the goal just
    then."""

    done, request, before = 0, None, None

    def _control(self, clock):
        done = self._core.state.bags[0].tasks.counts[DONE]
        if self.request and done >= self.done:
            self.before = goal_json(self._fleet.goals, 0, clock.now())
            request_goal(self.folder, 0, self.request.as_json())
            self.request = None
            self._read_requests(clock)
        return super()._control(clock)


def changed(folder, sites, document, done, **fields):
    """The goal before a change and in the end, and the state of the bag."""
    folder.mkdir(exist_ok=True)
    world = World(folder, sites, document)
    work = Changing(world.folder, world.catalog, "bag-x", lambda: world.requests)
    work.done, work.request = done, GoalRequest(at_unix_s=time.time(), **fields)
    work.carry_out()
    (row,) = read_status(world.folder)["bags"]
    return work.before, row["goal"], world.state


@pytest.mark.more
def test_nodes_are_planned_anew_at_once_for_a_later_or_an_earlier_deadline(tmp_path):
    """The promise of the goal before does not count for the new one."""
    nodes = {}
    for name, deadline_s in (("later", 40_000.0), ("same", 6000.0), ("earlier", 2500.0)):
        document = bag(deadline=6000, probability=0.9, runtime_s=400, budget_usd=90)
        _, goal, state = changed(
            tmp_path / name, cloud(billing="1s"), document, 1, within_s=deadline_s
        )
        (change,) = goal["changes"]
        assert goal["state"] == "met"
        assert goal["due_s"] == pytest.approx(change["at_s"] + deadline_s)
        first_s = min(at_s for at_s, _ in goal["promises"] if at_s >= change["at_s"])
        assert first_s - change["at_s"] <= 1.0
        nodes[name] = sum(slot.agents for slot in state.slots.values())
    assert nodes["later"] <= nodes["same"] < nodes["earlier"]


def test_a_promise_for_the_goal_before_is_not_maintained_for_the_new_one():
    """Fewer nodes are enough for a lower probability."""
    sources = [source("q"), source("c", 1.0)]
    goal = BagGoal(deadline_s=900.0, probability=0.3)
    now = view(goal=goal, due_s=900.0, left=200, tasks=200)

    def nodes(promises, changed_s=None):
        control = GoalControl(promises=promises)
        if changed_s is not None:
            control.follow_change(changed_s)
        present = {where.name: SiteInventory() for where in sources}
        healths = {where.name: SiteHealth() for where in sources}
        return control.decide(now, sources, present, healths).nodes

    assert nodes([(-9.0, 0.98)]) != nodes([])
    assert nodes([(-9.0, 0.98)], changed_s=-5.0) == nodes([])
    assert nodes([(-9.0, 0.3), (-4.0, 0.98)], changed_s=-5.0) == nodes([(-4.0, 0.98)])


def test_a_goal_that_was_reached_is_worked_for_again_when_more_is_needed(tmp_path):
    document = bag(fraction=0.5, deadline="2h", runtime_s=60)
    before, goal, state = changed(tmp_path, QUEUE, document, 70, fraction=1.0)
    assert (before["state"], before["left"]) == ("met", 0)
    assert (goal["state"], goal["required"], goal["left"]) == ("met", 120, 0)
    assert goal["reached_s"] == pytest.approx(state.bags[0].ended_s, abs=0.02)
    (change,) = goal["changes"]
    assert any(change["at_s"] <= at_s < goal["reached_s"] for at_s, _ in goal["promises"])


def test_between_a_change_and_the_next_decision_nothing_is_stated_of_the_new_goal(tmp_path):
    world = World(tmp_path, QUEUE, bag(deadline=3600, probability=0.9))
    states = []

    class Asking(Changing):
        def _read_requests(self, clock):
            super()._read_requests(clock)
            if self._core.state.bags[0].goal_changes and not states:
                states.append(goal_json(self._fleet.goals, 0, clock.now()))

    work = Asking(world.folder, world.catalog, "bag-x", lambda: world.requests)
    work.done, work.request = 5, GoalRequest(at_unix_s=time.time(), within_s=30.0)
    work.carry_out()
    assert (work.before["promise"], states[0]["promise"]) == (pytest.approx(1.0, abs=0.1), None)
    assert states[0]["requested"] == 0.9 and states[0]["why"] == "no decision was needed yet"


# real dispatchers


def slow(folder, tasks=6):
    """Tasks that end once there is a file."""
    return {
        "name": "slow",
        "command": f"echo run {{x}} >> {folder}/ran; until test -f {folder}/go; do sleep .05; done",
        "parameters": {"x": {"range": [tasks]}},
        **{"runtime_s": 5, "deadline": "1h", "probability": 0.9},
    }


def begin(vgrads, write, folder, document):
    """A working dispatcher in a process of its own, and its bag."""
    path = write("bag.json", json.dumps(document))
    process = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "bags", "run", str(path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until((folder / "ran").exists)
    (row,) = vgrads("bags", "status", "--json").json["bags"]
    return process, row["id"]


def entry(bag_id):
    with open_reader() as reader:
        return get_bag(reader, bag_id)


def test_the_goal_of_a_working_bag_is_changed_and_met(vgrads, write, tmp_path):
    process, bag_id = begin(vgrads, write, tmp_path, slow(tmp_path))
    answer = change_goal(bag_id, GoalChange(deadline="2h", at_least="50%", probability=0.8))
    goal = answer["goal"]
    (change,) = goal["changes"]
    assert (change["after"]["fraction"], change["after"]["probability"]) == (0.5, 0.8)
    assert goal["due_s"] == pytest.approx(change["at_s"] + 7200.0, abs=10.0)
    assert (goal["required"], goal["requested"], goal["promise"]) == (3, 0.8, 1.0)
    assert "deadline 1h → 2h" in answer["message"] and "on track" in answer["message"]
    for wrong, text in (
        (GoalChange(deadline="2020-01-01T00:00:00Z"), "is in the past"),
        (GoalChange(at_least="7"), "7 are more than its 6 tasks"),
        (GoalChange(at_least="150%"), "is not in (0, 1]"),
    ):
        with pytest.raises(InputError) as refused:
            change_goal(bag_id, wrong)
        assert text in str(refused.value) and "\n" not in str(refused.value)
    (tmp_path / "go").touch()
    assert process.wait(60) == 0
    status = vgrads("bags", "status", bag_id, "--json").json["bags"][0]
    assert (status["goal"]["state"], len(status["goal"]["changes"])) == ("met", 1)
    explained = vgrads("bags", "explain", bag_id).out
    assert "share 1 → 0.5" in " ".join(explained.split())
    with pytest.raises(InputError, match="has ended: done"):
        change_goal(bag_id, GoalChange(deadline="3h"))


def test_a_bag_without_a_goal_has_none_to_change(vgrads, write, tmp_path):
    document = {k: v for k, v in slow(tmp_path).items() if k not in ("deadline", "probability")}
    process, bag_id = begin(vgrads, write, tmp_path, document)
    with pytest.raises(InputError, match="has no goal"):
        change_goal(bag_id, GoalChange(deadline="3h"))
    (tmp_path / "go").touch()
    assert process.wait(60) == 0


def test_a_request_that_its_dispatcher_did_not_live_to_apply_is_applied_by_the_next(
    vgrads, write, tmp_path
):
    process, bag_id = begin(vgrads, write, tmp_path, slow(tmp_path))
    os.kill(process.pid, signal.SIGSTOP)  # it gets the request and does not apply it
    request_goal_change(entry(bag_id), GoalChange(at_least="3", deadline="5h"))
    process.kill()
    process.wait(30)
    answer = change_goal(bag_id, GoalChange(probability=0.7))
    assert "no dispatcher is running" in answer["message"]
    (tmp_path / "go").touch()
    assert vgrads("bags", "resume", bag_id).code == 0
    goal = vgrads("bags", "status", bag_id, "--json").json["bags"][0]["goal"]
    assert [change["after"]["at_least"] for change in goal["changes"]] == [3, 3]
    assert [change["after"]["probability"] for change in goal["changes"]] == [0.9, 0.7]
    assert (goal["required"], goal["requested"], goal["state"]) == (3, 0.7, "met")
    folder = tmp_path / "home" / "dispatchers" / bag_id / "journal"
    changes = read_state(folder).bags[0].goal_changes
    assert [type(change) for change in changes] == [GoalChanged] * 2


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    served = serve_this_machine(tmp_path_factory.mktemp("home"))
    yield served
    served.leave()


def patch(service, bag_id, body, **headers):
    head = {"Content-Type": "application/json"}
    head |= {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(
        f"{service.url}/v1/bags/{bag_id}/goal", json.dumps(body).encode(), head, method="PATCH"
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["detail"], None


def tag_of(service, bag_id):
    with urllib.request.urlopen(f"{service.url}/v1/bags/{bag_id}") as answer:
        return json.load(answer), answer.headers["ETag"]


def test_a_goal_is_changed_over_http_by_those_who_have_its_present_tag(service, tmp_path):
    client = service.client()
    bag_id = client.submit_bag(slow(tmp_path, tasks=4))
    plain = client.submit_bag({"name": "plain", "commands": ["sleep 60"]})
    until(lambda: (tag_of(service, bag_id)[0].get("goal") or {}).get("promise"))
    _, tag = tag_of(service, bag_id)
    assert patch(service, bag_id, {"deadline": "2h"})[0] == 428
    assert patch(service, bag_id, {"deadline": "2h"}, If_Match='"goal-7"')[0] == 412
    for body in ({"deadline": "1970-01-01T00:00:00Z"}, {"at_least": "2.0"}, {}, {"fraction": 1}):
        assert patch(service, bag_id, body, If_Match=tag)[0] == 422
    status, answer, fresh = patch(service, bag_id, {"at_least": 2, "deadline": "2h"}, If_Match=tag)
    assert (status, answer["request"]) == (202, 0)
    assert fresh != tag
    assert patch(service, bag_id, {"deadline": "3h"}, If_Match=tag)[0] == 412
    until(lambda: tag_of(service, bag_id)[0]["goal"]["changes"])
    goal, present = tag_of(service, bag_id)
    assert present == fresh
    assert (goal["goal"]["required"], goal["goal"]["state"]) == (2, "on track")
    with urllib.request.urlopen(f"{service.url}/bags/{bag_id}") as page:
        text = page.read().decode()
    assert "at least none → 2" in text
    assert re.search("2 of 4 tasks are (to be )?done by <time", text)
    assert patch(service, plain, {"deadline": "2h"}, If_Match="*")[:2] == (
        409,
        f"{plain}: has no goal that could be changed: no deadline with a probability, share or "
        "budget",
    )
    (tmp_path / "go").touch()
    until(lambda: client.read_bag(bag_id)["state"] == "done")
    assert patch(service, bag_id, {"deadline": "2h"}, If_Match=fresh)[0] == 409
    assert client.read_bag(bag_id)["goal"]["state"] == "met"
    client.cancel_bag(plain)


def post(service, bag_id, **fields):
    """The page that answers a form: its status, and its text."""
    request = urllib.request.Request(
        f"{service.url}/bags/{bag_id}/goal",
        urllib.parse.urlencode(fields).encode(),
        {"Accept": "text/html"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


WRONG = [
    ("deadline", "soon"),
    ("deadline", "1970-01-01T00:00:00Z"),
    ("at_least", "5"),
    ("at_least", "150%"),
    ("probability", "2"),
    ("budget_usd", "much"),
    ("budget_usd", "-1"),
]


@pytest.mark.more
def test_a_goal_is_changed_with_the_form_of_its_page(service, tmp_path):
    client = service.client()
    bag_id = client.submit_bag(slow(tmp_path, tasks=4))
    until(lambda: (tag_of(service, bag_id)[0].get("goal") or {}).get("promise"))
    _, tag = tag_of(service, bag_id)
    with urllib.request.urlopen(f"{service.url}/bags/{bag_id}") as page:
        text = page.read().decode()
    assert f'name="etag" value="{html.escape(tag, quote=True)}"' in text.replace("&#34;", "&quot;")
    assert "the probability that 4 of 4 tasks are done by <time" in text
    for field, value in WRONG:
        status, text = post(service, bag_id, etag=tag, **{field: value})
        assert (field, value, status) == (field, value, 422)
        entry = re.search(f'<input id="{field}"[^>]*>.*?</div>', text, re.DOTALL)[0]
        assert 'aria-invalid="true"' in entry and 'id="problem"' in entry
        assert text.count('id="problem"') == 1
        assert f'value="{value}"' in entry
    status, text = post(service, bag_id, etag=tag)
    assert (status, "nothing is to be changed" in text) == (422, True)
    assert post(service, bag_id, etag='"goal-7"', deadline="2h")[0] == 412
    assert post(service, bag_id, etag=tag, colour="red")[0] == 422
    status, _ = post(service, bag_id, etag=tag, at_least="50%", deadline="2h")
    assert status == 200  # after its redirection
    until(lambda: tag_of(service, bag_id)[0]["goal"]["changes"])
    assert tag_of(service, bag_id)[0]["goal"]["required"] == 2
    (tmp_path / "go").touch()
    until(lambda: client.read_bag(bag_id)["state"] == "done")
    fresh = tag_of(service, bag_id)[1]
    assert post(service, bag_id, etag=fresh, deadline="2h")[0] == 409
    with urllib.request.urlopen(f"{service.url}/bags/{bag_id}") as page:
        assert 'id="change-goal"' not in page.read().decode()
