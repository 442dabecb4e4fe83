"""When would this job start if nobody else came? Compiled schedules of a queue as it stands.

Three rules on the requested times (FCFS, EASY, conservative backfilling) and EASY on the run times
that users' earlier jobs make likely. None of them is what the site does; all of them say much about
it.
"""

from __future__ import annotations

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.profile import Steps, fit, use, use_from_start
from vgrads.simulator.replay import replay_compiled

_CONSERVATIVE = 500  # waiting jobs up to which every one of them is given a reservation
_NEVER_S = 30 * 86_400.0  # what is later than this, or never, is as late as this


@compiled
def start_estimates(
    waiting: Floats, running: Floats, machine: float, job: tuple[float, float, float]
) -> Floats:
    """Seconds until a job of ``(processors, request, expected run)`` starts, by four rules.

    ``machine``: its processors; ``waiting``: ``(processors, request, expected run)`` in order;
    ``running``: ``(processors, request left, expected rest)``. Returns FCFS, EASY and conservative
    by request, and EASY by expected runs.
    """
    size, request, expected = job
    procs = int(machine)
    queued, held = len(waiting), len(running)
    width = np.empty(queued + 1, dtype=np.int64)
    asked, likely = np.empty(queued + 1), np.empty(queued + 1)
    for n in range(queued):
        width[n] = max(1, min(int(waiting[n, 0]), procs))
        asked[n], likely[n] = waiting[n, 1], waiting[n, 2]
    width[queued], asked[queued], likely[queued] = max(1, min(int(size), procs)), request, expected
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
def _fitting(taken: Ints, procs: int) -> int:
    """How many of the running jobs fit on the machine: all, unless its size is not known yet."""
    busy = 0
    for n in range(len(taken)):
        busy += taken[n]
        if busy > procs:
            return n
    return len(taken)


@compiled
def _conservative(told: Floats, taken: Ints, jobs: tuple[Ints, Floats], procs: int) -> float:
    """Start of the last job when each in turn takes the earliest place left."""
    width, asked = jobs
    most = len(told) + 2 * len(width) + 2
    steps = Steps(np.zeros(most), np.zeros(most, dtype=np.int64), np.zeros(2, dtype=np.int64))
    use_from_start(steps, told, taken)
    start_s = 0.0
    for job in range(len(width)):
        length_s = max(1.0, asked[job])
        start_s = fit(steps, procs, 0.0, length_s, width[job], np.inf)
        use(steps, start_s, start_s + length_s, width[job])
    return start_s


@compiled
def room_at(running: Floats, procs: float, wanted: float, column: int) -> float:
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
