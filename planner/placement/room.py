"""Windows of slots and what is placed in them, in arrays: whole workflows go in, gaps used, in time
or as early as can be.

The inner loops of :mod:`vgrads.planner.placement.pack`: list scheduling with insertion (Topcuoglu,
Hariri, Wu, IEEE TPDS 13(3) 2002, doi:10.1109/71.993206) into windows that are given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vgrads.kernel.compiled import compiled

WINDOW = np.dtype(
    [
        ("begin_s", "f8"),
        ("end_s", "f8"),
        ("procs", "i8"),
        ("speed", "f8"),
        ("site", "i8"),
        ("steps", "i8"),
        ("room_s", "f8"),
    ]
)
TASK = np.dtype(
    [("length_s", "f8"), ("procs", "i8"), ("kind", "i8"), ("parents_at", "i8"), ("rest_s", "f8")]
)


class Room(NamedTuple):
    """Windows, and in each how many processors are used from which instant on: ``steps`` of them,
    no two equal neighbours.

    ``room_s``: processor-seconds that are left in a window.
    """

    windows: Any
    times_s: Any
    used: Any


class Shape(NamedTuple):
    """The tasks of a workflow in the order in which they are placed, parents first; one row more
    than there are.

    ``rest_s``: what follows a task at least; ``holds``: kind of task × window; ``links``: latency
    and seconds a MiB, sites × sites.
    """

    tasks: Any
    parents: Any
    mib: Any
    holds: Any
    links: Any


@compiled
def earliest(room: Any, w: Any, ready_s: Any, length_s: Any, procs: Any) -> Any:
    """First start at or after ``ready_s`` with room in a window; ``inf`` where there is none."""
    window, times_s, used = room.windows[w], room.times_s[w], room.used[w]
    start_s, last_s = max(ready_s, window.begin_s), window.end_s - length_s + 1e-9
    if start_s > last_s:
        return np.inf
    low, high = 0, window.steps - 1
    while low < high:
        middle = (low + high + 1) // 2
        if times_s[middle] <= start_s:
            low = middle
        else:
            high = middle - 1
    while start_s <= last_s:
        if used[low] + procs > window.procs:
            start_s = times_s[low + 1]  # behind the last step nothing is used
        elif low + 1 == window.steps or times_s[low + 1] >= start_s + length_s:
            return start_s
        low += 1
    return np.inf


@compiled
def split(room: Any, w: Any, at_s: Any) -> Any:
    """The step that begins at an instant, made where there is none."""
    times_s, used, n = room.times_s[w], room.used[w], room.windows[w].steps
    low = np.searchsorted(times_s[:n], at_s)
    if low == n or times_s[low] != at_s:
        for m in range(n, low, -1):
            times_s[m], used[m] = times_s[m - 1], used[m - 1]
        times_s[low], used[low] = at_s, used[low - 1]
        room.windows[w].steps = n + 1
    return low


@compiled
def join(room: Any, w: Any, step: Any) -> None:
    """Take a step out where nothing changes."""
    times_s, used, n = room.times_s[w], room.used[w], room.windows[w].steps
    if used[step] == used[step - 1]:
        for m in range(step, n - 1):
            times_s[m], used[m] = times_s[m + 1], used[m + 1]
        room.windows[w].steps = n - 1


@compiled
def use(room: Any, w: Any, start_s: Any, end_s: Any, procs: Any) -> None:
    """Processors of a window from start to end; a negative number gives them back."""
    if end_s > start_s:
        first = split(room, w, start_s)
        last = split(room, w, end_s)
        for m in range(first, last):
            room.used[w, m] += procs
        join(room, w, last)
        join(room, w, first)
        room.windows[w].room_s -= (end_s - start_s) * procs


@compiled
def place(room: Any, shape: Any, t: Any, limit_s: Any, starts_s: Any, where: Any) -> Any:
    """Put a task into the first window in which it ends so early that what follows can end by the
    limit; where there is none, where it ends first. False where none has room."""
    task, sites = shape.tasks[t], shape.links.shape[1]
    ready_s = np.zeros(sites)
    for n in range(task.parents_at, shape.tasks[t + 1].parents_at):
        p = shape.parents[n]
        at = room.windows[where[p]]
        end_s = starts_s[p] + shape.tasks[p].length_s / at.speed
        for site in range(sites):
            moved_s = shape.links[0, at.site, site] + shape.mib[n] * shape.links[1, at.site, site]
            ready_s[site] = max(ready_s[site], end_s + moved_s)
    best_s, best = np.inf, -1
    for w in range(len(room.windows)):
        window = room.windows[w]
        length_s = task.length_s / window.speed
        able = shape.holds[task.kind, w] and window.room_s + 1e-6 >= length_s * task.procs
        if able and max(ready_s[window.site], window.begin_s) + length_s < best_s - 1e-9:
            start_s = earliest(room, w, ready_s[window.site], length_s, task.procs)
            if start_s + length_s < best_s - 1e-9:
                best_s, best, starts_s[t] = start_s + length_s, w, start_s
                if best_s + task.rest_s <= limit_s:
                    break
    where[t] = best
    if best >= 0:
        use(
            room,
            best,
            starts_s[t],
            starts_s[t] + task.length_s / room.windows[best].speed,
            task.procs,
        )
    return best >= 0


@compiled
def fill(room: Any, shape: Any, limit_s: Any, starts_s: Any, where: Any) -> Any:
    """Place equal workflows, a row each, until one has no room; how many were placed. −1: more
    steps are needed."""
    count = len(shape.tasks) - 1
    for row in range(len(starts_s)):
        for t in range(count):
            placed = place(room, shape, t, limit_s, starts_s[row], where[row])
            if placed and room.windows[where[row, t]].steps + 2 >= room.times_s.shape[1]:
                return -1
            if not placed:
                for m in range(t):
                    w = where[row, m]
                    end_s = starts_s[row, m] + shape.tasks[m].length_s / room.windows[w].speed
                    use(room, w, starts_s[row, m], end_s, -shape.tasks[m].procs)
                return row
    return len(starts_s)
