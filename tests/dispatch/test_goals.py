"""Bags with goals at simulated sites, in virtual time: what their nodes cost, what they promise,
and how they end."""

import json
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.api.bags.execution import ControlRequests, submit_bag
from vgrads.api.bags.virtual import VirtualBagWork, find_simulated_part
from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.state import SlotRequest
from vgrads.dispatch.document import load_bag
from vgrads.dispatch.fleet.budget import find_unpayable, list_paid_slots
from vgrads.dispatch.fleet.goal_view import GoalView, count_joint_nodes
from vgrads.dispatch.fleet.goals import GoalControl
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.dispatch.storage.journal import read_state
from vgrads.drivers.api import SlotState
from vgrads.kernel.units import billed_s
from vgrads.pool.view import NOTHING, PoolLimits
from vgrads.vgrid.catalog import load_catalog

QUEUE = """
[[site]]
name = "q"
kind = "batch"
procs = 4
[[site.queue]]
name = "default"
max_walltime = "24h"
"""


def cloud(price=1.0, billing="1h", **more):
    lines = {"name": "c", "kind": "cloud", "procs": 64, "cores_per_node": 4, "boot": "2m"}
    lines |= {"boot_spread": 0.0, "price_usd_per_hour": price, "billing": billing, **more}
    return "\n[[site]]\n" + "".join(f"{key} = {json.dumps(v)}\n" for key, v in lines.items())


def bag(**more):
    document = {
        "name": "squares",
        "command": "echo {x}",
        "parameters": {"x": {"range": [120]}},
        "runtime_s": 30,
        "hosts": {"most": 16, "longest": "24h"},
        "deadline": "1h",
        **more,
    }
    return {name: value for name, value in document.items() if value is not None}


class World:
    """Bags of one dispatcher at simulated sites. ``end_at``: done tasks of the first bag at which
    the dispatcher is stopped."""

    def __init__(self, folder, sites, *bags):
        self.folder, self.text = folder / "dispatcher", sites
        (folder / "sites.toml").write_text(sites)
        whole = load_catalog(folder / "sites.toml")
        for number, document in enumerate(bags):
            path = folder / f"b{number}.yaml"
            path.write_text(json.dumps(document))
            submit_bag(self.folder, number, load_bag(path)[0], folder, whole)
        self.catalog = find_simulated_part(whole, self.folder)
        self.requests = ControlRequests(new=list(range(len(bags))))
        self.statuses = []

    def run(self, end_at=None):
        def watch(status):
            self.statuses.append(status)
            if end_at is not None and status["bags"][0]["done"] >= end_at:
                work.end()

        work = VirtualBagWork(self.folder, self.catalog, "bag-x", lambda: self.requests, watch)
        self.outcome = work.carry_out()
        return self

    @property
    def state(self):
        state = read_state(self.folder / "journal")
        state.check()
        return state

    def goal(self, number=0):
        return self.statuses[-1]["bags"][number]["goal"]

    @property
    def nodes(self):
        """Requested slots that cost money, with dollars per hour and the billed period."""
        prices = {s.name: (s.nodes[0].price_usd_per_hour, s.billing_s) for s in self.catalog.sites}
        spot = {s.name: s.nodes[0].spot_price_usd_per_hour for s in self.catalog.sites}
        for slot in self.state.slots.values():
            refused = slot.ready_s is None and slot.state == SlotState.FAILED
            if slot.site and not refused:
                price, period_s = prices[slot.site]
                yield slot, spot[slot.site] if slot.market else price, period_s

    @property
    def spent_usd(self):
        """From the slots of the journal."""
        return sum(
            slot.agents * price * billed_s(slot.ended_s - slot.requested_s, period_s) / 3600.0
            for slot, price, period_s in self.nodes
        )


