"""Models of All-Pairs, Wavefront and graphs: the thesis's numbers, and bounds that hold whatever
comes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.pool.models import (
    Resources,
    allpairs_best_nodes,
    allpairs_s,
    choose_allpairs,
    choose_wavefront,
    graph_s,
    wavefront_blocks_s,
    wavefront_s,
)


def test_the_numbers_of_the_thesis():
    assert wavefront_s(10, 4, 1.0) == 33
    assert wavefront_s(100, 80, 117.0) == 27_846
    assert [wavefront_s(1000, procs, 1.0) for procs in (32, 180, 1000)] == [32_224, 6_594, 1_999]
    assert wavefront_s(500, 160, 7.6) == pytest.approx(15_778, abs=1)
    seconds = allpairs_s((4000, 4000), 1.0, 3600, 400, Resources(dispatch_s=10.0, item_mbit=8.0))
    assert round(seconds) == 44_664
    assert round(allpairs_s((4000, 4000), 1.0, 3600, 1, Resources(dispatch_s=0.0))) == 16_000_000


@pytest.mark.parametrize(
    ("dispatch_s", "block", "seconds"),
    [(0, 1, 1_999), (1, 1, 3_998), (5, 2, 8_991), (10, 3, 12_673), (30, 5, 21_945)],
)
def test_larger_blocks_help_against_latency_and_cannot_make_up_for_it(dispatch_s, block, seconds):
    choice = choose_wavefront(1000, 1.0, Resources(nodes=1000, dispatch_s=dispatch_s))
    assert (choice.how, choice.block, choice.seconds) == ("distributed", block, seconds)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 80))
def test_a_wavefront_takes_what_its_diagonals_take(rows, cols, procs):
    diagonals = [sum(0 <= d - i < cols for i in range(rows)) for d in range(rows + cols - 1)]
    assert wavefront_s(rows, procs, 2.0, cols) == 2.0 * sum(-(-k // procs) for k in diagonals)
    assert wavefront_blocks_s(rows, rows, 1, procs, 2.0, 3.0) == wavefront_s(rows, procs, 2.0) + 3.0


@given(st.data(), st.integers(1, 8))
def test_a_graph_takes_no_less_than_it_must_and_no_more_than_graham_allows(data, procs):
    size = data.draw(st.integers(1, 25))
    runtimes = data.draw(st.lists(st.floats(0.1, 9.0), min_size=size, max_size=size))
    parents = [
        data.draw(st.sets(st.integers(0, k - 1), max_size=3)) if k else set() for k in range(size)
    ]
    path = [0.0] * size
    for task in range(size):
        path[task] = runtimes[task] + max((path[p] for p in parents[task]), default=0.0)
    least = max(*path, sum(runtimes) / procs)
    value = graph_s(runtimes, parents, procs)
    assert least - 1e-6 <= value <= sum(runtimes) / procs + max(path) * (1 - 1 / procs) + 1e-6
    assert graph_s(runtimes, parents, size) == pytest.approx(max(path))


def test_a_ring_is_refused():
    with pytest.raises(ValueError, match="cycle"):
        graph_s([1.0, 1.0], [{1}, {0}], 2)


@given(
    st.integers(2, 400),
    st.floats(1e-4, 50.0),
    st.integers(1, 16),
    st.integers(0, 300),
    st.floats(0.1, 60.0),
)
def test_what_is_chosen_is_no_worse_than_the_others(side, cell_s, here, hosts, dispatch_s):
    machines = Resources(here=here, nodes=hosts, dispatch_s=dispatch_s)
    pairs = choose_allpairs(side, side, cell_s, machines)
    assert pairs.seconds <= -(-side * side // here) * cell_s + 1e-9
    if hosts:
        trial = min(hosts, side)
        assert (
            pairs.seconds <= 1.1 * allpairs_s((side, side), cell_s, side, trial, machines) + 1e-9
            or side * cell_s > 3600
        )
        assert 1 <= pairs.nodes <= max(1, hosts)
    front = choose_wavefront(side, cell_s, machines)
    assert front.seconds <= wavefront_s(side, here, cell_s) + 1e-9
    assert front.how == ("serial" if here == 1 else "multicore") or front.seconds <= wavefront_s(
        side, here, cell_s
    )


def test_the_best_number_of_hosts_is_a_minimum():
    n, cell_s, per_job, dispatch_s = 300, 2.0, 300, 5.0
    best = allpairs_best_nodes(n, n, cell_s, per_job, dispatch_s)
    times = [
        allpairs_s((n, n), cell_s, per_job, hosts, Resources(dispatch_s=dispatch_s))
        for hosts in (math.floor(best * 0.9), round(best), math.ceil(best * 1.1))
    ]
    assert times[1] == min(times)


@given(st.integers(1, 300), st.integers(1, 100), st.floats(0.1, 30.0), st.floats(0.01, 60.0))
def test_hosts_that_are_begun_in_sequence_work_concurrently(jobs, hosts, cell_s, dispatch_s):
    """As many cells a job as a row has: the time in which hosts that come one after the other have
    done all seconds."""
    machines = Resources(dispatch_s=dispatch_s)
    value = allpairs_s((jobs, 1), cell_s, 1, hosts, machines, slice_s=True)
    done_s = sum(max(0.0, value - n * dispatch_s) for n in range(hosts))
    assert done_s == pytest.approx(jobs * (cell_s + dispatch_s), rel=0.2, abs=dispatch_s)
    assert value <= allpairs_s((jobs, 1), cell_s, 1, hosts, machines)
