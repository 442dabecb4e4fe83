"""Limits by rate: a number of events in each window of time, which begins with its first event."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_FORM = re.compile(
    r"([1-9]\d*) ?(?:/|per) ?(?:([1-9]\d*) ?)?(second|minute|hour|day)s?", re.IGNORECASE
)
_LEAST_WINDOWS = 10_000  # before those that have ended are removed
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rate:
    """``count`` events in ``seconds``."""

    count: int
    seconds: float


def parse_rate(text: str) -> Rate:
    """Parse a rate as ``200/second`` or ``10 per 5 minutes``. Raise ValueError for any other
    text."""
    parts = _FORM.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"'{text}' is not a rate; an example: 200/second")
    count, each, period = parts.groups()
    return Rate(int(count), int(each or 1) * _SECONDS[period.lower()])


@dataclass(slots=True)
class _Window:
    end_s: float
    count: int = 0


class RateLimiter:
    """Counts events by rate and key. Threads may use it in parallel."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        self._windows: dict[tuple[Rate, Key], _Window] = {}
        self._most = _LEAST_WINDOWS

    def hit(self, rate: Rate, *key: str) -> bool:
        """Count an event; return False where there are too many."""
        with self._lock:
            window = self._current(rate, key)
            if window is None:
                self._forget_ended()
                window = self._windows[rate, key] = _Window(self._now() + rate.seconds)
            window.count += 1
            return window.count <= rate.count

    def test(self, rate: Rate, *key: str) -> bool:
        """Return True where a further event would be permitted."""
        with self._lock:
            window = self._current(rate, key)
            return window is None or window.count < rate.count

    def wait_s(self, rate: Rate, *key: str) -> float:
        """Return the seconds until the current window ends; 0 without one."""
        with self._lock:
            window = self._current(rate, key)
            return 0.0 if window is None else window.end_s - self._now()

    def _current(self, rate: Rate, key: Key) -> _Window | None:
        window = self._windows.get((rate, key))
        return None if window is None or window.end_s <= self._now() else window

    def _forget_ended(self) -> None:
        """Remove ended windows where many have accumulated."""
        if len(self._windows) >= self._most:
            now = self._now()
            self._windows = {k: w for k, w in self._windows.items() if w.end_s > now}
            # twice as many as are left, so that the removal costs little for each new window
            self._most = max(_LEAST_WINDOWS, 2 * len(self._windows))
