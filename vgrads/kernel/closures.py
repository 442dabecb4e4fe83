"""Closed windows: times in which a site runs no jobs, or has fewer processors for them.

A window is written as its begin and its length, ``2026-12-05T18:00/62h`` once or ``Fri 18:00/62h``
every week, in the local time of the site. The length is time that passes: where clocks change in a
window, its end is an hour earlier or later by the clock. A begin in the hour that clocks leave out
is the instant an hour later, one in the hour that they repeat the first of the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_instant, parse_duration, zone_of

MAINTENANCE = "maintenance"
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEK_S = 7 * 86400.0
_FIX = "write 2026-12-05T18:00/62h once, or Fri 18:00/62h every week"
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
LOCAL = ""
"""In place of a zone's name: the zone of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """One closed window, in seconds since 1970. ``left``: processors that jobs can still use;
    ``queues``: those concerned (empty: all); ``nodes``: those concerned, if known; ``weekly``: it
    is repeated every week; ``reported``: the site itself reported it, and starts no job across it.
    """

    begin_s: float
    end_s: float
    words: str = MAINTENANCE
    left: int = 0
    queues: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    weekly: bool = False
    reported: bool = False

    def concerns(self, queue: str) -> bool:
        """True if jobs of a queue are concerned; every closure concerns a site without queues."""
        return not self.queues or queue in self.queues

    def check(self) -> None:
        """Check that it ends after it begins, and that no number of processors is negative."""
        if not self.begin_s < self.end_s or self.left < 0:
            raise AssertionError(
                f"{format_instant(self.begin_s)} to {format_instant(self.end_s)}, {self.left} left"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedWindow:
    """A window as it was written: ``begins`` in local time unless it has an offset, on that date or
    (``weekday``, Monday is 0) in every week."""

    length_s: float
    begins: datetime | time
    weekday: int | None = None

    def closures(self, zone: tzinfo | None, from_s: float, until_s: float) -> Iterator[Closure]:
        """Return the closures that are not over at ``from_s`` and begin before ``until_s`` (seconds
        since 1970), in order; ``zone`` None: the zone of this machine."""
        weekly = self.weekday is not None
        for begin_s in self._begins(zone, from_s, until_s):
            end_s = begin_s + self.length_s
            if end_s > from_s and begin_s < until_s:
                yield Closure(begin_s=begin_s, end_s=end_s, weekly=weekly)

    def _begins(self, zone: tzinfo | None, from_s: float, until_s: float) -> Iterator[float]:
        if isinstance(self.begins, datetime):
            yield _convert_to_unix_s(self.begins, zone)
            return
        # a day more at both ends: the local date differs from that of UTC by one at most
        first = datetime.fromtimestamp(from_s - self.length_s, UTC).date() - timedelta(days=1)
        last = datetime.fromtimestamp(until_s, UTC).date() + timedelta(days=1)
        day = first + timedelta(days=((self.weekday or 0) - first.weekday()) % 7)
        while day <= last:
            yield _convert_to_unix_s(datetime.combine(day, self.begins), zone)
            day += timedelta(days=7)


def parse_window(text: str, where: str = "closed") -> ClosedWindow:
    """Parse a closed window. InputError names the part that is wrong.

    >>> parse_window("Fri 18:00/62h").length_s, parse_window("2026-12-05T18:00/1d").length_s
    (223200.0, 86400.0)
    """
    begin, slash, length = text.strip().partition("/")
    if not slash:
        raise InputError(f"'{text}' is not a closed window", where=where, fix=_FIX)
    try:
        length_s = parse_duration(length, where)
    except InputError as error:
        raise InputError(f"'{text}': {error.what}", where=where, fix=_FIX) from error
    if length_s <= 0:
        raise InputError(f"'{text}' has no length", where=where, fix=_FIX)
    day, _, clock = begin.strip().partition(" ")
    weekday = _parse_weekday(day)
    if weekday is None:
        return ClosedWindow(length_s=length_s, begins=_parse_date(begin, text, where))
    if length_s >= WEEK_S:
        raise InputError(
            f"'{text}' is closed for a week and more, every week", where=where, fix=_FIX
        )
    match = _CLOCK.fullmatch(clock.strip())
    if match is None:
        raise InputError(f"'{text}': '{clock}' is no time of the day", where=where, fix=_FIX)
    hour, minute, second = (int(part or 0) for part in match.groups())
    return ClosedWindow(length_s=length_s, begins=time(hour, minute, second), weekday=weekday)


def _parse_weekday(text: str) -> int | None:
    name = text.lower().rstrip(".")
    if name in _DAYS:
        return _DAYS.index(name)
    return _NAMES.index(name) if name in _NAMES else None


def _parse_date(begin: str, text: str, where: str) -> datetime:
    try:
        instant = datetime.fromisoformat(begin.strip())
        # an instant that cannot be represented is refused here, not when it is used
        instant.replace(tzinfo=instant.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"'{text}': '{begin.strip()}' is neither a date nor a day of the week",
            where=where,
            fix=_FIX,
        ) from error
    if not 1970 < instant.year < 9000:
        raise InputError(f"'{text}' is too early or too late", where=where, fix=_FIX)
    return instant


def _convert_to_unix_s(when: datetime, zone: tzinfo | None) -> float:
    if when.tzinfo is None and zone is not None:
        when = when.replace(tzinfo=zone)
    return when.timestamp()


def parse_zone(name: str, where: str = "zone") -> tzinfo | None:
    """Return a time zone by its name, None (that of this machine) without a name. InputError for
    an unknown one."""
    return None if name == LOCAL else zone_of(name, where)


@lru_cache(maxsize=1024)
def parsed_window(text: str) -> ClosedWindow:
    """Return :func:`parse_window` of a text, computed once."""
    return parse_window(text)


def closures_of(
    windows: Iterable[str], zone: str, from_s: float, until_s: float, weeks_s: float = math.inf
) -> tuple[Closure, ...]:
    """Return the closures of written windows that are not over at ``from_s`` and begin before
    ``until_s`` (seconds since 1970), those of every week only within ``weeks_s``; the earliest
    first."""
    place = parse_zone(zone)
    results: list[Closure] = []
    for text in windows:
        window = parsed_window(text)
        last_s = until_s if window.weekday is None else min(until_s, from_s + weeks_s)
        results += window.closures(place, from_s, last_s)
    return tuple(sorted(results, key=lambda closure: (closure.begin_s, closure.end_s)))


def local_words(unix_s: float, zone: str, now_s: float) -> str:
    """Return an instant as people of a site say it: day, month and time of its clock, with the year
    where it is not that of now.

    >>> local_words(1796490000.0, "Europe/Berlin", 1796400000.0)
    '5 Dec 18:00'
    """
    place = parse_zone(zone)
    when, now = (datetime.fromtimestamp(s, UTC).astimezone(place) for s in (unix_s, now_s))
    year = "" if when.year == now.year else f" {when.year}"
    return f"{when.day} {when:%b}{year} {when:%H:%M}"
