"""Instants: the words that Slurm's options accept, and local time without a zone.

Sources: --begin in sbatch(1), --starttime in sacct(1).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from vgrads.slurm.errors import SlurmError

_DAY_S = 86400.0
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": _DAY_S, "week": 7 * _DAY_S}
_HOURS = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_NOW = re.compile(r"now\s*(?:([+-])\s*(\d+)\s*((?:second|minute|hour|day|week)s?)?)?$")
_DATES = (
    re.compile(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?=$|T|\s)"),
    re.compile(r"(?P<month>\d\d?)[/.](?P<day>\d\d?)(?:[/.](?P<year>\d\d))?(?=$|[T\s-])"),
    re.compile(r"(?P<month>\d\d)(?P<day>\d\d)(?P<year>\d\d)?(?=$|[T\s-])"),
)
_CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d))?\s*([ap]m)?(?=$|[T\s-])", re.IGNORECASE)
_WORD = re.compile(r"today|tomorrow|midnight|noon|fika|teatime", re.IGNORECASE)
_FIRST_S, _LAST_S = 0.0, 253_402_214_400.0  # to the last day of the year 9999, in any zone
_GAP = re.compile(r"[T\s-]")


class _Instant:
    """The parts of an instant that were read so far."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.date: tuple[int | None, int, int] | None = None
        self.clock: tuple[int, int, int] | None = None


def parse_instant(text: str, now_s: float, *, past: bool = False) -> float:
    """Parse an instant into Unix seconds.

    A time without a date is the next such time, or, with ``past``, that of this day; a date
    without a year is the next, or, with ``past``, that of this year. Raises SlurmError with
    Slurm's words.

    >>> parse_instant("now+2hours", 1000.0)
    8200.0
    """
    words = text.strip()
    relative = _NOW.match(words.lower())
    if relative:
        sign, count, unit = relative.groups()
        seconds = int(count or 0) * _UNITS[(unit or "second").rstrip("s")]
        return _within(now_s - seconds if sign == "-" else now_s + seconds, text, 4)
    if re.match(r"now\s*[+-]", words.lower()):
        raise _make_error(text, 4)
    if words.startswith("uts") and words[3:].isdigit():
        return _within(float(words[3:]), text, 3)
    now = datetime.fromtimestamp(int(now_s))
    parts = _Instant(now)
    position = 0
    while position < len(words):
        position = _read_part(parts, words, position)
        if position < len(words):
            if not _GAP.match(words, position):
                raise _make_error(text, position)
            position += 1
            if position == len(words):
                raise _make_error(text, position)
    if parts.date is None and parts.clock is None:
        raise _make_error(text, 0)
    try:
        return _resolve(parts, past).timestamp()
    except (ValueError, OverflowError) as error:
        raise _make_error(text, 0) from error


def _within(unix_s: float, text: str, position: int) -> float:
    if not _FIRST_S <= unix_s <= _LAST_S:
        raise _make_error(text, position)
    return unix_s


def _read_part(parts: _Instant, words: str, position: int) -> int:
    word = _WORD.match(words, position)
    if word:
        name = word[0].lower()
        if name in _HOURS and parts.clock is None:
            parts.clock = _HOURS[name], 0, 0
        elif name not in _HOURS and parts.date is None:
            day = parts.now + timedelta(days=name == "tomorrow")
            parts.date = day.year, day.month, day.day
        else:
            raise _make_error(words, position)
        return word.end()
    clock = _CLOCK.match(words, position)
    if clock and parts.clock is None:
        parts.clock = _parse_clock(clock, words, position)
        return clock.end()
    for pattern in _DATES:
        date = pattern.match(words, position)
        if date and parts.date is None:
            year = date["year"]
            full = int(year) + (2000 if len(year) == 2 else 0) if year else None
            parts.date = full, int(date["month"]), int(date["day"])
            _check_date(parts.date, words, position)
            return date.end()
    raise _make_error(words, position)


def _parse_clock(clock: re.Match[str], words: str, position: int) -> tuple[int, int, int]:
    hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
    half = (clock[4] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            raise _make_error(words, position)
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        raise _make_error(words, position)
    return hour, minute, second


def _check_date(date: tuple[int | None, int, int], words: str, position: int) -> None:
    if not (1 <= date[1] <= 12 and 1 <= date[2] <= 31):
        raise _make_error(words, position)


def _resolve(parts: _Instant, past: bool) -> datetime:
    now = parts.now
    clock = parts.clock or (0, 0, 0)
    if parts.date is None:
        instant = now.replace(hour=clock[0], minute=clock[1], second=clock[2])
        if not past and instant <= now:
            instant += timedelta(days=1)
        return instant
    year, month, day = parts.date
    instant = datetime(year or now.year, month, day, *clock)
    if year is None and not past and instant < now:
        instant = instant.replace(year=now.year + 1)
    return instant


def _make_error(text: str, position: int) -> SlurmError:
    return SlurmError(f"Invalid time specification (pos={position}): {text}")


def format_instant(unix_s: float | None, unset: str = "N/A") -> str:
    """Format an instant as ``2026-11-26T15:57:19`` in local time."""
    if unix_s is None:
        return unset
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(unix_s))


def instant_format(pattern: str) -> Callable[[float | None, str], str]:
    """Return how instants are formatted under SLURM_TIME_FORMAT.

    ``standard`` and an empty pattern are ISO 8601 without a zone; ``relative`` is printed so too;
    another pattern is that of strftime(3).
    """
    if pattern in ("", "standard", "relative"):
        return format_instant

    def formatted(unix_s: float | None, unset: str = "N/A") -> str:
        return unset if unix_s is None else time.strftime(pattern, time.localtime(unix_s))

    return formatted
