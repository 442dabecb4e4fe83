"""Workers shared out: the thesis's example in both readings, and water filling found by
bisection."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgrads.pool.share import (
    ManagerAd,
    SharePolicy,
    compute_default_most,
    fill,
    limit_total,
    needs,
    share,
)

CASES = int(os.environ.get("POOL_CASES", "300"))
WS1 = "ws1.nd.edu-100"
POLICY = SharePolicy(max_workers=2000, distribution=(("proj1", 500), ("proj2.*", 1500)))
ADS = (
    ManagerAd(
        name="proj1", waiting=2000, workers=200, capacity=1100, by_pool={WS1: 100, "unmanaged": 100}
    ),
    ManagerAd(name="proj2-A", waiting=1000),
    ManagerAd(
        name="proj2-B", waiting=300, workers=100, capacity=700, by_pool={"ws2.nd.edu-101": 100}
    ),
)


def test_the_example_of_the_thesis_round_by_round():
    assert needs(ADS, POLICY, WS1) == {"proj1": 1000, "proj2-A": 1000, "proj2-B": 200}
    assert compute_default_most([ad.name for ad in ADS], POLICY) == {
        "proj1": 500,
        "proj2-A": 750,
        "proj2-B": 750,
    }
    shares = share(ADS, POLICY, WS1)
    assert shares.decided == {"proj1": 800, "proj2-A": 1000, "proj2-B": 200}
    rounds = [(item.undecided, item.needed, item.per_weight, item.full) for item in shares.rounds]
    assert rounds == [
        (2000, 2200, 1.0, ("proj2-B",)),
        (1800, 2000, pytest.approx(1.44), ("proj2-A",)),  # 720 and 1080
        (800, 1000, pytest.approx(1.6), ()),
    ]


def test_the_equations_by_the_letter():
    stated = replace(POLICY, reading="stated")
    assert needs(ADS, stated, WS1) == {"proj1": 1000, "proj2-A": 1000, "proj2-B": 300}
    shares = share(ADS, stated, WS1)
    assert shares.decided == {"proj1": 700, "proj2-A": 1000, "proj2-B": 300}
    assert [(item.undecided, item.full) for item in shares.rounds] == [
        (2000, ("proj2-B",)),
        (1700, ("proj2-A",)),
        (700, ()),
    ]


def test_by_the_letter_a_decision_never_falls_because_capacity_fell():
    ad = ManagerAd(name="m", waiting=500, running=90, workers=90, capacity=40, by_pool={"p": 90})
    assert needs([ad], SharePolicy(max_workers=200, reading="stated"), "p") == {"m": 90}
    assert needs([ad], SharePolicy(max_workers=200), "p") == {"m": 40}


def test_what_other_pools_decided_and_have_not_delivered_is_not_requested_again():
    ad = ManagerAd(name="m", waiting=100)
    assert share([ad], SharePolicy(max_workers=500), "a", others={"m": 60}).decided == {"m": 40}


def test_running_tasks_are_unfinished_and_an_unknown_capacity_may_have_a_default():
    ad = ManagerAd(name="m", waiting=480, running=20)
    assert needs([ad], SharePolicy(max_workers=9), "") == {"m": 500}
    assert needs([ad], SharePolicy(max_workers=9, default_capacity=20), "") == {"m": 20}


def test_the_first_pattern_that_matches_counts_and_who_matches_none_gets_nothing():
    policy = SharePolicy(max_workers=90, distribution=(("a.*", 2), ("ab", 100), ("b", 1)))
    ads = [ManagerAd(name=name, waiting=500) for name in ("ab", "b", "cab")]
    assert share(ads, policy).decided == {"ab": 60, "b": 30, "cab": 0}


def test_the_decision_grows_no_faster_than_the_policy_says():
    policy = replace(POLICY, max_workers=200, max_change=60)
    assert [limit_total(policy, previous, 15.0) for previous in (None, 10, 190)] == [15, 25, 200]
    assert share(ADS, policy, WS1, 10, 15.0).decided == {"proj1": 6, "proj2-A": 10, "proj2-B": 9}


def _level(required, weights, total):
    """Bisection on the water level."""
    low, high = 0.0, max(required[name] / weights[name] for name in required)
    for _ in range(200):
        middle = (low + high) / 2
        filled = sum(min(required[name], middle * weights[name]) for name in required)
        low, high = (middle, high) if filled < total else (low, middle)
    return {name: min(float(required[name]), high * weights[name]) for name in required}


several = st.lists(st.tuples(st.integers(0, 3000), st.floats(0.01, 100.0)), min_size=1, max_size=40)


@settings(max_examples=CASES, deadline=None)
@given(several, st.integers(0, 5000))
def test_it_is_water_filling_in_whole_numbers(managers, total):
    required = {f"m{n}": manager[0] for n, manager in enumerate(managers)}
    weights = {f"m{n}": manager[1] for n, manager in enumerate(managers)}
    shares = fill(required, weights, total)
    level = _level(required, weights, total)
    assert sum(shares.decided.values()) == min(total, sum(required.values()))
    for name, workers in shares.decided.items():
        assert shares.exact[name] == pytest.approx(level[name], abs=1e-4)
        assert abs(workers - shares.exact[name]) < 1.0 + 1e-4
        assert 0 <= workers <= required[name]
