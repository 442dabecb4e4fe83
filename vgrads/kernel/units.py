"""Conversion of text and numbers: durations, instants, fractions, money.

Inside the program everything is seconds, cores, MiB and USD; these functions convert input and
output.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from vgrads.kernel.errors import InputError

_UNIT_S = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
    "w": 604800.0,
}
LONGEST_S = 1e9
"""Thirty years: longer durations are input errors."""
_SHORTEST_S = 1e-6
_LATEST_S = 1e11  # of a clock that began in 1970 or later: the year 5138
_PART = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?$")


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGTkmgt])(i)?[Bb]?)?\s*")


def parse_duration(text: str | float, where: str = "duration") -> float:
    """Parse the seconds of ``90``, ``"2h"``, ``"1h30m"``, ``"1.5 d"``, ``"02:00:00"`` or
    ``"1-00:00:00"``.

    >>> parse_duration("1h30m"), parse_duration("1-00:00:00"), parse_duration(45)
    (5400.0, 86400.0, 45.0)
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise InputError(
            f"'{text}' is not a duration", where=where, fix="write 90, 2h, 1h30m or 02:00:00"
        )
    if isinstance(text, int | float):
        return _require_range(text, text, where)
    clock = _CLOCK.match(text.strip())
    if clock:
        days, hours, minutes, seconds = (float(g or 0) for g in clock.groups())
        return _require_range(days * 86400 + hours * 3600 + minutes * 60 + seconds, text, where)
    return _require_range(_sum_parts(text.strip(), where), text, where)


def parse_speed(text: float | str, where: str) -> float | None:
    """Virtual seconds in one second; None for ``max``: as fast as possible."""
    if text == "max":
        return None
    speed = parse_duration(text, where)
    if speed <= 0:
        raise InputError("must be above 0, or 'max'", where=where)
    return speed


def _sum_parts(text: str, where: str) -> float:
    bad = InputError(
        f"'{text}' is not a duration", where=where, fix="write 90, 2h, 1h30m or 02:00:00"
    )
    position, total = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or (part[2] or "s").lower() not in _UNIT_S:
            raise bad
        total += float(part[1]) * _UNIT_S[(part[2] or "s").lower()]
        position = part.end()
    if not text:
        raise bad
    return total


def _require_range(value: float, text: object, where: str) -> float:
    """Return a plausible duration in seconds: 0, or from a microsecond to thirty years."""
    if not (value == 0 or _SHORTEST_S <= value <= LONGEST_S):
        raise InputError(
            f"'{text}' is not a duration",
            where=where,
            fix=f"it must be 0, or between {_SHORTEST_S:g} and {LONGEST_S:g} seconds",
        )
    return float(value)


def format_duration(seconds: float | None) -> str:
    """Format a duration for users: two leading units; a dash if there is none.

    >>> format_duration(5224), format_duration(42), format_duration(90061), format_duration(None)
    ('1h 27m', '42s', '1d 1h', '–')
    """
    if seconds is None:
        return "–"
    if not math.isfinite(seconds):
        return "never"
    sign, rest = ("-" if seconds < 0 else ""), round(abs(seconds))
    parts = []
    for name, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{name}")
    return sign + " ".join(parts[:2]) if parts else "0s"


def parse_size_mib(text: float | str, where: str = "memory") -> float:
    """Return a size in MiB: a number of MiB, or text with a unit (powers of 1000 or, with an i, of
    1024).

    >>> parse_size_mib("2GiB"), parse_size_mib(100), round(parse_size_mib("4 GB"))
    (2048.0, 100.0, 3815)
    """
    match = _SIZE.fullmatch(str(text))
    if isinstance(text, bool) or not match:
        raise InputError(f"'{text}' is not a size", where=where, fix="write it as 512MiB or 4GB")
    number, prefix, binary = match.groups()
    # a number alone counts MiB
    power = "KMGT".index(prefix.upper()) + 1 if prefix else 2
    base = 1024.0 if binary or not prefix else 1000.0
    return float(number) * base**power / 2**20


_SINGULAR = {"are": "is", "were": "was", "have": "has"}


def format_count(count: float | str, noun: str, verb: str = "") -> str:
    """Return a count with its noun, which is plural unless the count is 1, and a verb in the plural
    that agrees with it.

    >>> format_count(1, "workflow"), format_count("0.5", "second"), format_count(1200, "retry")
    ('1 workflow', '0.5 seconds', '1,200 retries')
    >>> format_count(1, "task", "were"), format_count(2, "job", "wait")
    ('1 task was', '2 jobs wait')
    """
    text = f"{count:,}" if isinstance(count, int) else str(count)
    if text == "1":
        return f"1 {noun} {_SINGULAR.get(verb, f'{verb}s')}" if verb else f"1 {noun}"
    plural = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{text} {plural} {verb}".rstrip()


