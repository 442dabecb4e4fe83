"""Limits by rate: windows, keys, texts."""

import pytest

from vgrads.kernel import rate_limiter
from vgrads.kernel.rate_limiter import Rate, RateLimiter, parse_rate


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("200/second", 200, 1),
        ("10 per minute", 10, 60),
        (" 5/2 hours ", 5, 7200),
        ("1/DAY", 1, 86400),
        ("10 per 5 minutes", 10, 300),
    ],
)
def test_rates_as_they_are_written(text, count, seconds):
    assert parse_rate(text) == Rate(count, seconds)


@pytest.mark.parametrize(
    "text", ["", "often", "0/second", "-1/second", "5", "5/week", "5/0 seconds "]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


def test_a_window_begins_with_its_first_event_and_permits_its_count():
    clock, rate = Clock(), Rate(2, 10.0)
    limiter = RateLimiter(clock)
    assert limiter.test(rate, "ann") and limiter.wait_s(rate, "ann") == 0
    assert [limiter.hit(rate, "ann") for _ in range(3)] == [True, True, False]
    assert not limiter.test(rate, "ann")
    assert limiter.hit(rate, "bob") and limiter.hit(Rate(3, 10.0), "ann")
    clock.now_s += 4
    assert limiter.wait_s(rate, "ann") == 6
    clock.now_s += 6
    assert limiter.test(rate, "ann") and limiter.hit(rate, "ann")
    assert limiter.wait_s(rate, "ann") == 10


def test_questions_and_ended_windows_take_no_memory(monkeypatch):
    monkeypatch.setattr(rate_limiter, "_LEAST_WINDOWS", 100)
    clock, rate = Clock(), Rate(1, 10.0)
    limiter = RateLimiter(clock)
    for n in range(1000):
        limiter.test(rate, "asked", str(n))
        limiter.hit(rate, str(n))
        clock.now_s += 1
    assert len(limiter._windows) <= 100
