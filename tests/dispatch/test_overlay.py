"""Which hosts at which grid serve the work: the overlay's answers are allowed, whole, and the best
there are."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from tests.examples import examples
from vgrads.pool.overlay import Demand, GridRoom, _fill, overlay


@st.composite
def cases(draw, bags=6, grids=5, most=60, sizes=(1, 2, 3, 8)):
    """Any demands, grids, and fitness."""
    seconds = st.sampled_from([0.0, 5.0, 60.0])
    demands = [
        Demand(procs=draw(st.integers(0, most)), weight=draw(st.sampled_from([0.5, 1.0, 3.0])))
        for _ in range(draw(st.integers(0, bags)))
    ]
    rooms = [
        GridRoom(
            procs=draw(st.sampled_from(sizes)),
            room=draw(st.integers(0, most // 4)),
            busy=draw(st.integers(0, 3)),
            idle=draw(st.integers(0, 3)),
            coming=draw(st.integers(0, 3)),
            coming_s=draw(seconds),
            wait_s=draw(seconds),
            price=draw(st.sampled_from([0.0, 0.5])),
            error_rate=draw(st.sampled_from([0.0, 0.5])),
        )
        for _ in range(draw(st.integers(0, grids)))
    ]
    cells = st.booleans()
    fits = [[draw(cells) for _ in rooms] for _ in demands]
    return demands, rooms, np.array(fits, np.bool_).reshape(len(demands), len(rooms))


def value(case, procs):
    """What is served, heaviest first, and then how much of the hosts that are to be used first:
    more is better."""
    demands, grids, _ = case
    served, used = {}, {}
    for demand, row in zip(demands, procs, strict=True):
        served[-demand.weight] = served.get(-demand.weight, 0) + int(row.sum())
    for grid, column in zip(grids, procs.T, strict=True):
        left = int(column.sum())
        for order, agents in grid.parts:
            taken = min(left, agents * grid.procs)
            used[order] = used.get(order, 0) + taken
            left -= taken
        assert left == 0
    return [n for _, n in sorted(served.items())], [n for _, n in sorted(used.items())]


@given(cases())
def test_no_limit_is_passed_nothing_is_where_it_does_not_fit_and_all_is_whole(case):
    demands, grids, fits = case
    plan = overlay(*case)
    assert plan.procs.dtype == np.int64
    assert (plan.procs >= 0).all()
    assert not plan.procs[~fits].any()
    for demand, row in zip(demands, plan.procs, strict=True):
        assert row.sum() <= demand.procs
    for grid, agents, column in zip(grids, plan.nodes, plan.procs.T, strict=True):
        assert agents <= grid.room
        assert agents == math.ceil(column.sum() / grid.procs)


def rows(demand, fits, rooms):
    """All ways to divide a demand among grids."""
    ranges = [
        range(min(demand, room) + 1 if ok else 1) for ok, room in zip(fits, rooms, strict=True)
    ]
    return [row for row in itertools.product(*ranges) if sum(row) <= demand]


@settings(max_examples=examples(60), deadline=None)
@given(cases(bags=3, grids=3, most=4, sizes=(1, 2)))
def test_no_other_way_is_better(case):
    demands, grids, fits = case
    sizes = [grid.room * grid.procs for grid in grids]
    ways = (rows(d.procs, ok, sizes) for d, ok in zip(demands, fits, strict=True))
    best = max(
        (
            value(case, np.array(way, np.int64).reshape(fits.shape))
            for way in itertools.product(*ways)
            if all(sum(row[g] for row in way) <= size for g, size in enumerate(sizes))
        ),
        default=([], []),
    )
    assert value(case, overlay(*case).procs) == best


@settings(max_examples=examples(40), deadline=None)
@given(cases(bags=12, grids=8, most=200))
def test_a_solver_of_integer_programmes_finds_no_better(case):
    demands, grids, fits = case
    parts = sorted((o, g, n * r.procs) for g, r in enumerate(grids) for o, n in r.parts)
    ranks = {order: n for n, order in enumerate(sorted({o for o, _, _ in parts}))}
    cells = [(b, k) for k, (_, g, _) in enumerate(parts) for b in np.flatnonzero(fits[:, g])]
    if not cells:
        assert not overlay(*case).procs.any()
        return
    above = 2 * len(ranks)
    worth = [2 * demands[b].weight * above - ranks[parts[k][0]] for b, k in cells]
    matrix = np.zeros((len(demands) + len(parts), len(cells)))
    for n, (b, k) in enumerate(cells):
        matrix[b, n] = matrix[len(demands) + k, n] = 1
    limits = [d.procs for d in demands] + [size for _, _, size in parts]
    solved = milp(
        -np.array(worth),
        integrality=np.ones(len(cells)),
        bounds=Bounds(0, np.inf),
        constraints=LinearConstraint(matrix, -np.inf, limits),
        options={"mip_rel_gap": 0.0},
    )
    served, used = value(case, overlay(*case).procs)
    weights = sorted({d.weight for d in demands}, reverse=True)
    ours = sum(2 * w * above * n for w, n in zip(weights, served, strict=True))
    ours -= sum(n * rank for n, rank in zip(used, range(len(ranks)), strict=True))
    assert ours == pytest.approx(-solved.fun, abs=1e-5)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_bags_and_grids_does_not_matter(case, chance):
    demands, grids, fits = case
    bags, columns = list(range(len(demands))), list(range(len(grids)))
    chance.shuffle(bags)
    chance.shuffle(columns)
    turned = [demands[b] for b in bags], [grids[g] for g in columns], fits[bags][:, columns]
    assert value(case, overlay(*case).procs) == value(turned, overlay(*turned).procs)


@given(cases())
def test_without_work_there_are_no_hosts(case):
    demands, grids, fits = case
    idle = [Demand(procs=0, weight=d.weight) for d in demands]
    assert not any(overlay(idle, grids, fits).nodes)


@settings(max_examples=examples(30), deadline=None)
@given(cases())
def test_plain_and_compiled_it_is_the_same(case):
    demands, grids, fits = case
    where = np.array([g for g, grid in enumerate(grids) for _ in grid.parts], np.int64)
    room = np.array([n * grid.procs for grid in grids for _, n in grid.parts], np.int64)
    results = []
    for form in (_fill.plain, _fill.fast):
        left = np.array([d.procs for d in demands], np.int64)
        flow = np.zeros(fits.shape, np.int64)
        form(fits, left, where, room, flow)
        results.append((flow.tolist(), left.tolist()))
    assert results[0] == results[1]


def test_small_bags_share_a_host():
    bags = [Demand(procs=1)] * 20
    plan = overlay(bags, [GridRoom(procs=8, room=10)], np.ones((20, 1), np.bool_))
    assert plan.nodes == (3,)


def test_who_may_go_elsewhere_makes_room():
    """The second bag may only use the sooner grid, so the first goes to the later one."""
    grids = [GridRoom(procs=1, room=5, wait_s=1.0), GridRoom(procs=1, room=9, wait_s=99.0)]
    fits = np.array([[True, True], [True, False]])
    plan = overlay([Demand(procs=5, weight=9.0), Demand(procs=5)], grids, fits)
    assert plan.procs.tolist() == [[0, 5], [5, 0]]


def test_a_heavier_bag_is_served_before_others_and_what_is_left_is_theirs():
    fits = np.ones((2, 1), np.bool_)
    plan = overlay(
        [Demand(procs=9), Demand(procs=6, weight=1.5)], [GridRoom(procs=2, room=5)], fits
    )
    assert plan.procs.tolist() == [[4], [6]]


@pytest.mark.parametrize(
    ("second", "agents"),
    [
        (GridRoom(procs=1, room=9, wait_s=50.0), (0, 4)),  # sooner
        (GridRoom(procs=1, room=9, wait_s=50.0, price=1.0), (4, 0)),  # for money
        (GridRoom(procs=1, room=9, wait_s=50.0, error_rate=0.75), (4, 0)),  # three of four fail
        (GridRoom(procs=1, room=9, wait_s=900.0, busy=1, idle=1), (2, 2)),  # there already
        (GridRoom(procs=1, room=9, wait_s=900.0, coming=3, coming_s=20.0), (1, 3)),  # nearly there
    ],
)
def test_hosts_that_are_there_are_used_then_the_cheapest_then_the_soonest(second, agents):
    grids = [GridRoom(procs=1, room=9, wait_s=100.0), second]
    assert overlay([Demand(procs=4)], grids, np.ones((1, 2), np.bool_)).nodes == agents