def parse_probability(value: str | float, where: str) -> float:
    """Parse a number strictly between 0 and 1 (``.95``, ``"95%"``)."""
    number = _parse_number(value, where)
    if not 0 < number < 1:
        raise InputError(f"{value} is outside (0, 1)", where=where, fix="write for example 0.95")
    return number


def parse_fraction(value: str | float, where: str = "fraction") -> float:
    """Parse a share in (0, 1]: ``"3/4"``, ``0.75``, ``"75%"``."""
    number = _parse_number(value, where)
    if not 0 < number <= 1:
        raise InputError(
            f"{value} is not in (0, 1]", where=where, fix="write for example 3/4 or 0.75"
        )
    return number


def needed_of(fraction: float, total: int) -> int:
    """Return how many of ``total`` are a fraction of them: at least so many, and at least one.

    >>> needed_of(0.75, 8), needed_of(0.1, 3)
    (6, 1)
    """
    # 0.55 * 100 is 55.00000000000001, which must not become 56
    return max(1, math.ceil(fraction * total - 1e-9))


def _parse_number(value: str | float, where: str) -> float:
    try:
        if isinstance(value, str) and value.strip().endswith("%"):
            return float(value.strip()[:-1]) / 100
        # Fraction also reads "3/4"
        return float(Fraction(value.strip())) if isinstance(value, str) else float(value)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError) as error:
        raise InputError(f"'{value}' is not a number", where=where) from error


def parse_instant(text: str | float, where: str = "time") -> float | datetime:
    """Parse seconds of a log's own clock as a float, or an RFC 3339 time as an aware datetime."""
    try:
        seconds = float(text)
    except (ValueError, TypeError):
        seconds = None
    except OverflowError:
        seconds = math.inf
    if seconds is not None:
        if not 0 <= seconds <= _LATEST_S:
            raise InputError(
                f"{text} is not a valid time",
                where=where,
                fix=f"give seconds from 0 to {_LATEST_S:g}",
            )
        return seconds
    try:
        instant = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise InputError(
            f"'{text}' is neither a number of seconds nor a time",
            where=where,
            fix="write 2009-11-14T18:00:00Z or 123456",
        ) from error
    if instant.tzinfo is None:
        raise InputError(f"'{text}' has no time zone", where=where, fix="end it with Z or +01:00")
    return instant.astimezone(UTC)


def zone_of(name: str, where: str = "--zone") -> ZoneInfo:
    """Return a time zone by its name; InputError for an unknown one."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise InputError(
            f"unknown time zone '{name}'", where=where, fix="write for example Europe/Paris"
        ) from error


def format_instant(unix_s: float) -> str:
    """Format seconds since 1970 as RFC 3339 in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")


def billed_s(duration_s: float, billing_s: float) -> float:
    """Return the billed seconds of a machine that is held this long: started billing units (0: per
    second)."""
    if duration_s <= 0 or billing_s <= 0:
        return max(0.0, duration_s)
    # a duration of whole units must not be rounded up to one more
    return math.ceil(duration_s / billing_s - 1e-9) * billing_s


def billed_usd(nodes: int, duration_s: float, billing_s: float, usd_per_hour: float) -> float:
    """Return the dollars for nodes that are held this long, in started billing units."""
    return nodes * billed_s(duration_s, billing_s) / 3600.0 * usd_per_hour


def format_usd(amount: float) -> str:
    """Format money, to the cent."""
    return f"${amount:,.2f}"


_FEW = 20
"""Cases below which the third digit of a share says nothing."""


def format_share(value: float | None, cases: int = _FEW) -> str:
    """Format a share to three digits; of few cases, as their number; a dash if there is none.

    >>> format_share(0.5), format_share(0.0, 1), format_share(None, 0)
    ('0.500', '0 of 1', '–')
    """
    if value is None or not cases:
        return "–"
    return f"{value:.3f}" if cases >= _FEW else f"{round(value * cases)} of {cases}"


def format_chance(chance: float) -> str:
    """Format a probability in whole percents; never 0 % or 100 %.

    >>> [format_chance(p).replace(chr(0x202F), " ") for p in (0.0, 0.954, 0.999)]
    ['under 1 %', '95 %', 'over 99 %']
    """
    whole = round(100 * chance)
    return "over 99\u202f%" if whole > 99 else "under 1\u202f%" if whole < 1 else f"{whole}\u202f%"


def format_seconds(seconds: float, digits: int = 3) -> str:
    """Format a duration of which fractions of a second matter, to so many significant digits.

    >>> format_seconds(2.7e-11), format_seconds(0.25), format_seconds(12.3456)
    ('0 s', '0.25 s', '12.3 s')
    >>> format_seconds(400.0), format_seconds(86400.0)
    ('400 s', '1d')
    >>> format_seconds(0.04567, 2), format_seconds(123.4, 2)
    ('0.046 s', '120 s')
    """
    if abs(seconds) >= 1000:
        return format_duration(seconds)
    text = f"{round(seconds, 6):.{digits}g}"
    return f"{float(text):.6f}".rstrip("0").rstrip(".") + " s"
