"""Start estimates of a job if no other job is submitted: compiled schedules of a queue in its
current state.

Three rules on the requested times (FCFS, EASY, conservative backfilling) and EASY on run times
expected from users' earlier jobs. None of them is the site's rule; all of them are informative
about it.
"""

from __future__ import annotations

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.profile import Steps, fit, use, use_from_start
from vgrads.simulator.replay import replay_compiled

_CONSERVATIVE = 500  # waiting jobs up to which each gets a reservation
_NEVER_S = 30 * 86_400.0  # latest start: later ones, or none, count as this


@compiled
def start_estimates(
    waiting: Floats,
    running: Floats,
    machine: float,
    job: tuple[float, float, float],
    result: Floats,
) -> None:
    """Write the seconds until a job of ``(processors, request, expected run)`` starts, by four
    rules, into ``result``.

    ``machine``: its processors; ``waiting``: ``(processors, request, expected run)`` in order;
    ``running``: ``(processors, request left, expected rest)``. The rules: FCFS, EASY and
    conservative by request, and EASY by expected runs.
    """
    size, request, expected = job
    procs = int(machine)
    queued, reserved = len(waiting), len(running)
    width = np.empty(queued + 1, dtype=np.int64)
    requested, likely, now = np.empty(queued + 1), np.empty(queued + 1), np.empty(queued + 1)
    for n in range(queued):
        # the machine is as large as was ever seen busy: a wider job would never start on it
        width[n] = max(1, min(int(waiting[n, 0]), procs))
        requested[n], likely[n], now[n] = waiting[n, 1], waiting[n, 2], 0.0
    width[queued] = max(1, min(int(size), procs))
    requested[queued], likely[queued], now[queued] = request, expected, 0.0
    order = np.empty(reserved, dtype=np.int64)
    sort_order(running, 1, order)
    message, rest = np.empty(reserved), np.empty(reserved)
    taken = np.empty(reserved, dtype=np.int64)
    for n in range(reserved):
        message[n], rest[n] = running[order[n], 1], running[order[n], 2]
        taken[n] = int(running[order[n], 0])
    reserved = _count_fitting(taken, procs)
    message, rest, taken = message[:reserved], rest[:reserved], taken[:reserved]
    until = (queued, np.inf)
    jobs, placed = (now, width, requested, requested, requested), (message, message, taken)
    result[0] = min(replay_compiled(jobs, placed, procs, False, until)[queued], _NEVER_S)
    result[1] = min(replay_compiled(jobs, placed, procs, True, until)[queued], _NEVER_S)
    # the estimate of long queues, for which reservations for all would take too long
    result[2] = result[0]
    if queued <= _CONSERVATIVE:
        result[2] = min(_estimate_conservative(message, taken, (width, requested), procs), _NEVER_S)
    likelier = (now, width, requested, likely, requested)
    starts_s = replay_compiled(likelier, (rest, message, taken), procs, True, until)
    result[3] = min(starts_s[queued], _NEVER_S)


@compiled
def sort_order(table: Floats, column: int, order: Ints) -> None:
    """Fill ``order`` with the rows of a table by ascending values of a column; equal ones keep
    their order. Runs of twelve are sorted by insertion, then merged."""
    count = len(order)
    for n in range(count):
        at, key = n, table[n, column]
        while at % 12 > 0 and table[order[at - 1], column] > key:
            order[at] = order[at - 1]
            at -= 1
        order[at] = n
    width = 12
    if width >= count:
        return
    merged = np.empty(count, dtype=np.int64)
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            left, right = begin, middle
            for n in range(begin, end):
                if right == end or (
                    left < middle and table[order[left], column] <= table[order[right], column]
                ):
                    merged[n] = order[left]
                    left += 1
                else:
                    merged[n] = order[right]
                    right += 1
        for n in range(count):
            order[n] = merged[n]
        width *= 2


@compiled
def _count_fitting(taken: Ints, procs: int) -> int:
    """Return how many of the running jobs fit on the machine: all, unless its size is not known
    yet."""
    busy = 0
    for n in range(len(taken)):
        busy += taken[n]
        if busy > procs:
            return n
    return len(taken)


@compiled
def _estimate_conservative(
    message: Floats, taken: Ints, jobs: tuple[Ints, Floats], procs: int
) -> float:
    """Return the start of the last job if each in turn takes the earliest free place."""
    width, requested = jobs
    most = len(message) + 2 * len(width) + 2
    steps = Steps(np.empty(most), np.empty(most, np.int64), np.empty(2, np.int64))
    steps.times_s[0] = 0.0
    use_from_start(steps, message, taken)
    start_s = 0.0
    for job in range(len(width)):
        length_s = max(1.0, requested[job])
        start_s = fit(steps, procs, 0.0, length_s, width[job], np.inf)
        use(steps, start_s, start_s + length_s, width[job])
    return start_s


@compiled
def room_at(running: Floats, procs: float, required: float, column: int) -> float:
    """Return the seconds until ``required`` processors are free without jobs ahead, by this column
    of ``running``."""
    used = 0.0
    for n in range(len(running)):
        used += running[n, 0]
    free = procs - used
    if free >= required:
        return 0.0
    order = np.empty(len(running), dtype=np.int64)
    sort_order(running, column, order)
    for place in range(len(order)):
        n = order[place]
        free += running[n, 0]
        if free >= required:
            return float(min(max(0.0, running[n, column]), _NEVER_S))
    return _NEVER_S
