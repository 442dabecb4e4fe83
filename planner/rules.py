"""The rules by which a plan is carried out, said once: :mod:`vgrads.execmgr.core.step` goes by
them, :mod:`vgrads.planner.promise.rollout` plays them.

A slot takes its copies in the order of the plan. One that waits for data does not hold up those
behind it: they may pass as far as nothing that they pass is thereby kept beyond its planned start,
if that is still ahead. So a run in which nothing is late is never later than its plan. One that
could run and finds no room is passed by nobody.

What is not needed any more is withdrawn: when enough workflows are done, all the rest; and before,
as soon as so many as the plan says stand whole in slots that are there, everything that these do
not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vgrads.kernel.arrays import Bools, Floats
from vgrads.kernel.compiled import compiled

if TYPE_CHECKING:
    from vgrads.planner.promise.schedule import Schedule

ATTEMPTS = 2
"""Of one copy, where no other copy of its task is left."""
SLACK_S = 1.0
"""Plans are met to the second: so long is what waits for data still in time; rounding must not cost
a task its turn."""
LOOK_AHEAD = 16
"""Waiting copies of a slot that are looked at, from the first on."""
EVERYTHING = 2**30
"""``spare`` of a plan of which nothing is withdrawn before enough is done."""


@compiled
def may_pass(ends_s: float, procs: int, horizon_s: float, passed: int, room: int) -> bool:
    """May a copy start before others? ``horizon_s``: the first planned start ahead among those;
    ``passed``: processors that they need; ``room``: processors that are free."""
    return ends_s <= horizon_s + 1e-6 or passed + procs <= room


@compiled
def standing(
    s: Schedule,
    kept: Bools,
    live: Bools,
    done: Bools,
    late_s: Floats,
    deadline_s: float,
    ends_s: Floats,
) -> int:
    """How many workflows are done or go on, whole and in time, in the slots that are kept.

    ``s``: the schedule; ``live``: copies that wait or run; ``late_s``: how late each slot came for
    what was planned in it. ``ends_s`` is filled: when each workflow then ends by its plan, ``inf``
    where it does not stand.
    """
    delays = np.zeros(len(ends_s))
    for w in range(len(ends_s)):
        ends_s[w] = 0.0
    for t in range(len(done)):
        w = s.tasks[t].workflow
        if not done[t] and ends_s[w] < np.inf:
            first_s = np.inf
            for n in range(s.tasks[t].copies_at, s.tasks[t + 1].copies_at):
                c = s.of_task[n]
                slot = s.copies[c].slot
                if live[c] and kept[slot]:
                    first_s = min(first_s, s.copies[c].start_s + s.copies[c].length_s)
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
def needless(
    s: Schedule,
    ready: Bools,
    live: Bools,
    done: Bools,
    late_s: Floats,
    limits: Floats,
    spare: Bools,
) -> bool:
    """Marks the live copies that are not needed any more in ``spare``; True where there are any.
    ``limits``: workflows done, needed, to stand beyond these, and the deadline."""
    whole, needed, wanted, deadline_s = limits[0], limits[1], int(limits[1] + limits[2]), limits[3]
    kept = ready.copy()
    ends_s = np.zeros(s.workflows)
    if whole >= needed:
        kept[:] = False
        wanted = int(needed)
    elif standing(s, kept, live, done, late_s, deadline_s, ends_s) < wanted:
        return False
    else:
        for slot in s.dearest:  # those without which it is still so
            if kept[slot]:
                kept[slot] = False
                if standing(s, kept, live, done, late_s, deadline_s, ends_s) < wanted:
                    kept[slot] = True
    standing(s, kept, live, done, late_s, deadline_s, ends_s)
    limit_s = np.sort(ends_s)[wanted - 1]
    found = False
    for c in range(len(live)):
        keeps = kept[s.copies[c].slot] and ends_s[s.tasks[s.copies[c].task].workflow] <= limit_s
        spare[c] = live[c] and not keeps
        found = found or spare[c]
    return found
