"""The study of pools, made small: a manager in virtual time, the thesis's patterns, capacities, and
whether D8 rests."""

import json
import math
import os
from dataclasses import replace

import pytest
from vgrads_studies.pools.capacity import estimate, figure, places, sweep
from vgrads_studies.pools.loads import other, pattern, policy
from vgrads_studies.pools.stage import simulate
from vgrads_studies.pools.steady import constant, flow, reversals, schedule
from vgrads_studies.pools.study import THESIS, against, cells, main
from vgrads_studies.pools.values import Batch, StudyConfig

QUIET = StudyConfig(speeds=0.0, per_worker_s=0.0)
SCHEDULES = int(os.environ.get("POOL_SCHEDULES", "25"))


@pytest.mark.parametrize("sizing", ["d1", "d6", "d7", "dask-adaptive", "d8"])
def test_all_tasks_end_once_and_every_worker_is_paid_for(sizing):
    load = other("bursts", 3)
    config = replace(load.config, lifetime_s=900.0)
    ran = simulate(load.batches, config, policy(sizing), 3)
    assert len(ran.ends_s) == sum(batch.tasks for batch in load.batches)
    assert ran.worker_s > ran.execution_s > 0.0
    assert ran.cycles >= ran.workers
    assert all(look.target <= 200 and look.decided <= 200 for look in ran.looks)


def test_nobody_comes_before_a_worker_could_and_a_single_worker_takes_its_time():
    batch = Batch(at_s=0.0, tasks=4, in_mib=40.0, out_mib=40.0, execution_s=10.0, shared=False)
    lone = replace(policy("d1"), share=replace(policy("d1").share, max_workers=1))
    ran = simulate([batch], QUIET, lone, 1)
    cycle_s = 1.0 + 10.0 + 1.0 + 0.15
    assert ran.ends_s[0] > 50.0 + 12.0
    assert ran.ends_s[3] - ran.ends_s[0] == pytest.approx(3 * cycle_s)


def test_a_serial_and_an_overlapping_manager_have_their_knees():
    batch = Batch(at_s=0.0, tasks=1, in_mib=20.0, out_mib=8.0, execution_s=12.0, shared=False)
    for serial, busiest in ((True, 0.5 + 0.2 + 0.15), (False, 0.5)):
        cycle_s, plateau = sweep((replace(QUIET, serial=serial), batch))
        assert cycle_s == pytest.approx(12.85)
        assert 1.0 / plateau == pytest.approx(busiest, rel=0.02)


@pytest.mark.long
def test_capacity_is_reported_within_its_interval_most_of_the_time():
    ran = [estimate(place, n, 3) for n, place in enumerate(places(10, 9))]
    inside = [matches for each in ran for matches in each.inside]
    assert sum(inside) / len(inside) > 0.75
    off = sorted(abs(value) for each in ran for value in each.off)
    assert off[len(off) // 2] < 0.05


@pytest.mark.parametrize("name", ["4.6 settle time", "4.7 cache bounce", "4.8 both"])
def test_new_workers_are_no_fall_of_the_capacity(name):
    result = figure(name, 1)
    assert result.dip < 0.1
    assert result.end == pytest.approx(result.thesis_end + 1.0, rel=0.05)
    if "4.6" not in name:
        assert result.thesis_dip > 0.5


def test_ours_is_leaner_than_the_leanest_of_the_quick():
    result = cells(lambda seed: pattern("P1", seed), [1])
    ours = against(result)
    assert ours.good
    assert result["d6"][1] < 0.5 * result["d1"][1]
    assert result["d6"][0] > result["d1"][0]
    assert set(THESIS) < set(result)


def test_reversals_are_turns_of_more_than_a_tenth():
    assert reversals([0, 50, 100, 98, 101, 99]) == 0
    assert reversals([0, 100, 80, 100, 80, 100]) == 4
    assert reversals([100, 60, 40, 40]) == 0
    assert reversals([]) == 0


def test_a_flow_keeps_as_many_busy_as_it_says():
    batches = flow(30.0, 20.0, 1000.0)
    assert sum(batch.tasks for batch in batches) == pytest.approx(1000.0 * 30.0 / 20.0, abs=2)


@pytest.mark.long
def test_ours_comes_to_rest():
    rest = constant("known", 4)
    assert rest.overshoot * rest.level <= max(2.0, 0.05 * rest.level)
    assert rest.reversals <= 1
    turns = [schedule(seed) for seed in range(1000, 1000 + SCHEDULES)]
    assert max(number for number in turns if number is not None) < 3


@pytest.mark.long
def test_the_study_prints_its_tables(capsys, tmp_path):
    small = ["--plays", "1", "--settings", "4", "--schedules", "4", "--only"]
    page = tmp_path / "pool.html"
    main([*small, "table", "peers", "--report", str(page)])
    out = capsys.readouterr().out
    assert "| D6 ÷ D1 |" in out
    assert "D8 overhead ÷ reference" in page.read_text()
    main([*small, "capacity", "rest", "--json"])
    message = json.loads(capsys.readouterr().out)
    assert message["Capacity against the knee of a sweep"]["all"][0] < 0.1
    assert math.isfinite(message["Does D8 come to rest?"]["backlog"][0]["level"])
