"""Instants of accounting files: seconds since 1970, ISO times with or without a zone."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

from vgrads.kernel.units import zone_of

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_HOUR_S = 3600.0
_MILLISECONDS = 1e11
"""Seconds since 1970 are below it for 3,000 years, milliseconds are above it since 1973."""
NOTHING = frozenset(("", "none", "unknown", "n/a", "null", "nan", "invalid", "0"))


def parse_unix_time(value: float) -> float:
    """Return seconds since 1970 of a number of seconds or milliseconds."""
    return value / 1000 if value > _MILLISECONDS else value


def make_instant_reader(zone: str | None) -> Callable[[str], float]:
    """Return a function that reads an instant: seconds since 1970, NaN for none, ValueError for any
    other text. Times without a zone are local times of ``zone``; None: UTC."""
    local = None if zone is None else zone_of(zone)

    def read(text: str) -> float:
        if text.isdigit():  # 13 digits would be a date and a time of day
            return parse_unix_time(float(text)) if text != "0" else math.nan
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            return _parse_other_instant(text)
        if when.tzinfo is not None:
            return (when - _EPOCH_UTC).total_seconds()
        if local is None:
            return (when - _EPOCH).total_seconds()
        return (when.replace(tzinfo=local).astimezone(UTC) - _EPOCH_UTC).total_seconds()

    return read


def _parse_other_instant(text: str) -> float:
    text = text.strip()
    if text.lower() in NOTHING:
        return math.nan
    number = float(text)  # ValueError for anything else
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{text} is no instant")
    return parse_unix_time(number)


def put_in_order(times: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return local instants that follow each other (NaN: unknown), where the second of the two
    equal hours is meant in which clocks are set back."""
    first, second, third = times
    second = _advance_time(second, first)
    return first, second, _advance_time(third, first if math.isnan(second) else second)


def _advance_time(time: float, before: float) -> float:
    return time + _HOUR_S if before - _HOUR_S <= time < before else time
