"""Answers as they are asked: what a question does not know is neither learned from nor believed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from tests.qbets.test_state import simulated
from vgrads.qbets.backtest import backtest
from vgrads.qbets.blend import blend_predictions, compute_knots
from vgrads.qbets.correction_pass import derive_waiting_group
from vgrads.qbets.forecast import forecast
from vgrads.qbets.knots import score_among, score_of, score_within, wait_at
from vgrads.qbets.level_curve import anchor_scores
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor
from vgrads.qbets.state_forecast import forecast_state, freeze_state
from vgrads.traces.history import read_history

AS_QUESTION = Settings(method="state", knows_user=False)
HISTORY = DATA / "histories" / "mercury.swf.gz"


@pytest.fixture(scope="module")
def log():
    result = read_history(HISTORY)
    return result.select(np.arange(2400))


def test_who_asks_changes_nothing_where_nobody_is_named(log):
    """The same history with users mixed up issues the same bounds, where arrays are not merged by
    user."""
    settings = replace(AS_QUESTION, arrays=False)
    mixed = replace(log, user=np.random.default_rng(1).permutation(log.user))
    plain, other = (backtest(item, "x", settings=settings).issued_s for item in (log, mixed))
    message = ~np.isnan(plain)
    # what jobs of a user used of their requests still tells when the others will end
    assert message.any()
    assert np.corrcoef(plain[message], other[message])[0, 1] > 0.9
    learner = make_predictor(settings, log)
    job = JobArrival(4, 60.0, user=7, queue=3)
    assert settings.as_question(job) == JobArrival(4, 60.0, queue=3)
    assert learner.settings.as_question(job) == JobArrival(4, 60.0)  # of a single queue
    assert learner.floor.settings.cluster_size == "product"
    assert Settings(method="state").cluster_size == "backlog"


def test_the_command_gives_the_very_forecast_that_a_backtest_would_have_issued(vgrads, log):
    """The answer at an instant is that of the object which was learned from what was known then."""
    at_s = float(log.submit_s[2200])
    existing = forecast_state(read_history(HISTORY), at_s, AS_QUESTION)
    message = vgrads(
        "bound", HISTORY, "--at", at_s, "--procs", 8, "--walltime", "2h", "--json"
    ).json
    assert message["bound_s"] == existing.bound(8, 7200.0, 0.95).bound_s
    chance = vgrads(
        "probability",
        HISTORY,
        "--at",
        at_s,
        "--procs",
        8,
        "--walltime",
        "2h",
        "--within",
        "30m",
        "--json",
    ).json
    assert chance["probability"] == float(existing.probability(8, 7200.0, 1800.0))


def test_a_forecast_frozen_before_a_submission_gives_the_bound_that_the_backtest_issues(log):
    """Question and proof are one: what is scored is what somebody would have been told at that
    second."""
    predictor = make_predictor(AS_QUESTION, log)
    passing = HistoryReplay(log, predictor)
    same = 0
    for row in range(1400, 2400, 60):
        at_s = float(log.submit_s[row])
        passing.to(float(np.nextafter(at_s, -np.inf)))
        if at_s == log.submit_s[row - 1]:
            continue  # more than one thing happens in this second
        existing = freeze_state(predictor, at_s, float(log.submit_s[0]))
        passing.to(at_s)
        issued_s = passing.issued[row]
        reported_s = existing.bound(int(log.procs[row]), float(log.request_s[row]), 0.95).bound_s
        assert reported_s == pytest.approx(issued_s, rel=1e-6)
        same += 1
    assert same >= 5


def test_a_question_may_name_its_user(vgrads, write):
    rows = ["JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit"]
    for n in range(200):
        at = 1_700_000_000 + 600 * n
        rows.append(
            f"{n}|{'ann' if n % 2 else 'bob'}|batch|{at}|{at + 60}|{at + 300}|COMPLETED|4|01:00:00"
        )
    path = write("jobs.txt", "\n".join(rows) + "\n")
    assert (
        vgrads("bound", path, "--procs", 4, "--user", "ann", "--json").json["cluster"]["by"]
        == "backlog"
    )
    unknown = vgrads("bound", path, "--user", "anne")
    assert (unknown.code, "no user 'anne'" in unknown.err, "ann, bob" in unknown.err) == (
        2,
        True,
        True,
    )


@pytest.mark.more
def test_backtests_say_what_their_questions_knew(vgrads):
    rows = {
        how: vgrads("backtest", HISTORY, *how, "--json").json["rows"][0]
        for how in ((), ("--as", "known"))
    }
    assert [row["as"] for row in rows.values()] == ["asked", "known"]
    assert rows[()]["median_bound_s"] != rows["--as", "known"]["median_bound_s"]
    wrong = vgrads("backtest", HISTORY, "--as", "told")
    assert (wrong.code, "--as" in wrong.err) == (2, True)


FLAT = np.cbrt(np.array([0.0, 0.0, 0.0, 600.0, 600.0, 600.0, 7200.0]))


@given(st.floats(0.0, 1.0))
def test_inside_a_flat_stretch_a_score_is_drawn_and_elsewhere_it_is_unique(share):
    low, high = score_of(FLAT, 600.0), float(score_within(FLAT, 600.0))
    assert low + 1.0 < high
    assert score_among(FLAT, 600.0, share) == pytest.approx(low + share * (high - low))
    once = score_among(FLAT, 3600.0, share)
    assert once == pytest.approx(score_of(FLAT, 3600.0), abs=1e-6)
    assert wait_at(FLAT, once) == pytest.approx(3600.0, rel=1e-6)


@given(st.lists(st.floats(0.01, 9.0), min_size=60, max_size=300), st.floats(0.2, 8.0))
def test_a_curve_is_bent_in_its_tail_only_and_stays_one(scores, requested):
    plain = np.sort(np.array(scores))
    bent = anchor_scores(plain, 0.95, requested)
    assert (np.diff(bent) >= 0).all()
    body = np.arange(1, len(plain) + 1) / (len(plain) + 1) <= 0.9
    rank = int(np.ceil(0.95 * (len(plain) + 1))) - 1
    assert bent[min(rank, len(plain) - 1)] == pytest.approx(requested)
    if requested >= plain[min(rank, len(plain) - 1)]:
        assert np.allclose(bent[body], plain[body])
    assert (
        bent
        <= np.maximum(plain, requested)
        * (1 + 1e-9)
        * max(1.0, requested / plain[min(rank, len(plain) - 1)])
    ).all()


@given(st.lists(st.floats(0.0, 1e6), min_size=59, max_size=200))
def test_a_blend_lies_between_what_it_blends(waits):
    past = compute_knots(np.sort(np.array(waits)))
    state = np.array([0.0, 0.0, 5.0, 10.0, 20.0, 30.0, 40.0])
    both = blend_predictions(state, past)
    assert (both >= np.minimum(state, past) - 1e-9).all()
    assert (both <= np.maximum(state, past) + 1e-9).all()
    assert (np.diff(both) >= -1e-9).all()
    assert compute_knots(np.array(waits[:58])) is None
    assert np.array_equal(blend_predictions(state, None), state)


@pytest.mark.parametrize("message", [0.0, 0.02])
def test_where_a_history_tells_no_requested_times_a_wall_time_changes_nothing(message):
    """Nor where nearly no job tells one: else the question would fall into the cluster of the
    largest jobs."""
    plain = simulated(3000)
    reports = np.random.default_rng(0).random(3000) < message
    silent = replace(plain, request_s=np.where(reports, plain.request_s, -1.0))
    for existing in (
        forecast(silent, silent.end_s),
        forecast_state(silent, silent.end_s, AS_QUESTION),
    ):
        bounds = [existing.bound(4, wall_s, 0.95).bound_s for wall_s in (60.0, 7200.0, 864_000.0)]
        assert len(set(bounds)) == 1
        chances = [float(existing.probability(4, wall_s, 600.0)) for wall_s in (60.0, 864_000.0)]
        assert len(set(chances)) == 1
    wide, narrow = (existing.bound(procs, 7200.0, 0.95).bound_s for procs in (32, 1))
    assert wide != narrow  # what it does tell still counts


@pytest.mark.parametrize("procs", [8, -1])
def test_where_all_jobs_are_as_wide_the_width_ambiguous_changes_nothing(procs):
    plain = simulated(2000)
    even = replace(plain, procs=np.full(2000, procs))
    for existing in (forecast(even, even.end_s), forecast_state(even, even.end_s, AS_QUESTION)):
        assert (
            len({existing.bound(requested, 7200.0, 0.95).bound_s for requested in (1, 8, 64)}) == 1
        )


def test_a_single_user_number_for_all_jobs_is_nobody_s():
    """All that waits would be this user's own, and all equal jobs of a minute one array."""
    plain = simulated(2000)
    item, none = (replace(plain, user=np.full(2000, user)) for user in (7, -1))
    for settings in (Settings(), Settings(method="state")):
        issued = [backtest(log, "x", settings=settings) for log in (item, none)]
        assert np.array_equal(issued[0].issued_s, issued[1].issued_s, equal_nan=True)
        assert issued[0].row().question == "asked"


def test_without_a_user_a_burst_is_identified_by_jobs_exactly_alike():
    """Sixty equal jobs wait: the next of them is corrected as one of a burst, another shape is
    not."""
    plain = simulated(2000)
    at_s = float(plain.submit_s[1900])
    burst = {
        name: np.concatenate(
            [getattr(plain, name)[:1900], np.full(60, value, getattr(plain, name).dtype)]
        )
        for name, value in {
            "submit_s": at_s,
            "wait_s": 1e6,
            "run_s": 60.0,
            "procs": 4,
            "request_s": 1234.0,
            "user": 3,
            "queue": 1,
            "started": True,
        }.items()
    }
    existing = forecast_state(replace(plain, **burst), at_s + 1.0, AS_QUESTION)
    shapes = ((4, 1234.0), (4, 1235.0), (5, 1234.0))
    assert [existing.job_class(*shape).group for shape in shapes] == [2, 0, 0]
    assert "alike" in existing.choice(2).why
    assert derive_waiting_group(existing.features(4, 1234.0), False) == 60
