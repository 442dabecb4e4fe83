"""The state of a bag's promise while it works: in the words that every interface uses, and true."""

import json
import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dispatch.test_goals import QUEUE, World, bag, cloud, source, view
from tests.examples import examples
from vgrads.api.bags.virtual import VirtualBagWork
from vgrads.bags.bag import BagGoal, BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.snapshot import (
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.state import BagState, FailedExits, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE, DROPPED, FAILED, TaskColumns
from vgrads.dispatch.fleet.goal_answer import goal_json
from vgrads.dispatch.fleet.goal_state import (
    count_most_workers,
    estimate_least_left_s,
    find_needed_exit,
    judge_goal,
)
from vgrads.dispatch.fleet.site_view import SiteInventory
from vgrads.dispatch.storage.goal_age import age_goal, describe_goal_promise
from vgrads.exchange.values import COULD_NOT, AttemptEnd, Hello, Message
from vgrads.portal.web.bags.goal import goal_view

TEN = BagGoal(deadline_s=100.0, probability=0.9)
ANY = BagGoal(deadline_s=100.0, probability=0.9, these=False)
NINE = replace(ANY, fraction=0.9)


def state_after(tasks=10, exits=(), ended=(), **fields):
    """A bag; ``exits``: task, status and machine of failed attempts; ``ended``: tasks by how."""
    state = BagState(
        number=0, name="b", owner="", weight=1.0, procs=1, retries=1, tasks=TaskColumns(tasks)
    )
    for task, code, machine in exits:
        state.exits.record(task, code, machine)
        state.tasks.failures[task] = state.tasks.failures.get(task, 0) + 1
    for task, how in ended:
        state.tasks.end(task, how)
    for name, value in fields.items():
        setattr(state, name, value)
    return state


def judged(state, goal=TEN, promise=0.95, reached_s=None, workers=100, **more):
    stated = {"now_s": 50.0, "due_s": 100.0, "left": 10, "each_s": 4.0, "goal": goal}
    stated |= {"sampled": 5, "tasks": len(state.tasks), **more}
    return judge_goal(
        state,
        view(**stated),
        promise=promise,
        reached_s=reached_s,
        workers=workers,
        error_of=lambda code: f"error {code}",
    )


TWICE = ((3, 2, "m1"), (3, 2, "m2"))


@pytest.mark.parametrize(
    ("word", "fields", "more"),
    [
        ("on track", {}, {}),
        ("on track", {}, {"promise": None}),
        ("on track", {}, {"promise": 0.86}),
        ("at risk", {}, {"promise": 0.84}),
        ("at risk", {}, {"promise": 0.0}),  # an improbable one is not an impossible one
        ("cannot be met", {"shortest_s": 60.0}, {"each_s": 400.0}),
        ("at risk", {"shortest_s": 40.0}, {"each_s": 400.0, "promise": 0.0}),
        ("at risk", {"shortest_s": 60.0}, {"each_s": None, "promise": 0.0}),
        ("at risk", {"shortest_s": 60.0}, {"each_s": 400.0, "workers": None, "promise": 0.0}),
        ("on track", {"shortest_s": 60.0}, {"each_s": 400.0, "running": 10}),
        ("cannot be met", {"shortest_s": 6.0}, {"each_s": 10.0, "workers": 1, "left": 20}),
        ("cannot be met", {}, {"lost": 1, "promise": 0.0}),
        (
            "at risk",
            {"open": True},
            {"lost": 1, "promise": 0.0, "goal": ANY},
        ),
        ("failing", {"exits": TWICE}, {}),
        ("on track", {"exits": TWICE[:1]}, {}),
        ("on track", {"exits": TWICE}, {"goal": BagGoal(deadline_s=100.0, fraction=0.3)}),
        (
            "on track",
            {"exits": TWICE},
            {"goal": NINE},
        ),
        ("failing", {"exits": TWICE}, {"goal": ANY}),
        ("met", {"exits": TWICE}, {"reached_s": 99.0, "now_s": 500.0}),
        ("missed", {}, {"reached_s": 101.0, "now_s": 500.0}),
        ("missed", {"exits": TWICE}, {"now_s": 101.0}),
        ("missed", {"cancelled": "by ann"}, {}),
    ],
)
def test_states(word, fields, more):
    more = {**more, "sampled": 0} if "shortest_s" not in fields else more
    result = judged(state_after(**fields), **more)
    assert result.state.value == word
    assert bool(result.reason) == (word not in ("on track", "met"))


def test_the_reasons_have_the_numbers():
    assert judged(state_after(exits=TWICE)).reason == "your command fails: exit 2, error 2"
    late = judged(state_after(shortest_s=60.0), each_s=400.0, workers=4).reason
    assert late == (
        "10 tasks that wait need 3m at least, on all 4 processors that there may be; 50s are left"
    )
    assert "1 required task can no longer be done" in judged(state_after(), lost=1).reason
    assert judged(state_after(cancelled="by ann")).reason == "by ann"


@pytest.mark.parametrize(
    ("exits", "ended", "code"),
    [
        (((0, 2, "m1"), (0, 2, "m1")), (), None),  # one machine, which may be the cause
        (((0, 2, "m1"), (0, 3, "m2")), (), None),
        (((0, 2, "m1"), (0, 3, "m2"), (0, 3, "m3")), (), 3),
        (((0, 2, "m1"), (0, 2, "m1")), ((0, FAILED),), 2),  # its retries are used up
        (((0, 2, "m1"),), ((0, FAILED),), None),  # given up for another reason
        (((0, -9, "m1"), (0, -9, "m2")), (), None),
        (((0, 137, "m1"), (0, 137, "m2")), (), None),
        (((0, 143, "m1"), (0, 143, "m2")), (), None),
        (((0, COULD_NOT, "m1"), (0, COULD_NOT, "m2")), (), None),
        (((0, 1, "m1"), (0, 1, "m2"), (1, 5, "m1"), (1, 5, "m2")), (), 5),
    ],
)
def test_a_command_fails_that_failed_alike_on_two_machines(exits, ended, code):
    assert find_needed_exit(state_after(exits=exits, ended=ended), TEN) == code


def test_of_any_tasks_those_that_fail_matter_once_the_others_are_too_few():
    goal = BagGoal(deadline_s=100.0, at_least=8, these=False)
    dropped = ((8, DROPPED), (9, DROPPED))
    assert find_needed_exit(state_after(exits=TWICE), goal) is None
    assert find_needed_exit(state_after(exits=TWICE, ended=dropped), goal) == 2
    nine = BagGoal(deadline_s=100.0, fraction=1.0, these=False)
    assert find_needed_exit(state_after(exits=TWICE, open=True), nine) is None  # more may come


def test_what_succeeds_is_retried_or_failed_on_a_faulty_machine_does_not_fail():
    exits = FailedExits()
    for task in (1, 2, 3):
        exits.record(task, 2, "m1")
        exits.record(task, 2, "m2")
    exits.forget([1])
    exits.exonerate(2, "m1")
    assert [(task, item.is_repeated) for task, item in exits] == [(2, False), (3, True)]
    exits.exonerate(2, "m2")
    assert [task for task, _ in exits] == [3]


def test_exits_and_the_shortest_run_time_outlive_the_journal():
    core = Core(State(), Rules(), lambda _: None)
    core.add(0, BagSpec(name="b", commands=Listed(["true"] * 4), retries=9), 0.0)
    for n, name in enumerate("ab"):
        hello = Hello(slot="s", procs=2, machine=f"m{name}")
        core.receive(Message(agent=name, incarnation="1", seq=1, hello=hello), 1.0)
        agent = core.state.agents[core.state.by_id[name]]
        triples = core.answer(agent, 1.0 + n).give
        ends = [(b, AttemptEnd(t, n, 2.0, 2 if t == 0 else 0, a, 0.25 + t)) for b, t, a in triples]
        core.receive(Message(agent=name, incarnation="1", seq=2, ends=ends), 3.0 + n)
    again = restore_state(unpack_snapshot(pack_snapshot(take_snapshot(core.state)))).bags[0]
    assert list(again.exits) == list(core.state.bags[0].exits) != []
    assert again.shortest_s == core.state.bags[0].shortest_s == 1.25


@settings(max_examples=examples(200))
@given(
    left=st.integers(1, 60),
    workers=st.integers(1, 30),
    times=st.lists(st.floats(1.0, 50.0), min_size=60, max_size=60),
    each_s=st.floats(0.5, 80.0),
)
def test_no_schedule_ends_before_the_least_time(left, workers, times, each_s):
    """Whatever the tasks take, none of them less than the shortest that was observed."""
    least_s = estimate_least_left_s(view(left=left, each_s=each_s, sampled=9), min(times), workers)
    free_s = [0.0] * workers
    for took_s in times[:left]:
        first = min(range(workers), key=free_s.__getitem__)
        free_s[first] += took_s
    assert 0.0 < least_s <= max(free_s) + 1e-6


def test_all_nodes_that_the_sources_may_give_count():
    sources = [source("q"), source("c", 1.0)]
    none = {where.name: SiteInventory() for where in sources}
    assert count_most_workers(sources, none, 1) == 2 * 16 * 4
    assert count_most_workers(sources, none, 3) == 2 * 16
    assert estimate_least_left_s(view(), None, count_most_workers(sources, none, 5)) is None


class Observed(VirtualBagWork):
    """A bag whose tasks do not take what its user states; its goal at each decision."""

    def drawn(self, factor, spread, seed):
        draws = random.Random(seed)
        self.draw, self.goals = lambda: factor * math.exp(draws.gauss(0.0, spread)), []
        return self

    def _run_times(self):
        stated = super()._run_times()
        return lambda *task: (stated(*task)[0] * self.draw(), 0)

    def _control(self, clock):
        self.goals.append(goal_json(self._fleet.goals, 0, clock.now()))
        return super()._control(clock)


def goals_of(folder, sites, document, *drawn):
    world = World(folder, sites, document)
    work = Observed(world.folder, world.catalog, "bag-x", lambda: world.requests)
    work.drawn(*drawn).carry_out()
    return [goal for goal in work.goals if goal] + [
        goal_json(work._fleet.goals, 0, work._core.state.now_s)
    ]


@pytest.mark.more
@settings(max_examples=examples(12))
@given(
    factor=st.sampled_from([0.5, 0.8, 1.0, 1.6, 3.0]),
    spread=st.sampled_from([0.05, 0.3, 0.6]),
    deadline_s=st.sampled_from([60, 200, 400, 900]),
    is_open=st.booleans(),
    paid=st.booleans(),
    seed=st.integers(0, 999),
)
def test_what_cannot_be_met_is_missed(
    tmp_path_factory, factor, spread, deadline_s, is_open, paid, seed
):
    """Also where run times differ and were stated wrongly."""
    document = bag(deadline=deadline_s, probability=0.9, of="any" if is_open else "these")
    document["hosts"] = {"most": 8, "longest": "24h"}
    sites = cloud(billing="1s") if paid else QUEUE
    goals = goals_of(tmp_path_factory.mktemp("w"), sites, document, factor, spread, seed)
    words = [goal["state"] for goal in goals]
    assert words[-1] in ("met", "missed")
    assert words[-1] == "missed" or "cannot be met" not in words
    for before, after in pairwise(words):
        assert before not in ("met", "missed") or after == before
    for goal in goals:
        shown = goal_view({"came_s": 0.0, "tasks": 120, "goal": goal}, 1.0)
        assert shown["state"] == goal["state"]


def test_a_deadline_far_too_near_cannot_be_met_as_soon_as_that_is_certain(tmp_path):
    document = bag(deadline=200, probability=0.9)
    document["hosts"] = {"most": 2, "longest": "24h"}
    goals = goals_of(tmp_path, QUEUE, document, 1.0, 0.1, 1)
    first = next(goal for goal in goals if goal["state"] == "cannot be met")
    assert "need" in first["state_reason"] and first["due_s"] == 200.0
    assert goals[-1]["state"] == "missed"


def test_the_last_promise_is_shown_with_its_age_also_where_no_dispatcher_works():
    goal = {
        **{"state": "on track", "state_reason": "", "due_s": 100.0, "promise": 0.97},
        **{"promised_s": 30.0, "reached_s": None},
    }
    status = {"began_unix_s": 1000.0, "now_s": 40.0}
    now = age_goal(goal, status, 1050.0)
    assert (now["state"], now["promise_age_s"]) == ("on track", 20.0)
    assert describe_goal_promise(now) == "on track (promise 0.970, 20s ago)"
    late = age_goal(goal, status, 1101.0)
    assert (late["state"], describe_goal_promise(late)) == (
        "missed",
        "missed: the deadline has passed",
    )
    met = age_goal(goal | {"state": "met", "reached_s": 90.0}, status, 1500.0)
    assert (met["state"], met["promise_age_s"]) == ("met", None)
    virtual = age_goal(goal, status | {"virtual": True}, 9e9)
    assert (virtual["state"], virtual["promise_age_s"]) == ("on track", 10.0)


def test_a_promise_is_resumed_with_its_instant_and_what_was_reached_in_time_stays_so(tmp_path):
    many = {"x": {"range": [6_000]}}
    document = bag(deadline="1h", probability=0.9, runtime_s=2, parameters=many, fraction=0.5)
    world = World(tmp_path, QUEUE, document).run(end_at=40)
    goal = world.goal()
    assert goal["promised_s"] == goal["promises"][-1][0] and goal["promise"] is not None
    world.run()
    assert (world.goal()["state"], world.goal()["promise"]) == ("met", 1.0)


def test_a_command_that_fails_is_named_with_its_last_error(vgrads, write):
    document = {
        "name": "picky",
        "commands": ["true", "echo one >&2; echo no licence >&2; exit 3"],
        **{"runtime_s": 1, "deadline": "1h", "probability": 0.9, "retries": 1},
    }
    ran = vgrads("bags", "run", write("b.json", json.dumps(document)), "--json")
    (row,) = ran.json["bags"]
    goal = row["goal"]
    assert (goal["state"], goal["state_reason"]) == (
        "failing",
        "your command fails: exit 3, no licence",
    )
    status = vgrads("bags", "status", row["id"])
    assert "failing: your command fails: exit 3, no licence" in " ".join(status.out.split())
    assert "failing" in vgrads("bags", "explain", row["id"]).out.splitlines()[0]
    assert vgrads("bags", "status", row["id"], "--json").json["bags"][0]["goal"]["state"] == (
        "failing"
    )


def test_done_tasks_are_no_evidence_of_failure():
    state = state_after(exits=TWICE)
    state.exits.forget([3])
    state.tasks.end(3, DONE)
    assert judged(state).state.value == "on track"
