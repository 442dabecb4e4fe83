"""Processors in use over time: a step function, and the search for room for a task.

The functions are compiled where that pays off (:mod:`vgrads.kernel.compiled`) and work on
:class:`Steps`; :class:`Profile` is the same for callers that work task by task. Adjacent steps
always differ.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled


class Steps(NamedTuple):
    """Start of each step and number of processors in use from then on; arrays with room for more
    steps.

    ``head``: the number of steps, and the step before which no processor is free.
    """

    times_s: Floats
    used: Ints
    head: Ints


@compiled
def room(
    s: Steps, n: int, most: int, start_s: float, length_s: float, latest_end_s: float
) -> float:
    """Return the first start from ``start_s`` on, which is in step ``n``, at which at most ``most``
    processors are in use throughout; ``inf`` if it would end too late."""
    # a task that ends exactly in time must not fail by rounding
    while start_s + length_s <= latest_end_s + 1e-9:
        end_s, blocked = start_s + length_s, -1
        while n < s.head[0] and s.times_s[n] < end_s:
            if s.used[n] > most:
                blocked = n
            n += 1
        if blocked < 0:
            return start_s
        # the last step never ends, so that no later start is possible
        if blocked + 1 == s.head[0]:
            return np.inf
        n = blocked + 1
        start_s = s.times_s[n]
    return np.inf


@compiled
def position(times_s: Floats, steps: int, instant_s: float) -> int:
    """Return the first step that does not begin before an instant."""
    low, high = 0, steps
    while low < high:
        middle = (low + high) // 2
        if times_s[middle] < instant_s:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def split(s: Steps, instant_s: float) -> int:
    """Return the step that begins at an instant; create it if necessary."""
    steps = s.head[0]
    n = position(s.times_s, steps, instant_s)
    if n == steps or s.times_s[n] != instant_s:
        # from behind, since the values move within one array
        for m in range(steps, n, -1):
            s.times_s[m], s.used[m] = s.times_s[m - 1], s.used[m - 1]
        s.times_s[n], s.used[n] = instant_s, s.used[n - 1]
        s.head[0] = steps + 1
        if n < s.head[1]:
            s.head[1] += 1
    return n


@compiled
def join(s: Steps, n: int) -> None:
    """Remove a step that is equal to the one before it."""
    if n > 0 and s.used[n] == s.used[n - 1]:
        for m in range(n, s.head[0] - 1):
            s.times_s[m], s.used[m] = s.times_s[m + 1], s.used[m + 1]
        s.head[0] -= 1
        if n < s.head[1]:
            s.head[1] -= 1


@compiled
def use(s: Steps, start_s: float, end_s: float, procs: int) -> None:
    """Use processors in [start, end); a negative number releases them."""
    if end_s <= start_s:
        return
    first, last = split(s, start_s), split(s, end_s)
    for n in range(first, last):
        s.used[n] += procs
    # processors are free again before the step from which on the search begins
    if procs < 0 and first < s.head[1]:
        s.head[1] = first
    join(s, last)
    join(s, first)


@compiled
def fit(
    s: Steps, size: int, ready_s: float, length_s: float, procs: int, latest_end_s: float
) -> float:
    """Return the first start at or after ``ready_s`` on ``size`` processors; ``inf`` if there is
    none."""
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
def use_all(s: Steps, starts_s: Floats, ends_s: Floats, procs: Ints) -> None:
    """Use processors for many tasks."""
    for n in range(len(starts_s)):
        use(s, starts_s[n], ends_s[n], procs[n])


@compiled
def use_from_start(s: Steps, ends_s: Floats, procs: Ints) -> None:
    """Fill an empty profile with tasks that run from its first instant, by ascending ends.
    O(ends)."""
    count, total = 1, 0
    for n in range(len(procs)):
        total += procs[n]
    s.used[0] = total
    for n in range(len(ends_s)):
        if ends_s[n] > s.times_s[count - 1]:
            s.times_s[count], s.used[count] = ends_s[n], s.used[count - 1]
            count += 1
        s.used[count - 1] -= procs[n]
    s.head[0], s.head[1] = count, 0


_room = room.plain


class Profile:
    """Processors in use from ``begin_s`` on, of ``procs`` available until ``end_s``; every
    operation is O(steps) at worst."""

    def __init__(self, procs: int, end_s: float = math.inf, begin_s: float = 0.0) -> None:
        self.procs, self.end_s = procs, end_s
        self._times = array("d", [begin_s])
        self._used = array("q", [0])
        self._full = 0  # no processor is free in any step before this one

    @property
    def empty(self) -> bool:
        """True while nothing is placed."""
        return not any(self._used)

    @property
    def free(self) -> list[tuple[float, int]]:
        """Return (begin of a step, free processors from then on)."""
        return [(at_s, self.procs - n) for at_s, n in zip(self._times, self._used, strict=True)]

    def add(self, start_s: float, end_s: float, procs: int) -> None:
        """Use processors in [start, end); a negative number releases them."""
        if end_s <= start_s:
            return
        first, last = self._split(start_s), self._split(end_s)
        for n in range(first, last):
            self._used[n] += procs
        if procs < 0 and first < self._full:
            self._full = first
        self._join(last)
        self._join(first)

    def add_all(self, rows: Iterable[tuple[float, float, int]]) -> None:
        """:meth:`add` for many (start, end, processors)."""
        starts_s, ends_s, procs = zip(*rows, strict=True)
        many = use_all.after(2 * len(starts_s))
        if many is use_all.plain:  # lists shift their values faster than loops do
            for row in zip(starts_s, ends_s, procs, strict=True):
                self.add(*row)
            return
        steps = self.steps(len(starts_s))
        many(steps, np.array(starts_s), np.array(ends_s), np.array(procs))
        self.keep(steps)

    def _split(self, instant_s: float) -> int:
        n = bisect_left(self._times, instant_s)
        if n == len(self._times) or self._times[n] != instant_s:
            if n == 0:
                raise ValueError(f"{instant_s} lies before the profile's begin, {self._times[0]}")
            self._times.insert(n, instant_s)
            self._used.insert(n, self._used[n - 1])
            if n < self._full:
                self._full += 1
        return n

    def _join(self, n: int) -> None:
        if n > 0 and self._used[n] == self._used[n - 1]:
            del self._times[n], self._used[n]
            if n < self._full:
                self._full -= 1

    def earliest_fit(
        self, ready_s: float, duration_s: float, procs: int, latest_end_s: float = math.inf
    ) -> float | None:
        """Return the first start at or after ``ready_s`` that has room and ends in time; None if
        there is none."""
        if procs > self.procs:
            return None
        steps, latest_end_s = len(self._times), min(latest_end_s, self.end_s)
        while self._full + 1 < steps and self._used[self._full] >= self.procs:
            self._full += 1
        start_s = max(self._times[self._full], ready_s)
        n = bisect_right(self._times, start_s) - 1
        # the plain form of room reads arrays of Python as well as those of numpy
        own = Steps(self._times, self._used, (steps, self._full))  # type: ignore[arg-type]
        start_s = _room(own, n, self.procs - procs, start_s, duration_s, latest_end_s)
        return start_s if start_s < np.inf else None

    def steps(self, more: int) -> Steps:
        """Return a copy of its steps, with room for ``more`` tasks."""
        count = len(self._times)
        # each task begins at most two steps
        times_s, used = np.empty(count + 2 * more), np.empty(count + 2 * more, np.int64)
        times_s[:count], used[:count] = self._times, self._used
        return Steps(times_s, used, np.array([count, self._full]))

    def keep(self, steps: Steps) -> None:
        """Replace its steps by a changed copy."""
        count, self._full = (int(n) for n in steps.head)
        self._times = array("d", steps.times_s[:count].tobytes())
        self._used = array("q", steps.used[:count].tobytes())

    def check(self) -> None:
        """Check for ascending times, use between 0 and all processors, nothing in use at the
        end."""
        times_s, used = list(self._times), list(self._used)
        if times_s != sorted(set(times_s)) or used[-1] != 0:
            raise AssertionError(f"{times_s} {used}")
        if any(n < self.procs for n in used[: self._full]):
            raise AssertionError(f"not all full before step {self._full}: {used}")
        if any(not 0 <= n <= self.procs for n in used):
            raise AssertionError(f"{used} of {self.procs}")
        if any(a == b for a, b in pairwise(used)):
            raise AssertionError(f"equal neighbours: {used}")


def running_profile(now_s: float, free: int, ends: Sequence[tuple[float, int]]) -> Profile:
    """Return the profile of a machine with ``free`` processors; ``ends``: (expected end,
    processors) of running jobs. Overdue jobs are expected to end at once."""
    profile = Profile(free + sum(procs for _, procs in ends), begin_s=now_s)
    for end_s, procs in ends:
        profile.add(now_s, end_s, procs)
    return profile
