"""How many workers one manager should have: the thesis's test values, the peers' rules, and
ours."""

from dataclasses import replace

import pytest

from vgrads.pool.capacity import Interval
from vgrads.pool.size_view import Memory, SizeView
from vgrads.pool.sizing import SIZINGS, size

FORTY = Interval(40, 40, 40)
VIEW = SizeView(
    now_s=15.0,
    waiting=480,
    running=20,
    connected=20,
    previous=10,
    elapsed_s=15.0,
    max_workers=1000,
    max_change=60,
    default_capacity=20,
    capacity=FORTY,
    arrived=500,
)


def workers(policy, view, memory=None):
    return size(policy, view, memory or Memory()).workers


@pytest.mark.parametrize(
    ("policy", "existing", "unknown"),
    [
        ("d1", 500, 500),
        ("d2", 25, 25),
        ("d3", 40, 500),
        ("d4", 40, 20),
        ("d5", 25, 25),
        ("d6", 25, 20),
        ("d7", 25, 20),
    ],
)
def test_equations_4_16_to_4_22(policy, existing, unknown):
    assert workers(policy, VIEW) == existing
    assert workers(policy, replace(VIEW, capacity=None)) == unknown
    assert workers(policy, replace(VIEW, max_workers=15)) == 15


def test_every_policy_says_why_and_none_is_negative():
    for policy in SIZINGS:
        point = size(policy, replace(VIEW, waiting=0, running=0), Memory())
        assert point.workers >= 0
        assert point.reasons[0].startswith(f"{point.workers} ")


def test_only_d7_waits_for_billing_boundaries():
    assert [name for name, sizing in SIZINGS.items() if sizing.billing] == ["d7"]


def test_the_factory_decides_every_half_minute_and_lets_five_connect():
    first = size("work-queue-factory", VIEW, Memory())
    assert first.workers == 25
    later = replace(VIEW, now_s=30.0, connected=25)
    assert workers("work-queue-factory", later, first.memory) == 25
    assert workers("work-queue-factory", replace(later, now_s=45.0), first.memory) == 30
    few = replace(VIEW, capacity=Interval(2, 2, 2), connected=30)
    assert workers("work-queue-factory", few) == 10  # its floor


def test_hyperqueue_has_a_single_request_in_the_queue():
    assert workers("hyperqueue", VIEW) == 21
    assert workers("hyperqueue", replace(VIEW, requests=((0.0, 1),))) == 21
    assert workers("hyperqueue", replace(VIEW, waiting=3, idle=3)) == 20


def test_dask_takes_work_of_five_seconds_and_votes_three_times():
    view = replace(VIEW, waiting=10, running=10, connected=50, execution_s=2.0)
    memory, result = Memory(), []
    for _ in range(3):
        sized = size("dask-adaptive", view, memory)
        result.append(sized.workers)
        memory = sized.memory
    assert result == [50, 50, 8]
    assert workers("dask-adaptive", replace(view, connected=0, execution_s=None)) == 2


def test_kubernetes_doubles_and_comes_down_after_five_minutes():
    view = replace(VIEW, connected=100)
    up = size("kubernetes", view, Memory())
    assert up.workers == 200
    down = replace(view, waiting=0, now_s=100.0, connected=200)
    assert workers("kubernetes", down, up.memory) == 200
    assert workers("kubernetes", replace(down, now_s=400.0), up.memory) == 20
    assert workers("kubernetes", replace(view, waiting=85)) == 100  # within a tenth


OURS = replace(
    VIEW,
    capacity=Interval(36, 40, 44),
    cycle_s=10.0,
    execution_s=9.75,
    wait_s=60.0,
    wait_low_s=45.0,
    max_change=None,
    default_capacity=None,
)


def test_ours_goes_up_at_once_and_down_after_a_while():
    point = size("d8", OURS, Memory())
    assert point.workers == 46  # the upper end and a quarter of its root
    lower = replace(OURS, capacity=Interval(20, 25, 30), connected=46)
    memory = size("d8", lower, point.memory).memory
    assert memory.cap == 46
    for now_s in (30.0, 60.0):
        sized = size("d8", replace(lower, now_s=now_s), memory)
        memory = sized.memory
        assert sized.workers == 46
    assert workers("d8", replace(lower, now_s=75.0), memory) == 31


def test_ours_asks_for_none_that_would_find_too_little_to_do():
    """20 workers end 120 tasks in the minute until new ones come; a new one should find a minute's,
    which are six."""
    view = replace(OURS, waiting=110, running=20)
    assert workers("d8", view) == 20
    more = size("d8", replace(view, waiting=148), Memory())
    assert more.workers == 20 + 28 // 6 + 1
    assert "useful if requested now 25" in more.reasons[0]


def test_ours_counts_on_work_that_keeps_coming():
    memory, view = Memory(), OURS
    for n in range(5):  # 40 tasks every 20 s, of which 20 workers end as many
        view = replace(OURS, now_s=20.0 * n, waiting=60, running=20, arrived=80 + 40 * n)
        sized = size("d8", view, memory)
        memory = sized.memory
    assert sized.workers == 20 + -(-(80 + 120 - 120 - 15 - 20) // 6)  # 15: chance
    assert workers("d8", replace(view, now_s=900.0), memory) == 20


def test_ours_keeps_requests_as_long_as_something_would_be_left_for_them():
    """What was asked for 15 s ago comes in 30 at the earliest; in that time those there end 60
    tasks."""
    view = replace(OURS, waiting=70, running=20, requests=((0.0, 24),), now_s=15.0)
    assert workers("d8", view) == 30
    assert workers("d8", replace(view, waiting=50)) == 20
    assert workers("d8", replace(view, waiting=120)) == 44


def test_ours_doubles_without_history():
    view = replace(OURS, capacity=None, cycle_s=None, connected=0)
    first = size("d8", view, Memory())
    assert first.workers == 64
    assert workers("d8", replace(view, now_s=75.0), first.memory) == 128
    assert workers("d8", replace(view, default_capacity=20)) == 20


def test_ours_keeps_idle_workers_while_more_work_is_near():
    memory = Memory()
    for n in range(6):  # 30 tasks every 20 s, all over long before
        for at_s, waiting in ((20.0 * n, 30), (20.0 * n + 15.0, 0)):
            view = replace(
                OURS,
                now_s=at_s,
                waiting=waiting,
                running=0,
                arrived=30 * (n + 1),
                connected=30,
                idle=30,
            )
            sized = size("d8", view, memory)
            memory = sized.memory
    assert sized.workers == 30
    assert workers("d8", replace(view, now_s=500.0), memory) == 0


def test_ours_needs_three_to_see_that_everything_fails():
    assert workers("d8", replace(OURS, failing=True)) == 3
