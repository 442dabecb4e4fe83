"""Waits in words, and on axes that begin at 0: in seconds, minutes, hours or days, as their size
is."""

from __future__ import annotations

import math
from dataclasses import dataclass

_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))
_COUNTS = (
    ((1, 10), (1, 10), (1,), (1, 10, 100)),
    ((2, 5, 30), (2, 5, 30), (2, 5, 12), (2, 5, 20, 50)),
    ((20,), (20,), (8,), (7, 30)),
)
"""Ticks by unit, those that are placed first in the first row."""
_KNEE = 100.0
"""How much the usual longest wait is above the one up to which an axis is about linear."""
_LEAST_KNEE_S = 1.0
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
    # 9.95 would be written as 10.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAxis:
    """An axis from 0 to ``high_s``: logarithmic, but about linear below ``knee_s``, so that a wait
    of 0 has a place on it."""

    high_s: float
    knee_s: float

    @staticmethod
    def up_to(usual_s: float, high_s: float) -> WaitAxis:
        """Return an axis on which waits of about ``usual_s`` and a hundredth of it can be told
        apart."""
        knee_s = max(usual_s / _KNEE, _LEAST_KNEE_S)
        # the axis has a length even where no wait is above 0
        return WaitAxis(high_s=max(high_s, knee_s), knee_s=knee_s)

    @property
    def height(self) -> float:
        """The largest value of log(1 + wait / knee)."""
        return math.log1p(self.high_s / self.knee_s)

    def share(self, seconds: float) -> float:
        """Return the place of a wait, from 0 to 1."""
        return min(math.log1p(max(seconds, 0.0) / self.knee_s) / self.height, 1.0)

    def wait_at(self, share: float) -> float:
        """Return the wait at a place, the inverse of :meth:`share`."""
        return self.knee_s * math.expm1(share * self.height)

    def ticks(self, apart: float) -> list[tuple[float, str]]:
        """Return 0 and round waits that are at least so far apart, a share of the axis, with their
        labels."""
        chosen = {0.0: "0"}
        for counts in _COUNTS:
            for (name, size), units in zip(_UNITS, counts, strict=True):
                for count in units:
                    share = self.share(count * size)
                    is_free = all(abs(share - self.share(s)) >= apart for s in chosen)
                    if count * size <= self.high_s and is_free:
                        chosen[count * size] = f"{count}\u202f{name}"
        return sorted(chosen.items())
