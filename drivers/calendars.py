"""Calendars of Grid Engine's queues, as ``qconf -scal`` prints them: calendar_conf(5).

Grid Engine starts no job that by its ``h_rt`` would run into a time in which its queue is off or
suspended (seen with 8.1.9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

from vgrads.drivers.reservations import SiteClock
from vgrads.kernel.closures import Closure

_DAY_S = 86400.0
_AHEAD_S = 92 * _DAY_S
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_STATES = ("on", "off", "suspended")
_WHOLE: tuple[tuple[float, float], ...] = ((0.0, _DAY_S),)


@dataclass(frozen=True, slots=True)
class _Rule:
    """On days from a first to a last number (of the day, or of the day of the week) the state is
    this in these seconds of the day."""

    days: tuple[tuple[int, int], ...]
    times: tuple[tuple[float, float], ...]
    state: str

    def holds(self, number: int) -> bool:
        return any(
            first <= number <= last if first <= last else number >= first or number <= last
            # a first day after the last means across the end of the week, as in fri-mon
            for first, last in self.days
        )


@dataclass(frozen=True, slots=True)
class QueueCalendar:
    """A calendar: rules of dates, which count before those of days of the week; ``unread``: text
    of rules that are not understood."""

    name: str
    year: tuple[_Rule, ...] = ()
    week: tuple[_Rule, ...] = ()
    unread: tuple[str, ...] = ()

    def closed(self, local: datetime, until_s: float = _AHEAD_S) -> list[tuple[float, float]]:
        """Return the spans, in seconds from an instant of local time, in which it is off or
        suspended."""
        today = local.replace(hour=0, minute=0, second=0, microsecond=0)
        zero_s = (local - today).total_seconds()
        spans: list[tuple[float, float]] = []
        for n in range(int((zero_s + until_s) // _DAY_S) + 1):
            for begin_s, end_s in self._of_day((today + timedelta(days=n)).date()):
                first_s, last_s = n * _DAY_S + begin_s - zero_s, n * _DAY_S + end_s - zero_s
                # across midnight it is one span
                if spans and spans[-1][1] >= first_s:
                    spans[-1] = (spans[-1][0], last_s)
                else:
                    spans.append((first_s, last_s))
        return [(begin_s, end_s) for begin_s, end_s in spans if end_s > 0]

    def _of_day(self, day: date) -> list[tuple[float, float]]:
        dated = [rule for rule in self.year if rule.holds(day.toordinal())]
        rules = dated or [rule for rule in self.week if rule.holds(day.weekday())]
        marks = sorted({0.0, _DAY_S, *(s for rule in rules for span in rule.times for s in span)})
        spans = []
        for begin_s, end_s in pairwise(marks):
            state = "on"
            for rule in rules:
                if any(first <= begin_s and end_s <= last for first, last in rule.times):
                    state = rule.state
            if state != "on":
                spans.append((begin_s, end_s))
        return spans


def read_calendar(fields: Mapping[str, str]) -> QueueCalendar:
    """Return a calendar from the fields that ``qconf -scal`` prints."""
    parts: dict[str, list[_Rule]] = {"year": [], "week": []}
    unread = []
    for key, rules in parts.items():
        for text in fields.get(key, "NONE").split():
            if text == "NONE":
                continue
            rule = _read_rule(text, key == "year")
            if rule is None:
                unread.append(text)
            else:
                rules.append(rule)
    name = fields.get("calendar_name", "")
    return QueueCalendar(name, tuple(parts["year"]), tuple(parts["week"]), tuple(unread))


def _read_rule(text: str, dated: bool) -> _Rule | None:
    # off and all day are what calendar_conf(5) says where a rule leaves them out
    state, days, times = "off", None, _WHOLE
    for n, part in enumerate(text.lower().split("=")):
        if part in _STATES:
            state = part
        elif n == 0 and (stated := _read_days(part, dated)) is not None:
            days = stated
        elif (spans := _read_times(part)) is not None:
            times = spans
        else:
            return None
    if days is None:  # without days: on all
        days = ((0, date.max.toordinal()),)
    return _Rule(days, times, state)


def _read_days(text: str, dated: bool) -> tuple[tuple[int, int], ...] | None:
    spans = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        values = [_read_date(e) if dated else _parse_weekday(e) for e in (first, last or first)]
        if values[0] is None or values[1] is None:
            return None
        spans.append((values[0], values[1]))
    return tuple(spans)


def _parse_weekday(text: str) -> int | None:
    return _WEEKDAYS.index(text[:3]) if text[:3] in _WEEKDAYS else None


def _read_date(text: str) -> int | None:
    day, _, rest = text.partition(".")
    month, _, year = rest.partition(".")
    number = _MONTHS.index(month[:3]) + 1 if month[:3] in _MONTHS else month
    try:
        return date(int(year), int(number), int(day)).toordinal()
    except ValueError:
        return None


_TIME = re.compile(r"(\d+)(?::(\d+))?(?::(\d+))?")


def _read_times(text: str) -> tuple[tuple[float, float], ...] | None:
    spans: list[tuple[float, float]] = []
    for part in text.split(","):
        begin, dash, end = part.partition("-")
        first_s, last_s = _parse_seconds(begin), _parse_seconds(end)
        if not dash or first_s is None or last_s is None:
            return None
        if first_s < last_s:
            spans.append((first_s, last_s))
        else:  # around midnight, both parts on the same day
            spans += [(0.0, last_s), (first_s, _DAY_S)]
    return tuple(spans)


def _parse_seconds(text: str) -> float | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return min(_DAY_S, hours * 3600.0 + minutes * 60.0 + seconds)


def find_calendar_closures(
    calendars: Iterable[tuple[str, QueueCalendar]], clock: SiteClock, now_s: float
) -> tuple[Closure, ...]:
    """Return the closures of queues with calendars. ``now_s``: seconds since 1970, here."""
    queues: dict[tuple[float, float, str], set[str]] = {}
    for queue, calendar in calendars:
        for begin_s, end_s in calendar.closed(clock.local):
            queues.setdefault((begin_s, end_s, calendar.name), set()).add(queue)
    return tuple(
        Closure(
            begin_s=now_s + begin_s,
            end_s=now_s + end_s,
            words=f"calendar {name}",
            queues=frozenset(names),
            reported=True,
        )
        for (begin_s, end_s, name), names in sorted(queues.items())
    )
