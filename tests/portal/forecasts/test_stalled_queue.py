"""Scores of a queue that stands still: a job that waits past its bound is a miss before it starts,
and jobs that a history does not show are counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portal.forecasts.logs_that_grow import UNIX_START
from tests.qbets.test_waiting_jobs import taken
from vgrads.api.queues.forecast_scores import ALARM, WATCHED, has_started_within, watch
from vgrads.api.queues.issued import IssuedForecast
from vgrads.api.queues.start_matching import OpenForecast, match_starts
from vgrads.portal.jobs.forecasts.scoring import score_queue
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.reading.forecast_scores import queue_score, read_queue_record
from vgrads.traces.records import JobLog

EVERY_S, BOUND_S, RUN_S, LIMIT_S = 600.0, 900.0, 300.0, 600.0
DAY_S = 86400.0


def log_of(waits_s, every_s=EVERY_S):
    """Equal jobs, one every ten minutes."""
    count = len(waits_s)
    return JobLog(
        name="log",
        submit_s=np.arange(count) * every_s,
        wait_s=np.asarray(waits_s, float),
        run_s=np.full(count, RUN_S),
        procs=np.full(count, 4, np.int64),
        request_s=np.full(count, LIMIT_S),
        user=np.zeros(count, np.int64),
        queue=np.zeros(count, np.int64),
        started=np.ones(count, bool),
        unix_start_s=UNIX_START,
    )


def stalling(count, stalls_from, share, seed=1):
    """Waits of which .96 are within the bound; from a job on, this share waits for weeks."""
    rng = np.random.default_rng(seed)
    waits_s = np.where(rng.random(count) < 0.96, rng.uniform(0, BOUND_S, count), 2000.0)
    stuck = (np.arange(count) >= stalls_from) & (rng.random(count) < share)
    return np.where(stuck, 20 * DAY_S, waits_s)


def ended(log, at_s):
    """The log as accounting of ended jobs has it at an instant."""
    return log.select(log.start_s + log.run_s <= at_s)


def truth(log, at_s, bounds_s):
    """The coverage of the newest bounds whose time has passed, by the whole log."""
    passed = np.flatnonzero(log.submit_s + bounds_s <= at_s)[-WATCHED:]
    return float((log.wait_s[passed] <= bounds_s[passed]).mean())


def started_alone(log, at_s, bounds_s):
    """The coverage of the newest bounds whose job has started: what was shown before."""
    started = np.flatnonzero(log.start_s <= at_s)[-WATCHED:]
    return float((log.wait_s[started] <= bounds_s[started]).mean())


def watched(log, history, bounds_s):
    """The watched bounds of a history, of a forecast for each job just as it is submitted."""
    forecasts = [
        OpenForecast(
            id=str(n),
            submit_s=log.unix_start_s + log.submit_s[n],
            procs=int(log.procs[n]),
            walltime_s=float(log.request_s[n]),
            longest_s=float(bounds_s[n]),
        )
        for n in range(len(log))
        if log.submit_s[n] <= history.end_s
    ]
    observed = match_starts(history, forecasts)
    outcomes = []
    for n in reversed(range(len(forecasts))):
        job, bound_s = observed[str(n)], float(bounds_s[n])
        covered = has_started_within(bound_s, job.wait_s, job.observed_s)
        if job.submit_s is None and job.observed_s >= bound_s:
            outcomes.append(None)
        elif job.submit_s is not None and covered is not None:
            outcomes.append(covered)
    return watch(outcomes)


@given(
    st.integers(0, 10_000),
    st.floats(0.0, 0.5),
    st.integers(250, 330),
    st.floats(0.0, 2 * DAY_S),
)
def test_what_is_watched_is_true_where_the_history_shows_who_waits(seed, share, count, later_s):
    """Whatever waits, the lucky jobs of a stalled queue do not outweigh its misses."""
    waits_s = stalling(count, 200, share, seed)
    bounds_s = np.random.default_rng(seed).choice([BOUND_S, 4 * BOUND_S], count)
    log = log_of(waits_s, 60.0)
    at_s = float(log.submit_s[-1]) + later_s
    shown = watched(log, taken(log, at_s)[0], bounds_s)
    assert (shown.bounds, shown.unknown) == (WATCHED, 0)
    assert shown.covered / shown.bounds == pytest.approx(truth(log, at_s, bounds_s))
    assert (shown.warning is not None) == (truth(log, at_s, bounds_s) < ALARM)


@pytest.mark.parametrize(("share", "warns"), [(0.2, True), (0.01, False)])
def test_the_warning_appears_while_jobs_wait_and_not_in_a_calm_queue(store, share, warns):
    log, bounds_s = log_of(stalling(800, 500, share)), np.full(800, BOUND_S)
    at_s = float(log.submit_s[-1]) + 3 * BOUND_S
    actual = truth(log, at_s, bounds_s)
    assert actual < ALARM if warns else actual >= 0.93
    assert started_alone(log, at_s, bounds_s) >= 0.93  # those that have started were lucky
    score_records(store, log, taken(log, at_s)[0])
    warning = read_queue_record(store.reader, "here", "all").warning
    assert (warning is not None) == warns
    if warning is not None:
        assert f"covered {actual:.1%} of the waits" in warning
    shown = queue_score(store.reader, "here", "all")
    assert shown["watched"]["covered"] == round(actual * WATCHED)
    (at_95,) = (row for row in shown["quantiles"] if row["quantile"] == 0.95)
    assert at_95["coverage"] == pytest.approx(np.mean(log.wait_s[297:797] <= BOUND_S), abs=0.005)


def test_a_job_that_starts_after_its_bound_stays_one_miss(store):
    """Scored while it waits, and again once it has started; no bound of the future is judged."""
    log = log_of([5 * BOUND_S, 0.0])
    for at_s, covered in (
        (BOUND_S - 1.0, None),
        (BOUND_S + 1.0, False),
        (5 * BOUND_S + 1.0, False),
    ):
        records = score_records(store, log, taken(log, at_s)[0])
        row = next(r for r in records.matchable("here", "all", 0.0) if r.instant_s == UNIX_START)
        assert row.covered is covered, at_s
    assert (row.state, row.wait_s) == ("scored", 5 * BOUND_S)


def test_a_quick_start_counts_only_when_the_time_of_the_bound_has_passed(store):
    log = log_of([10.0])
    for at_s, covered in ((60.0, None), (BOUND_S, True)):
        records = score_records(store, log, taken(log, at_s)[0])
        assert records.matchable("here", "all", 0.0)[0].covered is covered


def test_a_history_of_ended_jobs_says_how_many_are_not_known(store):
    """Those that wait are invisible in it: more unknown jobs than ever before raise the warning."""
    log, bounds_s = log_of(stalling(2200, 2000, 0.3)), np.full(2200, BOUND_S)
    at_s = float(log.submit_s[-1]) + DAY_S
    history = ended(log, at_s)
    assert history.waiting is None
    score_records(store, log, history)
    shown = queue_score(store.reader, "here", "all")["watched"]
    stuck = int((log.wait_s[-WATCHED:] > DAY_S).sum())
    assert 0.8 * stuck <= shown["unknown"] <= stuck + 5
    assert started_alone(log, at_s, bounds_s) >= 0.93
    warning = read_queue_record(store.reader, "here", "all").warning
    assert warning is not None
    assert f"{shown['unknown']} of the last {WATCHED + shown['unknown']} are not known" in warning


def test_questions_about_jobs_that_nobody_submits_raise_no_warning(store):
    """Most questions of a portal are; in a history of ended jobs they look like jobs that wait."""
    log = log_of(stalling(2200, 2200, 0.0))
    at_s = float(log.submit_s[-1]) + DAY_S
    history = ended(log, at_s)
    queried = np.random.default_rng(2).random(len(log)) < 0.6
    score_records(store, log, history, np.where(queried, 4, 64))
    shown = queue_score(store.reader, "here", "all")["watched"]
    assert shown["unknown"] > 80
    assert read_queue_record(store.reader, "here", "all").warning is None


def score_records(store, log, history, procs=None):
    """Issue a forecast for each job as it is submitted, as far as it was, and score all."""
    records = ForecastRecords(store.engine)
    end_s = history.end_s
    records.add(
        [
            IssuedForecast(
                site="here",
                queue="all",
                procs=4 if procs is None else int(procs[n]),
                walltime_s=LIMIT_S,
                instant_s=UNIX_START + log.submit_s[n],
                issued_s=UNIX_START + log.submit_s[n],
                kind="bound",
                method="state",
                bounds=((0.5, BOUND_S / 2), (0.95, BOUND_S)),
            )
            for n in range(len(log))
            if log.submit_s[n] <= end_s
        ]
    )
    score_queue(records, "here", "all", history)
    return records
