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
    waiting: Floats, running: Floats, machine: float, job: tuple[float, float, float]
) -> Floats:
    """Return the seconds until a job of ``(processors, request, expected run)`` starts, by four
    rules.

    ``machine``: its processors; ``waiting``: ``(processors, request, expected run)`` in order;
    ``running``: ``(processors, request left, expected rest)``. Returns FCFS, EASY and conservative
    by request, and EASY by expected runs.
    """
    size, request, expected = job
    procs = int(machine)
    queued, reserved = len(waiting), len(running)
    width = np.empty(queued + 1, dtype=np.int64)
    requested, likely = np.empty(queued + 1), np.empty(queued + 1)
    for n in range(queued):
        width[n] = max(1, min(int(waiting[n, 0]), procs))
        requested[n], likely[n] = waiting[n, 1], waiting[n, 2]
    width[queued], requested[queued], likely[queued] = (
        max(1, min(int(size), procs)),
        request,
        expected,
    )
    order = np.argsort(running[:, 1])
    message, rest = running[order, 1], running[order, 2]
    taken = running[order, 0].astype(np.int64)
    reserved = _fitting(taken, procs)
    message, rest, taken = message[:reserved], rest[:reserved], taken[:reserved]
    now, until = np.zeros(queued + 1), (queued, np.inf)
    jobs, placed = (now, width, requested, requested, requested), (message, message, taken)
    result = np.empty(4)
    result[0] = replay_compiled(jobs, placed, procs, False, until)[queued]
    result[1] = replay_compiled(jobs, placed, procs, True, until)[queued]
    result[2] = result[0]
    if queued <= _CONSERVATIVE:
        result[2] = _conservative(message, taken, (width, requested), procs)
    likelier = (now, width, requested, likely, requested)
    result[3] = replay_compiled(likelier, (rest, message, taken), procs, True, until)[queued]
    return np.minimum(result, _NEVER_S)


@compiled
def _fitting(taken: Ints, procs: int) -> int:
    """Return how many of the running jobs fit on the machine: all, unless its size is not known
    yet."""
    busy = 0
    for n in range(len(taken)):
        busy += taken[n]
        if busy > procs:
            return n
    return len(taken)


@compiled
def _conservative(message: Floats, taken: Ints, jobs: tuple[Ints, Floats], procs: int) -> float:
    """Return the start of the last job if each in turn takes the earliest free place."""
    width, requested = jobs
    most = len(message) + 2 * len(width) + 2
    steps = Steps(np.zeros(most), np.zeros(most, dtype=np.int64), np.zeros(2, dtype=np.int64))
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
    free = procs - running[:, 0].sum()
    if free >= required:
        return 0.0
    for n in np.argsort(running[:, column]):
        free += running[n, 0]
        if free >= required:
            return float(min(max(0.0, running[n, column]), _NEVER_S))
    return _NEVER_S
