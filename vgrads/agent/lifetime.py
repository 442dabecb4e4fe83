"""How long an agent stays: until its slot ends, it has been idle or alone for too long, or is told
to leave.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import math
import time

from .machine import Place
from .session import Talk

_FAREWELL_S = 5.0
_STRANGER_S, _REFUSED_S = 10.0, 2.0


class Lifetime:
    """One agent's: all instants by the monotonic clock, in seconds."""

    def __init__(self, place: Place, talk: Talk) -> None:
        self._place, self._talk = place, talk
        self._busy_s = now_s = time.monotonic()
        left_s = math.inf if place.left_s is None else place.left_s
        self._slot_ends_s = now_s + left_s
        self._farewell_s = self._slot_ends_s - min(_FAREWELL_S, left_s / 10)
        self._ends_s = self._idle_s = math.inf

    def may_idle(self, idle_s: float | None) -> None:
        """The manager says how long it may be without a task; None: as long as it likes."""
        self._idle_s = math.inf if idle_s is None else idle_s

    def left_s(self, now_s: float) -> float | None:
        """How long its slot lasts; None where nobody says."""
        return None if self._slot_ends_s == math.inf else self._slot_ends_s - now_s

    def must_leave(self, now_s: float, signalled: int) -> tuple[str, float] | None:
        """Why it must leave in haste, and within how many seconds; None: it need not, or does
        already. ``signalled``: the signal that it got, if any."""
        if signalled and self._ends_s == math.inf:  # also one that leaves in its time
            return f"signal {signalled}", _FAREWELL_S
        if now_s >= self._farewell_s and not self._talk.leaving:
            return "the slot ends", max(self._slot_ends_s - now_s, 0.1)
        return None

    def is_idle(self, now_s: float, holds: bool) -> bool:
        """True where it has been without a task for too long; ``holds``: it holds one now."""
        if holds:
            self._busy_s = now_s
            return False
        return now_s - self._busy_s >= self._idle_s and not self._talk.leaving

    def end_within(self, within_s: float) -> None:
        """Be over after this time (seconds), whatever is left to do."""
        self._ends_s = time.monotonic() + within_s

    def is_over(self, now_s: float, holds: bool) -> bool:
        """True where there is nothing left to do here."""
        if now_s >= self._ends_s:
            return True
        if holds:
            return False
        if self._talk.leaving and self._talk.has_taken_leave:
            return True
        return self.is_alone(now_s)

    def is_alone(self, now_s: float) -> bool:
        """True where the manager has been away for too long."""
        return self._talk.away_s(now_s) >= self._patience_s

    @property
    def _patience_s(self) -> float:
        """How long a manager may be away. A pool's host does not wait long for one that it has
        never met: that one may have ended while the host was on its way."""
        if not self._place.within or not self._talk.is_new:
            return self._place.away_s
        return min(self._place.away_s, _REFUSED_S if self._talk.is_refused else _STRANGER_S)

    def next_s(self, holds: bool) -> float:
        """When it may be time to leave, or to have left."""
        at_s = [self._ends_s]
        if self._talk.link is None and not holds:
            at_s.append(self._talk.heard_s + self._patience_s)
        if not self._talk.leaving:
            at_s.append(self._farewell_s)
            if not holds:
                at_s.append(self._busy_s + self._idle_s)
        return min(at_s)
