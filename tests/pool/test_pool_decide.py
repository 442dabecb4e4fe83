"""What a pool does now, for several managers, and that its reasons tell all of it."""

import json
import os
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from vgrads.pool.decide import (
    DecisionReason,
    PoolPolicy,
    PoolSnapshot,
    WorkerView,
    decide,
    recompute,
)
from vgrads.pool.share import ManagerAd, SharePolicy
from vgrads.pool.sizing import SIZINGS
from vgrads.pool.view import RequestView

CASES = int(os.environ.get("POOL_CASES", "200"))
MOST = SharePolicy(max_workers=100)


def pool(ads, workers=(), requested=(), **more):
    return PoolSnapshot(
        now_s=600.0,
        pool="p",
        managers=tuple(ads),
        workers=tuple(workers),
        requests=tuple(requested),
        wait_s=60.0,
        wait_low_s=45.0,
        elapsed_s=15.0,
        **more,
    )


def at(manager, count, idle=True, joined_s=0.0):
    return [
        WorkerView(
            id=f"{manager}{n:03}",
            joined_s=joined_s,
            manager=manager,
            idle_since_s=500.0 if idle else None,
        )
        for n in range(count)
    ]


def ad(name, waiting, running=0, here=0, other=0, **more):
    return ManagerAd(
        name=name,
        waiting=waiting,
        running=running,
        workers=here + other,
        by_pool={"p": here, "q": other},
        **more,
    )


def test_what_is_missing_is_requested_within_the_most():
    pool_policy = PoolPolicy(share=replace(MOST, default_capacity=500))
    decision = decide(pool([ad("a", 300), ad("b", 30)]), pool_policy)
    assert decision.shares == {"a": 70, "b": 30}
    assert decision.ask == 100
    request = RequestView(id="r", nodes=40, requested_s=590.0)
    assert decide(pool([ad("a", 300)], requested=[request]), pool_policy).ask == 60


def test_workers_from_elsewhere_and_promised_workers_are_not_requested():
    decision = decide(pool([ad("a", 50, other=20)], others={"a": 10}), PoolPolicy(share=MOST))
    assert decision.shares == {"a": 20}


def test_requests_are_withdrawn_before_idle_workers_go_and_none_that_works():
    requests = [RequestView(id=f"r{n}", nodes=5, requested_s=500.0 + n) for n in range(3)]
    view = pool(
        [ad("a", 0, 4, 4), ad("b", 0, 0, 6)], [*at("a", 4, idle=False), *at("b", 6)], requests
    )
    decision = decide(view, PoolPolicy(share=MOST))
    assert decision.withdraw == ("r2", "r1", "r0")
    assert decision.release == tuple(f"b{n:03}" for n in range(6))
    assert decide(view, PoolPolicy(share=MOST, sizing="d6")).release == ()


def test_a_manager_with_too_many_gives_up_the_idle_ones_that_cost_least():
    workers = [
        replace(worker, cache_mib=float(n), joined_s=100.0 * n)
        for n, worker in enumerate(at("a", 6))
    ]
    few = pool([ad("a", 0, 2, 6)], workers)
    assert decide(few, PoolPolicy(share=MOST)).release == ("a000", "a001", "a002", "a003")
    hourly = PoolPolicy(share=replace(MOST, billing_cycle_s=400.0))
    assert decide(few, hourly).release == ("a002",)  # 600 − 200: a whole cycle is over


def test_no_more_than_max_change_is_added():
    policy = PoolPolicy(share=replace(MOST, max_change=60))
    assert decide(pool([ad("a", 300)], previous={"a": 10}), policy).ask == 25
    assert decide(pool([ad("a", 300)]), PoolPolicy(share=policy.share, sizing="d1")).ask == 100


def test_a_broken_set_up_holds_three():
    assert decide(pool([ad("a", 500, failing=True)]), PoolPolicy(share=MOST)).ask == 3


managers = st.lists(
    st.builds(
        lambda w, r, here, other, c, wide, e: {
            "waiting": w,
            "running": min(r, here + other),
            "here": here,
            "other": other,
            "capacity": c,
            "capacity_low": c and c / wide,
            "capacity_high": c and c * wide,
            "execution_s": e,
        },
        st.integers(0, 400),
        st.integers(0, 50),
        st.integers(0, 40),
        st.integers(0, 20),
        st.none() | st.floats(0.5, 300.0),
        st.floats(1.0, 2.0),
        st.none() | st.floats(0.1, 100.0),
    ),
    max_size=5,
)


@settings(max_examples=CASES, deadline=None)
@given(
    managers,
    st.lists(st.tuples(st.integers(1, 30), st.floats(0.0, 600.0)), max_size=5),
    st.sampled_from(sorted(SIZINGS)),
    st.sampled_from(["example", "stated"]),
    st.none() | st.integers(1, 300),
    st.none() | st.floats(60.0, 3600.0),
    st.integers(1, 300),
)
def test_reasons_recompute_to_the_decision(ads, requested, sizing, reading, change, billing, most):
    share = SharePolicy(
        max_workers=most,
        distribution=(("m[02]", 2), ("m.*", 1)),
        max_change=change,
        default_capacity=20,
        billing_cycle_s=billing,
        reading=reading,
    )
    policy = PoolPolicy(share=share, sizing=sizing)
    view = pool(
        [ad(f"m{n}", **item) for n, item in enumerate(ads)],
        [
            worker
            for n, ad in enumerate(ads)
            for worker in at(f"m{n}", ad["here"], n % 2 == 0, 37.0 * n)
        ],
        [
            RequestView(id=f"r{n}", nodes=hosts, requested_s=at_s)
            for n, (hosts, at_s) in enumerate(requested)
        ],
        previous={"m0": 7, "m1": 20},
    )
    decision = decide(view, policy)
    stored = [json.loads(json.dumps(reason.as_json())) for reason in decision.reasons]
    reasons = [
        DecisionReason(r["kind"], r["about"], r["numbers"], tuple(r["names"])) for r in stored
    ]
    again = recompute(reasons, policy)
    assert replace(again, memory=decision.memory, reasons=decision.reasons) == decision
    assert sum(decision.shares.values()) <= most
    there = len(view.workers) + sum(request.nodes for request in view.requests)
    assert not decision.ask or there + decision.ask <= most
    assert not (decision.ask and (decision.withdraw or decision.release))
    busy = {worker.id for worker in view.workers if worker.idle_since_s is None}
    assert not busy & set(decision.release)


def test_a_thousand_managers_and_fifty_thousand_workers_are_decided_at_once():
    ads = [
        ad(f"m{n:04}", 3 * n, 20, 50, capacity=float(n), cycle_s=10.0, arrived=4 * n)
        for n in range(1000)
    ]
    workers = [worker for each in ads for worker in at(each.name, 50, idle=True)]
    policy = PoolPolicy(share=SharePolicy(max_workers=60_000))
    decision = decide(pool(ads, workers), policy)
    assert sum(decision.shares.values()) <= 60_000
