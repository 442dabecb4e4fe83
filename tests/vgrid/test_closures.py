"""Closed windows as the availability of a site: no start is forecast across one."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.logs import make_log
from tests.qbets.test_state import predicted
from vgrads.kernel.closures import Closure
from vgrads.kernel.units import format_instant
from vgrads.qbets.forecast import forecast
from vgrads.vgrid.catalog import Catalog, Queue, Site
from vgrads.vgrid.closures import Availability, close_forecast, closed, find_availability
from vgrads.vgrid.offers import Knowledge
from vgrads.vgrid.procure import procure
from vgrads.vgrid.request_text import parse_request
from vgrads.vgrid.shapes import group_choices
from vgrads.vgrid.varq import Reservation, evaluate_trajectory

HOUR_S = 3600.0
NOW_S = 1_800_000_000.0
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.9, 0.95])


@cache
def past_waits():
    log = make_log(900, scale=9000.0)
    return forecast(log, log.end_s)


FORECASTS = {"past": past_waits, "state": predicted}
hours = st.floats(0.1, 120.0)
windows = st.lists(
    st.builds(
        lambda begin, length, left: Closure(
            begin_s=NOW_S + begin * HOUR_S, end_s=NOW_S + (begin + length) * HOUR_S, left=left
        ),
        st.floats(-20.0, 150.0),
        hours,
        st.sampled_from([0, 0, 4]),
    ),
    min_size=1,
    max_size=4,
)


def look(closures):
    return Availability(now_s=NOW_S, closures=tuple(sorted(closures, key=lambda c: c.begin_s)))


def crossed(closures, procs, start_s, walltime_s):
    """Return the closures that a job from ``start_s`` on would run into, by more than rounding."""
    return [
        c
        for c in closures
        if c.left < procs
        and NOW_S + start_s < c.end_s - 1e-3
        and NOW_S + start_s + walltime_s > c.begin_s + 1e-3
    ]


@settings(max_examples=examples(80), deadline=None)
@given(
    closures=windows,
    kind=st.sampled_from(sorted(FORECASTS)),
    procs=st.sampled_from([1, 4, 8]),
    walltime=hours,
    submit=st.floats(0.0, 60.0),
)
@example(  # it just fits, up to rounding
    closures=[Closure(begin_s=NOW_S + HOUR_S, end_s=NOW_S + 2 * HOUR_S)],
    kind="state",
    procs=1,
    walltime=1.0,
    submit=4e-15,
)
def test_no_job_is_forecast_across_a_window(closures, kind, procs, walltime, submit):
    walltime_s, submit_s = walltime * HOUR_S, submit * HOUR_S
    plain = FORECASTS[kind]()
    answer = close_forecast(plain, look(closures))
    waits_s = answer.bounds(procs, walltime_s, LEVELS)
    for level, wait_s, plain_s in zip(
        LEVELS, waits_s, plain.bounds(procs, walltime_s, LEVELS), strict=True
    ):
        bound = answer.bound(procs, walltime_s, float(level))
        assert bound.bound_s == (None if math.isnan(wait_s) else pytest.approx(wait_s))
        if math.isnan(wait_s):
            assert math.isnan(plain_s)
            continue
        assert wait_s >= plain_s
        assert not crossed(closures, procs, wait_s, walltime_s)
        # bound and probability are inverse to each other
        assert answer.probability(procs, walltime_s, wait_s) >= level - 1e-9
        move = answer.moved_start(procs, walltime_s, float(level))
        assert (move is not None) == (wait_s > plain_s)
        if move is not None and move.shorter_s is not None:
            shorter_s = answer.bounds(procs, move.shorter_s, level)
            assert NOW_S + shorter_s + move.shorter_s <= move.closure.begin_s + 1e-3
    times_s = np.sort(
        np.concatenate(
            [np.linspace(0.0, 400 * HOUR_S, 400), *[[c.begin_s - NOW_S] for c in closures]]
        )
    ).clip(0)
    chances = answer.probability(procs, walltime_s, times_s, submit_in_s=submit_s)
    assert np.all(np.diff(chances) >= 0)
    rises = times_s[1:][np.diff(chances) > 0]
    before = times_s[:-1][np.diff(chances) > 0]
    for earlier_s, later_s in zip(before, rises, strict=True):  # some start between the two
        blocked = look(closures).no_starts(procs, walltime_s)
        assert not any(
            begin_s < submit_s + earlier_s and submit_s + later_s < end_s - 1e-3
            for begin_s, end_s in blocked
        )


@settings(max_examples=examples(80), deadline=None)
@given(closures=windows, procs=st.sampled_from([1, 8]), walltime=hours, by=st.floats(0.5, 200.0))
def test_no_submission_is_planned_across_a_window(closures, procs, walltime, by):
    """VARQ: a job that may start from its submission on and must run at T may cross none."""
    start_s, walltime_s = by * HOUR_S, walltime * HOUR_S
    reservation = Reservation(
        procs=procs, walltime_s=walltime_s, start_by_s=start_s, probability=0.1
    )
    path = evaluate_trajectory(closed(past_waits(), look(closures)), reservation, start_s / 24)
    if crossed(closures, procs, start_s, walltime_s):
        assert not path.probabilities.any()
    for submit_s, whole_s, chance in zip(
        path.submit_s, path.walltimes_s, path.probabilities, strict=True
    ):
        if chance > 0:  # some instant until T is one from which it crosses nothing
            spans = look(closures).no_starts(procs, whole_s)
            assert not any(b < submit_s and start_s < e - 1e-3 for b, e in spans)


def test_starts_inside_a_window_move_to_its_end_and_windows_chain():
    first = Closure(begin_s=NOW_S + 10 * HOUR_S, end_s=NOW_S + 12 * HOUR_S)
    second = Closure(begin_s=NOW_S + 14 * HOUR_S, end_s=NOW_S + 20 * HOUR_S)
    availability = look([first, second])
    start = availability.starts
    assert start(1, HOUR_S, [0.0, 9 * HOUR_S]).tolist() == [0.0, 9 * HOUR_S]  # it ends before
    assert start(1, HOUR_S, 9.5 * HOUR_S) == 12 * HOUR_S
    assert start(1, 3 * HOUR_S, 9.5 * HOUR_S) == 20 * HOUR_S  # there is no room between them
    assert start(1, HOUR_S, 11 * HOUR_S) == 13 * HOUR_S  # the queue stands still in the window
    assert start(1, HOUR_S, 0.5 * HOUR_S, 11.5 * HOUR_S) == 1.0 * HOUR_S  # submitted within it
    assert availability.open_spans(30 * HOUR_S) == (
        (0.0, 10 * HOUR_S),
        (12 * HOUR_S, 14 * HOUR_S),
        (20 * HOUR_S, 30 * HOUR_S),
    )


def test_a_window_of_some_processors_is_one_for_wide_jobs_only():
    part = Closure(begin_s=NOW_S + 10 * HOUR_S, end_s=NOW_S + 12 * HOUR_S, left=4)
    availability = look([part])
    assert availability.starts(4, 5 * HOUR_S, 9 * HOUR_S) == 9 * HOUR_S
    assert availability.starts(5, 5 * HOUR_S, 9 * HOUR_S) == 12 * HOUR_S
    assert availability.starts(5, 5 * HOUR_S, 13 * HOUR_S) == 13 * HOUR_S  # others go on running


def site(**more):
    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=8, max_walltime_s=1e9, max_jobs=8
    )
    return Site(name="s", kind="batch", procs=8, queues=(queue,), zone="Europe/Berlin", **more)


def test_the_answer_says_which_window_moved_it_and_what_still_fits():
    now_s = 1_796_449_200.0  # 5 Dec 2026, 6:40 in Berlin
    availability = find_availability(site(closed=("2026-12-05T18:00/62h",)), "q", now_s)
    move = availability.moved_start(2, 12 * HOUR_S, 0.0)
    assert availability.words(move) == (
        "starts after the maintenance of 5 Dec 18:00, unless it asks for at most 11h 20m"
    )
    assert move.start_s == (11 + 20 / 60 + 62) * HOUR_S
    assert availability.moved_start(2, move.shorter_s, 0.0) is None
    waits = availability.moved_start(2, 12 * HOUR_S, 12 * HOUR_S)  # nothing would be short enough
    assert availability.words(waits) == "starts after the maintenance of 5 Dec 18:00"
    assert availability.describe(move.closure) == (
        "closed from 5 Dec 18:00 to 8 Dec 08:00: maintenance"
    )


def test_a_reported_window_of_some_nodes_names_the_width_that_still_fits():
    part = Closure(
        begin_s=NOW_S + HOUR_S, end_s=NOW_S + 9 * HOUR_S, left=6, words="reservation course_7"
    )
    availability = find_availability(site(), "q", NOW_S, {"s": (part,)})
    text = availability.words(availability.moved_start(8, 2 * HOUR_S, 0.0))
    assert text.startswith("starts after the reservation course_7 of ")
    assert text.endswith(", unless it asks for at most 1h or for at most 6 processors")


def test_windows_of_every_week_that_leave_no_room_are_never():
    availability = find_availability(site(closed=("Fri 18:00/62h",)), "q", NOW_S)
    assert np.isfinite(availability.starts(1, 106 * HOUR_S, 0.0))
    assert availability.starts(1, 107 * HOUR_S, 0.0) == math.inf
    answer = close_forecast(past_waits(), availability)
    never = answer.bound(1, 107 * HOUR_S, 0.9)
    assert never.bound_s is None
    assert "never starts: the maintenance of" in never.reason
    assert answer.probability(1, 107 * HOUR_S, 80 * 86400.0) == 0


class ExponentialWaits:
    """A queue whose jobs wait for two hours on average, whatever their shape."""

    def group(self, procs, walltime_s, ahead=0):
        return 0

    def probability(self, procs, walltime_s, within_s, confidence=0.95, ahead=0, submit_in_s=0.0):
        return -np.expm1(-np.asarray(within_s) / (2 * HOUR_S))


def test_a_request_for_nodes_is_served_after_a_window_and_refused_within_it():
    closed = site(closed=(f"{format_instant(NOW_S + 2 * HOUR_S)}/4h",))
    catalog = Catalog(sites=(closed,), links={})
    waits = {("s", "q"): ExponentialWaits()}
    availabilities = {("s", "q"): find_availability(closed, "q", NOW_S)}
    knowledge = Knowledge(oracles=waits, availabilities=availabilities)
    during, after = (
        parse_request(f"grid a for 1h by {by}h with 30% {{ x = tight 2 nodes }}", "t")
        for by in (5, 30)
    )
    none, left_out = group_choices(catalog, knowledge, during, during.groups[0])
    assert not none
    assert left_out[0].reason.startswith("closed from")
    offer = procure(catalog, knowledge, after)
    offer.check()
    (choice,) = offer.groups[0].choices
    assert choice.slot.fixed
    assert offer.probability == pytest.approx(choice.probability, abs=0.05)
    expected = 1 - np.exp(-(29 - 4) / 2)  # the queue stands still for four hours
    assert choice.probability == pytest.approx(expected, abs=0.01)


def test_closures_of_other_queues_do_not_count():
    part = Closure(begin_s=NOW_S, end_s=NOW_S + HOUR_S, queues=frozenset({"debug"}))
    assert find_availability(site(), "q", NOW_S, {"s": (part,)}).closures == ()
    assert find_availability(site(), "debug", NOW_S, {"s": (part,)}).closures == (part,)
