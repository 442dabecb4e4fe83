"""Which job scores a forecast, and what is known of its wait: held against a plain reference."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.api.queues.issued import ForecastOutcome
from vgrads.api.queues.start_matching import (
    PROCS_RATIO,
    TIME_RATIO,
    WINDOW_S,
    OpenForecast,
    match_starts,
)
from vgrads.traces.records import JobLog, WaitingQueue

SHAPES = [(1, 60.0), (4, 3600.0), (5, 4000.0), (8, 3600.0), (4, 5400.0)]
STARTED, WITHDRAWN, WAITS = "started", "withdrawn", "waits"
TAKEN_S = 15_000.0


def columns_of(shapes):
    return {
        "procs": np.array([SHAPES[s][0] for s in shapes], np.int64),
        "request_s": np.array([SHAPES[s][1] for s in shapes], float),
        "user": np.zeros(len(shapes), np.int64),
        "queue": np.zeros(len(shapes), np.int64),
    }


def log_of(jobs, unix_start_s=0.0, taken_s=None):
    """A log of (submit, wait, shape, what became of it); ``taken_s``: it has the jobs that wait."""
    listed = sorted(job for job in jobs if job[3] != WAITS)
    submits, waits, shapes, ends = zip(*listed, strict=True) if listed else ((),) * 4
    waiting = sorted(job for job in jobs if job[3] == WAITS)
    queue = WaitingQueue(
        is_listed=True,
        taken_s=0.0 if taken_s is None else taken_s,
        submit_s=np.array([job[0] for job in waiting], float),
        **columns_of([job[2] for job in waiting]),
    )
    return JobLog(
        name="log",
        submit_s=np.array(submits, float),
        wait_s=np.array(waits, float),
        run_s=np.full(len(listed), 60.0),
        **columns_of(shapes),
        started=np.array([end == STARTED for end in ends], bool),
        unix_start_s=unix_start_s,
        waiting=None if taken_s is None else queue,
    )


def are_alike(shape, other):
    """Whether a job of one shape scores a forecast for the other."""
    wider, longer = (max(a, b) / min(a, b) for a, b in zip(shape, other, strict=True))
    return wider <= PROCS_RATIO * (1 + 1e-9) and longer <= TIME_RATIO * (1 + 1e-9)


def reference(jobs, forecasts, until_s, is_complete):
    """Each job belongs to the forecasts for such jobs of the nearest instant before; of these jobs
    that of the nearest shape counts, of equal ones the first."""
    shown = {f.id: [] for f in forecasts}
    for submit_s, wait_s, shape, end in sorted(jobs):
        alike = [f for f in forecasts if are_alike((f.procs, f.walltime_s), SHAPES[shape])]
        before = [f.submit_s for f in alike if f.submit_s <= submit_s]
        for f in alike:
            if not before or f.submit_s != max(before) or submit_s - f.submit_s > WINDOW_S:
                continue
            procs, request_s = SHAPES[shape]
            apart = abs(math.log(procs / f.procs)) + abs(math.log(request_s / f.walltime_s))
            observed_s = until_s - submit_s
            if end == WAITS:
                observed = ForecastOutcome(submit_s=submit_s, wait_s=None, observed_s=observed_s)
            elif end == WITHDRAWN and wait_s > f.longest_s:
                observed = ForecastOutcome(submit_s=submit_s, wait_s=None, observed_s=wait_s)
            elif end == WITHDRAWN:
                continue
            else:
                observed_s = max(wait_s, observed_s - (0.0 if is_complete else request_s))
                observed = ForecastOutcome(submit_s=submit_s, wait_s=wait_s, observed_s=observed_s)
            shown[f.id].append((round(apart, 6), submit_s, wait_s, end, observed))
    # of jobs that are equal and came together, any counts
    return {
        f.id: [row[4] for row in shown[f.id] if row[:2] == min(shown[f.id])[:2]]
        or [unseen(f, until_s, is_complete)]
        for f in forecasts
    }


def unseen(forecast, until_s, is_complete):
    observed_s = until_s - forecast.submit_s - WINDOW_S - forecast.walltime_s
    observed_s = 0.0 if is_complete else max(0.0, observed_s)
    return ForecastOutcome(submit_s=None, wait_s=None, observed_s=observed_s)


INSTANTS = st.integers(0, 40).map(lambda n: n * 300.0)
JOBS = st.lists(
    st.tuples(
        INSTANTS,
        st.integers(0, 9).map(float),
        st.integers(0, len(SHAPES) - 1),
        st.sampled_from([STARTED, STARTED, WITHDRAWN, WAITS]),
    ),
    max_size=25,
)
ISSUED = st.lists(
    st.tuples(INSTANTS, st.integers(0, len(SHAPES) - 1), st.sampled_from([4.0, 1e4])), max_size=12
)


@given(JOBS, ISSUED, st.booleans())
def test_the_nearest_job_after_the_newest_forecast_for_it_shows_its_wait(jobs, issued, shows_queue):
    forecasts = [
        OpenForecast(
            id=str(n), submit_s=at, procs=SHAPES[s][0], walltime_s=SHAPES[s][1], longest_s=longest_s
        )
        for n, (at, s, longest_s) in enumerate(issued)
    ]
    if not shows_queue:
        jobs = [job for job in jobs if job[3] != WAITS]
    log = log_of(jobs, taken_s=TAKEN_S if shows_queue else None)
    ends = [submit_s + wait_s + 60.0 for submit_s, wait_s, _, _ in jobs]
    until_s = TAKEN_S if shows_queue else max(ends, default=0.0)
    expected = reference(jobs, forecasts, until_s, shows_queue)
    observed = match_starts(log, forecasts)
    if not jobs:
        assert not observed
        return
    for forecast in forecasts:
        assert observed.get(forecast.id) in expected[forecast.id]


@given(st.integers(1, 10_000), st.floats(1.0, 1e6), st.integers(1, 10_000), st.floats(1.0, 1e6))
def test_a_forecast_is_scored_by_no_job_of_another_class(procs, walltime_s, width, limit_s):
    ratios = [max(a, b) / min(a, b) for a, b in ((procs, width), (walltime_s, limit_s))]
    job = {"procs": np.array([width]), "request_s": np.array([limit_s])}
    log = replace(log_of([(60.0, 5.0, 0, STARTED)]), **job)
    forecast = OpenForecast(id="a", submit_s=0.0, procs=procs, walltime_s=walltime_s)
    if match_starts(log, [forecast])["a"].wait_s == 5.0:
        assert ratios[0] <= PROCS_RATIO * (1 + 1e-6)
        assert ratios[1] <= TIME_RATIO * (1 + 1e-6)
    else:
        assert ratios[0] >= PROCS_RATIO * (1 - 1e-6) or ratios[1] >= TIME_RATIO * (1 - 1e-6)


def test_a_job_of_its_own_shape_comes_before_an_earlier_similar_one():
    forecasts = [OpenForecast(id="a", submit_s=0.0, procs=4, walltime_s=3600.0)]
    similar, own = (60.0, 5.0, 2, STARTED), (600.0, 9.0, 1, STARTED)
    assert match_starts(log_of([similar]), forecasts)["a"].wait_s == 5.0
    assert match_starts(log_of([similar, own]), forecasts)["a"].wait_s == 9.0


def test_an_earlier_job_that_becomes_known_later_takes_the_place_of_a_quick_one():
    """Jobs that wait long appear late in a history: only then is the score that of the first."""
    forecasts = [OpenForecast(id="a", submit_s=0.0, procs=4, walltime_s=3600.0)]
    quick, slow = (600.0, 5.0, 1, STARTED), (300.0, 9000.0, 1, STARTED)
    assert match_starts(log_of([quick]), forecasts)["a"].wait_s == 5.0
    assert match_starts(log_of([quick, slow]), forecasts)["a"].wait_s == 9000.0


def test_a_job_that_waits_shows_how_long_it_has():
    forecasts = [OpenForecast(id="a", submit_s=0.0, procs=4, walltime_s=3600.0)]
    waits = [(300.0, 0.0, 1, WAITS)]
    observed = match_starts(log_of(waits, taken_s=9300.0), forecasts)["a"]
    assert observed == ForecastOutcome(submit_s=300.0, wait_s=None, observed_s=9000.0)


@pytest.mark.parametrize("start_s", [0.0, 1e9])
def test_instants_are_in_the_time_of_the_history(start_s):
    forecasts = [OpenForecast(id="a", submit_s=start_s + 60.0, procs=4, walltime_s=3600.0)]
    for submit_s, wait_s in ((90.0, 1.0), (30.0, None), (3661.0, None)):
        observed = match_starts(log_of([(submit_s, 1.0, 1, STARTED)], start_s), forecasts)
        assert observed["a"].wait_s == wait_s


def test_a_log_without_requested_times_is_matched_by_processors():
    log = log_of([(90.0, 1.0, 1, STARTED)])
    log.request_s[:] = -1
    forecasts = [OpenForecast(id="a", submit_s=60.0, procs=4, walltime_s=86400.0)]
    assert match_starts(log, forecasts)["a"].wait_s == 1.0
