"""Plans for tasks that wait for others: how long a Wavefront takes on a number of workers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.pool.deadline.plan import Goal, SimulatedPlans, plan_nodes
from vgrads.pool.deadline.values import NodePlan, NodeSource, Work
from vgrads.pool.deadline.width import LevelPace, Width
from vgrads.pool.models import graph_s
from vgrads.workflows.generated.wavefront import Wavefront

SIDES = st.integers(1, 14)


def width_of(rows, cols, done=()):
    left = np.ones(rows * cols, np.bool_)
    left[list(done)] = False
    return Width(Wavefront(rows, cols).levels(left))


def work_of(rows, cols, each_s=10.0, **more):
    width = width_of(rows, cols)
    exact = {"error": 0.0, "spread": 0.0, **more}
    return Work(tasks=width.tasks, mean_s=each_s, width=width, **exact)


def listed_s(rows, cols, workers, each_s=10.0):
    """List scheduling of all blocks, by anti-diagonals: the longest path to the end first."""
    order = Wavefront(rows, cols)
    return graph_s(
        [each_s] * order.size, [order.needs(task) for task in range(order.size)], workers
    )


def ends_s(work, workers, deadline_s, cloud=False, count=40):
    source = NodeSource(name="nodes", cloud=cloud, most=workers, usd_per_hour=1.0 if cloud else 0.0)
    simulated = SimulatedPlans(work, [source], Goal(deadline_s=deadline_s), count, 0)
    plan = NodePlan(cloud=workers) if cloud else NodePlan(queues=(workers,))
    return simulated.outcomes([plan])[0][1].end_s


@settings(max_examples=examples(60))
@given(SIDES, SIDES, st.integers(1, 30), st.sampled_from([1.0, 1.4, 10.0]), st.booleans())
def test_a_wavefront_ends_as_in_list_scheduling_and_never_before_its_chain(
    rows, cols, workers, loose, cloud
):
    work = work_of(rows, cols)
    expected_s = listed_s(rows, cols, workers)
    deadline_s = expected_s * loose + 40.0
    ends = ends_s(work, workers, deadline_s, cloud)
    assert np.all(ends >= (rows + cols - 1) * 10.0 - 1e-6)
    assert np.all(np.abs(ends - expected_s) <= 10.0 + 0.1 * expected_s)


@settings(max_examples=examples(40))
@given(SIDES, SIDES, st.integers(1, 30), st.floats(0.01, 0.6))
def test_no_scenario_ends_before_the_chain_by_its_own_run_time(rows, cols, workers, error):
    work = work_of(rows, cols, error=error)
    source = NodeSource(name="nodes", cloud=False, most=workers)
    simulated = SimulatedPlans(work, [source], Goal(deadline_s=200.0 * rows * cols), 40, 3)
    ends = simulated.outcomes([NodePlan(queues=(workers,))])[0][1].end_s
    draws = simulated._scenarios.error
    assert np.all(ends >= (rows + cols - 1) * 10.0 * draws - 1e-6)
    assert np.all(ends >= rows * cols * 10.0 * draws / workers - 1e-6)


@given(SIDES, SIDES, st.floats(0.1, 30.0), st.lists(st.floats(0.01, 9.0), min_size=1, max_size=9))
def test_progress_in_parts_is_that_in_one(rows, cols, workers, parts):
    pace = LevelPace(width_of(rows, cols), 0.3)
    left, power = np.array([float(rows * cols)]), np.array([workers])
    whole, _ = pace.progress(left, power, np.array([sum(parts)]))
    done = np.zeros(1)
    for part in parts:
        more, share = pace.progress(left - done, power, np.array([part]))
        assert 0.0 <= share[0] <= 1.0
        done += more
    assert done[0] == pytest.approx(whole[0], abs=1e-6 * rows * cols)
    needed = pace.rounds_left(left, power)
    assert pace.progress(left, power, needed * 1.001)[0][0] == left[0]
    assert pace.progress(left, power, needed * 0.999)[0][0] < left[0]


@given(SIDES, SIDES, st.floats(0.0, 100.0))
def test_as_many_tasks_run_at_once_as_the_widest_level_of_the_next_rounds(rows, cols, rounds):
    width = width_of(rows, cols)
    assert width.most(0.0) == 1
    assert width.most(rounds) <= min(rows, cols)
    assert width.most(rows + cols) == min(rows, cols)
    assert Width(()).most(rounds) == 0


def test_the_end_of_a_wavefront_has_no_tail_since_a_single_block_is_the_last():
    wave = work_of(20, 20, spread=0.3)
    assert wave.tail_s(30.0) == 0.0
    assert Work(tasks=400, mean_s=10.0, spread=0.3).tail_s(30.0) > 5.0


def test_a_block_that_was_left_out_leaves_the_chain_behind_it():
    failed_row = width_of(4, 4, done=range(12))
    assert failed_row.levels == (1, 1, 1, 1)
    assert width_of(3, 2, done=[0, 1, 2]).levels == (2, 1)
    assert width_of(2, 3, done=[0]).levels == (2, 2, 1)
    assert Wavefront(0, 0).levels(np.zeros(0, np.bool_)) == ()


@pytest.mark.parametrize(("rows", "cols"), [(6, 6), (20, 20), (4, 40), (1, 30), (60, 60)])
@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6])
def test_random_run_times_lengthen_the_chain_as_in_simulated_grids(rows, cols, spread):
    draws, ends = np.random.default_rng(0), []
    for _ in range(60):
        times = np.exp(spread * draws.standard_normal((rows, cols)) - spread**2 / 2.0)
        end = np.zeros((rows + 1, cols + 1))
        for level in range(rows + cols - 1):
            i = np.arange(max(0, level - cols + 1), min(rows, level + 1))
            j = level - i
            end[i + 1, j + 1] = np.maximum(end[i, j + 1], end[i + 1, j]) + times[i, j]
        ends.append(end[-1, -1])
    width = width_of(rows, cols)
    expected = (rows + cols - 1) * width.stretch(spread)
    assert np.mean(ends) == pytest.approx(expected, rel=0.07)
    assert np.mean(ends) > (rows + cols - 1) * 0.97


def test_levels_that_are_all_wide_enough_change_nothing():
    nodes = NodeSource(name="queue", cloud=False, workers=4, most=9, waits_s=(30.0, 900.0))
    goal = Goal(deadline_s=3000.0)
    work = Work(tasks=400, mean_s=50.0, spread=0.0)
    wide = Work(tasks=400, mean_s=50.0, spread=0.0, width=Width((400,)))
    plans = [NodePlan(queues=(count,)) for count in (1, 3, 9)]
    without, with_width = (
        SimulatedPlans(stated, [nodes], goal, 100, 1).outcomes(plans) for stated in (work, wide)
    )
    for (_, first), (_, second) in zip(without, with_width, strict=True):
        assert second.end_s == pytest.approx(first.end_s)


def test_a_plan_requests_no_more_nodes_than_a_wavefront_uses():
    nodes = NodeSource(name="queue", cloud=False, most=500)
    work = work_of(20, 20, spread=0.3, error=0.1)
    chain_s = work.chain_s
    plan = plan_nodes(work, [nodes], Goal(deadline_s=chain_s * 1.4))
    assert plan.enough
    assert 8 <= plan.chosen.plan.queues[0] <= 20
    late = plan_nodes(work, [nodes], Goal(deadline_s=chain_s * 0.7))
    assert late.chosen.probability == 0.0


def test_on_demand_nodes_of_a_wavefront_start_early_enough():
    """With many nodes the work is short, but its chain is not: slack is what the chain leaves."""
    cloud = NodeSource(
        name="cloud", cloud=True, most=64, usd_per_hour=1.0, boot_s=60.0, billing_s=1.0
    )
    work = work_of(20, 20, each_s=60.0, error=0.05)
    deadline_s = work.chain_s * 1.5
    simulated = SimulatedPlans(work, [cloud], Goal(deadline_s=deadline_s), 100, 0)
    late = simulated.planned([NodePlan(cloud=40, late=True)])[0]
    assert late.probability > 0.9
    assert late.end_s > deadline_s * 0.7
    assert math.isfinite(late.cost_usd)
