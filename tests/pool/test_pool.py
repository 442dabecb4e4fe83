"""The pool: hosts are asked for and given back within bounds, and each decision says why."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vgrads_studies.falkon.stage import StageSite, simulate
from vgrads_studies.falkon.tables import MACHINES, STAGES, falkon, figures, main, ours, phases

from vgrads.pool.acquire import ACQUISITIONS, acquire, requests, toward
from vgrads.pool.lookahead import (
    ArrivalHistory,
    estimate_chances,
    estimate_next_work_s,
    learn,
    look_ahead,
)
from vgrads.pool.release import (
    before_the_end,
    central_all,
    coordinated,
    distributed,
)
from vgrads.pool.view import NodeView, PoolLimits, PoolView, RequestView, merge_decisions

POLICIES = sorted(ACQUISITIONS)


@st.composite
def views(draw):
    """Any state: hosts that idle, work or drain, requests on their way, work that waits or runs."""
    most = draw(st.integers(1, 40))
    now_s = draw(st.floats(0, 1000))
    nodes = tuple(
        NodeView(
            id=f"h{n}",
            allocation=f"a{draw(st.integers(0, 3))}",
            joined_s=0.0,
            idle_since_s=None if busy else draw(st.floats(0, now_s)),
            busy_since_s=draw(st.floats(0, now_s)) if busy else None,
            running=int(busy),
            ends_s=draw(st.none() | st.floats(now_s, now_s + 500)),
            draining=draw(st.booleans()),
        )
        for n, busy in enumerate(draw(st.lists(st.booleans(), max_size=most)))
    )
    room = most - len(nodes)
    requested = []
    for n in range(draw(st.integers(0, 4))):
        size = draw(st.integers(1, 8))
        if size <= room:
            room -= size
            requested.append(
                RequestView(id=f"r{n}", nodes=size, requested_s=draw(st.floats(0, now_s)))
            )
    return PoolView(
        now_s=now_s,
        queued=draw(st.integers(0, 60)),
        running=sum(h.running for h in nodes),
        nodes=nodes,
        limits=PoolLimits(least=draw(st.integers(0, most)), most=most),
        requests=tuple(requested),
        free=draw(st.none() | st.integers(0, 50)),
        wait_s=draw(st.floats(0, 100)),
        task_s=draw(st.floats(0, 100)),
        arrived=draw(st.integers(0, 50)) + 60 + len(nodes),
    )


@pytest.mark.parametrize(
    ("policy", "series"),
    [
        ("all-at-once", (10,)),
        ("one-at-a-time", (1,) * 10),
        ("arithmetic", (1, 2, 3, 4)),
        ("exponential", (1, 2, 4, 3)),
        ("what-is-free", (6,)),
    ],
)
def test_ten_hosts_are_requested_like_this(policy, series):
    assert requests(policy, 10, free=6) == series


@given(st.integers(0, 500), st.none() | st.integers(0, 500))
def test_requests_add_up_to_the_need_or_to_what_is_free(nodes, free):
    for policy in POLICIES:
        series = requests(policy, nodes, free)
        capped = nodes if policy != "what-is-free" or free is None else min(nodes, free)
        assert sum(series) == capped
        assert all(size > 0 for size in series)


@given(views(), st.sampled_from(POLICIES), st.sampled_from(["at_once", "per_poll"]))
def test_what_is_requested_is_needed_and_within_bounds(view, policy, pace):
    decision = acquire(view, policy, pace)
    opened = sum(decision.open)
    assert len(view.nodes) + view.coming + opened <= view.limits.most
    assert not (decision.open and decision.withdraw)
    if pace == "at_once" and policy != "what-is-free" and view.need > 0:
        assert opened == view.need
    assert opened <= max(0, view.need)
    assert len(decision.open) <= 1 or pace == "at_once"
    assert bool(decision.reasons) == bool(decision.open or decision.withdraw)


@given(views())
def test_a_series_that_goes_out_poll_by_poll_equals_the_same_that_goes_out_at_once(view):
    for policy in ("all-at-once", "one-at-a-time", "arithmetic", "exponential"):
        fresh = PoolView(
            now_s=0.0, queued=view.queued, running=0, limits=PoolLimits(most=view.limits.most)
        )
        whole, requested = acquire(fresh, policy).open, []
        for number in range(len(whole)):
            (size,) = acquire(_with_requests(fresh, requested), policy, "per_poll").open
            requested.append(RequestView(id=str(number), nodes=size, requested_s=0.0))
        assert tuple(r.nodes for r in requested) == whole


def _with_requests(view, requested):
    return PoolView(
        now_s=0.0, queued=view.queued, running=0, limits=view.limits, requests=tuple(requested)
    )


@given(views())
def test_only_useless_requests_are_taken_back_the_newest_first(view):
    decision = acquire(view)
    retained = [r for r in view.requests if r.id not in decision.withdraw]
    gone = [r for r in view.requests if r.id in decision.withdraw]
    if gone:
        assert len(view.staying) + sum(r.nodes for r in retained) >= view.demand
        assert min(r.requested_s for r in gone) >= max(
            (r.requested_s for r in retained), default=0.0
        )


def test_a_request_that_is_needed_in_part_stays():
    requested = (
        RequestView(id="old", nodes=4, requested_s=0.0),
        RequestView(id="new", nodes=4, requested_s=5.0),
    )
    view = PoolView(now_s=9.0, queued=3, running=0, limits=PoolLimits(most=32), requests=requested)
    assert acquire(view).withdraw == ("new",)
    assert toward(view, 5).withdraw == ()
    assert toward(view, 0).withdraw == ("new", "old")


@given(views(), st.floats(0, 500))
def test_only_idle_hosts_are_released_and_the_least_number_stays(view, idle_s):
    idle = {node.id for node in view.idle}
    for decision in (
        central_all(view),
        distributed(view, idle_s),
        coordinated(view, idle_s),
    ):
        assert set(decision.drain) <= idle
        if decision.drain:
            assert len(view.staying) - len(decision.drain) >= view.limits.least
            assert decision.reasons
    for node in view.nodes:
        if node.id in distributed(view, idle_s).drain:
            assert view.now_s - node.idle_since_s >= idle_s - 1e-6


@given(views(), st.floats(0, 500))
def test_an_allocation_is_released_whole_or_not_at_all(view, idle_s):
    gone = set(coordinated(view, idle_s).drain)
    for allocation in {node.allocation for node in view.nodes}:
        mine = {node.id for node in view.staying if node.allocation == allocation}
        assert mine <= gone or not mine & gone


@given(views())
def test_nothing_begins_that_cannot_end_before_its_allocation(view):
    gone = set(before_the_end(view).drain)
    for node in view.staying:
        ends_s = math.inf if node.ends_s is None else node.ends_s
        assert (node.id in gone) == (ends_s - view.now_s < view.task_s)


@given(views(), st.floats(0, 20), st.sampled_from(POLICIES))
def test_looking_ahead_keeps_to_the_bounds_and_to_the_work_there_is(view, patience, policy):
    history = learn(ArrivalHistory(), view)
    decision = look_ahead(history, view, patience, policy)
    ending = set(before_the_end(view).drain)
    released = set(decision.drain) - ending
    assert len(view.nodes) + view.coming + sum(decision.open) <= view.limits.most
    assert released <= {node.id for node in view.idle}
    if released:
        assert len(view.staying) - len(released) >= view.demand
    assert bool(decision.reasons) == bool(decision.open or decision.withdraw or decision.drain)


def after(*stages):
    """What was learned of stages, each (tasks, seconds), one after the other on as many hosts."""
    history, now_s, arrived = ArrivalHistory(), 0.0, 0
    limits = PoolLimits(most=64)
    for tasks, seconds in stages:
        arrived += tasks
        nodes = tuple(
            NodeView(id=str(n), allocation="a", joined_s=0.0, busy_since_s=now_s, running=1)
            for n in range(tasks)
        )
        view = PoolView(
            now_s=now_s,
            queued=0,
            running=tasks,
            limits=limits,
            nodes=nodes,
            arrived=arrived,
            task_s=60.0,
            wait_s=30.0,
        )
        history = learn(history, view)
        now_s += seconds
    return history, view


def test_growth_is_expected_to_go_on_as_likely_as_it_did():
    history, view = after((1, 60.0), (2, 60.0), (4, 60.0))
    assert history.sizes == (1, 2, 4)
    values = estimate_chances(history, 64)
    assert values[7] == pytest.approx(2 / 6)  # 8 hosts: twice it doubled, of six ways to go on
    assert values[8] == 0.0
    assert estimate_next_work_s(history, view) == 60.0


@given(st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_chances_never_rise_with_more_hosts(sizes):
    history = ArrivalHistory(sizes=tuple(sizes))
    values = estimate_chances(history, 64)
    assert all(a >= b for a, b in itertools.pairwise(values))
    assert values[0] >= 0.5  # each of the arrivals themselves needed at least one


def test_work_that_comes_while_other_runs_is_awaited_by_the_clock():
    history, arrived = ArrivalHistory(), 0
    for number in range(5):
        arrived += 3
        view = PoolView(
            now_s=100.0 * number,
            queued=arrived - 2 * number,
            running=0,
            limits=PoolLimits(most=9),
            arrived=arrived,
        )
        history = learn(history, view)
    assert estimate_next_work_s(history, view) == 100.0
    assert not any(history.ended_before[1:])


def test_a_single_decision_of_many_says_everything_once():
    view = PoolView(now_s=0.0, queued=2, running=0, limits=PoolLimits(most=4))
    both = merge_decisions((acquire(view), acquire(view)))
    assert (both.open, len(both.reasons)) == ((2, 2), 1)


def test_limits_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="least and most"):
        PoolLimits(least=3, most=2)


def test_the_stages_have_the_papers_totals():
    assert len(STAGES) == 18
    assert sum(tasks for tasks, _ in STAGES) == 1000
    assert sum(tasks * seconds for tasks, seconds in STAGES) == 17820.0
    assert sum(math.ceil(tasks / MACHINES) * seconds for tasks, seconds in STAGES) == 1260.0
    row = figures(
        simulate(STAGES, falkon(math.inf), StageSite(delay_s=0.0), MACHINES, reserved=MACHINES)
    )
    assert (row.complete_s, round(row.queue_s, 1), round(row.execution_share, 1)) == (
        1260.0,
        42.2,
        29.7,
    )


@pytest.mark.more
@pytest.mark.parametrize("acquisition", POLICIES)
@pytest.mark.parametrize("pace", ["at_once", "per_poll"])
def test_every_task_runs_once_whatever_the_acquisition(acquisition, pace):
    ran = simulate(STAGES, falkon(30.0, acquisition, pace), StageSite(phase_s=17.0), MACHINES)
    assert len(ran.tasks) == 1000
    assert figures(ran).complete_s >= 1260.0
    instants = sorted({t for span in ran.agents for t in span})
    assert max(sum(a <= t < b for a, b in ran.agents) for t in instants) <= MACHINES


@pytest.mark.parametrize("cycle_s", [pytest.param(55.0, marks=pytest.mark.long), 60.0])
@pytest.mark.parametrize(
    ("idle_s", "patience"),
    [
        pytest.param(15, 1.5, marks=pytest.mark.long),
        pytest.param(60, 3.0, marks=pytest.mark.more),
        pytest.param(120, 5.0, marks=pytest.mark.long),
        (180, 6.0),
    ],
)
def test_looking_ahead_is_faster_and_wastes_no_more(cycle_s, idle_s, patience):
    """Against each of Falkon's settings: no less utilisation, at least five points more
    efficiency."""
    count = 3 if idle_s > 15 else 10
    theirs = phases(lambda: falkon(float(idle_s)), cycle_s, count, turn_s=0.9)
    mine = phases(lambda: ours(patience), cycle_s, count, turn_s=0.9)
    assert sum(row.utilisation for row in mine) >= sum(row.utilisation for row in theirs)
    assert sum(row.efficiency for row in mine) >= sum(row.efficiency for row in theirs) + 5 * count


@pytest.mark.long
def test_the_study_writes_down_what_it_prints(tmp_path, capsys):
    out = tmp_path / "falkon.json"
    main(["--quick", "--cycles", "60", "--patience", "3", "--out", str(out)])
    result = json.loads(out.read_text())
    rows = result["stages"]["60"]
    assert list(rows) == [
        "Falkon-15",
        "Falkon-60",
        "Falkon-120",
        "Falkon-180",
        "Falkon-inf",
        "look-ahead 3",
    ]
    assert "look-ahead 3" in capsys.readouterr().out
    mean, low, high = rows["Falkon-inf"]["efficiency"]
    assert 90.0 < low <= mean <= high <= 100.0
    assert list(result["policies"]) == list(ACQUISITIONS)
    grain = {row["task_s"]: row["efficiency"] for row in result["scale"]["grain"]}
    assert grain[1.0] >= 99.0
    assert grain[0.1] >= 95.0
    assert result["scale"]["tasks"]["templated_bytes"] <= 64.0
    assert result["scale"]["tasks"]["distinct_bytes"] <= 256.0
    assert result["scale"]["executors"]["bytes"] <= 20 * 1024


@pytest.mark.parametrize("asks", POLICIES)
def test_no_more_hosts_are_requested_than_there_is_work(asks):
    stages = ((10, 60.0),)
    ran = simulate(stages, falkon(60.0, asks), StageSite(), MACHINES)
    assert sum(ran.requests) == 10
    assert len(ran.tasks) == 10


def test_an_allocation_goes_whole_on_request():
    def decide(view):
        return merge_decisions((acquire(view), coordinated(view, 15.0)))

    ran = simulate(STAGES, decide, StageSite(), MACHINES)
    gone: dict[float, set[float]] = {}
    for joined_s, left_s in ran.agents:
        gone.setdefault(round(joined_s, 2), set()).add(round(left_s, 2))
    assert len(gone) > 2
    assert all(len(instants) == 1 for instants in gone.values())
