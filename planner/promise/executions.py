"""Simulation of a plan in many scenarios, one by one (:mod:`vgrads.planner.promise.simulation`)."""

from __future__ import annotations

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.planner.promise.simulation import UNREQUESTED, WAITS, Run, simulate, touch
from vgrads.planner.rules import ATTEMPTS
from vgrads.planner.schedule import Schedule


@compiled
def begin(s: Schedule, ready_s: Floats, lifetimes_s: Floats) -> Ints:
    """Set the state before the first event; return the number of tasks of each workflow."""
    for c in range(len(s.replicas)):
        k = s.replicas[c]
        k.state, k.tries, k.here_s, k.after = WAITS, 0, -1.0, c + 1
    tasks = np.zeros(s.workflows, np.int64)
    for t in range(len(s.tasks) - 1):
        task = s.tasks[t]
        task.done_s = np.inf
        task.missing = s.tasks[t + 1].parents_at - task.parents_at
        task.left = s.tasks[t + 1].replicas_at - task.replicas_at
        tasks[task.workflow] += 1
    for n in range(len(s.slots) - 1):
        slot = s.slots[n]
        slot.ready_s, slot.lifetimes_s = float(ready_s[n]), float(lifetimes_s[n])
        slot.until_s = 0.0
        slot.phase, slot.room, slot.next = UNREQUESTED, slot.procs, slot.first_at
        slot.touched, slot.wake_s = 0, 0.0
    s.touched[0] = 0
    for n in range(len(s.slots) - 1):
        touch(s, n)
    return tasks


@compiled
def simulate_all(
    s: Schedule,
    fates_s: Floats,
    lengths_s: Floats,
    fails: Floats,
    limits: Floats,
    done_s: Floats,
    until_s: Floats,
) -> None:
    """Simulate all scenarios. ``fates_s``: ready and lost, scenarios × 2 × slots. Filled: when each
    workflow is done (``inf``: not by the deadline), until when each slot was held."""
    size = ATTEMPTS * len(s.replicas) + 1
    heap_s, heap = np.zeros(size), np.zeros(size, np.int64)
    due_s, turns = np.zeros(len(s.slots)), np.zeros(len(s.slots), np.int64)
    for n in range(len(done_s)):
        tasks = begin(s, fates_s[n, 0], fates_s[n, 1])
        own = lengths_s[n if len(lengths_s) > 1 else 0]
        faults = fails[n if len(fails) > 1 else 0]
        r = Run(own, faults, limits, heap_s, heap, tasks, np.zeros(3, np.int64), due_s, turns)
        simulate(s, r)
        for w in range(s.workflows):
            done_s[n, w] = 0.0
        for t in range(len(s.tasks) - 1):
            task = s.tasks[t]
            done_s[n, task.workflow] = max(done_s[n, task.workflow], task.done_s)
        for w in range(s.workflows):
            if done_s[n, w] > limits[3] + 1e-6:
                done_s[n, w] = np.inf
        for m in range(len(s.slots) - 1):
            until_s[n, m] = s.slots[m].until_s
