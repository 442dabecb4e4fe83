"""Forecasts of a queue whose waiting, or also running, jobs a history does not show."""

import re
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.logs import queued_log
from vgrads.api.queues.histories import AS_QUESTION, learned_forecast
from vgrads.api.queues.live_queue import (
    choose_view,
    learn_present,
    learned_unix_s,
    make_present_forecast,
)
from vgrads.api.queues.site_snapshots import SiteSnapshot
from vgrads.kernel.errors import InputError
from vgrads.qbets.backtest import backtest, backtest_levels
from vgrads.qbets.explain import SIDES, explain
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import StateForecast, find_present, make_forecast
from vgrads.qbets.viewed_log import choose_view_at, end_of, select_view
from vgrads.qbets.views import BEST, ENDED, FULL, STARTED
from vgrads.traces.records import WaitingQueue
from vgrads.traces.swf import write_swf

JOBS = 6000
SHAPES = ((1, 600.0), (8, 3600.0), (60, 20_000.0))
LEVELS = [0.5, 0.75, 0.9, 0.95]


@cache
def whole():
    return queued_log(JOBS)


def as_shown(log, view, at_s):
    """The part of a log that a history of this view has at an instant."""
    end_s = log.start_s + log.run_s
    shown = log.started & ((end_s if view == ENDED else log.start_s) <= at_s)
    part = log.select(shown)
    runs = part.start_s + part.run_s > at_s
    part = replace(part, run_s=np.where(runs, -1.0, part.run_s))
    if view == ENDED:
        return part
    none = part.select(np.zeros(len(part), bool))
    names = ("submit_s", "procs", "request_s", "user", "queue")
    columns = {name: getattr(none, name) for name in names}
    return replace(part, waiting=WaitingQueue(taken_s=at_s, is_listed=False, **columns))


def settings_of(view, **changes):
    return replace(AS_QUESTION, view=view, **changes)


@pytest.mark.parametrize("method", ["state", "qbets"])
@pytest.mark.parametrize("view", [pytest.param(ENDED, marks=pytest.mark.more), STARTED])
def test_a_cut_history_gives_the_answer_that_the_backtest_of_its_view_scores(view, method):
    """Neither knows anything of the jobs that wait, or have not ended, at that instant."""
    log, settings = whole(), settings_of(view, method=method)
    issued_s = backtest(log, "whole", "*", settings).issued_s
    compared = 0
    for row in range(1500, JOBS, 800):
        at_s = float(log.submit_s[row])
        if at_s in (log.submit_s[row - 1], log.submit_s[row + 1]):
            continue
        before_s = float(np.nextafter(at_s, -np.inf))
        part = as_shown(log, view, before_s)
        assert choose_view_at(part) == view
        result = learned_forecast(part, at_s, settings_of(BEST, method=method))
        assert (result.settings.view, result.method) == (view, method)
        shape = int(log.procs[row]), float(log.request_s[row])
        assert result.bound(*shape, 0.95).bound_s == pytest.approx(issued_s[row], rel=1e-6)
        compared += 1
    assert compared > 3


@pytest.mark.more
@pytest.mark.parametrize("view", [ENDED, STARTED])
def test_nothing_that_a_view_hides_moves_an_answer(view):
    log, at_s = whole(), float(whole().submit_s[4200])
    part = as_shown(log, view, at_s)
    one = make_forecast(log, at_s, settings_of(view))
    other = make_forecast(part, at_s, settings_of(view))
    assert isinstance(one, StateForecast)
    for shape in SHAPES:
        assert np.array_equal(one.bounds(*shape, LEVELS), other.bounds(*shape, LEVELS))


@pytest.mark.more
def test_a_queue_whose_jobs_are_not_shown_is_not_taken_for_an_empty_one():
    """A forecast that was learned with waiting jobs is, when jobs wait that it cannot see."""
    log, bounds_s = whole(), {FULL: [], ENDED: [], "with all jobs": []}
    waiting = np.searchsorted(log.submit_s, log.submit_s) - np.searchsorted(
        np.sort(log.start_s), log.submit_s
    )
    late = np.flatnonzero(np.arange(JOBS) > 3000)
    for row in late[np.argsort(waiting[late])][-400::100].tolist():
        at_s = float(log.submit_s[row])
        part = as_shown(log, ENDED, at_s)
        shape = int(log.procs[row]), float(log.request_s[row])
        for view in (FULL, ENDED):
            bound_s = make_forecast(part, at_s, settings_of(view)).bounds(*shape, 0.95)
            bounds_s[view].append(float(bound_s))
        complete = make_forecast(log, at_s, AS_QUESTION).bounds(*shape, 0.95)
        bounds_s["with all jobs"].append(float(complete))
    full, ended, complete = (float(np.median(values)) for values in bounds_s.values())
    assert full < 0.7 * complete
    assert ended > 0.8 * complete


