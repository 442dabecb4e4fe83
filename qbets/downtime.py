"""Detection of downtimes: nothing has started for longer than any recent gap, although jobs arrive.

Reported with a forecast, never used to omit jobs from a score.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

GAPS = 1000  # recent gaps between starts
_LEAST_GAPS = 50
_LEAST_SUBMISSIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Downtime:
    """Since when nothing has started, until when (None: still), and the number of submissions in
    that time."""

    since_s: float
    until_s: float | None
    submissions: int


class DowntimeWatch:
    """Updated with submissions and starts; stores the present stall and past ones."""

    def __init__(self) -> None:
        self.gaps: deque[float] = deque(maxlen=GAPS)
        self.last_start_s: float | None = None
        self.submissions = 0
        self.past: list[Downtime] = []

    def submitted(self) -> None:
        """Record a submission."""
        self.submissions += 1

    def started(self, at_s: float) -> None:
        """Record a start, which ends a stall if there was one."""
        # before this gap is one of the recent ones, than which a stall is longer
        stall = self.at(at_s)
        if stall is not None:
            self.past.append(
                Downtime(since_s=stall.since_s, until_s=at_s, submissions=stall.submissions)
            )
        if self.last_start_s is not None:
            self.gaps.append(at_s - self.last_start_s)
        self.last_start_s, self.submissions = at_s, 0

    def at(self, now_s: float) -> Downtime | None:
        """Return the current stall: longer than every recent gap, with submissions. None if there
        is none."""
        if (
            self.last_start_s is None
            or len(self.gaps) < _LEAST_GAPS
            or self.submissions < _LEAST_SUBMISSIONS
        ):
            return None
        if now_s - self.last_start_s <= max(self.gaps):
            return None
        return Downtime(since_s=self.last_start_s, until_s=None, submissions=self.submissions)
