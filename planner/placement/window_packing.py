"""Windows of slots and their placements as arrays: whole workflows are inserted, gaps used, in time
or as early as possible.

The inner loops of :mod:`vgrads.planner.placement.pack`: list scheduling with insertion (Topcuoglu,
Hariri, Wu, IEEE TPDS 13(3) 2002, doi:10.1109/71.993206) into given windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Bools, Floats, Ints, Records
from vgrads.kernel.compiled import compiled
from vgrads.kernel.profile import Steps, fit, position, use

WINDOW = np.dtype(
    [
        ("begin_s", "f8"),
        ("end_s", "f8"),
        ("procs", "i8"),
        ("speed", "f8"),
        ("site", "i8"),
        ("room_s", "f8"),
    ]
)
TASK = np.dtype(
    [
        ("length_s", "f8"),
        ("procs", "i8"),
        ("kind", "i8"),
        ("same", "i8"),
        ("parents_at", "i8"),
        ("rest_s", "f8"),
    ]
)


_MORE_STEPS = 64  # space of a new room


class Room(NamedTuple):
    """Windows (:data:`WINDOW`), and a profile of each, one row each: see :class:`Steps`.

    ``room_s``: remaining processor-seconds in a window; ``work``: number of steps that searches
    for room examined.
    """

    windows: Records
    times_s: Floats
    used: Ints
    heads: Ints
    work: Ints


def make_room(windows: Records, steps: Sequence[Steps]) -> Room:
    """Return the room that the steps of their slots leave in windows, with space for more steps;
    ``room_s`` is filled."""
    heads = np.array([own.head for own in steps])
    shape = len(steps), int(heads[:, 0].max()) + _MORE_STEPS
    room = Room(windows, np.zeros(shape), np.zeros(shape, np.int64), heads, np.zeros(1, np.int64))
    room_s = (windows.end_s - windows.begin_s) * windows.procs
    for n, own in enumerate(steps):
        count = own.head[0]
        room.times_s[n, :count], room.used[n, :count] = own.times_s[:count], own.used[:count]
        if count > 1:
            begin_s, end_s = windows.begin_s[n], windows.end_s[n]
            lengths_s = np.diff(np.clip((*own.times_s[:count], end_s), begin_s, end_s))
            room_s[n] -= (lengths_s * own.used[:count]).sum()
    windows.room_s = room_s
    return room


def with_more_steps(room: Room) -> Room:
    """Return a copy with space for twice as many steps."""
    more = ((0, 0), (0, room.times_s.shape[1]))
    return room._replace(times_s=np.pad(room.times_s, more), used=np.pad(room.used, more))


class PlacementShape(NamedTuple):
    """The tasks of a workflow in the order of placement, parents first; with one extra row.

    ``same``: number that tasks of equal length and processors share; ``rest_s``: minimum time after
    a task until its workflow ends; ``holds``: kind of task × window; ``links``: latency and seconds
    per MiB, sites × sites; ``limit_s``: see :func:`place`.
    """

    tasks: Records
    parents: Ints
    mib: Floats
    holds: Bools
    links: Floats
    limit_s: float


@compiled
def earliest(room: Room, w: int, ready_s: float, length_s: float, procs: int) -> float:
    """Return the first start at or after ``ready_s`` with room in a window; ``inf`` if there is
    none."""
    window = room.windows[w]
    steps = Steps(room.times_s[w], room.used[w], room.heads[w])
    return fit(steps, window.procs, max(ready_s, window.begin_s), length_s, procs, window.end_s)


@compiled
def examined(room: Room, w: int, ready_s: float, start_s: float) -> int:
    """Return how many steps :func:`earliest` went through, about."""
    times_s, steps, first = room.times_s[w], room.heads[w, 0], room.heads[w, 1]
    begin = max(first, position(times_s, steps, ready_s))
    return 4 + int(max(0, position(times_s, steps, start_s) - begin))


@compiled
def occupy(room: Room, w: int, start_s: float, end_s: float, procs: int) -> None:
    """Occupy processors of a window from start to end; a negative number releases them."""
    if end_s > start_s:
        use(Steps(room.times_s[w], room.used[w], room.heads[w]), start_s, end_s, procs)
        room.windows[w].room_s -= (end_s - start_s) * procs


@compiled
def place(
    room: Room,
    shape: PlacementShape,
    t: int,
    bounds_s: Floats,
    starts_s: Floats,
    where: Ints,
) -> bool:
    """Put a task into the first window in which it ends early enough for its successors to end by
    the limit; if there is none, where it ends first. Return False if none has room.

    ``bounds_s``: when equal tasks were ready last and the start that they found then, in each
    window: as long as nothing is removed, later ones find none before it.
    """
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
        # with too little room in all, a window is passed over without a search
        able = shape.holds[task.kind, w] and window.room_s + 1e-6 >= length_s * task.procs
        begin_s = max(ready_s[window.site], window.begin_s)
        last_s = bounds_s[task.same, w]
        from_s = max(begin_s, last_s[1]) if begin_s >= last_s[0] else begin_s
        # rounding must not move a task to a later window
        if able and from_s + length_s < best_s - 1e-9:
            start_s = earliest(room, w, from_s, length_s, task.procs)
            room.work[0] += examined(room, w, from_s, start_s)
            last_s[0], last_s[1] = begin_s, start_s
            if start_s + length_s < best_s - 1e-9:
                best_s, best, starts_s[t] = start_s + length_s, w, start_s
                if best_s + task.rest_s <= shape.limit_s:
                    break
    where[t] = best
    if best >= 0:
        occupy(
            room,
            best,
            starts_s[t],
            starts_s[t] + task.length_s / room.windows[best].speed,
            task.procs,
        )
    return best >= 0


@compiled
def fill(room: Room, shape: PlacementShape, starts_s: Floats, where: Ints) -> int:
    """Place equal workflows, one row each, until the next has no room; return how many were placed.
    If a profile has no space for more steps, return −1 − that number."""
    count = len(shape.tasks) - 1
    bounds_s = np.full((shape.tasks.same.max() + 1, len(room.windows), 2), np.inf)
    for row in range(len(starts_s)):
        for t in range(count):
            placed = place(room, shape, t, bounds_s, starts_s[row], where[row])
            # one task adds at most two steps to a profile
            full = placed and room.heads[where[row, t], 0] + 2 >= room.times_s.shape[1]
            if full or not placed:
                for m in range(t if placed else t - 1, -1, -1):  # so steps only become fewer
                    w = where[row, m]
                    end_s = starts_s[row, m] + shape.tasks[m].length_s / room.windows[w].speed
                    occupy(room, w, starts_s[row, m], end_s, -shape.tasks[m].procs)
                return -1 - row if full else row
    return len(starts_s)
