"""Studies of promises: the arena, the rivals, reliability, and every study by its name."""

import math
import re
from functools import cache

import numpy as np
import pytest
from vgrads_studies.promises.arena import (
    Arena,
    draw_case,
    draw_instants,
    forecasts_at,
    most_busy,
    rescheduled,
)
from vgrads_studies.promises.ours import simulate
from vgrads_studies.promises.reliability import PromiseRow, reliability
from vgrads_studies.promises.replication import lead
from vgrads_studies.promises.rivals import RIVALS, Result, as_piece

from tests.qbets.test_state import simulated
from vgrads.qbets.forecast import forecast
from vgrads.qbets.predictor import Settings
from vgrads.traces.swf import write_swf
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task

pytestmark = pytest.mark.more

DAY_S = 86_400.0


@cache
def arena() -> tuple[Arena, list]:
    log = rescheduled(simulated(2500, seed=5))
    pairs = draw_instants(log, 12, 0, DAY_S)
    knowns = forecasts_at(log, [at_s for pair in pairs for at_s in pair], Settings())
    cases = [draw_case(n, 0, pair, [lead()]) for n, pair in enumerate(pairs)]
    return Arena(log=log, procs=most_busy(log), forecasts=knowns), cases


def test_the_history_in_a_pass_is_what_each_instant_knew():
    reserved, cases = arena()
    for case in cases[:4]:
        for at_s in case.instants:
            plain, result = forecast(reserved.log, at_s), reserved.forecasts[at_s]
            times = [0.0, 600.0, 7200.0]
            ours, theirs = (f.probability(16, 7200.0, times) for f in (result, plain))
            assert np.allclose(ours, theirs)


def test_a_history_created_by_the_scheduler_is_reproduced():
    log = simulated(1200)
    again = rescheduled(log)
    assert np.allclose(again.wait_s, log.wait_s)
    again.check()


@pytest.mark.parametrize(("procs", "makespan_s"), [(2, 70.0), (3, 60.0), (8, 60.0)])
def test_a_workflow_whole_job(procs, makespan_s):
    tasks = [
        Task(id="a", runtime_s=10),
        Task(id="b", runtime_s=30, procs=2, parents=("a",)),
        Task(id="c", runtime_s=10, parents=("a",)),
        Task(id="d", runtime_s=20, procs=2, parents=("b", "c")),
    ]
    piece = as_piece(make_workflow("w", tasks), procs)
    assert (piece.makespan_s, piece.work_s) == (makespan_s, 120.0)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_counts_what_it_did(name):
    reserved, cases = arena()
    for case in cases:
        result = RIVALS[name](reserved, case)
        least_s = as_piece(case.workflow_set.workflows[0]).makespan_s
        assert len(result.done_s) == len(case.workflow_set.workflows)
        assert all(at_s >= least_s - 1e-6 for at_s in result.done_s)
        assert result.in_time == sum(at_s <= case.workflow_set.deadline_s for at_s in result.done_s)
        assert result.kept == (result.in_time >= case.workflow_set.needed)
        assert 0 <= result.used_hours <= result.slot_hours + 1e-6
        assert result.usd >= 0


def test_two_machines_start_no_later_than_one():
    reserved, cases = arena()
    for case in cases:
        race, alone = (
            sorted(RIVALS[name](reserved, case).done_s) for name in ("race", "slot each")
        )
        assert sum(map(math.isfinite, race)) >= sum(map(math.isfinite, alone))
    ideal = [RIVALS["reservation (ideal)"](reserved, case) for case in cases]
    assert all(result.binding_s == 0.0 for result in ideal)


@pytest.mark.long
def test_our_planner_keeps_what_it_promises_and_more_than_the_best_rival():
    reserved, cases = arena()
    ours = [simulate(reserved.grid(case), case, "vgrads") for case in cases]
    rival = [RIVALS["wait, then cloud"](reserved, case) for case in cases]
    assert sum(r.kept for r in ours) >= sum(r.kept for r in rival)
    sure = [r.kept for r in ours if r.promised >= 0.9]
    assert len(sure) >= 6
    assert np.mean(sure) >= 0.8
    for result in ours:
        assert 0 <= result.promised <= 1
        assert result.slot_hours >= 0


def rows(pairs):
    """One set for each (promise, kept)."""
    return [
        PromiseRow(
            log="x",
            case=n,
            strategy="s",
            needed=1,
            result=Result(
                in_time=int(retained),
                kept=retained,
                slot_hours=1,
                used_hours=1,
                usd=0,
                done_s=(1.0,),
                promised=promised,
            ),
        )
        for n, (promised, retained) in enumerate(pairs)
    ]


def test_reliability_is_taken_apart_without_remainder():
    """Promises that are equal within their bins: Murphy's three parts add up exactly."""
    pairs = [(0.95, True)] * 18 + [(0.95, False)] * 2 + [(0.5, True)] * 4 + [(0.5, False)] * 6
    result = reliability(rows(pairs), "s")
    assert result.brier == pytest.approx(
        result.reliability - result.resolution + result.uncertainty
    )
    assert [(b.count, b.kept) for b in result.bins] == [(10, 0.4), (20, 0.9)]
    assert result.error == pytest.approx((10 * 0.1 + 20 * 0.05) / 30)
    assert reliability(rows(pairs), "nobody") is None


@pytest.fixture
def history(tmp_path):
    file = tmp_path / "batch.swf"
    file.write_text(write_swf(simulated(1600, seed=7)))
    return file


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "more", "count"),
    [
        ("promises", ["LOG", "--count", 4], 4 * 10),
        ("table1", ["LOG", "--count", 4], 6),
        ("bounds", ["LOG", "--method", "bmbp", "--method", "qbets"], 2),
        ("whatif", ["LOG", "--count", 2, "--budget", 5], 25),
        ("timeline", ["--runs", 2], 0),
    ],
)
def test_every_study_answers_draws_and_repeats(vgrads, tmp_path, history, name, more, count):
    requested = [str(history) if word == "LOG" else word for word in more]
    page = tmp_path / "report.html"
    first = vgrads("study", name, *requested, "--report", page, "--json")
    assert first.code == 0, first.err
    again = vgrads("study", name, *requested, "--json")
    assert without_times(first.json) == without_times(again.json)
    if count:
        assert len(first.json["rows"]) == count
    text = page.read_text()
    assert "<svg" in text
    assert "<table>" in text
    assert re.search(r'class="conclusion">[^<]*\d[^<]*\.</p>', text)
    assert not {"http-equiv", "<script", "<link", "<img"} & set(text.split())


def without_times(value):
    """What a clock says differs from call to call."""
    clocks = {"planning_s", "seconds", "jobs_per_s", "spans"}
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in clocks}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["promises", "varq"])
def test_a_view_that_does_not_exist_is_refused_with_the_choices(vgrads, name):
    answer = vgrads("study", name, "nowhere.swf", "--recorded", "--view", "waiting")
    assert answer.code == 2
    assert "--view: 'waiting' is none of 'full', 'started', 'ended'" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_simulated_queue_hides_no_jobs_from_reservations(vgrads):
    answer = vgrads("study", "varq", "nowhere.swf", "--view", "ended")
    assert answer.code == 2
    assert "--view: " in answer.err
    assert "add --recorded" in answer.err


@pytest.mark.parametrize("name", ["promises", "table1", "bounds", "whatif"])
def test_a_study_of_a_log_that_is_not_there_says_so(vgrads, name):
    answer = vgrads("study", name, "nowhere.swf")
    assert answer.code == 2
    assert "nowhere.swf: no such file" in answer.err
