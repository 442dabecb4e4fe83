"""How many processors are free when: a step function over the time to come."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence


class AvailabilityProfile:
    """Free processors from each breakpoint to the next; the last step lasts for ever.

    Breakpoints ascend; looking for room and taking it cost O(breakpoints).
    """

    def __init__(self, now_s: float, free: int, ends: Sequence[tuple[float, int]] = ()) -> None:
        """``ends``: ``(expected end, processors)`` of what runs, ascending."""
        self.times = [now_s]
        self.free = [free]
        for end_s, procs in ends:
            if end_s > self.times[-1]:
                self.times.append(end_s)
                self.free.append(self.free[-1] + procs)
            else:
                self.free[-1] += procs

    def earliest(self, procs: int, length_s: float, after_s: float = -math.inf) -> float:
        """First instant from which ``procs`` processors are free for ``length_s``; ``inf`` if
        never."""
        count = len(self.times)
        first = max(0, bisect_right(self.times, after_s) - 1)
        while first < count:
            start_s = max(self.times[first], after_s)
            step = first
            while step < count and self.times[step] < start_s + length_s:
                if self.free[step] < procs:
                    break
                step += 1
            else:
                return start_s
            first = step + 1
        return math.inf

    def take(self, start_s: float, length_s: float, procs: int) -> None:
        """Take processors for a while; negative ``procs`` gives them back."""
        if length_s <= 0 or not math.isfinite(start_s):
            return
        first, last = self._cut(start_s), self._cut(start_s + length_s)
        for step in range(first, last):
            self.free[step] -= procs

    def _cut(self, at_s: float) -> int:
        """Index of the breakpoint at ``at_s``, made where there is none."""
        if math.isinf(at_s):
            return len(self.times)
        step = bisect_right(self.times, at_s) - 1
        if step < 0:
            raise ValueError(f"{at_s} lies before the profile's beginning, {self.times[0]}")
        if self.times[step] == at_s:
            return step
        self.times.insert(step + 1, at_s)
        self.free.insert(step + 1, self.free[step])
        return step + 1

    def check(self) -> None:
        """Ascending breakpoints, never fewer than no processors."""
        ascending = all(a < b for a, b in zip(self.times, self.times[1:], strict=False))
        if not ascending or min(self.free) < 0 or len(self.times) != len(self.free):
            raise AssertionError(f"no profile: {self.times} {self.free}")
