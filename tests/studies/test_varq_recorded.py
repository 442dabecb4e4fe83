"""Reservations that wait as long as real jobs did, and futures that are checked before anything is
played in them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgrads_studies.promises.arena import most_busy, rescheduled
from vgrads_studies.promises.future import contradiction, started_soon
from vgrads_studies.waits.varq_like_jobs import (
    NEAR_S,
    LikeJobs,
    ReservationQuestion,
    ReservationResult,
)
from vgrads_studies.waits.varq_recorded import (
    LEVELS,
    POLICIES,
    RecordedReservations,
    answer_all,
    draw_questions,
)
from vgrads_studies.waits.varq_recorded_rows import missed, outcome

from tests.logs import make_log
from tests.qbets.test_state import simulated
from vgrads.qbets.views import ENDED, FULL
from vgrads.traces.swf import write_swf
from vgrads.vgrid.varq import Reservation

pytestmark = pytest.mark.more


def question(at_s=0.0, procs=5, walltime_s=600.0, ahead_s=1000.0):
    reservation = Reservation(
        procs=procs, walltime_s=walltime_s, start_by_s=ahead_s, probability=0.5
    )
    return ReservationQuestion(number=0, at_s=at_s, reservation=reservation)


def few_jobs():
    """Started after 30 s each, but for the last, which waits an hour."""
    log = make_log(5)
    return replace(
        log,
        submit_s=np.array([100.0, 200.0, 300.0, 400.0, 2000.0]),
        procs=np.array([2, 4, 7, 6, 4]),
        request_s=np.array([9000.0, 1000.0, 1400.0, 1400.0, 700.0]),
        wait_s=np.array([30.0, 30.0, 30.0, 30.0, 3600.0]),
    )


@pytest.mark.parametrize(
    ("submit_s", "start_s", "lag_s", "neighbour"),
    [
        (201.0, 231.0, 99.0, False),  # 1,399 s must be held from here on: the job of 7 processors
        (301.0, 331.0, 99.0, False),
        (0.0, 30.0, 300.0, False),  # 1,600 s: the nearest is 1,400, before the job of 1,000 s
        (401.0, 431.0, -1.0, True),  # a like job comes, but not within a quarter of an hour
    ],
)
def test_a_reservation_waits_as_long_as_the_next_like_job_or_a_neighbour(
    submit_s, start_s, lag_s, neighbour
):
    result = LikeJobs(few_jobs()).submit(question(), submit_s, 0.0)
    assert (result.start_s, result.lag_s, result.neighbour) == (start_s, lag_s, neighbour)


@pytest.mark.parametrize("submit_s", [201.0, 0.0, 401.0])
def test_no_outcome_is_certain_before_that_job_has_started_or_waited_too_long(submit_s):
    for wait_s in (30.0, 400.0, 3600.0):
        log = replace(few_jobs(), wait_s=np.full(5, wait_s))
        result = LikeJobs(log).submit(question(), submit_s, 0.0)
        came_s = submit_s + result.lag_s
        assert result.kept == (submit_s + wait_s <= 1000.0)
        decided_s = came_s + min(wait_s, 1000.0 - submit_s)
        assert result.settled_s >= max(decided_s, 1000.0)


def test_a_job_that_the_policy_has_seen_is_no_neighbour():
    assert LikeJobs(few_jobs()).submit(question(), 401.0, 401.0).lag_s == 1599.0


@pytest.mark.parametrize(
    ("procs", "walltime_s", "lends"),
    [
        (5, 600.0, True),
        (15, 600.0, False),  # more than twice the seven processors
        (2, 600.0, False),  # less than half of the job of six or seven, and twice that of four
        (5, 2120.0, False),  # 2,819 s from 301 on, more than twice 1,400
        (5, -1.0, False),  # less than half of 1,400
    ],
)
def test_a_reservation_takes_no_wait_of_a_much_smaller_or_larger_job(procs, walltime_s, lends):
    log = few_jobs().select(np.array([2, 3]))
    item = question(procs=procs, walltime_s=walltime_s)
    assert (LikeJobs(log).submit(item, 301.0, 0.0).start_s is not None) == lends


@pytest.mark.parametrize(
    ("walltime_s", "lag_s"),
    [(101.0, 599.0), (160.0, 299.0), (240.0, 399.0), (400.0, 499.0), (430.0, 499.0)],
)
def test_of_like_jobs_that_with_the_nearest_requested_time_lends_its_wait(walltime_s, lag_s):
    """From 101 on 899 s are requested in addition."""
    log = replace(
        few_jobs(),
        submit_s=np.array([300.0, 400.0, 500.0, 600.0, 700.0]),
        procs=np.full(5, 4),
        request_s=np.array([5000.0, 1060.0, 1100.0, 1300.0, 1000.0]),
    )
    item = question(walltime_s=walltime_s)
    assert LikeJobs(log).submit(item, 101.0, 0.0).lag_s == lag_s


def test_a_question_submitted_at_once_requests_a_time_that_a_real_job_requests():
    log = simulated(1500, seed=3)
    longer = replace(log, request_s=log.request_s * 7.0)  # some of more than a day
    for history in (log, longer):
        real = {
            (int(p), round(float(r), 3)) for p, r in zip(log.procs, history.request_s, strict=True)
        }
        for item in draw_questions(history, 200, 0):
            required = item.reservation
            requested_s = required.walltime_s + required.start_by_s
            assert (required.procs, round(requested_s, 3)) in real
            assert 0.0 < required.start_by_s <= requested_s / 2


def test_a_job_of_the_same_queue_is_preferred():
    log = replace(few_jobs(), queue=np.array([1, 1, 1, 2, 1]))
    lags = [
        LikeJobs(log).submit(replace(question(), queue=queue), 201.0, 0.0).lag_s for queue in (1, 2)
    ]
    assert lags == [99.0, 199.0]


@given(
    at_s=st.floats(0, 40_000),
    procs=st.integers(1, 40),
    walltime_s=st.floats(60, 20_000),
    ahead_s=st.floats(60, 7200),
    share=st.floats(0, 1),
)
@settings(deadline=None)
def test_a_neighbour_is_unseen_and_near(at_s, procs, walltime_s, ahead_s, share):
    log = make_log(400, seed=5)
    item = question(at_s=at_s, procs=procs, walltime_s=walltime_s, ahead_s=ahead_s)
    submit_s = at_s + share * ahead_s
    result = LikeJobs(log).submit(item, submit_s, at_s)
    if not result.neighbour:
        return
    assert -NEAR_S <= result.lag_s <= NEAR_S
    assert submit_s + result.lag_s >= at_s - 1e-6
    assert result.start_s >= submit_s
    requested_s = walltime_s + item.start_by_s - submit_s
    rows = np.flatnonzero(np.abs(log.submit_s - (submit_s + result.lag_s)) < 1e-6)
    distances = np.maximum(
        np.abs(np.log2(log.procs[rows] / procs)),
        np.abs(np.log2(log.request_s[rows] / requested_s)),
    )
    assert distances.min() <= 1.0 + 1e-6


def test_success_is_a_start_by_then_and_idle_is_what_was_reserved_before():
    reservation_question = question(at_s=50.0)
    early, late, none = (
        ReservationResult(question=reservation_question, submit_s=50.0, start_s=at)
        for at in (850.0, 1051.0, None)
    )
    assert (early.kept, early.idle_s) == (True, 5 * 200.0)
    assert (late.kept, late.idle_s) == (False, 0.0)
    assert (none.kept, none.idle_s) == (False, 0.0)


def test_broken_promises_make_later_promises_stricter_once_they_end():
    reservations = RecordedReservations(LikeJobs(few_jobs()), 0.75)
    reservations.submit(
        question(at_s=0.0, walltime_s=600.0, ahead_s=1950.0), 1900.0, 0.0
    )  # waits as long as the job of 2,000, an hour
    workflow_set = question().reservation
    assert reservations.answers[0].start_s == 5500.0
    assert reservations.strict(workflow_set, 2049.0).probability == 0.75
    assert reservations.strict(workflow_set, 2050.0).probability > 0.75


def has_wait(log, answer):
    """Return True if a job of the log waited as long as this reservation."""
    came_s = answer.submit_s + answer.lag_s
    rows = np.flatnonzero(np.abs(log.submit_s - came_s) < 1e-6)
    return bool(np.any(np.abs(log.wait_s[rows] - (answer.start_s - answer.submit_s)) < 1e-6))


def test_every_question_is_refused_or_takes_a_real_wait_or_finds_none():
    log = simulated(1500, seed=3)
    questions = draw_questions(log, 12, 0)
    answers = answer_all(log, questions)
    assert set(answers) == {(policy, level) for policy in POLICIES for level in LEVELS}
    for reservation_results in answers.values():
        assert sorted(a.question.number for a in reservation_results) == list(range(12))
        for answer in reservation_results:
            if answer.start_s is not None:
                assert has_wait(log, answer)
                assert answer.question.at_s <= answer.submit_s <= answer.start_s
    assert all(a.submit_s == a.question.at_s for a in answers["now", 0.5])
    refused = [
        outcome("x", level, "once", answers["once", level], answers["now", level]).refused
        for level in LEVELS
    ]
    assert refused == sorted(refused)


def test_policies_choose_by_what_a_view_shows_and_take_the_same_waits():
    log = simulated(1500, seed=3)
    questions = draw_questions(log, 12, 0)
    full, ended = (answer_all(log, questions, view) for view in (FULL, ENDED))
    for level in LEVELS:
        assert full["now", level] == ended["now", level]
    for policies in (("once",), ("plain", "ahead", "moving")):  # by past waits, by the state
        assert any(full[p, level] != ended[p, level] for p in policies for level in LEVELS)
    results = [a for answers in ended.values() for a in answers if a.start_s is not None]
    assert all(has_wait(log, a) for a in results)


def test_a_record_of_promises_makes_submissions_earlier_or_refuses_but_never_the_reverse():
    log = simulated(1500, seed=3)
    answers = answer_all(log, draw_questions(log, 60, 0))
    changed = 0
    for level in LEVELS:
        for plain, ahead in zip(answers["plain", level], answers["ahead", level], strict=True):
            assert ahead.question == plain.question
            if ahead.submit_s is not None:
                assert plain.submit_s is not None
                assert ahead.submit_s <= plain.submit_s
            changed += ahead.submit_s != plain.submit_s
    assert changed > 0


def test_an_aim_that_is_missed_is_named():
    created = outcome("x", 0.9, "moving", [], [])
    poor = replace(created, questions=100, refused=31, kept=60, idle_hours=3.0, of_now=0.8)
    assert missed(poor) == ["kept", "idle", "refused"]
    assert missed(replace(poor, policy="plain")) == ["kept", "idle", "refused"]
    assert missed(replace(poor, refused=30, kept=62, of_now=0.5)) == []
    assert missed(replace(poor, policy="now")) == []


def test_the_study_on_recorded_starts_has_a_line_for_each_policy_and_level(vgrads, tmp_path):
    file = tmp_path / "batch.swf"
    file.write_text(write_swf(simulated(1500, seed=7)))
    requested = ("study", "varq", str(file), "--recorded", "--count", 8, "--view", "ended")
    text = vgrads(*requested).out
    assert text.count("| batch |") == len(POLICIES) * len(LEVELS)
    assert "| batch | 0.5 | once | ended |" in text
    rows = vgrads(*requested, "--json").json["rows"]
    assert {(row["questions"], row["view"]) for row in rows} == {(8, "ended")}


def test_a_future_by_the_rule_of_the_history_is_played_and_by_another_rule_is_not():
    log = rescheduled(simulated(1500, seed=3))
    assert contradiction(log, most_busy(log)) == ""
    idle = replace(
        log, wait_s=np.zeros(len(log))
    )  # everybody began at once, as on a machine without end
    assert "in 1.00 of cases" in contradiction(idle, 32)
    recorded, played = started_soon(idle, 32, [float(log.submit_s[700])])
    assert recorded == 1.0
    assert played < 0.95
