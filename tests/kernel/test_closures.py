"""Closed windows as they are written: once and weekly, in the zone of a site."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from vgrads.kernel.closures import closures_of, local_words, parse_window, parse_zone
from vgrads.kernel.errors import InputError

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_S = 3600.0


def at(text, zone=BERLIN):
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def spans(windows, zone, begin, end):
    results = closures_of(windows, zone, at(begin, UTC), at(end, UTC))
    for closure in results:
        closure.check()
    return [(closure.begin_s, closure.end_s) for closure in results]


def test_a_window_of_one_date_is_in_the_zone_of_the_site():
    begin_s = at("2026-12-05T18:00")
    window = ["2026-12-05T18:00/62h"]
    for at_date in ("2026-12-01", "2026-12-06", "2026-12-08T06:59"):
        assert spans(window, "Europe/Berlin", at_date, "2027-01-01") == [
            (begin_s, begin_s + 62 * HOUR_S)
        ]
    assert spans(window, "Europe/Berlin", "2026-12-08T07:00", "2027-01-01") == []
    assert spans(window, "Europe/Berlin", "2026-12-01", "2026-12-05T17:00") == []
    assert spans(window, "UTC", "2026-12-01", "2027-01-01")[0][0] == begin_s + HOUR_S
    stated = ["2026-12-05T18:00-05:00/62h"]  # an offset that is written counts
    assert spans(stated, "Europe/Berlin", "2026-12-01", "2027-01-01")[0][0] == begin_s + 6 * HOUR_S


def test_a_window_of_every_week_follows_the_clock_of_its_site():
    """Clocks are set back on 25 October 2026: 62 hours then end at 7 o'clock, not at 8."""
    weeks = spans(["Fri 18:00/62h"], "Europe/Berlin", "2026-10-17", "2026-11-01")
    local = [[datetime.fromtimestamp(s, BERLIN).strftime("%a %d %H:%M") for s in p] for p in weeks]
    assert local == [
        ["Fri 16 18:00", "Mon 19 08:00"],
        ["Fri 23 18:00", "Mon 26 07:00"],
        ["Fri 30 18:00", "Mon 02 08:00"],
    ]
    assert all(end_s - begin_s == 62 * HOUR_S for begin_s, end_s in weeks)


def test_hours_that_clocks_leave_out_or_repeat_have_one_meaning():
    left_out, repeated = ["2026-03-29T02:30/1h"], ["2026-10-25T02:30/1h"]
    assert spans(left_out, "Europe/Berlin", "2026-03-01", "2026-04-01")[0][0] == at(
        "2026-03-29T03:30"
    )
    assert spans(repeated, "Europe/Berlin", "2026-10-01", "2026-11-01")[0][0] == at(
        "2026-10-25T00:30", UTC
    )


def test_days_have_short_and_long_names_and_begins_may_have_seconds():
    for text in ("Tue 6:00/4h", "tuesday 06:00:00/4h", " TUE  06:00 / 4h "):
        window = parse_window(text)
        assert (window.weekday, window.length_s) == (1, 4 * HOUR_S)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Fri 18:00",
        "Fri 18:00/",
        "Fri 18:00/0h",
        "Fri 18:00/7d",
        "Fri 25:00/1h",
        "Fri/1h",
        "Fr 18:00/1h",
        "2026-13-05T18:00/1h",
        "2026-12-05T18:00/an hour",
        "0001-01-01T00:00/1h",
        "9999-12-31T23:59+00:00/1h",
        "18:00/1h",
    ],
)
def test_text_that_is_no_window_is_refused_with_an_example(text):
    with pytest.raises(InputError, match=r"^closed: .*Fri 18:00/62h") as refused:
        parse_window(text)
    assert text in str(refused.value)


def test_an_unknown_zone_is_refused():
    with pytest.raises(InputError, match="unknown time zone 'Europe/Atlantis'"):
        parse_zone("Europe/Atlantis")
    assert parse_zone("") is None  # of this machine


def test_instants_are_said_in_the_zone_of_the_site():
    now_s = at("2026-11-28T12:00")
    assert local_words(at("2026-12-05T18:00"), "Europe/Berlin", now_s) == "5 Dec 18:00"
    assert local_words(at("2027-01-04T07:05"), "Europe/Berlin", now_s) == "4 Jan 2027 07:05"