@pytest.mark.more
def test_one_replay_answers_for_all_levels_and_each_is_covered():
    log = queued_log(4000)
    for view in (FULL, ENDED):
        trials = backtest_levels(log, "whole", "*", settings_of(view), LEVELS)
        assert [trial.probability for trial in trials] == LEVELS
        later = np.arange(len(log)) >= 2000
        for trial in trials:
            scored = trial.scored & later
            share = np.mean((log.wait_s <= trial.issued_s)[scored])
            assert share > trial.probability - 0.03  # more, where bounds of 0 s are kept
            assert trial.row().view == view
        bounds_s = np.array([trial.issued_s for trial in trials])[:, trials[0].scored & later]
        assert (np.diff(bounds_s, axis=0) >= -1e-6).all()


@pytest.mark.more
def test_a_backtest_of_another_probability_issues_what_a_question_gets():
    log = whole()
    issued_s = {
        trial.probability: trial.issued_s
        for trial in backtest_levels(log, "whole", "*", AS_QUESTION, LEVELS)
    }
    for row in range(2000, JOBS, 700):
        at_s = float(np.nextafter(log.submit_s[row], -np.inf))
        forecast = make_forecast(log, at_s, AS_QUESTION)
        shape = int(log.procs[row]), float(log.request_s[row])
        for level, bound_s in zip(LEVELS, forecast.bounds(*shape, LEVELS), strict=True):
            assert bound_s == pytest.approx(issued_s[level][row], rel=1e-6)


# which view a history permits


def test_long_before_its_end_a_history_shows_all_jobs():
    log = whole()
    assert choose_view_at(log) == ENDED
    assert choose_view_at(log, log.end_s) == ENDED
    assert choose_view_at(log, log.end_s / 2) == FULL
    assert end_of(log, ENDED) == (log.start_s + log.run_s).max() > end_of(log, FULL)
    running = as_shown(log, STARTED, log.end_s)
    assert (choose_view_at(running), choose_view_at(running, log.end_s / 2)) == (STARTED, FULL)


def test_a_history_that_lists_waiting_jobs_is_answered_with_them_at_and_before_its_end():
    log = whole()
    row = next(n for n in range(4000, JOBS - 20) if log.start_s[n] > log.submit_s[n + 9])
    taken_s = float(log.submit_s[row + 9])
    part = as_shown(log, STARTED, taken_s)
    waits = log.select((log.submit_s <= taken_s) & (log.start_s > taken_s))
    names = ("submit_s", "procs", "request_s", "user", "queue")
    columns = {name: getattr(waits, name) for name in names}
    part = replace(part, waiting=WaitingQueue(taken_s=taken_s, is_listed=True, **columns))
    for at_s in (taken_s, float(log.submit_s[row + 3])):
        assert choose_view_at(part, at_s) == FULL
        present = find_present(part, AS_QUESTION, at_s)
        waiting = (log.submit_s <= at_s) & (log.start_s > at_s)
        running = (log.start_s <= at_s) & (log.start_s + log.run_s > at_s)
        assert len(present.waiting) == waiting.sum() > 0
        assert sum(job.procs for _, job in present.waiting) == log.procs[waiting].sum()
        assert sum(job.procs for _, job in present.running) == log.procs[running].sum()
        result = learned_forecast(part, at_s, settings_of(BEST))
        assert len(result.state.waiting) == waiting.sum()
    assert find_present(part, AS_QUESTION, float(log.submit_s[100])) is None


