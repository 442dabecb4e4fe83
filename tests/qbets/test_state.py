"""Bounds that look at the queue: states, the model, its correction, whose answer is given."""

import itertools
import pickle
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.examples import examples
from tests.logs import make_log, queued_log
from tests.waiting import until
from vgrads.api.queues.live_queue import make_present_forecast
from vgrads.api.queues.site_snapshots import SiteSnapshot
from vgrads.drivers.api import QueuedJob
from vgrads.kernel.streams import stream
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.qbets.backtest import backtest, compute_rolling_coverage
from vgrads.qbets.conditional import LEVELS
from vgrads.qbets.conformal import MAX_SCORES, Calibration, ScoreRing, derive_class_marks
from vgrads.qbets.correction_pass import choose_method
from vgrads.qbets.explain import SIDES, explain
from vgrads.qbets.forecast import QueueForecast
from vgrads.qbets.knots import HIGHEST, SCORES, score_of, score_within, wait_at
from vgrads.qbets.past_replay import find_floor_start
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor, replay
from vgrads.qbets.state.queue_features import FEATURES
from vgrads.qbets.state.queue_state import QueueState
from vgrads.qbets.state.queue_tables import BUSY, RUNNING
from vgrads.qbets.state.start_estimates import start_estimates
from vgrads.qbets.state_forecast import StateForecast, age_forecast, forecast_state, freeze_state
from vgrads.qbets.state_predictor import StatePredictor, list_anchors, required_for
from vgrads.simulator.backfill import BatchJob, Conservative
from vgrads.simulator.replay import Workload, replay_starts
from vgrads.traces.history import read_history
from vgrads.traces.swf import write_swf

STATE = Settings(method="state")


simulated = cache(queued_log)


@cache
def predicted() -> StateForecast:
    log = simulated(4000)
    result = forecast_state(log, log.end_s * 0.9, STATE)
    assert isinstance(result, StateForecast)
    return result


# the state of a queue


def test_a_state_tells_who_waits_and_who_runs():
    state = QueueState()
    state.submit(1, 0.0, JobArrival(4, 3600.0, user=7))
    state.start(1, 10.0)
    state.submit(2, 20.0, JobArrival(2, 1800.0, user=7))
    result = dict(zip(FEATURES, state.features(JobArrival(4, 60.0, user=7), 110.0), strict=True))
    assert (result["jobs waiting"], result["jobs running"]) == (1, 1)
    assert (result["own jobs waiting"], result["own processors running"]) == (1, 4)
    assert result["free share"] == 0.0  # the most ever seen busy is the machine
    assert result["room by request"] == pytest.approx(np.log1p(3500.0))
    assert result["oldest waiting"] == pytest.approx(np.log1p(90.0))
    assert result["user's last wait"] == pytest.approx(np.log1p(10.0))
    state.end(1, 910.0)  # a quarter of its request
    assert state.expected_s(JobArrival(1, 1000.0, user=7)) == pytest.approx(250.0)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_start_estimates_are_those_of_the_simulator(data):
    job = st.tuples(st.integers(1, 8), st.integers(1, 50).map(float))
    running = data.draw(st.lists(job, max_size=4))
    while sum(procs for procs, _ in running) > 8:
        running.pop()
    waiting = data.draw(st.lists(job, max_size=7))
    ours = data.draw(job)
    rows = [(procs, left, left) for procs, left in waiting]
    table = np.array(rows, dtype=float).reshape(-1, 3)
    reserved = np.array([(p, left, left) for p, left in running], dtype=float).reshape(-1, 3)
    result = np.empty(4)
    start_estimates(table, reserved, 8, (*ours, ours[1]), result)
    fcfs, easy, conservative, likely = result
    queue = [*waiting, ours]
    ends = np.array([left for _, left in running])
    load = Workload(
        submit_s=np.zeros(len(queue)),
        procs=np.array([p for p, _ in queue]),
        request_s=np.array([r for _, r in queue]),
        run_s=np.array([r for _, r in queue]),
        placed_ends_s=ends,
        placed_limits_s=ends,
        placed_procs=np.array([p for p, _ in running], dtype=np.int64),
    )
    assert fcfs == replay_starts(load, 8, "fcfs")[-1]
    assert easy == likely == replay_starts(load, 8, "easy")[-1]
    rule = Conservative()
    jobs = [
        BatchJob(str(n), procs, requested, requested) for n, (procs, requested) in enumerate(queue)
    ]
    free = 8 - sum(procs for procs, _ in running)
    rule(jobs, free, sorted((left, procs) for procs, left in running), 0.0)
    assert conservative == rule._starts[str(len(queue) - 1)]