@settings(max_examples=examples(12))
@given(
    billing=st.sampled_from(["1s", "1h"]),
    budget=st.integers(0, 600).map(lambda cents: cents / 100.0),
    runtime_s=st.sampled_from([5, 60, 400, 1500]),
    tasks=st.integers(1, 40),
    deadline_s=st.sampled_from([30, 900, 4000, 20_000]),
    spot=st.sampled_from([None, 0.3, 2.0]),
    queue=st.booleans(),
    goal=st.sampled_from([{}, {"fraction": 0.5}, {"at_least": 1, "of": "any"}]),
)
def test_the_budget_is_never_exceeded(
    tmp_path_factory, billing, budget, runtime_s, tasks, deadline_s, spot, queue, goal
):
    market = {} if spot is None else {"spot_price_usd_per_hour": spot}
    sites = cloud(billing=billing, **market, spot_interruptions_per_hour=1.0)
    document = bag(
        budget_usd=budget,
        runtime_s=runtime_s,
        parameters={"x": {"range": [tasks]}},
        deadline=deadline_s,
        **goal,
    )
    world = World(tmp_path_factory.mktemp("w"), sites + QUEUE * queue, document).run()
    assert world.spent_usd <= budget + 1e-9
    assert world.goal()["spent_usd"] == pytest.approx(world.spent_usd, abs=0.3)
    assert queue <= world.state.bags[0].over


def test_a_budget_that_pays_for_no_node_ends_with_that_sentence(vgrads, tmp_path):
    (tmp_path / "sites.toml").write_text(cloud())
    (tmp_path / "b.yaml").write_text(json.dumps(bag(budget_usd=0.5)))
    ran = vgrads("bags", "run", tmp_path / "b.yaml", "--sites", tmp_path / "sites.toml")
    assert ran.code == 5
    message = "$0.50 of the budget are left and pay for no node; the cheapest costs $1.00"
    assert message in " ".join(ran.out.split())
    bag_id = re.search(r"bag-\w+", ran.out)[0]
    explained = vgrads("explain", bag_id, "--json").json
    assert message in explained["goal"]["why"]
    assert any(message in row["reason"] for row in explained["reasons"])
    assert message in vgrads("bags", "explain", bag_id).out


def test_a_budget_of_nothing_leaves_the_free_nodes(tmp_path):
    world = World(tmp_path, cloud() + QUEUE, bag(budget_usd=0)).run()
    assert world.state.bags[0].tasks.counts[2] == 120
    assert world.spent_usd == 0.0


def test_a_deadline_that_no_source_can_keep_is_said_and_the_bag_is_done(tmp_path):
    world = World(tmp_path, cloud(), bag(deadline="1m", budget_usd=5)).run()
    assert any("the deadline cannot be kept" in r["reason"] for r in world.statuses[-1]["reasons"])
    assert world.state.bags[0].tasks.counts[2] == 120
    assert [promise for _, promise in world.goal()["promises"]] == [0.0] * len(
        world.goal()["promises"]
    )
    assert len(list(world.nodes)) == 1  # no request is cancelled and sent again
    assert world.goal()["promise"] == 0.0


def test_a_bag_that_is_done_in_time_has_kept_its_promise(tmp_path):
    world = World(tmp_path, cloud() + QUEUE, bag(probability=0.9)).run()
    goal = world.goal()
    assert (goal["promise"], goal["left"], goal["why"]) == (1.0, 0, "the goal is reached")
    assert goal["reached_s"] == pytest.approx(world.state.bags[0].ended_s, abs=0.02)


@pytest.mark.parametrize("more", [{"fraction": 0.5}, {"at_least": 60}])
@pytest.mark.parametrize("of", ["these", "any"])
def test_paid_nodes_do_what_is_required_and_no_more(tmp_path, more, of):
    world = World(tmp_path, cloud(billing="1s"), bag(of=of, **more)).run()
    tasks = world.state.bags[0].tasks
    assert 60 <= tasks.counts[2] < 120
    assert tasks.counts[2] + tasks.counts[4] == 120
    if of == "these":
        assert tasks.status.count(2, 0, 60) == 60


