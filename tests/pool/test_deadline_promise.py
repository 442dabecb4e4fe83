"""Promises of bags with deadlines: what execution does belongs to them."""

import math

import numpy as np
import pytest

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.fold import weigh_last_run
from vgrads.dispatch.fleet.goal_view import GoalView, estimate_s
from vgrads.dispatch.fleet.goals import GoalControl
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.dispatch.fleet.worker_time import WorkerTime
from vgrads.pool.deadline.plan import Goal, SimulatedPlans, plan_nodes
from vgrads.pool.deadline.scenarios import draw_scenarios
from vgrads.pool.deadline.values import NodePlan, NodeSource, Work
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.survival import AGES_S, Hazards, LifeTable, find_interval
from vgrads.pool.view import NOTHING, PoolLimits

HOUR = 3600.0
WORK = Work(tasks=2000, mean_s=60.0)


def cloud(**more):
    values = {"name": "cloud", "workers": 4, "most": 40, "usd_per_hour": 1.0, "boot_s": 60.0}
    return NodeSource(cloud=True, **(values | more))


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("workers", [1, 8, 300])
def test_the_tail_is_the_longest_residual_run_time(spread, workers):
    draws = np.random.default_rng(1)
    # at a random instant, long tasks run in proportion to their run times, at a uniform phase
    run_s = np.exp(spread * draws.standard_normal((2000, workers)) + spread**2 / 2)
    residual_s = run_s * draws.random((2000, workers))
    tail_s = Work(tasks=10_000, mean_s=1.0, spread=spread).tail_s(workers)
    expected_s = residual_s.max(axis=1).mean() - residual_s.mean()
    assert tail_s == pytest.approx(expected_s, abs=0.03 + 0.02 * expected_s)


def test_tasks_that_run_have_done_a_part_of_their_work():
    fresh = Work(tasks=100, mean_s=60.0)
    begun = Work(tasks=100, mean_s=60.0, running=40)
    assert begun.total_s == pytest.approx(fresh.total_s - 40 * (60.0 - fresh.residual_s))
    assert Work(tasks=10, mean_s=60.0, running=40).total_s > 0.0


def test_the_run_time_is_not_observed_before_tasks_have_run():
    # on-demand nodes that start as late as the estimate permits meet the truth when it is too late
    goal = Goal(deadline_s=6 * HOUR)
    simulated = SimulatedPlans(WORK, [cloud()], goal, 400, 0)
    early, late = (NodePlan(cloud=10, late=late) for late in (False, True))
    chances = {p.plan: p.probability for p in simulated.planned([early, late])}
    assert chances[early] > 0.99
    assert chances[late] < 0.9


def test_a_promise_counts_the_nodes_that_later_plans_add():
    goal = Goal(deadline_s=HOUR, probability=0.6)
    spare = plan_nodes(WORK, [cloud()], goal)
    assert 0.6 <= spare.chosen.probability < 0.85
    assert spare.promise > spare.chosen.probability + 0.1
    full = plan_nodes(WORK, [cloud(most=spare.chosen.plan.cloud)], goal)
    assert full.promise == full.chosen.probability


def test_a_budget_also_limits_the_nodes_that_are_added():
    goal = Goal(deadline_s=HOUR, probability=0.6, budget_usd=WORK.total_s / 4 / HOUR * 1.1)
    plan = plan_nodes(WORK, [cloud()], goal)
    assert plan.promise < 0.9 < plan_nodes(WORK, [cloud()], Goal(deadline_s=HOUR)).promise


def test_a_bag_that_is_late_in_any_case_gets_all_nodes():
    plan = plan_nodes(WORK, [cloud(most=8)], Goal(deadline_s=600.0))
    assert plan.chosen.probability == 0.0
    assert plan.chosen.plan.cloud == 8


def test_scenarios_begin_with_the_present_age_of_the_spell():
    history = SpotHistory(0.0, True, (HOUR,))
    now_s = 4.5 * HOUR
    source = cloud(spot_usd_per_hour=0.3, history=history, now_s=now_s)
    simulated = SimulatedPlans(WORK, [source], Goal(deadline_s=HOUR), 50, 0)
    scenarios = draw_scenarios(simulated.case, 50, 0)
    assert not scenarios.spot[:, 0].any()
    assert set(scenarios.ages[:, 0]) == {find_interval(3.5 * HOUR)}


def test_plans_use_the_prior_of_their_source():
    scarce, plentiful = (
        LifeTable(np.array([[without] * 10, [there] * 10]), np.full((2, 10), 500.0))
        for without, there in ((1.0, 400.0), (400.0, 1.0))
    )
    costs = []
    for prior in (scarce, plentiful):
        source = cloud(spot_usd_per_hour=0.1, history=SpotHistory(0.0, True), prior=(prior,))
        simulated = SimulatedPlans(WORK, [source], Goal(deadline_s=3 * HOUR), 100, 0)
        costs.append(simulated.planned([NodePlan(cloud=10)])[0].cost_usd)
    assert costs[1] < 0.7 * costs[0]


def test_the_first_tasks_of_many_that_run_at_once_do_not_shorten_the_estimate():
    assert estimate_s(100.0, 100.0, 0, 80, 1000) == 100.0
    assert estimate_s(100.0, 60.0, 20, 80, 1000) == 100.0
    assert estimate_s(100.0, 60.0, 80, 80, 1000) == 60.0
    assert estimate_s(1.0, 60.0, 20, 80, 1000) == 60.0  # a hundred times too low: at once
    assert estimate_s(None, 60.0, 1, 80, 1000) == 60.0
    assert estimate_s(None, None, 0, 80, 1000) is None


