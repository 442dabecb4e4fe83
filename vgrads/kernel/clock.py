"""Injected time. No module above this one reads the machine's clock itself.

A run's clock counts seconds from the run's own zero (the instant of planning).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The interface of clocks."""

    @property
    def virtual(self) -> bool:
        """True if waiting costs nothing (:class:`SimClock`)."""

    def now(self) -> float:
        """Return the seconds since the run's zero."""

    def advance_to(self, instant_s: float) -> None:
        """Let time pass until ``instant_s``; return at once if that is past."""


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
    """Real time on the monotonic clock, unaffected by changes of the system time."""

    virtual = False

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self._zero = time.monotonic() - elapsed_s

    def now(self) -> float:
        return time.monotonic() - self._zero

    def advance_to(self, instant_s: float) -> None:
        time.sleep(max(0.0, instant_s - self.now()))


def boot_id() -> str:
    """Return an id of the current boot of this machine; empty if the machine has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Moment:
    """A stored instant: by the calendar, and by the machine's uptime.

    The calendar may be set; the uptime may not, and continues while the machine is suspended; but
    it restarts at boot, and differs on another machine.
    """

    unix_s: float
    boot: str = ""
    up_s: float = 0.0

    @classmethod
    def now(cls) -> Moment:
        """Return the current instant."""
        # unlike CLOCK_MONOTONIC it counts the time in which the machine is suspended
        return cls(time.time(), boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))

    def elapsed_s(self) -> float:
        """Return the seconds since then: by the calendar only after a reboot, or on another
        machine."""
        now = Moment.now()
        return (
            now.up_s - self.up_s
            if self.boot and self.boot == now.boot
            else now.unix_s - self.unix_s
        )