@pytest.mark.more
def test_what_is_not_required_is_done_on_free_nodes_only(tmp_path):
    document = bag(fraction=0.5, deadline="8m", runtime_s=60)
    world = World(tmp_path, cloud(billing="1s") + QUEUE, document).run()
    assert world.state.bags[0].tasks.counts[2] == 120
    paid = [slot for slot, price, _ in world.nodes if price]
    assert paid
    assert max(slot.ended_s for slot in paid) <= world.goal()["reached_s"] + 120.0
    assert world.state.bags[0].ended_s > world.goal()["reached_s"] + 240.0


def test_spot_nodes_that_cost_more_are_not_used(tmp_path):
    sites = cloud(price=1.0, spot_price_usd_per_hour=2.0)
    world = World(tmp_path, sites, bag(budget_usd=9)).run()
    assert {slot.market for slot, _, _ in world.nodes} == {""}
    assert world.goal()["promise"] == 1.0


def test_of_two_zones_the_one_with_cheaper_spot_nodes_is_used_while_it_has_any(tmp_path):
    near = {"spot_price_usd_per_hour": 0.3, "spot_interruptions_per_hour": 0.01}
    far = {"name": "d", "spot_price_usd_per_hour": 0.6, "spot_interruptions_per_hour": 0.01}
    sites = cloud(billing="1s", price=1.1, **near) + cloud(billing="1s", price=1.0, **far)
    world = World(tmp_path, sites, bag(deadline="3h", runtime_s=60, budget_usd=9)).run()
    assert {(slot.site, slot.market) for slot, _, _ in world.nodes} == {("c", "spot")}
    assert world.goal()["promise"] == 1.0


@pytest.mark.more
def test_a_market_that_refused_a_request_is_waited_for_while_there_is_time(tmp_path):
    sites = cloud(billing="1s", spot_price_usd_per_hour=0.3, spot_interruptions_per_hour=15.0)
    world = World(tmp_path, sites, bag(deadline="4h", runtime_s=60, budget_usd=9)).run()
    assert any(slot.state == SlotState.FAILED for slot in world.state.slots.values())
    assert {slot.market for slot, _, _ in world.nodes} == {"spot"}
    assert world.goal()["promise"] == 1.0


def test_a_bag_that_is_continued_counts_from_its_submission_and_what_was_paid(tmp_path):
    many = {"x": {"range": [6_000]}}  # more than are done before the first look
    document = bag(budget_usd=12, deadline="1h", runtime_s=2, parameters=many)
    world = World(tmp_path, cloud(), document)
    world.run(end_at=40)
    assert world.outcome.unfinished == "interrupted"
    before_usd, due_s = world.spent_usd, world.goal()["due_s"]
    before = {name: world.goal()[name] for name in ("promises", "nodes_over_time")}
    assert before_usd > 0.0
    world.run()
    assert world.goal()["due_s"] == due_s == 3600.0
    for name, points in before.items():
        assert world.goal()[name][: len(points)] == points != []
    assert world.state.bags[0].tasks.counts[2] == 6_000
    assert before_usd < world.spent_usd <= 12.0
    assert world.goal()["spent_usd"] == pytest.approx(world.spent_usd, abs=1e-4)


def test_two_bags_with_budgets_spend_no_more_than_both(tmp_path):
    documents = [bag(budget_usd=1.5), bag(budget_usd=2.5, deadline="3h", runtime_s=200)]
    world = World(tmp_path, cloud(billing="1s"), *documents).run()
    assert 0.0 < world.spent_usd <= 4.0
    spent = [world.goal(number)["spent_usd"] for number in (0, 1)]
    assert sum(spent) == pytest.approx(world.spent_usd, abs=0.05)


def test_of_two_bags_the_one_with_the_earlier_deadline_is_done_first(tmp_path):
    later = bag(deadline="3h", probability=0.9)
    earlier = bag(deadline="50m", probability=0.9)
    world = World(tmp_path, QUEUE, later, earlier).run()
    assert [world.goal(number)["why"] for number in (0, 1)] == ["the goal is reached"] * 2
    begun = world.state.bags[0].tasks.counts[2]
    assert begun == 120
    ended = [state.ended_s for state in world.state.bags.values()]
    assert ended[1] < 0.6 * ended[0]
    assert "after those of bags with earlier deadlines" in " ".join(
        row["reason"] for row in world.statuses[-1]["reasons"]
    )


