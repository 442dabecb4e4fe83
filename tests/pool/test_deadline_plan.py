"""Plans for bags with a deadline: which nodes, with which probability, at which cost."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.api.bags.deadline_plans import never_falling
from vgrads.pool.deadline.plan import DeadlinePlan, Goal, PlannedNodes, plan_nodes
from vgrads.pool.deadline.values import NodePlan, NodeSource, Work
from vgrads.pool.spot.history import SpotHistory
from vgrads.portal.web.bags.goal import goal_view

HOUR = 3600.0


def queue(waits_s, **more):
    values = {"name": "queue", "workers": 8, "most": 64, "length_s": 4 * HOUR}
    return NodeSource(cloud=False, waits_s=tuple(waits_s), **(values | more))


def cloud(**more):
    values = {"name": "cloud", "workers": 8, "most": 64, "usd_per_hour": 0.34, "boot_s": 90.0}
    return NodeSource(cloud=True, **(values | more))


def lognormal_waits(median_s, spread):
    return np.sort(np.random.default_rng(0).lognormal(math.log(median_s), spread, 400)).tolist()


WORK = Work(tasks=20_000, mean_s=30.0)


def test_a_free_queue_is_enough_where_there_is_time_and_the_cloud_helps_where_there_is_not():
    sources = (queue(lognormal_waits(1800.0, 1.2)), cloud())
    relaxed = plan_nodes(WORK, sources, Goal(deadline_s=16 * HOUR))
    assert relaxed.enough and relaxed.chosen.cost_usd == 0.0 and relaxed.chosen.plan.cloud == 0
    tight = plan_nodes(WORK, sources, Goal(deadline_s=2 * HOUR))
    assert tight.enough and tight.chosen.plan.cloud > 0
    assert 0.0 < tight.chosen.cost_usd < 0.34 * WORK.total_s / 8 / HOUR * 1.3
    alone = plan_nodes(WORK, sources[:1], Goal(deadline_s=2 * HOUR))
    assert not alone.enough and alone.chosen.probability < 0.95


def test_the_front_has_no_plan_that_another_beats():
    plan = plan_nodes(WORK, (queue(lognormal_waits(1800.0, 1.2)), cloud()), Goal(deadline_s=7200.0))
    costs = [planned.price for planned in plan.front]
    chances = [planned.probability for planned in plan.front]
    assert costs == sorted(costs) and chances == sorted(set(chances))


def test_a_budget_limits_every_scenario():
    sources = (cloud(billing_s=HOUR),)
    for budget in (0.2, 1.0, 4.0):
        plan = plan_nodes(WORK, sources, Goal(deadline_s=2 * HOUR, budget_usd=budget))
        assert plan.chosen.cost_high_usd <= budget + 1e-9
    assert not plan_nodes(WORK, sources, Goal(deadline_s=2 * HOUR, budget_usd=0.2)).enough
    assert plan_nodes(WORK, sources, Goal(deadline_s=2 * HOUR, budget_usd=40.0)).enough


def test_spot_nodes_are_used_where_they_save():
    history = SpotHistory(0.0, True)
    spot = cloud(spot_usd_per_hour=0.1, history=history)
    goal = Goal(deadline_s=6 * HOUR)
    with_spot, without = plan_nodes(WORK, (spot,), goal), plan_nodes(WORK, (cloud(),), goal)
    assert with_spot.enough and without.enough
    assert with_spot.chosen.cost_usd < 0.7 * without.chosen.cost_usd
    dear = cloud(spot_usd_per_hour=0.5, history=history)
    assert plan_nodes(WORK, (dear,), goal).chosen.cost_usd == pytest.approx(
        without.chosen.cost_usd, rel=0.02
    )


def test_nodes_that_run_already_do_not_wait():
    waits = [3 * HOUR] * 10
    goal = Goal(deadline_s=2 * HOUR)
    assert plan_nodes(WORK, (queue(waits),), goal).chosen.probability == 0.0
    running = queue(waits, running=40, running_left_s=4 * HOUR)
    assert plan_nodes(WORK, (running,), goal).enough


def test_a_dispatcher_limits_what_more_nodes_can_do():
    slow = Work(tasks=20_000, mean_s=30.0, rate=2.0)
    assert not plan_nodes(slow, (cloud(),), Goal(deadline_s=2 * HOUR)).enough
    assert plan_nodes(slow, (cloud(),), Goal(deadline_s=4 * HOUR)).enough


@settings(max_examples=examples(8), deadline=None)
@given(
    tasks=st.integers(1, 10**6),
    mean_s=st.floats(0.1, 600.0),
    hours=st.floats(0.1, 48.0),
    wait_s=st.floats(1.0, 20_000.0),
    requested=st.floats(0.5, 0.99),
)
def test_promises_are_probabilities_and_a_later_deadline_is_no_less_probable(
    tasks, mean_s, hours, wait_s, requested
):
    work = Work(tasks=tasks, mean_s=mean_s)
    sources = (queue(lognormal_waits(wait_s, 1.0)), cloud())
    plans = [
        plan_nodes(work, sources, Goal(deadline_s=hours * factor * HOUR, probability=requested), 64)
        for factor in (1.0, 3.0)
    ]
    for plan in plans:
        assert 0.0 <= plan.chosen.probability <= 1.0 and plan.chosen.cost_usd >= 0.0
        assert plan.enough == (plan.chosen.probability >= requested)
    assert plans[1].chosen.probability >= min(plans[0].chosen.probability, requested) - 0.1


SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 64
cores_per_node = 8
[[site.queue]]
name = "batch"
max_walltime = "1h"
stated_probability = 0.9
stated_wait = "20m"
[[site]]
name = "cloud"
kind = "cloud"
procs = 160
cores_per_node = 8
price_usd_per_hour = 0.34
spot_price_usd_per_hour = 0.1
boot = "90s"
billing = "1s"
"""
BAG = """
name: sweep
command: "./simulate {i}"
parameters: {i: {range: [4000]}}
"""