# levels and waits

knots_of = arrays(
    np.float64, len(LEVELS), elements=st.floats(0, 100, allow_nan=False).map(lambda x: round(x, 3))
).map(np.sort)


@given(knots_of, st.floats(0, HIGHEST), st.floats(0, HIGHEST))
def test_waits_rise_with_their_level_and_back(knots, item, other):
    low, high = sorted((item, other))
    assert wait_at(knots, low) <= wait_at(knots, high)
    wait_s = wait_at(knots, item)
    assert score_within(knots, wait_s) >= item - 1e-6
    assert score_of(knots, wait_s) <= item + 1e-6
    assert wait_at(knots, score_of(knots, wait_s)) >= wait_s - 1e-6 * max(1.0, wait_s)
    assert wait_at(knots, float(SCORES[2])) == pytest.approx(knots[2] ** 3)


@pytest.mark.more
@pytest.mark.parametrize("quantile", [0.5, 0.75, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("stretch", [0.4, 1.0, 2.0])
def test_a_wrong_model_is_brought_back_to_its_level(quantile, stretch):
    """Scores that are too long or too short by a factor: right again on the second half."""
    calibration, draws = Calibration(quantile), stream(1, f"{quantile}{stretch}")
    retained = []
    for score in np.minimum(stretch * draws.exponential(size=6000), HIGHEST):
        issued = calibration.issue(0)
        retained.append(score <= issued.score)
        calibration.judge(0, issued, not retained[-1])
        calibration.learn(0, issued, float(score))
        calibration.check()
    assert np.mean(retained[3000:]) == pytest.approx(quantile, abs=0.03)


def test_a_miss_counts_before_the_wait_ends():
    calibration = Calibration(0.95)
    issued = calibration.issue(1)
    calibration.judge(1, issued, True)
    assert calibration.issue(1).score > issued.score
    assert calibration.issue(0).score == issued.score  # another group
    assert calibration.groups[1].scores.newest(9, 0).tolist() == [np.inf]
    calibration.learn(1, issued, 4.0)
    assert calibration.groups[1].scores.newest(9, 1).tolist() == [4.0]


def test_scores_beyond_the_room_for_them_replace_the_oldest():
    ring, existing = ScoreRing(), []
    for number in range(MAX_SCORES + 100):
        existing.append(ring.put(-1, float(number), number + 0.5))
    ring.put(existing[5], 7.0, 7.0)  # overwritten since
    ring.put(existing[-1], 8.0, 8.0)
    assert ring.newest(3, 0).tolist() == [8.0, MAX_SCORES + 98.0, MAX_SCORES + 97.0]
    assert len(ring.newest(10**6, 1)) == MAX_SCORES
    assert ring.newest(10**6, 1)[-1] == 100.5


def test_a_rare_class_of_jobs_is_covered_as_the_others_are():
    """One job of twenty is wide, and its scores are longer by a third."""
    calibration, draws = Calibration(0.95), stream(2, "wide")
    wide = draws.random(12_000) < 0.05
    scores = np.minimum(draws.exponential(size=12_000) * np.where(wide, 1.3, 1.0), HIGHEST)
    covered = []
    for score, is_wide in zip(scores.tolist(), wide.tolist(), strict=True):
        issued = calibration.issue(0, derive_class_marks(0.5 if is_wide else 0.01, 3600.0, 2))
        covered.append(score <= issued.score)
        calibration.judge(0, issued, not covered[-1])
        calibration.learn(0, issued, score)
    late = np.arange(12_000) >= 4000
    for part in (wide & late, ~wide & late):
        assert np.array(covered)[part].mean() == pytest.approx(0.95, abs=0.025)


def test_anchors_are_dense_at_first_and_the_same_for_any_length():
    assert list_anchors(499) == []
    assert list_anchors(1000) == [500, 750, 1000]
    assert list_anchors(50_000) == list_anchors(90_000)[: len(list_anchors(50_000))]
    for count in (0, 600, 5000, 40_000, 200_000):
        needs = required_for(count)
        assert 0 <= needs.features <= needs.model <= needs.corrected <= count
        assert 0 <= find_floor_start(needs.corrected) <= needs.corrected


@pytest.mark.parametrize("knows_user", [pytest.param(False, marks=pytest.mark.more), True])
def test_a_single_answer_is_that_of_a_replay_of_the_whole_history(knows_user):
    """The backtest scores the very model that a command uses."""
    log = simulated(6000)
    settings_ = replace(STATE, knows_user=knows_user)
    passing = HistoryReplay(log, make_predictor(settings_, log))
    for row in (700, 1300, 2800, 4100, 5990):
        at_s = float(np.nextafter(log.submit_s[row], -np.inf))
        passing.to(at_s)
        whole = freeze_state(passing.predictor, at_s, float(log.submit_s[0]))
        single = forecast_state(log, at_s, settings_)
        for shape in ((1, 600.0), (8, 3600.0), (60, 20_000.0)):
            levels = [0.5, 0.75, 0.95]
            assert np.allclose(
                single.bounds(*shape, levels), whole.bounds(*shape, levels), rtol=1e-9, atol=1e-9
            )


# the predictor


def test_nothing_is_used_before_its_time():
    """What comes after an instant is changed beyond recognition: no bound before it moves."""
    log = simulated(1600)
    instant = log.submit_s[1200]
    later = log.start_s > instant
    far = replace(
        log,
        wait_s=np.where(later, log.wait_s * 7 + 9999.0, log.wait_s),
        run_s=np.where(log.start_s + log.run_s > instant, log.run_s * 5 + 777.0, log.run_s),
        procs=np.where(log.submit_s > instant, 1, log.procs),
    )
    early = log.submit_s <= instant
    ours, theirs = (
        replay(existing, StatePredictor(existing, STATE))[early] for existing in (log, far)
    )
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert not np.array_equal(log.wait_s[early], far.wait_s[early])


def test_a_stored_replay_continues_with_a_log_that_has_grown():
    """One that had learned from other events is refused."""
    log = simulated(6000)
    middle_s, at_s = float(log.submit_s[4000]), float(log.submit_s[5500])
    earlier = log.select((log.submit_s <= middle_s) & (log.start_s <= middle_s + 1e9))
    predictor = StatePredictor(earlier, STATE, middle_s)
    predictor.to(middle_s)
    content = pickle.dumps(predictor)
    again = pickle.loads(content)
    assert again.resumed(log, STATE, at_s)
    again.to(at_s)
    continued = freeze_state(again, at_s, 0.0)
    fresh = forecast_state(log, at_s, STATE)
    shapes = ((1, 600.0), (8, 3600.0), (60, 20_000.0))
    bounds = [[f.bounds(*s, [0.5, 0.95]) for s in shapes] for f in (continued, fresh)]
    assert np.allclose(*bounds, rtol=1e-6)
    other = replace(log, wait_s=np.where(np.arange(6000) == 3000, 7.0, log.wait_s))
    without = log.select(np.arange(6000) != 2500)
    for changed in (other, without, replace(log, procs=log.procs + 1)):
        assert not pickle.loads(content).resumed(changed, STATE, at_s)
    assert not pickle.loads(content).resumed(log, STATE, middle_s - 1.0)


def test_a_stored_replay_that_lacks_what_an_instant_needs_is_refused():
    """One for a later instant has corrections of bounds that start later."""
    log = simulated(6000)
    anchors = list_anchors(5900)
    stop_s, at_s = (float(log.submit_s[anchors[n] - 1]) for n in (-2, -1))
    predictor = StatePredictor(log, STATE, at_s + 1.0)
    predictor.to(stop_s)
    content = pickle.dumps(predictor)
    assert not pickle.loads(content).resumed(log, STATE, stop_s + 1.0)
    assert pickle.loads(content).resumed(log, STATE, at_s + 1.0)


def test_the_state_is_tighter_where_the_rule_is_configured():
    log = simulated(6000)
    state, floor = (backtest(log, "simulated", settings=s).row() for s in (STATE, Settings()))
    assert state.method == "state"
    assert (state.scored, state.unscored) == (floor.scored, floor.unscored)
    assert state.coverage == pytest.approx(0.95, abs=0.012)
    assert state.pinball_s < 0.7 * floor.pinball_s
    assert state.quick_bounded > 1.5 * floor.quick_bounded


def test_a_regime_change_costs_no_more_than_with_qbets():
    """From one job to the next everything runs half as long again, and waits ten times as long."""
    log = simulated(5000, seed=3, jump=1.5)
    lost = {}
    for chosen in (STATE, Settings()):
        trial = backtest(log, "shift", settings=chosen)
        retained = (log.wait_s <= trial.issued_s)[2400:]
        lost[chosen.method] = int((compute_rolling_coverage(retained, 200) < 0.9).sum())
        assert trial.scored[2400:].all()
        assert retained[-1000:].mean() >= 0.93
    assert lost["state"] <= lost["qbets"]


def test_few_jobs_are_left_to_qbets():
    log = make_log(480)
    assert isinstance(forecast_state(log, log.end_s, STATE), QueueForecast)
    assert forecast_state(make_log(600), make_log(600).end_s, STATE).method == "qbets"
    trial = backtest(log, "few", settings=STATE)
    plain = backtest(log, "few", settings=Settings())
    assert np.array_equal(trial.issued_s, plain.issued_s, equal_nan=True)
    assert set(trial.predictor.answered) == {"qbets"}


def test_under_alarm_and_in_bursts_the_larger_of_both_is_issued():
    calibration = Calibration(0.95)

    def whose(judged, group, floor):
        return choose_method(calibration, judged, group, floor, True).whose

    assert whose(199, 0, True) == "qbets"
    assert whose(1000, 0, True) == "state"
    assert whose(1000, 0, False) == "state"
    assert whose(1000, 2, True) == "both"
    for _ in range(8):
        calibration.judge(1, calibration.issue(1), True)
    assert whose(1000, 1, True) == "both"


def test_a_useless_state_costs_little():
    """Waits that have nothing to do with the queue: what trees make of noise is blended and
    corrected."""
    log = simulated(3000)
    draws = np.random.default_rng(3)
    log = replace(log, wait_s=draws.exponential(3000.0, len(log)))
    rows = {
        chosen.method: backtest(log, "noise", settings=chosen).row()
        for chosen in (STATE, Settings())
    }
    assert rows["state"].coverage == pytest.approx(0.95, abs=0.02)
    assert rows["state"].pinball_s <= 1.15 * rows["qbets"].pinball_s


def test_withdrawn_jobs_teach_nothing_and_leave():
    log = simulated(1500)
    gone = np.arange(1500) % 7 == 0
    log = replace(log, started=~gone)
    trial = backtest(log, "withdrawn", settings=STATE)
    trial.predictor.check()
    assert trial.row().withdrawn == gone.sum()
    assert not trial.predictor.state.waiting
    assert trial.predictor.state.tables.numbers[RUNNING] == 0


# forecasts


def test_bounds_and_probabilities_are_a_single_distribution():
    forecast = predicted()
    levels = np.array([0.3, 0.5, 0.75, 0.9, 0.95, 0.99])
    for procs, walltime_s, ahead in itertools.product((1, 32), (600.0, 20_000.0), (0, 3, 80)):
        bounds = forecast.bounds(procs, walltime_s, levels)
        assert np.all(np.diff(bounds) >= 0)
        chances = forecast.probability(procs, walltime_s, bounds)
        assert np.all(chances >= levels - 1e-9)
        spread = forecast.probability(procs, walltime_s, np.linspace(0, 1e6, 50), ahead=ahead)
        assert np.all(np.diff(spread) >= 0)
        assert 0 <= spread[0] <= spread[-1] <= 1


def test_an_explanation_names_what_moved_the_bound_and_adds_up():
    forecast = predicted()
    explanation = explain(forecast, 32, 20_000.0, 0.95)
    assert {reason.side for reason in explanation.reasons} == set(SIDES)
    moved = [reason.moved_s for reason in explanation.reasons]
    assert [abs(s) for s in moved] == sorted((abs(s) for s in moved), reverse=True)
    assert abs(moved[0]) > 0
    assert explanation.bound_s == pytest.approx(forecast.bounds(32, 20_000.0, 0.95), rel=1e-6)
    assert explanation.usual_bound_s + sum(moved) == pytest.approx(explanation.bound_s)
    named = [name for names in SIDES.values() for name in names]
    assert sorted(named) == sorted(FEATURES)


def test_a_live_queue_is_the_state_that_a_job_finds():
    log = simulated(1500)
    now_s = log.end_s + 5000.0
    log = replace(log, unix_start_s=time.time() - now_s)
    jobs = [
        QueuedJob(queue="batch", user="eve", procs=60, requested_s=9000.0, left_s=8000.0),
        *(
            QueuedJob(queue="batch", user="bob", procs=32, requested_s=7000.0, waited_s=600.0 * n)
            for n in range(1, 30)
        ),
    ]
    quiet = forecast_state(log, log.end_s, STATE)
    crowded = as_listed(quiet, log, jobs)
    assert not quiet.state.waiting
    assert len(crowded.state.waiting) == 29
    assert crowded.at_s == pytest.approx(now_s, abs=60.0)
    assert crowded.state.tables.numbers[BUSY] == 60
    assert crowded.bounds(32, 7000.0, 0.95) > 3 * quiet.bounds(32, 7000.0, 0.95)


def test_who_waits_for_any_queue_waits_in_each():
    log = simulated(1500)
    log = replace(log, unix_start_s=time.time() - log.end_s)
    existing = forecast_state(log, log.end_s, STATE)
    jobs = [
        QueuedJob(queue=queue, user="eve", procs=8, requested_s=600.0, waited_s=60.0)
        for queue in ("", "batch", "long,batch", "long")
    ]
    assert len(as_listed(existing, log, jobs).state.waiting) == 3


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (None, "its site has not been asked yet"),
        (SiteSnapshot(problem="no answer within 30 s"), "no answer within 30 s"),
        (
            SiteSnapshot(taken_unix_s=1.0, is_hidden=True),
            "its site shows users their own jobs alone",
        ),
    ],
)
def test_a_queue_that_is_not_listed_is_never_an_empty_one(snapshot, reason):
    log = simulated(1500)
    busy_s = float(log.submit_s[1200])
    log = replace(log, unix_start_s=time.time() - busy_s - 600.0)
    existing = forecast_state(log, busy_s, STATE)
    silent, view = make_present_forecast(existing, log, "batch", snapshot)
    assert silent.age_s == pytest.approx(600.0, abs=60.0)
    assert silent.state is existing.state
    assert (view.source, view.waiting, view.reason) == ("past", None, reason)
    assert reason in view.sentence