@pytest.mark.parametrize("hours", [1, 24])
def test_a_queue_that_its_site_does_not_list_is_that_of_its_history_for_some_hours(hours):
    log = whole()
    taken_s = float(log.submit_s[5000])
    part = replace(as_shown(log, STARTED, taken_s), unix_start_s=0.0)
    queue = replace(part.waiting, is_listed=True)
    now_s = time.time() - hours * 3600.0
    part = replace(part, waiting=queue, unix_start_s=now_s - taken_s)
    learned = []

    def learn(view):
        learned.append(view)
        return learned_forecast(part, None, settings_of(view))

    def age_of(forecast):
        return learned_unix_s(forecast, part)

    result = learn_present(learn, None, age_of)
    assert result.settings.view == (FULL if hours == 1 else ENDED)
    assert make_present_forecast(result, part, "batch", None)[1].source == "past"
    snapshot = SiteSnapshot(taken_unix_s=time.time())
    assert learn_present(learn, snapshot, age_of).settings.view == FULL
    hidden = replace(snapshot, is_hidden=True)
    assert learn_present(learn, hidden, age_of).settings.view == result.settings.view


def test_an_unknown_view_is_refused():
    with pytest.raises(InputError, match="unknown view 'end'"):
        select_view(whole(), "end")
    with pytest.raises(InputError, match="known: full, started, ended"):
        backtest(whole(), "whole", "*", Settings(view="nothing"))


# words


@pytest.mark.more
@pytest.mark.parametrize(
    ("view", "hidden"),
    [
        (FULL, set()),
        (STARTED, {"waiting jobs", "waits of the jobs still in the queue"}),
        (
            ENDED,
            {
                "waiting jobs",
                "waits of the jobs still in the queue",
                "running jobs and free processors",
                "start times under scheduling rules",
            },
        ),
    ],
)
def test_an_explanation_names_only_what_the_view_shows(view, hidden):
    log = whole()
    explanation = explain(make_forecast(log, log.submit_s[5000], settings_of(view)), 8, 3600.0, 0.9)
    sides = {reason.side for reason in explanation.reasons}
    assert sides == set(SIDES) - hidden
    added = sum(reason.moved_s for reason in explanation.reasons)
    assert explanation.usual_bound_s + added == pytest.approx(explanation.bound_s, abs=1e-6)


def test_a_question_of_a_view_says_what_is_not_shown():
    log = whole()
    for view, words in ((STARTED, "no waiting jobs"), (ENDED, "neither waiting nor running jobs")):
        result = choose_view(log, 5.0, make_forecast(log, 5.0, settings_of(view)))
        assert (result.view, result.as_json()["view"]) == (view, view)
        assert result.sentence.startswith(f"the history shows {words} as of 1970-01-01")
    assert choose_view(log, 5.0, make_forecast(log, 5.0, settings_of(FULL))).sentence == ""


# odd histories


def test_a_record_with_an_end_years_later_is_not_the_present():
    log = whole()
    run_s = np.where(np.arange(JOBS) == 10, 9e8, log.run_s)
    odd = replace(log, run_s=run_s)
    without = (np.arange(JOBS) != 10) & (log.run_s > 0)
    assert end_of(odd, ENDED) == (log.start_s + log.run_s)[without].max()


def test_jobs_that_never_end_and_jobs_that_never_start_are_no_obstacle():
    log = whole()
    never_end = replace(log, run_s=np.full(len(log), -1.0))
    nothing = log.select(np.zeros(len(log), bool))
    columns = {n: getattr(nothing, n) for n in ("submit_s", "procs", "request_s", "user", "queue")}
    queue = WaitingQueue(taken_s=log.end_s, is_listed=False, **columns)
    result = learned_forecast(replace(never_end, waiting=queue), None, settings_of(BEST))
    assert result.settings.view == STARTED
    assert np.isfinite(result.bounds(8, 3600.0, 0.95))
    cancelled = replace(log, started=np.zeros(len(log), bool))
    result = learned_forecast(cancelled, None, settings_of(BEST))
    assert result.bound(8, 3600.0, 0.95).bound_s is None


@pytest.mark.parametrize("probability", ["0.5", "0.9", "0.95"])
def test_the_seconds_that_a_command_prints_have_at_least_the_probability(
    vgrads, write, probability
):
    log = write("log.swf", write_swf(queued_log(2000)))
    job = (log, "--procs", 8, "--walltime", "1h")
    text = vgrads("bound", *job, "-p", probability).out
    seconds = re.search(r"\((\d+) s\)", text).group(1)
    answer = vgrads("probability", *job, "--within", f"{seconds}s", "--json").json
    assert answer["probability"] >= float(probability)
