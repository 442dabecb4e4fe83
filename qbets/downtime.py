"""Is the queue down? Nothing starts for longer than ever lately, although jobs keep coming.

Reported beside an answer, never used to leave jobs out of a score.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

GAPS = 1000  # recent gaps between starts that "lately" means
_LEAST_GAPS = 50
_LEAST_SUBMISSIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Downtime:
    """Since when nothing has started, until when (None: still), and how many jobs came
    meanwhile."""

    since_s: float
    until_s: float | None
    submissions: int


class DowntimeWatch:
    """Fed with submissions and starts; knows the present stall and past ones."""

    def __init__(self) -> None:
        self.gaps: deque[float] = deque(maxlen=GAPS)
        self.last_start_s: float | None = None
        self.submissions = 0
        self.past: list[Downtime] = []

    def submitted(self) -> None:
        """A job came."""
        self.submissions += 1

    def started(self, at_s: float) -> None:
        """A job started: a stall, if there was one, is over."""
        stall = self.at(at_s)
        if stall is not None:
            self.past.append(
                Downtime(since_s=stall.since_s, until_s=at_s, submissions=stall.submissions)
            )
        if self.last_start_s is not None:
            self.gaps.append(at_s - self.last_start_s)
        self.last_start_s, self.submissions = at_s, 0

    def at(self, now_s: float) -> Downtime | None:
        """The stall as of now: longer than every recent gap, with jobs coming in. None if there is
        none."""
        if (
            self.last_start_s is None
            or len(self.gaps) < _LEAST_GAPS
            or self.submissions < _LEAST_SUBMISSIONS
        ):
            return None
        if now_s - self.last_start_s <= max(self.gaps):
            return None
        return Downtime(since_s=self.last_start_s, until_s=None, submissions=self.submissions)