@pytest.fixture
def bag(tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)

    def write(text):
        path = tmp_path / "bag.yaml"
        path.write_text(BAG + text)
        return path

    return write


@pytest.mark.more
def test_size_plans_a_bag_on_sites(vgrads, bag, tmp_path):
    path = bag("runtime_s: 60\ndeadline: 40m\nfraction: 0.5\nof: any\n")
    sites = ("--sites", tmp_path / "sites.toml")
    picture = tmp_path / "front.svg"
    answer = vgrads("size", path, *sites, "--json", "-o", picture)
    assert answer.code == 0
    payload = answer.json
    assert payload["work"] == "2,000 of 4,000 tasks of 60 s"
    assert payload["enough"] and payload["chosen"]["probability"] >= 0.95
    assert [item["deadline_s"] for item in payload["deadlines"]] == sorted(
        item["deadline_s"] for item in payload["deadlines"]
    )
    assert picture.read_text().count("<path") > 5
    shown = vgrads("size", path, *sites, "--deadline", "10m", "-p", "0.99", "--budget", "1")
    assert "0.99 was requested" in shown.out and "Cost and promise by deadline" in shown.out
    assert shown.out.count("← chosen") == 1 and "did you mean" not in shown.out


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.floats(0.1, 0.99))
@settings(max_examples=examples(100))
def test_a_later_deadline_is_never_promised_less_up_to_the_request(probabilities, requested):
    plans = {1.0 + n: planned_with(p, requested) for n, p in enumerate(probabilities)}
    results = dict(never_falling(plans.items(), requested))
    promised = [min(plan.chosen.probability, requested) for plan in results.values()]
    assert list(results) == list(plans)
    assert promised == sorted(promised)
    assert promised[-1] == min(max(probabilities), requested)


def planned_with(probability, requested):
    chosen = PlannedNodes(
        plan=NodePlan(queues=(1,)),
        cloud="",
        probability=probability,
        cost_usd=0.0,
        cost_high_usd=0.0,
        node_hours=1.0,
        end_s=60.0,
    )
    enough = probability >= requested
    return DeadlinePlan(chosen=chosen, promise=probability, enough=enough, front=(chosen,))


def test_a_deadline_of_seconds_is_asked_for_its_unit_and_its_plan_is_in_the_table(
    vgrads, bag, tmp_path
):
    path = bag("runtime_s: 60\ndeadline: 3\nfraction: 0.02\n")
    answer = vgrads("size", path, "--sites", tmp_path / "sites.toml")
    assert answer.code == 0 and answer.out.count("← chosen") == 1
    assert "3 means 3 seconds; did you mean 3h?" in answer.out
    assert "3 means 3 seconds; did you mean 3" in vgrads("size", path, "--deadline", "3").out