def test_a_listing_that_is_old_counts_less_and_says_so():
    log = simulated(1500)
    log = replace(log, unix_start_s=time.time() - log.end_s - 9000.0)
    existing = forecast_state(log, log.end_s, STATE)
    snapshot = SiteSnapshot(taken_unix_s=time.time() - 7200.0, problem="no answer")
    aging, view = make_present_forecast(existing, log, "batch", snapshot)
    assert aging.age_s == pytest.approx(7200.0, abs=60.0)
    assert view.sentence == "queue as of 2h ago: 0 jobs wait, 0 run (no answer)"


def as_listed(forecast, log, jobs):
    """The forecast of a queue that its site lists now."""
    snapshot = SiteSnapshot(taken_unix_s=time.time(), jobs=tuple(jobs))
    return make_present_forecast(forecast, log, "batch", snapshot)[0]


def test_the_older_a_state_the_less_it_says():
    """A queue that is full now says little of tomorrow: then past waits speak."""
    full = forecast_state(simulated(1500), simulated(1500).submit_s[1200], STATE)
    shape, levels = (32, 7000.0), [0.5, 0.95]
    now, later, much_later = (
        age_forecast(full, s).bounds(*shape, levels) for s in (0.0, 3600.0, 1e7)
    )
    past = np.cbrt(full.floor.waits(*shape))
    assert abs(much_later[0] ** (1 / 3) - np.quantile(past, 0.5)) < 0.2 * past.max()
    assert np.all((now - later) * (later - much_later) >= 0)


def test_a_forecast_cache_learns_aside(tmp_path):
    file = tmp_path / "batch.swf"
    file.write_text(write_swf(simulated(1500)))
    learned = LearnedStates()
    try:
        assert learned.find(str(file), None) is None
        until(lambda: learned.settled(str(file), None), "what the learned learns", 120.0)
        forecast = learned.find(str(file), None)
        assert isinstance(forecast, StateForecast)
        assert forecast.bound(1, 600.0, 0.95).bound_s >= 0
    finally:
        learned.close()
    assert learned.find(str(file), "other") is None


def test_the_first_jobs_of_a_real_log(shared):
    log = read_history(shared / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz").select(np.arange(6000))
    state, floor = (backtest(log, "KTH", settings=s).row() for s in (STATE, Settings()))
    assert state.coverage >= 0.94
    assert state.pinball_s < 0.85 * floor.pinball_s
