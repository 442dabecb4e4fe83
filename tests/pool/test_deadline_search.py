"""Plans for bags with deadlines: simulated together or alone, and the waits they count on."""

from dataclasses import replace

import numpy as np
import pytest

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.fleet.goal_view import GoalView, source_of
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.pool.deadline.plan import Goal, SimulatedPlans, plan_nodes
from vgrads.pool.deadline.values import NodePlan, NodeSource, Work
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.view import NOTHING, PoolLimits, RequestView

QUEUE = NodeSource(
    name="queue",
    cloud=False,
    workers=4,
    most=20,
    length_s=5000.0,
    waits_s=tuple(np.linspace(60.0, 3000.0, 40).tolist()),
)
CLOUD = NodeSource(
    name="cloud",
    cloud=True,
    workers=4,
    most=20,
    usd_per_hour=3.0,
    billing_s=3600.0,
    boot_s=120.0,
    spot_usd_per_hour=1.0,
    history=SpotHistory(0.0, first=True),
)
WORK = Work(tasks=400, mean_s=120.0)


def test_plans_that_are_simulated_together_do_as_each_alone():
    goal = Goal(deadline_s=4000.0, budget_usd=30.0)
    simulated = SimulatedPlans(WORK, [QUEUE, CLOUD], goal, 100, 1)
    plans = [
        NodePlan(queues=(nodes,), cloud=cloud, late=late)
        for nodes in (0, 3, 12)
        for cloud in (1, 5)
        for late in (False, True)
    ]
    together = {planned.plan: planned for planned in simulated.planned(plans)}
    assert len(together) == len(plans)
    for plan in plans:
        assert simulated.planned([plan]) == [together[plan]]
    assert len({planned.probability for planned in together.values()}) > 3


@pytest.mark.more
@pytest.mark.parametrize("deadline_s", [1200.0, 5000.0, 20_000.0])
def test_of_several_clouds_that_of_the_best_plan_is_used(deadline_s):
    """The one whose nodes on demand are cheaper has no spot nodes."""
    goal = Goal(deadline_s=deadline_s, probability=0.9)
    other = replace(CLOUD, name="other", usd_per_hour=2.9, spot_usd_per_hour=None, history=None)
    alone = {c.name: plan_nodes(WORK, [QUEUE, c], goal, scenarios=100) for c in (CLOUD, other)}
    for clouds in ([CLOUD, other], [other, CLOUD]):
        both = plan_nodes(WORK, [QUEUE, *clouds], goal, scenarios=100)
        assert both.promise >= 0.9
        assert both.chosen.price == min(plan.chosen.price for plan in alone.values())
        assert both.chosen.cloud in ("", "cloud", "other")
        if both.chosen.cloud:
            assert both.chosen == alone[both.chosen.cloud].chosen
        for plan in alone.values():
            for planned in plan.front:
                assert any(
                    p.price <= planned.price and p.probability >= planned.probability
                    for p in both.front
                )


def test_no_plan_with_one_node_less_is_cheaper_and_probable_enough():
    goal = Goal(deadline_s=5000.0, probability=0.8)
    chosen = plan_nodes(WORK, [QUEUE, CLOUD], goal, scenarios=200).chosen
    assert chosen.probability >= 0.8
    simulated = SimulatedPlans(WORK, [QUEUE, CLOUD], goal, 200, 0)
    nodes, cloud = chosen.plan.queues[0], chosen.plan.cloud
    fewer = [
        NodePlan(queues=(n,), cloud=c, late=chosen.plan.late and c > 0)
        for n, c in ((nodes - 1, cloud), (nodes, cloud - 1))
        if n >= 0 and c >= 0 and n + c
    ]
    assert fewer
    for planned in simulated.planned(fewer):
        assert planned.probability < 0.8 or planned.price >= chosen.price


@pytest.mark.parametrize(
    ("elapsed_s", "waits_s"), [(50.0, (50.0, 550.0, 950.0)), (600.0, (400.0,)), (2000.0, (2000.0,))]
)
def test_of_requested_nodes_the_rest_of_their_waits_counts(elapsed_s, waits_s):
    where = FleetSite(
        site="here",
        queue="q",
        node_type="",
        procs=4,
        limits=PoolLimits(most=8),
        longest_s=3600.0,
        decide=lambda view: NOTHING,
        waits_s=(100.0, 600.0, 1000.0),
    )
    view = GoalView(
        now_s=elapsed_s,
        due_s=9000.0,
        goal=BagGoal(deadline_s=9000.0),
        left=10,
        each_s=60.0,
        sampled=0,
        tasks=10,
        procs=1,
        spent_usd=0.0,
    )
    requested = SiteInventory(requests=[RequestView(id="r", nodes=2, requested_s=0.0)])
    assert source_of(where, requested, SiteHealth(), view.procs, view.now_s).waits_s == waits_s
    nothing = source_of(where, SiteInventory(), SiteHealth(), view.procs, view.now_s)
    assert nothing.waits_s == where.waits_s