def test_bags_with_goals_that_cannot_all_be_kept_say_so_from_the_beginning(tmp_path):
    alone = World(tmp_path, QUEUE, bag(probability=0.9, deadline="25m")).run()
    assert alone.goal()["promises"][0][1] > 0.9
    (tmp_path / "both").mkdir()
    both = World(tmp_path / "both", QUEUE, *[bag(probability=0.9, deadline="25m")] * 2).run()
    assert both.goal(0)["promises"][0][1] > 0.9
    assert both.goal(1)["promises"][0][1] < 0.5


def test_bags_with_and_without_goals_are_done_together(tmp_path):
    documents = [bag(budget_usd=3, fraction=0.5), bag(probability=0.9), bag(deadline=None)]
    world = World(tmp_path, cloud() + QUEUE, *documents).run()
    assert all(state.over for state in world.state.bags.values())
    assert world.state.bags[2].tasks.counts[2] == 120
    assert world.goal(2) == {}
    assert len(list(world.nodes)) < 10


def test_a_bag_with_nothing_but_a_deadline_runs_as_without_and_says_so(vgrads, tmp_path):
    (tmp_path / "sites.toml").write_text(QUEUE)
    ends = []
    for more in ({}, {"deadline": None}):
        (tmp_path / "b.yaml").write_text(json.dumps(bag(**more)))
        ran = vgrads("bags", "run", tmp_path / "b.yaml", "--sites", tmp_path / "sites.toml")
        text = " ".join((ran.out + ran.err).split())
        assert text.count("the bag runs as without its deadline") == (not more)
        ends.append(text.partition("tasks done in")[2].partition("Results")[0])
    assert ends[0] == ends[1] != ""


# decisions


@given(
    first=st.integers(0, 9), nodes=st.integers(0, 9), spot=st.integers(0, 9), q=st.integers(0, 9)
)
def test_bags_with_later_deadlines_use_the_nodes_of_earlier_ones(first, nodes, spot, q):
    sources = [source("q"), source("c", 1.0), source("c", 0.3, market="spot")]
    spot_name = sources[2].name
    earlier = Counter({"q": q, "c": first})
    joint = count_joint_nodes(earlier, {"q": nodes, "c": nodes, spot_name: spot}, sources)
    assert joint["q"] == max(q, nodes)
    assert joint["c"] == max(first, nodes)
    assert joint[spot_name] == max(0, spot - first)
    assert count_joint_nodes(Counter(), {"q": nodes, spot_name: spot}, sources) == Counter(
        {"q": nodes, "c": 0, spot_name: spot}
    )


@given(
    left=st.integers(1, 50),
    each_s=st.floats(1.0, 100.0),
    procs=st.integers(1, 4),
    wide=st.booleans(),
)
def test_work_of_earlier_bags_counts_by_its_processor_seconds(left, each_s, procs, wide):
    earlier = view(left=left, each_s=each_s, procs=procs, spent_usd=2.0)
    own = view(left=7, each_s=10.0, procs=2 if wide else 1, spent_usd=1.0)
    joint = own.after([earlier])
    worker_s = left * each_s * procs / own.procs
    assert 0.0 <= (joint.work_left - 7) * 10.0 - worker_s < 10.0 + 1e-6
    assert (joint.left, joint.goal.budget_usd, joint.spent_usd) == (7, 20.0, 3.0)
    assert own.after([]) == own
    assert own.after([view(goal=BagGoal(deadline_s=9.0))]).goal.budget_usd is None


def source(name, price=0.0, **more):
    return FleetSite(
        site=name,
        queue="",
        node_type="",
        procs=4,
        limits=PoolLimits(most=16),
        longest_s=86400.0,
        decide=lambda _: NOTHING,
        price=price,
        cloud=price > 0.0,
        waits_s=(60.0,),
        **more,
    )


