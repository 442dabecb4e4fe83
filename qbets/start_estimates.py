"""When would this job start if nobody else came? Compiled schedules of a queue as it stands.

Three rules on the requested times (FCFS, EASY, conservative backfilling) and EASY on the run times
that users' earlier jobs make likely. None of them is what the site does; all of them say much about
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vgrads.kernel.compiled import compiled
from vgrads.simulator.replay import replay_compiled

_CONSERVATIVE = 500  # waiting jobs up to which every one of them is given a reservation
_NEVER_S = 30 * 86_400.0  # what is later than this, or never, is as late as this


@compiled
def start_estimates(waiting: Any, running: Any, procs: int, job: Any) -> Any:
    """Seconds until a job of ``(processors, request, expected run)`` starts, by four rules.

    ``waiting``: ``(processors, request, expected run)`` in order; ``running``: ``(processors,
    request left, expected rest)``. Returns FCFS, EASY and conservative by request, and EASY by
    expected runs.
    """
    size, request, expected = job
    queued, held = len(waiting), len(running)
    width = np.empty(queued + 1, dtype=np.int64)
    asked, likely = np.empty(queued + 1), np.empty(queued + 1)
    for n in range(queued):
        width[n] = max(1, min(int(waiting[n, 0]), procs))
        asked[n], likely[n] = waiting[n, 1], waiting[n, 2]
    width[queued], asked[queued], likely[queued] = max(1, min(size, procs)), request, expected
    order = np.argsort(running[:, 1])
    told, rest = running[order, 1], running[order, 2]
    taken = running[order, 0].astype(np.int64)
    held = _fitting(taken, procs)
    told, rest, taken = told[:held], rest[:held], taken[:held]
    now, until = np.zeros(queued + 1), (queued, np.inf)
    jobs, placed = (now, width, asked, asked, asked), (told, told, taken)
    found = np.empty(4)
    found[0] = replay_compiled(jobs, placed, procs, False, until)[queued]
    found[1] = replay_compiled(jobs, placed, procs, True, until)[queued]
    found[2] = found[0]
    if queued <= _CONSERVATIVE:
        found[2] = _conservative(told, taken, (width, asked), procs)
    likelier = (now, width, asked, likely, asked)
    found[3] = replay_compiled(likelier, (rest, told, taken), procs, True, until)[queued]
    return np.minimum(found, _NEVER_S)


@compiled
def _fitting(taken: Any, procs: int) -> int:
    """How many of the running jobs fit on the machine: all, unless its size is not known yet."""
    busy = 0
    for n in range(len(taken)):
        busy += taken[n]
        if busy > procs:
            return n
    return len(taken)


@compiled
def _conservative(told: Any, taken: Any, jobs: Any, procs: int) -> float:
    """Start of the last job when each in turn takes the earliest place left (a step profile)."""
    width, asked = jobs
    steps = 1
    most = len(told) + 2 * len(width) + 2
    times, free = np.empty(most), np.empty(most, dtype=np.int64)
    times[0], free[0] = 0.0, procs - taken.sum()
    for n in range(len(told)):
        if told[n] > times[steps - 1]:
            times[steps], free[steps] = told[n], free[steps - 1]
            steps += 1
        free[steps - 1] += taken[n]
    start_s = 0.0
    for job in range(len(width)):
        length_s = max(1.0, asked[job])
        first, at = 0, 0
        while at < steps and times[at] < times[first] + length_s:
            if free[at] < width[job]:
                first = at + 1
            at += 1
        start_s = times[first]
        if job == len(width) - 1:
            break
        end_s = start_s + length_s
        last = first + np.searchsorted(times[first:steps], end_s)
        if last == steps or times[last] != end_s:
            for n in range(steps, last, -1):
                times[n], free[n] = times[n - 1], free[n - 1]
            times[last], free[last] = end_s, free[last - 1]
            steps += 1
        for n in range(first, last):
            free[n] -= width[job]
    return start_s


@compiled
def room_at(running: Any, procs: int, wanted: int, column: int) -> float:
    """Seconds until ``wanted`` processors are free with nobody ahead, by this column of
    ``running``."""
    free = procs - running[:, 0].sum()
    if free >= wanted:
        return 0.0
    for n in np.argsort(running[:, column]):
        free += running[n, 0]
        if free >= wanted:
            return float(min(max(0.0, running[n, column]), _NEVER_S))
    return _NEVER_S
