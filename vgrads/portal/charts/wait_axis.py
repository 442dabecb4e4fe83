"""Waits in words and on logarithmic axes: in seconds, minutes, hours or days, as their size is."""

from __future__ import annotations

_COARSE = ((1, 10), (1, 10), (1, 5), (1, 10, 100))
_FINE = ((1, 2, 5, 10, 20), (1, 2, 5, 10, 20), (1, 2, 5, 10), (1, 2, 5, 10, 20, 50, 100))
_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))
_LEAST_TICKS = 4
_ROUNDING = 0.5  # the next unit begins where the count would be rounded to it


def wait_words(seconds: float) -> str:
    """Format a wait in its own unit.

    >>> [wait_words(s).replace(chr(0x202F), " ") for s in (0, 4.2, 42, 400, 3600, 5400, 259200)]
    ['0 s', '4.2 s', '42 s', '6.7 min', '1 h', '1.5 h', '3 d']
    """
    most = (60.0, 60.0, 48.0)
    name, size = _UNITS[-1]
    for (unit, unit_s), limit in zip(_UNITS, most, strict=False):
        if seconds < (limit - _ROUNDING) * unit_s:
            name, size = unit, unit_s
            break
    count = seconds / size
    digits = f"{count:.1f}".removesuffix(".0") if count < 9.95 else f"{count:.0f}"
    return f"{digits}\u202f{name}"


def minute_words(seconds: float) -> str:
    """Format a duration by whole minutes, its two leading units; empty below a minute.

    >>> [minute_words(s).replace(chr(0x202F), " ") for s in (30, 2400, 7800, 97200)]
    ['', '40 min', '2 h 10 min', '1 d 3 h']
    """
    rest, parts = int(seconds), []
    for name, size in reversed(_UNITS[1:]):
        count, rest = divmod(rest, int(size))
        if count:
            parts.append(f"{count}\u202f{name}")
    return " ".join(parts[:2])


def wait_ticks(low_s: float, high_s: float) -> list[tuple[float, str]]:
    """Return the ticks of a logarithmic axis between two waits, with their labels; more of them
    where few decades are shown."""
    for steps in (_COARSE, _FINE):
        ticks = [
            (count * size, f"{count}\u202f{name}")
            for counts, (name, size) in zip(steps, _UNITS, strict=True)
            for count in counts
            if low_s <= count * size <= high_s
        ]
        if len(ticks) >= _LEAST_TICKS:
            break
    return ticks


def axis_begin(seconds: float) -> float:
    """Return the beginning of an axis for waits of which few are shorter: 1 s, 10 s or 1 min."""
    return max(start for start in (1.0, 10.0, 60.0) if start <= max(seconds, 1.0))
