"""Which job scores a forecast: held against a plain reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.api.queues.start_matching import (
    WINDOW_S,
    OpenForecast,
    match_starts,
    shape_class,
)
from vgrads.traces.records import JobLog

SHAPES = [(1, 60.0), (4, 3600.0), (7, 4000.0), (8, 3600.0)]


def log_of(jobs, unix_start_s=0.0):
    """A log of (submit, wait, shape, started), sorted by submission."""
    jobs = sorted(jobs)
    submits, waits, shapes, started = zip(*jobs, strict=True) if jobs else ((),) * 4
    count = len(jobs)
    return JobLog(
        name="log",
        submit_s=np.array(submits, float),
        wait_s=np.array(waits, float),
        run_s=np.full(count, 60.0),
        procs=np.array([SHAPES[s][0] for s in shapes], np.int64),
        request_s=np.array([SHAPES[s][1] for s in shapes], float),
        user=np.zeros(count, np.int64),
        queue=np.zeros(count, np.int64),
        started=np.array(started, bool),
        unix_start_s=unix_start_s,
    )


def reference(jobs, forecasts):
    """For each job the forecasts of the nearest instant before; the first job of each counts."""
    result = {}
    for submit_s, wait_s, shape, started in sorted(jobs):
        alike = [
            f
            for f in forecasts
            if shape_class(f.procs, f.walltime_s) == shape_class(*SHAPES[shape])
        ]
        before = [f.submit_s for f in alike if f.submit_s <= submit_s]
        if started and before and submit_s - max(before) <= WINDOW_S:
            for f in alike:
                if f.submit_s == max(before):
                    result.setdefault(f.id, (submit_s, wait_s))
    return result


INSTANTS = st.integers(0, 40).map(lambda n: n * 300.0)
JOBS = st.lists(
    st.tuples(INSTANTS, st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=25
)


@given(JOBS, st.lists(st.tuples(INSTANTS, st.integers(0, 3)), max_size=12))
def test_the_first_job_of_the_class_after_the_nearest_forecast_scores_it(jobs, issued):
    forecasts = [
        OpenForecast(id=str(n), submit_s=at, procs=SHAPES[s][0], walltime_s=SHAPES[s][1])
        for n, (at, s) in enumerate(issued)
    ]
    starts = match_starts(log_of(jobs), forecasts)
    observed = {i: (s.submit_s, s.wait_s) for i, s in starts.items()}
    assert observed == reference(jobs, forecasts)


def test_an_earlier_job_that_becomes_known_later_takes_the_place_of_a_quick_one():
    """Jobs that wait long appear late in a history: only then is the score that of the first."""
    forecasts = [OpenForecast(id="a", submit_s=0.0, procs=4, walltime_s=3600.0)]
    quick, slow = (600.0, 5.0, 1, True), (300.0, 9000.0, 1, True)
    assert match_starts(log_of([quick]), forecasts)["a"].wait_s == 5.0
    assert match_starts(log_of([quick, slow]), forecasts)["a"].wait_s == 9000.0


@pytest.mark.parametrize("start_s", [0.0, 1e9])
def test_instants_are_in_the_time_of_the_history(start_s):
    forecasts = [OpenForecast(id="a", submit_s=start_s + 60.0, procs=4, walltime_s=3600.0)]
    assert match_starts(log_of([(90.0, 1.0, 1, True)], start_s), forecasts)
    assert not match_starts(log_of([(30.0, 1.0, 1, True)], start_s), forecasts)
    assert not match_starts(log_of([(3661.0, 1.0, 1, True)], start_s), forecasts)


def test_a_log_without_requested_times_is_matched_by_processors():
    log = log_of([(90.0, 1.0, 1, True)])
    log.request_s[:] = -1
    forecasts = [OpenForecast(id="a", submit_s=60.0, procs=4, walltime_s=86400.0)]
    assert match_starts(log, forecasts)["a"].wait_s == 1.0