def view(**more):
    stated = {"now_s": 0.0, "due_s": 3600.0, "left": 10, "each_s": 30.0, "sampled": 0, "tasks": 10}
    goal = BagGoal(deadline_s=3600.0, budget_usd=10.0)
    return GoalView(**{**stated, "goal": goal, "procs": 1, "spent_usd": 0.0, **more})


def decision(stated, sources, health=None):
    healths = {where.name: SiteHealth() for where in sources} | (health or {})
    present = {where.name: SiteInventory() for where in sources}
    return GoalControl().decide(stated, sources, present, healths)


def test_an_open_bag_without_work_has_not_reached_its_goal():
    for tasks in (0, 10):
        decided = decision(view(tasks=tasks, left=0, is_final=False), [source("q")])
        assert not decided.reached
        assert decided.promise is None
        assert "the bag is open" in decided.reason


def test_tasks_that_failed_for_good_leave_no_promise():
    assert decision(view(lost=1), [source("q")]).promise == 0.0
    over = decision(view(lost=1, left=0), [source("q")])
    assert (over.promise, over.reached) == (0.0, True)
    assert "1 of the required tasks failed" in over.reason


def test_a_bag_is_stuck_only_where_no_source_is_left():
    gone = {"q": SiteHealth(refused=3)}
    poor = view(spent_usd=10.0)
    cases = [
        ([source("q")], view(), {}, False),
        ([source("q")], view(), gone, True),
        ([source("q"), source("c", 1.0), source("c", 0.3, market="spot")], view(), gone, False),
        ([source("q"), source("c", 1.0)], poor, gone, True),
        ([source("q"), source("c", 1.0)], poor, {}, False),
        ([source("q")], view(), {"q": SiteHealth(next_s=5.0)}, False),
    ]
    for sources, stated, health, expected in cases:
        assert decision(stated, sources, health).stuck == expected


def test_the_sample_of_a_bag_without_a_run_time_keeps_to_the_budget():
    sources = [source("c", 1.0, billing_s=3600.0)]
    goal = BagGoal(deadline_s=3600.0, budget_usd=0.9)
    assert decision(view(each_s=None, goal=goal), sources).stuck
    goal = BagGoal(deadline_s=3600.0, budget_usd=1.0)
    assert decision(view(each_s=None, goal=goal), sources).nodes == {"c": 1}


def slots(*ends, billing_s=3600.0, price=1.0):
    requests = {
        f"h{n}": SlotRequest(id=f"h{n}", site="c", agents=1, requested_s=float(n), ended_s=end_s)
        for n, end_s in enumerate(ends)
    }
    return list_paid_slots(requests, [source("c", price, billing_s=billing_s)])


def test_nodes_end_before_the_paid_period_that_exceeds_the_budget():
    assert find_unpayable(slots(None, None), 2.0, 3500.0, 30.0) == ()
    assert find_unpayable(slots(None, None), 2.0, 3580.0, 30.0) == ("h1", "h0")
    assert find_unpayable(slots(None, None), 3.0, 3580.0, 30.0) == ("h1",)
    assert find_unpayable(slots(None, 100.0), 2.0, 3580.0, 30.0) == ("h0",)
    assert find_unpayable(slots(None, billing_s=1.0, price=3600.0), 130.0, 100.0, 30.0) == ()
    assert find_unpayable(slots(None, billing_s=1.0, price=3600.0), 129.0, 100.0, 30.0) == ("h0",)


def test_a_refused_request_costs_nothing_and_one_that_was_released_does():
    request = SlotRequest(id="h", site="c", agents=2, ended=True, ended_s=10.0)
    for state, cost_usd in ((SlotState.FAILED, []), (SlotState.RELEASED, [2.0])):
        requests = {"h": SlotRequest(**{**_fields(request), "state": int(state)})}
        paid = list_paid_slots(requests, [source("c", 1.0, billing_s=3600.0)])
        assert [slot.cost_usd(20.0) for slot in paid] == cost_usd


def _fields(request):
    return {name: getattr(request, name) for name in SlotRequest.__dataclass_fields__}