@pytest.mark.parametrize(
    ("text", "words", "problem"),
    [
        ("deadline: 40m\n", (), "runtime_s"),
        ("runtime_s: 60\n", (), "deadline"),
        ("runtime_s: 60\nfraction: 0.5\n", (), "'fraction' needs a 'deadline'"),
        ("runtime_s: 60\ndeadline: 1h\nfraction: 1.5\n", (), "fraction"),
        ("runtime_s: 60\ndeadline: 1h\nat_least: 4001\n", (), "at_least"),
        ("runtime_s: 60\ndeadline: 1h\nat_least: 4\nfraction: 0.5\n", (), "not both"),
        ("runtime_s: 60\ndeadline: 1h\nprobability: 1\n", (), "probability"),
        ("runtime_s: 60\ndeadline: 1h\nbudget_usd: -1\n", (), "budget_usd"),
        ("runtime_s: 60\n", ("--deadline", "soon"), "--deadline"),
    ],
)
def test_a_goal_that_cannot_be_is_one_clear_error(vgrads, bag, tmp_path, text, words, problem):
    answer = vgrads("size", bag(text), "--sites", tmp_path / "sites.toml", *words)
    assert answer.code != 0 and problem in answer.err and "Traceback" not in answer.err


@pytest.mark.more
def test_a_goal_is_run_and_kept_and_its_page_says_so(vgrads, bag, tmp_path):
    path = bag("runtime_s: 60\ndeadline: 40m\nprobability: 0.9\nbudget_usd: 20\n")
    ran = vgrads("bags", "run", path, "--sites", tmp_path / "sites.toml")
    assert ran.code == 0, ran.err
    assert "the goal was reached in time, $" in ran.out
    listed = vgrads("bags", "status", "--json").json["bags"][0]
    goal = listed["goal"]
    assert goal["left"] == 0 and goal["reached_s"] <= goal["due_s"]
    assert goal["spent_usd"] <= 20.0 and goal["promises"][0][1] >= 0.9
    status = next(tmp_path.glob("**/dispatchers/*/status.json"), None)
    entry = json.loads(status.read_text())["bags"][0] if status else listed | {"came_s": 0.0}
    view = goal_view(entry, None)
    assert "in time, after" in view["what"] and "<svg" in view["chart"]
    assert goal_view({"goal": {}}, None) is None


@pytest.mark.more  # simulates thousands of nodes
def test_size_plans_a_matrix_on_sites_with_the_width_that_its_blocks_leave(vgrads, bag, tmp_path):
    bag("")
    options = ("--cell", "20s", "--sites", tmp_path / "sites.toml", "--deadline", "2h", "--json")
    wave, pairs = (
        vgrads("size", f"--{kind}", "60x40", *options).json for kind in ("wavefront", "allpairs")
    )
    for payload, kind in ((wave, "wavefront"), (pairs, "allpairs")):
        assert payload["work"].startswith(f"{kind}, 60 x 40 cells of 20 s, in ")
        assert payload["requested"] == 0.95
        assert payload["enough"]
    assert wave["chosen"]["end_s"] >= 99 * 20.0 / 1.5 > 0.0
    late = {item["deadline_s"]: item["enough"] for item in wave["deadlines"]}
    assert not late[3600.0]
    assert late[4 * 7200.0]
    shown = vgrads("size", "--wavefront", "60x40", *options[:-1], "-p", 0.9)
    assert "Cost and promise by deadline" in shown.out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--wavefront", "9"), "--wavefront: deadline: is not given"),
        (("--wavefront", "9", "--deadline", "soon"), "--deadline"),
        (("--wavefront", "9by9", "--deadline", "1h"), "'9by9' is not a matrix size"),
        (("--allpairs", "0", "--deadline", "1h"), "must have cells"),
        (("--wavefront", "999999999", "--deadline", "1h"), "blocks; at most"),
        (("--wavefront", "9", "--cell", "3d", "--deadline", "1h"), "no node stays longer"),
    ],
)
def test_a_matrix_that_cannot_be_planned_is_one_clear_error(vgrads, bag, tmp_path, words, problem):
    bag("")
    answer = vgrads("size", *words, "--sites", tmp_path / "sites.toml")
    assert answer.code == 2, answer
    assert problem in " ".join(answer.err.split())