def rounds(workers_time, workers, run_s, count, began_s=0.0, done=0):
    """All workers begin together, and do one task after the other."""
    for n in range(count + 1):
        workers_time.look(began_s + n * run_s, workers, done + n * workers, True)
    return began_s + count * run_s, done + count * workers


def test_the_first_tasks_are_no_time_between_tasks():
    first = WorkerTime()
    first.look(0.0, 50, 0, True)
    first.look(70.0, 50, 25, True)  # the quickest half of the first tasks of 80 s has ended
    assert first.overhead_s(80.0) == 0.0
    later = WorkerTime()
    rounds(later, 50, 100.0, 40)
    assert later.overhead_s(80.0) == pytest.approx(20.0, abs=3.0)


def test_a_dispatcher_is_at_its_limit_where_more_workers_do_not_more():
    for seconds, rate in ((10.0, math.inf), (20.0, 5.0)):
        measured = WorkerTime()
        at_s, done = rounds(measured, 50, 10.0, 12)
        rounds(measured, 100, seconds, 12, at_s, done)
        assert measured.rate == pytest.approx(rate)


def test_a_promise_above_the_requested_one_is_maintained():
    where = FleetSite(
        site="c",
        queue="",
        node_type="",
        procs=4,
        limits=PoolLimits(most=40),
        longest_s=86400.0,
        decide=lambda _: NOTHING,
        price=1.0,
        cloud=True,
        waits_s=(60.0,),
    )
    control, health = GoalControl(), {"c": SiteHealth()}
    goal = BagGoal(deadline_s=HOUR, probability=0.5)
    for now_s in (0.0, 400.0):
        view = GoalView(
            now_s=now_s,
            due_s=HOUR,
            goal=goal,
            left=2000,
            each_s=60.0,
            sampled=0,
            tasks=2000,
            procs=1,
            spent_usd=0.0,
        )
        control.decide(view, [where], {"c": SiteInventory()}, health)
        assert control.plan is not None
        aimed = goal.probability if now_s == 0.0 else min(control.promises[0][1], 0.95)
        assert control.plan.chosen.probability >= aimed
    assert control.promises[0][1] > 0.7


def test_spot_nodes_that_were_never_observed_may_be_missing_at_first():
    history = SpotHistory(0.0, True)
    for observed in (False, True):
        source = cloud(spot_usd_per_hour=0.3, history=history, observed=observed)
        simulated = SimulatedPlans(WORK, [source], Goal(deadline_s=HOUR), 200, 0)
        share = 1.0 if observed else simulated.case.hazards.available_share
        scenarios = draw_scenarios(simulated.case, 200, 0)
        assert scenarios.spot[:, 0].mean() == pytest.approx(share, abs=0.01)
        assert (share < 0.9) == (not observed)


@pytest.mark.parametrize(("without", "there"), [(0.5, 0.5), (0.2, 0.05), (0.02, 0.3)])
def test_the_share_of_time_with_spot_nodes_is_that_of_the_mean_spells(without, there):
    hazards = Hazards(np.array([[without] * len(AGES_S), [there] * len(AGES_S)]))
    assert hazards.available_share == pytest.approx(without / (without + there), rel=0.01)


def test_nodes_of_a_queue_start_no_task_that_they_would_not_end():
    long = Work(tasks=40, mean_s=1000.0)
    source = NodeSource(
        name="queue", cloud=False, workers=4, most=40, length_s=3000.0, waits_s=(100.0,)
    )
    simulated = SimulatedPlans(long, [source], Goal(deadline_s=3100.0), 50, 0)
    active = draw_scenarios(simulated.case, 50, 0).active[0][1]
    working_s = active[0, :96].sum() * simulated.case.step_s  # until the deadline
    assert working_s == pytest.approx(3000.0 - long.residual_s, rel=0.05)


def test_where_no_nodes_alone_are_probable_enough_those_of_later_plans_count():
    # all nodes wait for spot nodes until it is too late if tasks run long; fewer begin on demand
    history = SpotHistory(0.0, False)
    source = cloud(most=33, spot_usd_per_hour=0.1, history=history, billing_s=HOUR)
    goal = Goal(deadline_s=HOUR, probability=0.98)
    plan = plan_nodes(Work(tasks=2000, mean_s=60.0), [source], goal)
    assert plan.chosen.probability < 0.98 <= plan.promise
    assert plan.enough


def test_tasks_that_began_together_count_alike():
    assert [weigh_last_run(n, 4) for n in (1, 2, 10, 20, 100)] == [1.0, 0.5, 0.1, 0.05, 0.05]
    # a hundred workers begin together, and their tasks end in the order of their run times
    draws, estimates, typical_s, ended = np.random.default_rng(2), [], 0.0, 0
    for _ in range(2):
        for run_s in np.sort(draws.lognormal(-0.045, 0.3, 100)):
            ended += 1
            typical_s += weigh_last_run(ended, 100) * (run_s - typical_s)
            estimates.append(typical_s)
    assert 0.8 < min(estimates[99:-1]) <= max(estimates[99:-1]) < 1.2
