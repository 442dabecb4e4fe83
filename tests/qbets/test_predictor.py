"""Streams, clusters, arrays, downtimes, predictors, forecasts."""

import pickle
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logs import make_log
from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.qbets.adaptive_correction import AdaptiveCorrection
from vgrads.qbets.bounds import find_upper_rank
from vgrads.qbets.clusters import SIZES, find_bin, find_edges
from vgrads.qbets.forecast import forecast
from vgrads.qbets.predictor import METHODS, JobArrival, QueuePredictor, Settings
from vgrads.qbets.replay import learn, replay
from vgrads.qbets.stream import ObservedWait, WaitStream

BMBP = Settings(method="bmbp", quantile=0.5)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.booleans()), max_size=300),
    st.sampled_from([0.5, 0.75]),
)
def test_a_stream_gives_the_bound_of_its_sorted_history(steps, quantile):
    waits = WaitStream(quantile, 0.95)
    for number, (wait_s, missed) in enumerate(steps):
        waits.judge(missed)
        waits.add(ObservedWait(number, float(wait_s), 1.0))
        waits.check()
        rank = find_upper_rank(len(waits), quantile, 0.95)
        assert waits.bound == (None if rank is None else waits.sorted_waits[rank - 1])


def test_a_change_point_keeps_the_minimum_and_slides_out_what_is_old():
    waits = WaitStream(0.5, 0.95, [ObservedWait(n, float(n % 10), 1.0) for n in range(100)])
    assert waits.minimum == 5
    longest = 0
    while not waits.judge(True):
        waits.add(ObservedWait(100 + longest, 1000.0, 1.0))
        longest += 1
    assert longest < 40
    assert len(waits) == waits.minimum
    for n in range(waits.minimum):
        waits.add(ObservedWait(200 + n, 2000.0, 1.0))
        assert len(waits) >= waits.minimum
    assert waits.sorted_waits.min() >= 1000.0


def test_a_waiting_job_past_its_bound_is_a_miss_at_once():
    predictor = QueuePredictor(BMBP)
    for n in range(20):
        predictor.submit(n, float(n), JobArrival())
        predictor.start(n, n + 0.5)
    for n in range(20, 60):  # the queue stalls: nobody starts any more
        predictor.submit(n, float(n), JobArrival())
    predictor.advance(100.0)
    predictor.check()
    assert predictor.change_points


def test_a_withdrawn_job_is_no_wait_but_may_be_a_miss():
    predictor = QueuePredictor(BMBP)
    predictor.submit(1, 0.0, JobArrival(user=3))
    predictor.withdraw(1, 5.0)
    assert (len(predictor.streams[0]), dict(predictor.ahead)) == (0, {})
    for n in range(20):
        predictor.submit(n, 10.0 + n, JobArrival())
        predictor.start(n, 10.5 + n)
    for n in range(30, 70):  # each is withdrawn after it outlived its bound
        predictor.submit(n, float(n), JobArrival())
        predictor.withdraw(n, n + 1.0)
    assert predictor.change_points


def test_the_clock_must_not_run_backwards():
    predictor = QueuePredictor(Settings())
    predictor.advance(10.0)
    with pytest.raises(InputError, match="backwards"):
        predictor.submit(1, 9.0, JobArrival())


def test_unknown_methods_and_sizes_are_refused():
    for wrong in (Settings(method="magic"), Settings(size="colour")):
        with pytest.raises(InputError, match="known: "):
            QueuePredictor(wrong)


def test_an_array_is_a_single_observation_unless_configured_otherwise():
    def observations(arrays, users):
        predictor = QueuePredictor(Settings(arrays=arrays))
        for n, user in enumerate(users):
            predictor.submit(n, float(n), JobArrival(4, 60.0, user))
        for n in range(len(users)):
            predictor.start(n, 100.0)
        return sum(len(part) for part in predictor.streams)

    assert observations(True, [1] * 50) == 1
    assert observations(False, [1] * 50) == 50
    assert observations(True, list(range(50))) == 50
    assert observations(True, [-1] * 50) == 50  # without users nobody's jobs belong together


def test_a_downtime_is_noticed_and_remembered():
    predictor = QueuePredictor(BMBP)
    for n in range(100):
        predictor.submit(n, 10.0 * n, JobArrival())
        predictor.start(n, 10.0 * n + 1)
    for n in range(100, 120):
        predictor.submit(n, 10.0 * n, JobArrival())
    stall = predictor.downtime.at(1200.0)
    assert (stall.since_s, stall.until_s, stall.submissions) == (991.0, None, 20)
    predictor.start(100, 1300.0)
    assert [d.until_s for d in predictor.downtime.past] == [1300.0]
    assert predictor.downtime.at(1300.0) is None


rows_strategy = st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1e5)), min_size=1, max_size=400)


@given(rows_strategy, st.integers(1, 60))
def test_bins_cover_all_sizes_and_none_is_thin(rows, minimum):
    sizes, waits = np.array([float(s) for s, _ in rows]), np.array([w for _, w in rows])
    edges = find_edges(sizes, waits, minimum)
    assert edges == sorted(set(edges))
    counts = np.bincount([find_bin(edges, s) for s in sizes], minlength=len(edges) + 1)
    assert len(edges) == 0 or counts.min() >= minimum


def test_bins_part_what_differs_and_join_what_does_not():
    draws = stream(7, "bins")
    sizes = np.repeat([1.0, 2.0, 3.0, 4.0], 500)
    scale = np.repeat([10.0, 10.0, 1000.0, 1000.0], 500)
    assert find_edges(sizes, scale * draws.exponential(1.0, 2000), 50) == [2.0]


