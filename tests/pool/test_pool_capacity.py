"""How many workers a manager can keep busy: the thesis's numbers, each resource by itself,
intervals, warm samples."""

from dataclasses import replace

import numpy as np
import pytest

from vgrads.kernel.streams import stream
from vgrads.pool.capacity import (
    capacity,
    compute_capacity_with_think,
)
from vgrads.pool.samples import MOST_CATEGORIES, Meter, TaskTimes, fold

FIG_4_5 = TaskTimes(
    execution_s=10.0, in_s=1 / 12, out_s=1 / 12, in_mib=5.0, out_mib=5.0, think_s=1 / 12
)
FIG_4_3 = TaskTimes(execution_s=5.0, in_s=0.125, out_s=0.125, think_s=5 / 18 - 0.25)


def test_the_numbers_of_the_thesis():
    assert compute_capacity_with_think([FIG_4_5] * 800) == pytest.approx(40)
    assert compute_capacity_with_think([FIG_4_3] * 1000) == pytest.approx(18)


def test_a_serial_managers_capacity_is_eq_4_5_and_the_worker_that_is_served():
    result = capacity(fold(Meter(serial=True), [FIG_4_5] * 100))
    assert result.workers.value == pytest.approx(41)
    assert list(result.resources) == ["manager"]
    assert result.cycle_s == pytest.approx(10.25)


def test_transfers_that_overlap_are_not_added_up_and_the_tightest_is_named():
    task = TaskTimes(execution_s=10.0, in_s=0.5, out_s=0.2, think_s=0.1, loop_s=0.01)
    result = capacity(fold(Meter(), [task] * 50))
    assert result.bottleneck == "up-link"
    assert result.workers.value == pytest.approx(10.81 / 0.5)
    assert result.resources["manager's loop"].value == pytest.approx(1081)
    assert (
        capacity(fold(Meter(), [replace(task, think_s=2.0)] * 50)).bottleneck
        == "application's code"
    )
    serial = capacity(fold(Meter(serial=True), [task] * 50))
    assert serial.bottleneck == "up-link"
    assert serial.workers.value < result.workers.value


def test_a_sites_file_system_counts_by_the_share_of_tasks_there():
    there = TaskTimes(execution_s=10.0, disk_s=1.0, site="kth")
    result = capacity(fold(Meter(), [there, replace(there, site="", disk_s=0.0)] * 40))
    assert result.bottleneck == "file system of kth"
    assert result.workers.value == pytest.approx(20, rel=0.05)


def test_nothing_ended_or_nothing_busy_is_no_capacity():
    assert capacity(Meter()) is None
    assert capacity(fold(Meter(), [TaskTimes(execution_s=3.0)])) is None
    assert fold(Meter(), []) == Meter()


def test_few_tasks_tell_a_factor_of_two():
    interval = capacity(fold(Meter(serial=True), [FIG_4_5])).workers
    assert (interval.low, interval.high) == (pytest.approx(20.5), pytest.approx(82))


def test_what_a_worker_gets_for_the_first_time_is_not_the_tasks():
    """Figure 4.7: 1 GB shared; the first task of each of ten new workers brings it along."""
    warm = TaskTimes(execution_s=5.0, in_mib=1024.0, cached_mib=1024.0, out_s=0.1, out_mib=1.0)
    cold = replace(warm, cached_mib=0.0, cold_mib=1024.0, in_s=100.0)
    before = fold(Meter(serial=True), [warm] * 40)
    after = fold(before, [cold] * 10)
    assert capacity(after).workers.value == pytest.approx(capacity(before).workers.value)
    assert compute_capacity_with_think([cold] * 10) < 0.1 < compute_capacity_with_think([warm] * 10)
    half = TaskTimes(execution_s=5.0, in_mib=10.0, cold_mib=4.0, cached_mib=2.0, in_s=8.0)
    assert half.warm_in_s == pytest.approx(4.0)


def test_a_mixture_is_a_ratio_of_means_by_what_is_to_come():
    light = TaskTimes(execution_s=20.0, in_s=0.1, category="light")
    heavy = TaskTimes(execution_s=20.0, in_s=1.9, category="heavy")
    meter = fold(Meter(serial=True), [light, heavy] * 100)
    assert capacity(meter).workers.value == pytest.approx(21, rel=0.02)
    assert capacity(meter, {"light": 3}).workers.value == pytest.approx(201)
    assert capacity(meter, {"light": 3, "heavy": 1}).workers.value == pytest.approx(1 + 20 / 0.55)
    assert capacity(meter, {"unknown": 1}) == capacity(meter)


def test_it_follows_the_work_and_in_sequence_is_as_together():
    meter = fold(Meter(serial=True), [FIG_4_3] * 500)
    meter = fold(meter, [FIG_4_5] * 200)
    assert capacity(meter).workers.value == pytest.approx(41, rel=0.03)
    sequential = Meter(serial=True)
    tasks = [FIG_4_3, replace(FIG_4_5, category="b"), replace(FIG_4_3, execution_s=7.0)] * 9
    for task in tasks:
        sequential = fold(sequential, [task])
    together = fold(Meter(serial=True), tasks)
    assert sequential.all.products == pytest.approx(together.all.products)
    assert sequential.all.tasks == pytest.approx(together.all.tasks)
    assert together.ended == 27


def test_it_keeps_as_much_after_many_categories_as_after_few():
    meter = fold(Meter(), [replace(FIG_4_5, category=str(n)) for n in range(1000)])
    assert len(meter.strata) == MOST_CATEGORIES + 1
    assert meter.cycle_s == pytest.approx(10.25)


@pytest.mark.parametrize("tasks", [20, 60, 300])
def test_the_interval_holds_as_often_as_it_says(tasks):
    """Execution and transfer times drawn anew 600 times: 90 % of intervals hold the true ratio."""
    draws, true, inside = stream(7, "capacity", tasks), 1 + 10.0 / 0.25, 0
    for _ in range(600):
        execution = draws.lognormal(np.log(10.0) - 0.125, 0.5, tasks)
        transfer = draws.gamma(4.0, 0.25 / 4.0, tasks)
        times = [TaskTimes(execution_s=e, in_s=t) for e, t in zip(execution, transfer, strict=True)]
        interval = capacity(fold(Meter(serial=True), times)).workers
        inside += interval.low <= true <= interval.high
    assert 0.86 <= inside / 600 <= 0.94
