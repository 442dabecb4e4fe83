"""The rules of execution of a plan: :mod:`vgrads.execmgr.core.step` applies them,
:mod:`vgrads.planner.promise.rollout` simulates them.

A slot starts its replicas in the order of the plan. A replica that waits for data does not block
later ones: they may backfill if they delay no replica before them beyond its planned start, as far
as that is in the future. So a run in which nothing is late is never later than its plan. A replica
that could run but lacks processors is never backfilled.

Superfluous work is released early: when enough workflows are done, all the rest; and before, as
soon as the number of workflows that the plan specifies is complete in ready slots, everything that
these do not need.
"""

from __future__ import annotations

import numpy as np

from vgrads.kernel.arrays import Bools, Floats
from vgrads.kernel.compiled import compiled
from vgrads.kernel.heap import pop, push
from vgrads.planner.schedule import Schedule

ATTEMPTS = 2
"""Attempts of one replica if no other replica of its task is left."""
SLACK_S = 1.0
"""Tolerance of planned times: a replica that waits for data is in time for this long; rounding must
not prevent a start."""
LOOK_AHEAD = 16
"""Number of waiting replicas of a slot that are examined, from the first on."""


@compiled
def may_backfill(
    ends_s: float, procs: int, shadow_time_s: float, reserved_procs: int, room: int
) -> bool:
    """True if a replica may start before others. ``shadow_time_s``: the earliest future planned
    start among those; ``reserved_procs``: processors that they need; ``room``: free processors."""
    return ends_s <= shadow_time_s + 1e-6 or reserved_procs + procs <= room


@compiled
def count_in_time(
    s: Schedule,
    kept: Bools,
    live: Bools,
    done: Bools,
    late_s: Floats,
    deadline_s: float,
    ends_s: Floats,
) -> int:
    """Count the workflows that are done, or continue completely and in time in the retained slots.

    ``s``: the schedule; ``live``: replicas that wait or run; ``late_s``: delay of each slot
    relative to its first planned start. ``ends_s`` is filled: the planned end of each workflow
    then, ``inf`` if it is not complete.
    """
    delays = np.zeros(len(ends_s))
    for w in range(len(ends_s)):
        ends_s[w] = 0.0
    for t in range(len(done)):
        w = s.tasks[t].workflow
        if not done[t] and ends_s[w] < np.inf:
            first_s = np.inf
            for n in range(s.tasks[t].replicas_at, s.tasks[t + 1].replicas_at):
                c = s.of_task[n]
                slot = s.replicas[c].slot
                if live[c] and kept[slot]:
                    first_s = min(first_s, s.replicas[c].start_s + s.replicas[c].length_s)
                    delays[w] = max(delays[w], late_s[slot])
            ends_s[w] = max(ends_s[w], first_s)
    count = 0
    for w in range(len(ends_s)):
        ends_s[w] += delays[w]
        if ends_s[w] > deadline_s + 1e-6:
            ends_s[w] = np.inf
        else:
            count += 1
    return count


@compiled
def ranked(values: Floats, rank: int) -> float:
    """Return the value with this rank, 1 for the smallest; the largest for 0.

    With a heap: to compile ``np.sort`` takes a sixth of the time for the whole simulation.
    """
    keys, numbers, size = np.zeros(len(values)), np.zeros(len(values), np.int64), 0
    for n in range(len(values)):
        size = push(keys, numbers, size, values[n], n)
    for _ in range((rank if rank > 0 else len(values)) - 1):
        size = pop(keys, numbers, size)
    return float(keys[0])


@compiled
def superfluous(
    s: Schedule,
    ready: Bools,
    live: Bools,
    done: Bools,
    late_s: Floats,
    limits: Floats,
    spare_workflows: Bools,
) -> bool:
    """Mark the live replicas that are superfluous in ``spare_workflows``; return True if there are
    any. ``limits``: workflows done, needed, spare beyond these, and the deadline."""
    whole, needed, target, deadline_s = limits[0], limits[1], int(limits[1] + limits[2]), limits[3]
    remaining = np.zeros(len(ready), np.bool_)
    ends_s = np.zeros(s.workflows)
    if whole < needed:
        for n in range(len(ready)):
            remaining[n] = ready[n]
    # enough is done: no slot remains, so that all live replicas are superfluous
    if whole >= needed:
        target = int(needed)
    # ready slots alone do not reach the target: nothing can be spared
    elif count_in_time(s, remaining, live, done, late_s, deadline_s, ends_s) < target:
        return False
    else:
        for slot in s.dearest:  # omit slots that are not needed for the target
            if remaining[slot]:
                remaining[slot] = False
                if count_in_time(s, remaining, live, done, late_s, deadline_s, ends_s) < target:
                    remaining[slot] = True
    count_in_time(s, remaining, live, done, late_s, deadline_s, ends_s)
    limit_s = ranked(ends_s, target)
    changed = False
    for c in range(len(live)):
        keeps = (
            remaining[s.replicas[c].slot]
            and ends_s[s.tasks[s.replicas[c].task].workflow] <= limit_s
        )
        spare_workflows[c] = live[c] and not keeps
        changed = changed or spare_workflows[c]
    return changed