def test_sizes():
    result = {name: size(4, 100.0, 2) for name, size in SIZES.items()}
    assert result == {"none": 0.0, "procs": 4.0, "time": 100.0, "product": 400.0, "backlog": 1200.0}


@pytest.mark.parametrize("method", METHODS)
def test_nothing_later_is_looked_at(method):
    """Corrupt the future of every job that is still waiting or not yet submitted: no bound
    changes."""
    settings = Settings(method=method)
    log = make_log(3000, seed=3)
    cut = float(log.submit_s[2000])
    issued = replay(log, QueuePredictor(settings), cut)
    unknown = log.start_s > cut
    for factor in (0.0, 50.0):
        waits = log.wait_s.copy()
        waits[unknown] = np.maximum(
            waits[unknown] * factor, (cut - log.submit_s[unknown]).clip(min=0) + 1
        )
        twisted = make_log(3000, seed=3, waits=waits)
        np.testing.assert_array_equal(replay(twisted, QueuePredictor(settings), cut), issued)
    assert np.isfinite(issued).sum() > 1500


def simulate(predictor, log, after=-np.inf):
    """Feed what happens after an instant, one event at a time; yields the bounds issued."""
    events = sorted(
        [(t, 0, r) for r, t in enumerate(log.submit_s)]
        + [(t, 1, r) for r, t in enumerate(log.start_s)]
    )
    for at_s, kind, row in events:
        if at_s > after and kind == 0:
            arrival = JobArrival(int(log.procs[row]), float(log.request_s[row]), int(log.user[row]))
            yield predictor.submit(row, at_s, arrival)
        elif at_s > after:
            predictor.start(row, at_s)


def contents(value):
    """All that a predictor holds, as text: two that hold the same are equal."""
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    if isinstance(value, int | float):  # which kind of number it is does not matter
        return repr(float(value))
    if isinstance(value, list | tuple | deque):
        return repr([contents(part) for part in value])
    if isinstance(value, dict):
        return repr([(contents(key), contents(part)) for key, part in value.items()])
    names = getattr(value, "__slots__", ()) or getattr(value, "__dict__", ())
    return repr([(n, contents(getattr(value, n))) for n in names]) if names else repr(value)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_predictor_goes_on_exactly_where_it_stopped(method):
    settings = Settings(method=method, quantile=0.9)
    log = make_log(4000, seed=9)
    whole = QueuePredictor(settings)
    expected = replay(log, whole)
    first = QueuePredictor(settings)
    cut = float(log.submit_s[2500])
    replay(log, first, cut)
    second = pickle.loads(pickle.dumps(first))
    second.check()
    assert contents(second) == contents(first)
    issued = list(simulate(second, log, cut))
    np.testing.assert_array_equal(issued, expected[log.submit_s > cut])
    assert contents(second) == contents(whole)


def test_invariants_hold_all_the_way():
    predictor = QueuePredictor(Settings(quantile=0.75))
    for number, _ in enumerate(simulate(predictor, make_log(2500, seed=4))):
        if number % 50 == 0:
            predictor.check()
    predictor.check()
    assert len(predictor.streams) == len(predictor.edges) + 1


def test_what_is_learned_up_to_an_instant_is_what_a_shorter_log_teaches():
    log = make_log(1500, seed=5)
    cut = float(log.submit_s[1000])
    short = log.select(log.submit_s <= cut)
    assert contents(learn(log, Settings(), cut)) == contents(learn(short, Settings(), cut))


def test_a_forecast_answers_many_questions_at_once_and_consistently():
    existing = forecast(make_log(3000, seed=8), 1e9)
    levels = np.array([0.5, 0.75, 0.9, 0.95])
    bounds = existing.bounds(8, 3600.0, levels)
    assert np.all(np.diff(bounds) >= 0)
    assert np.all(existing.probability(8, 3600.0, bounds) >= levels - 1e-9)
    assert existing.bound(8, 3600.0, 0.9).bound_s == bounds[2]
    curve = existing.probability(8, 3600.0, np.linspace(0, 1e5, 500).reshape(50, 10))
    assert curve.shape == (50, 10)
    assert np.all(np.diff(curve.ravel()) >= 0)


def test_the_referee_speaks_only_when_misses_are_more_than_chance():
    correction = AdaptiveCorrection(0.95)
    for n in range(1000):
        correction.judge(n % 10 == 0 and n % 20 == 0)  # one in twenty
        correction.check()
    assert correction.correction_factor == 1.0
    for n in range(100):
        correction.judge(n % 4 == 0)  # one in four
    assert correction.correction_factor == pytest.approx(0.05 / 0.25)
    for _ in range(100):
        correction.judge(False)
    assert correction.correction_factor == 1.0


def test_under_caution_bounds_grow_and_stay_consistent_with_probabilities():
    calm = forecast(make_log(3000, seed=8), 1e9)
    wary = replace(calm, correction_factor=0.25)
    levels = np.array([0.5, 0.75, 0.9, 0.95])
    bounds = wary.bounds(8, 3600.0, levels)
    assert np.all(bounds >= calm.bounds(8, 3600.0, levels))
    reached = wary.probability(8, 3600.0, bounds)
    longest = bounds >= wary.waits(8, 3600.0)[-1]
    assert np.all((reached >= levels - 1e-9) | longest)
    assert np.all(wary.probability(8, 3600.0, bounds) <= calm.probability(8, 3600.0, bounds))


@given(st.integers(59, 400), st.floats(0.951, 0.999))
def test_a_stricter_bound_is_that_of_the_sorted_history(count, quantile):
    waits = WaitStream(
        0.95, 0.95, [ObservedWait(n, float(n * 7919 % 1000), 1.0) for n in range(count)]
    )
    rank = find_upper_rank(count, quantile, 0.95) or count
    assert waits.stricter_bound(quantile) == waits.sorted_waits[rank - 1]
