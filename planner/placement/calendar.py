"""Processors in use over time in one slot: where does a task still fit?

What is asked task by task is asked of a :class:`Calendar`; loops that place whole workflows work on
its :class:`Steps`, compiled. The search for room stands once, for both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from vgrads.kernel.compiled import compiled


class Steps(NamedTuple):
    """A step function of used processors, with room for more steps: when each begins and how many
    are in use; ``head``: how many steps there are, and before which of them no processor is
    left."""

    times_s: Any
    used: Any
    head: Any


@compiled
def room(s: Any, n: Any, most: Any, start_s: Any, length_s: Any, latest_end_s: Any) -> Any:
    """First start from ``start_s`` on, which lies in step ``n``, at which no more than ``most``
    processors are in use all along; ``inf`` where it would end too late."""
    while start_s + length_s <= latest_end_s + 1e-9:
        end_s, blocked = start_s + length_s, -1
        while n < s.head[0] and s.times_s[n] < end_s:
            if s.used[n] > most:
                blocked = n
            n += 1
        if blocked < 0:
            return start_s
        if blocked + 1 == s.head[0]:
            return np.inf
        n = blocked + 1
        start_s = s.times_s[n]
    return np.inf


@compiled
def position(times_s: Any, steps: Any, instant_s: Any) -> Any:
    """The first step that does not begin before an instant."""
    low, high = 0, steps
    while low < high:
        middle = (low + high) // 2
        if times_s[middle] < instant_s:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def split(s: Any, instant_s: Any) -> Any:
    """The step that begins at an instant, made where there was none."""
    steps = s.head[0]
    n = position(s.times_s, steps, instant_s)
    if n == steps or s.times_s[n] != instant_s:
        for m in range(steps, n, -1):
            s.times_s[m], s.used[m] = s.times_s[m - 1], s.used[m - 1]
        s.times_s[n], s.used[n] = instant_s, s.used[n - 1]
        s.head[0] = steps + 1
        if n < s.head[1]:
            s.head[1] += 1
    return n


@compiled
def use(s: Any, start_s: Any, end_s: Any, procs: Any) -> None:
    """Use processors in [start, end); a negative number gives them back."""
    if end_s <= start_s:
        return
    first, last = split(s, start_s), split(s, end_s)
    for n in range(first, last):
        s.used[n] += procs
    if procs < 0 and first < s.head[1]:
        s.head[1] = first


@compiled
def fit(s: Any, size: Any, ready_s: Any, length_s: Any, procs: Any, latest_end_s: Any) -> Any:
    """First start at or after ``ready_s`` in a slot of that size; ``inf`` where there is none."""
    if procs > size:
        return np.inf
    while s.head[1] + 1 < s.head[0] and s.used[s.head[1]] >= size:
        s.head[1] += 1
    start_s = max(s.times_s[s.head[1]], ready_s)
    n = position(s.times_s, s.head[0], start_s)
    if n == s.head[0] or s.times_s[n] != start_s:
        n -= 1
    return room(s, n, size - procs, start_s, length_s, latest_end_s)


@compiled
def use_all(s: Any, starts_s: Any, ends_s: Any, procs: Any) -> None:
    """Use processors for many; where they are given back, steps that no longer differ become
    one."""
    for n in range(len(starts_s)):
        use(s, starts_s[n], ends_s[n], procs[n])
    if len(procs) > 0 and procs[0] < 0:
        kept = 1
        for n in range(1, s.head[0]):
            if s.used[n] != s.used[kept - 1]:
                s.times_s[kept], s.used[kept] = s.times_s[n], s.used[n]
                kept += 1
        s.head[0], s.head[1] = kept, 0


_room = room.plain


class Calendar:
    """A step function of used processors; every operation is O(steps) at worst."""

    def __init__(self, procs: int, end_s: float) -> None:
        self.procs, self.end_s = procs, end_s
        self._times = array("d", [0.0])
        self._used = array("q", [0])
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
        for n in range(first, last):
            self._used[n] += procs
        if procs < 0 and first < self._full:
            self._full = first

    def add_all(self, rows: Iterable[tuple[float, float, int]]) -> None:
        """:meth:`add` for many (start, end, processors), all used or all given back."""
        starts_s, ends_s, procs = zip(*rows, strict=True)
        many = use_all.after(2 * len(starts_s))
        if many is use_all.plain:  # lists shift what they hold faster than loops do
            for row in zip(starts_s, ends_s, procs, strict=True):
                self.add(*row)
            return
        steps = self.steps(len(starts_s))
        many(steps, np.array(starts_s), np.array(ends_s), np.array(procs))
        self.keep(steps)

    def _split(self, instant_s: float) -> int:
        n = bisect_left(self._times, instant_s)
        if n == len(self._times) or self._times[n] != instant_s:
            self._times.insert(n, instant_s)
            self._used.insert(n, self._used[n - 1])
            if n < self._full:
                self._full += 1
        return n

    def earliest_fit(
        self, ready_s: float, duration_s: float, procs: int, latest_end_s: float
    ) -> float | None:
        """First start at or after ``ready_s`` that leaves room and ends in time; None if there is
        none."""
        if procs > self.procs:
            return None
        steps, latest_end_s = len(self._times), min(latest_end_s, self.end_s)
        while self._full + 1 < steps and self._used[self._full] >= self.procs:
            self._full += 1
        start_s = max(self._times[self._full], ready_s)
        n = bisect_right(self._times, start_s) - 1
        own = Steps(self._times, self._used, (steps, self._full))
        start_s = _room(own, n, self.procs - procs, start_s, duration_s, latest_end_s)
        return start_s if start_s < np.inf else None

    def steps(self, more: int) -> Steps:
        """A copy of its steps, with room for so many more tasks."""
        count = len(self._times)
        times_s, used = np.empty(count + 2 * more), np.empty(count + 2 * more, np.int64)
        times_s[:count], used[:count] = self._times, self._used
        return Steps(times_s, used, np.array([count, self._full]))

    def keep(self, steps: Steps) -> None:
        """Take over what became of its steps."""
        count, self._full = (int(n) for n in steps.head)
        self._times = array("d", steps.times_s[:count].tobytes())
        self._used = array("q", steps.used[:count].tobytes())

    def check(self) -> None:
        """Ascending times, use between 0 and the slot's processors, nothing in use at the end."""
        times_s, used = list(self._times), list(self._used)
        if times_s != sorted(set(times_s)) or used[-1] != 0:
            raise AssertionError(f"{times_s} {used}")
        if any(n < self.procs for n in used[: self._full]):
            raise AssertionError(f"not all full before step {self._full}: {used}")
        if any(not 0 <= n <= self.procs for n in used):
            raise AssertionError(f"{used} of {self.procs}")
