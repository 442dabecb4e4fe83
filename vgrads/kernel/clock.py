"""Time, injected. Nothing above this file reads the machine's clock by itself.

A run's clock counts seconds from the run's own zero (the instant of planning).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """What a loop needs of time."""

    @property
    def virtual(self) -> bool:
        """True where waiting costs nothing (:class:`SimClock`)."""

    def now(self) -> float:
        """Seconds since the run's zero."""

    def advance_to(self, instant_s: float) -> None:
        """Let time pass until ``instant_s``; returns at once if that is past."""


class SimClock:
    """Virtual time: jumps, never sleeps, never goes back."""

    virtual = True

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s

    def now(self) -> float:
        return self._now

    def advance_to(self, instant_s: float) -> None:
        self._now = max(self._now, instant_s)


class WallClock:
    """Real time on the monotonic clock, so that a changed system time does not matter."""

    virtual = False

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self._zero = time.monotonic() - elapsed_s

    def now(self) -> float:
        return time.monotonic() - self._zero

    def advance_to(self, instant_s: float) -> None:
        time.sleep(max(0.0, instant_s - self.now()))


def boot_id() -> str:
    """Which start of this machine this is; empty where the machine does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant that is kept: by the calendar, and by the seconds that the machine had then been
    up.

    The calendar may be set, the other count may not, and goes on while the machine is suspended;
    but it begins anew with the machine, and another machine has another one.
    """

    unix_s: float
    boot: str = ""
    up_s: float = 0.0

    @classmethod
    def now(cls) -> Moment:
        """This instant."""
        return cls(time.time(), boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))

    def passed_s(self) -> float:
        """Seconds since then: by the calendar only where the machine was started anew, or is
        another one."""
        now = Moment.now()
        return (
            now.up_s - self.up_s
            if self.boot and self.boot == now.boot
            else now.unix_s - self.unix_s
        )
