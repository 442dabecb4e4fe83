"""Processors in use over time in one slot: where does a task still fit?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Calendar:
    """A step function of used processors; every operation is O(steps) at worst."""

    def __init__(self, procs: int, end_s: float) -> None:
        self.procs, self.end_s = procs, end_s
        self._times = [0.0]
        self._used = [0]
        self._full = 0  # every step before this one has no processor left

    @property
    def empty(self) -> bool:
        """True while nothing is placed."""
        return not any(self._used)

    def add(self, start_s: float, end_s: float, procs: int) -> None:
        """Use processors in [start, end); a negative number gives them back."""
        if end_s <= start_s:
            return
        first, last = self._split(start_s), self._split(end_s)
        for position in range(first, last):
            self._used[position] += procs
        if procs < 0 and first < self._full:
            self._full = first

    def _split(self, instant_s: float) -> int:
        position = bisect_left(self._times, instant_s)
        if position == len(self._times) or self._times[position] != instant_s:
            self._times.insert(position, instant_s)
            self._used.insert(position, self._used[position - 1])
            if position < self._full:
                self._full += 1
        return position

    def earliest_fit(
        self, ready_s: float, duration_s: float, procs: int, latest_end_s: float
    ) -> float | None:
        """First start at or after ``ready_s`` that leaves room and ends in time; None if there is none."""
        latest_end_s = min(latest_end_s, self.end_s)
        if procs > self.procs:
            return None
        while self._full + 1 < len(self._times) and self._used[self._full] >= self.procs:
            self._full += 1
        start_s = max(self._times[self._full], ready_s)
        position = bisect_right(self._times, start_s) - 1
        while start_s + duration_s <= latest_end_s + 1e-9:
            blocked = self._blocked(position, start_s + duration_s, procs)
            if blocked is None:
                return start_s
            if blocked + 1 == len(self._times):
                return None
            position, start_s = blocked + 1, self._times[blocked + 1]
        return None

    def _blocked(self, position: int, end_s: float, procs: int) -> int | None:
        """The last step before ``end_s`` in which there is no room; None if there is room in all."""
        last = None
        while position < len(self._times) and self._times[position] < end_s:
            if self._used[position] + procs > self.procs:
                last = position
            position += 1
        return last

    def check(self) -> None:
        """Ascending times, use between 0 and the slot's processors, nothing in use at the end."""
        if self._times != sorted(set(self._times)) or self._used[-1] != 0:
            raise AssertionError(f"{self._times} {self._used}")
        if any(used < self.procs for used in self._used[: self._full]):
            raise AssertionError(f"not all full before step {self._full}: {self._used}")
        if any(not 0 <= used <= self.procs for used in self._used):
            raise AssertionError(f"{self._used} of {self.procs}")
