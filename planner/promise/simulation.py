"""Simulation of one execution of a plan, event by event, in records: the rules of
:mod:`vgrads.execmgr.core.step`, a hundred thousand times a second.

Every function here has a counterpart in :mod:`vgrads.execmgr.core.rule_state`; a property test
checks that both agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled, compiled_in_place
from vgrads.kernel.heap import pop, push
from vgrads.planner.rules import ATTEMPTS, LOOK_AHEAD, SLACK_S, may_backfill, superfluous
from vgrads.planner.schedule import Schedule

WAITS, _RUNS, _ENDED = 0, 1, 2  # copies
UNREQUESTED, _REQUESTED, _READY, _CLOSED = 0, 1, 2, 3  # slots


class Run(NamedTuple):
    """State of a run in addition to the records of its schedule.

    ``lengths_s``: run time of each replica; ``fails``: share of it at which each attempt fails,
    ``inf`` if it does not, empty if none can; ``limits``: see
    :func:`vgrads.planner.rules.superfluous`; ``heap_s``, ``heap``: running replicas by their ends,
    a binary heap; ``counts``: number of these, of workflows done, and whether an event has made the
    promise more probable; ``due_s``: when each slot moves or is checked, whatever else happens;
    ``turns``: room for the slots of one pass.
    """

    lengths_s: Floats
    fails: Floats
    limits: Floats
    heap_s: Floats
    heap: Ints
    tasks_left: Ints
    counts: Ints
    due_s: Floats
    turns: Ints


@compiled_in_place
def touch(s: Schedule, n: int) -> None:
    """Note that a slot may have changed: the next pass goes through it."""
    # 1: in the next pass already; 2: in the current one, which may have gone through it
    if s.slots[n].touched != 1:
        s.slots[n].touched = 1
        s.touched[0] += 1
        s.touched[s.touched[0]] = n


@compiled_in_place
def end_replica(s: Schedule, c: int) -> None:
    """End a replica, with any result."""
    k = s.replicas[c]
    slot = s.slots[k.slot]
    if k.state == _RUNS:
        slot.room += k.procs
    k.state = _ENDED
    s.tasks[k.task].left -= 1
    touch(s, k.slot)


@compiled
def lose(s: Schedule, task: int) -> None:
    """Mark a task without remaining replicas as lost, with all tasks that need it."""
    if s.tasks[task].left > 0 or s.tasks[task].done_s < np.inf:
        return
    # a stack and no recursion: chains of tasks may be of any length
    pending, count = np.empty(len(s.tasks), np.int64), 1
    pending[0] = task
    while count > 0:
        count -= 1
        t = pending[count]
        for n in range(s.tasks[t].children_at, s.tasks[t + 1].children_at):
            child, waited = s.children[n], False
            for m in range(s.tasks[child].replicas_at, s.tasks[child + 1].replicas_at):
                if s.replicas[s.of_task[m]].state == WAITS:
                    end_replica(s, s.of_task[m])
                    waited = True
            if waited:
                pending[count] = child
                count += 1


@compiled_in_place
def deliver(s: Schedule, r: Run, c: int, now_s: float) -> None:
    """Record the first success of a task."""
    t = s.replicas[c].task
    task = s.tasks[t]
    task.done_s, task.site = now_s, s.slots[s.replicas[c].slot].site
    for n in range(task.replicas_at, s.tasks[t + 1].replicas_at):
        if s.replicas[s.of_task[n]].state != _ENDED:
            end_replica(s, s.of_task[n])
    for n in range(task.children_at, s.tasks[t + 1].children_at):
        child = s.children[n]
        s.tasks[child].missing -= 1
        if s.tasks[child].missing == 0:
            for m in range(s.tasks[child].replicas_at, s.tasks[child + 1].replicas_at):
                touch(s, s.replicas[s.of_task[m]].slot)
    r.tasks_left[task.workflow] -= 1
    if r.tasks_left[task.workflow] == 0:
        r.counts[1] += 1
        r.counts[2] = 1


@compiled_in_place
def inputs_at(s: Schedule, c: int) -> float:
    """Return when the outputs of all parents, which are done, are at the replica's site."""
    k, latest_s = s.replicas[c], 0.0
    site = s.slots[k.slot].site
    for n in range(s.tasks[k.task].parents_at, s.tasks[k.task + 1].parents_at):
        p = s.tasks[s.parents[n]]
        moved_s = s.links[0, p.site, site] + s.mib[n] * s.links[1, p.site, site]
        latest_s = max(latest_s, p.done_s + moved_s)
    k.here_s = latest_s
    return float(latest_s)


@compiled_in_place
def last_end(s: Schedule, r: Run, n: int) -> float:
    """Return the latest end of replicas in a slot, with a tolerance for rounding."""
    slot = s.slots[n]
    if slot.phase == _READY:
        return float(min(r.limits[3], slot.ready_s + slot.duration_s) + SLACK_S)
    return float(r.limits[3] + SLACK_S)


@compiled_in_place
def walk(s: Schedule, r: Run, n: int, now_s: float) -> float:
    """Go through the waiting replicas of a slot; return when to check again if nothing is
    reported."""
    slot, wake_s, shadow_time_s = s.slots[n], np.inf, np.inf
    c, before, in_front, looked, reserved_procs = slot.next, -1, True, 0, 0
    ready, end_s = slot.phase == _READY, last_end(s, r, n)
    while c < s.slots[n + 1].first_at and looked < LOOK_AHEAD:
        k = s.replicas[c]
        if k.state == WAITS:
            latest_s, here_s = end_s - k.length_s, np.inf
            if not ready and in_front and slot.wake_s > now_s:
                return float(slot.wake_s)  # nothing is due before
            if s.tasks[k.task].missing == 0:
                # computed once: with all parents done it cannot change
                here_s = k.here_s if k.here_s >= 0 else inputs_at(s, c)
            able = ready and here_s <= now_s + 1e-9
            if latest_s < now_s:
                end_replica(s, c)
                lose(s, k.task)
            elif ready and k.procs > slot.room and (able or slot.room == 0):
                wake_s = min(wake_s, latest_s + SLACK_S / 2)
                break
            elif able and may_backfill(
                now_s + k.length_s, k.procs, shadow_time_s, reserved_procs, slot.room
            ):
                k.state = _RUNS
                slot.room -= k.procs
                share = float(r.fails[c, k.tries]) if len(r.fails) else np.inf
                k.end_s = now_s + float(r.lengths_s[c]) * min(share, 1.0)
                r.counts[0] = push(r.heap_s, r.heap, r.counts[0], k.end_s, c)
            else:
                looked, in_front, reserved_procs = looked + 1, False, reserved_procs + k.procs
                wake_s = min(
                    wake_s, latest_s + SLACK_S / 2, shadow_time_s + SLACK_S if able else np.inf
                )
                if ready and here_s > now_s:
                    wake_s = min(wake_s, here_s)
                if k.start_s + SLACK_S > now_s:
                    shadow_time_s = min(shadow_time_s, k.start_s)
        if k.state == WAITS:
            before = c
        elif before >= 0:
            s.replicas[before].after = k.after  # skip replicas that no longer wait
        c = k.after
        if in_front:
            slot.next = c
    return wake_s


@compiled_in_place
def next_pass(s: Schedule, r: Run) -> int:
    """Move the touched slots to ``turns``, in their order; return their number."""
    count = s.touched[0]
    s.touched[0] = 0
    for n in range(count):
        slot, at = s.touched[n + 1], n
        s.slots[slot].touched = 2
        # by insertion, because few slots are touched at once
        while at > 0 and r.turns[at - 1] > slot:
            r.turns[at] = r.turns[at - 1]
            at -= 1
        r.turns[at] = slot
    return int(count)


@compiled_in_place
def settle(s: Schedule, r: Run, now_s: float) -> None:
    """Go through slots that may have changed, until nothing changes."""
    count = next_pass(s, r)
    while count > 0:
        for turn in range(count):
            n = r.turns[turn]
            slot = s.slots[n]
            if slot.touched == 2:  # not since this pass began
                slot.touched = 0
                check_slot(s, r, n, now_s)
                r.due_s[n] = min(slot.wake_s, moves_at(s, n))
        count = next_pass(s, r)


@compiled_in_place
def check_slot(s: Schedule, r: Run, n: int, now_s: float) -> None:
    """Start what may start in a slot, request it or close it, and note when to check it again."""
    slot = s.slots[n]
    if slot.phase == _CLOSED:
        slot.wake_s = np.inf
        return
    wake_s = walk(s, r, n, now_s)
    if slot.next == s.slots[n + 1].first_at and slot.room == slot.procs:
        slot.until_s, slot.phase, wake_s = now_s, _CLOSED, np.inf
    elif slot.phase == UNREQUESTED:
        if now_s >= slot.submit_s:
            slot.phase = _REQUESTED
        else:
            wake_s = min(wake_s, slot.submit_s)
    slot.wake_s = wake_s


@compiled_in_place
def moves_at(s: Schedule, n: int) -> float:
    """Return when a requested slot is ready or a ready one is lost."""
    if s.slots[n].phase == _REQUESTED:
        return float(s.slots[n].ready_s)
    if s.slots[n].phase == _READY:
        return float(s.slots[n].lifetimes_s)
    return np.inf


@compiled_in_place
def replica_ends(s: Schedule, r: Run, c: int, now_s: float) -> None:
    """End a running replica: with success, with a retry if it is the last of its task, or with
    failure."""
    k = s.replicas[c]
    if len(r.fails) == 0 or r.fails[c, k.tries] == np.inf:
        end_replica(s, c)
        deliver(s, r, c, now_s)
    elif (
        k.tries + 1 < ATTEMPTS
        and last_end(s, r, k.slot) - k.length_s >= now_s
        and s.tasks[k.task].left == 1
    ):
        slot = s.slots[k.slot]
        k.tries += 1
        k.state = WAITS
        slot.room += k.procs
        slot.next = min(slot.next, c)
        touch(s, k.slot)
        # links that skip replicas without work would skip this one, which waits again
        for n in range(slot.first_at, s.slots[k.slot + 1].first_at):
            s.replicas[n].after = n + 1
    else:
        end_replica(s, c)
        lose(s, k.task)


@compiled_in_place
def slot_moves(s: Schedule, r: Run, n: int, now_s: float) -> None:
    """Make a requested slot ready, or end a ready one with everything in it."""
    slot = s.slots[n]
    touch(s, n)
    if slot.phase == _REQUESTED:
        slot.phase, slot.wake_s, r.counts[2] = _READY, now_s, 1
        return
    slot.phase, slot.until_s = _CLOSED, now_s
    for c in range(slot.first_at, s.slots[n + 1].first_at):
        if s.replicas[c].state != _ENDED:
            end_replica(s, c)
            lose(s, s.replicas[c].task)


@compiled
def release_early(s: Schedule, r: Run, now_s: float) -> None:
    """Release superfluous replicas early."""
    r.limits[0] = r.counts[1]
    if r.limits[2] > s.workflows and r.counts[1] < r.limits[1]:
        return  # nothing before enough is done
    slots, replicas = len(s.slots) - 1, len(s.replicas)
    ready, late_s = np.zeros(slots, np.bool_), np.zeros(slots)
    for n in range(slots):
        slot = s.slots[n]
        ready[n] = slot.phase == _READY
        if ready[n]:
            late_s[n] = max(0.0, slot.ready_s - s.replicas[slot.first_at].start_s)
    live, done = np.zeros(replicas, np.bool_), np.zeros(len(s.tasks) - 1, np.bool_)
    for c in range(replicas):
        live[c] = s.replicas[c].state != _ENDED
    for t in range(len(done)):
        done[t] = s.tasks[t].done_s < np.inf
    spare_workflows = np.zeros(replicas, np.bool_)
    if superfluous(s, ready, live, done, late_s, r.limits, spare_workflows):
        for c in range(replicas):
            if spare_workflows[c] and s.replicas[c].state != _ENDED:
                end_replica(s, c)
                lose(s, s.replicas[c].task)
        settle(s, r, now_s)


@compiled_in_place
def due_slots(s: Schedule, now_s: float) -> int:
    """Touch the slots to be checked now; return the one that moves now, −1 if none does."""
    moves_s, moving = np.inf, -1
    for n in range(len(s.slots) - 1):
        if s.slots[n].wake_s <= now_s:
            touch(s, n)
        at_s = moves_at(s, n)
        if at_s < moves_s:
            moves_s, moving = at_s, n
    return moving if moves_s <= now_s else -1


@compiled_in_place
def simulate(s: Schedule, r: Run) -> None:
    """Simulate one scenario from beginning to end."""
    now_s = 0.0
    settle(s, r, now_s)
    while now_s < np.inf:
        ends_s, due_s = np.inf, np.inf
        while r.counts[0]:
            k = s.replicas[r.heap[0]]
            if k.state == _RUNS and k.end_s == r.heap_s[0]:
                ends_s = float(r.heap_s[0])
                break
            # of a replica that was cancelled
            r.counts[0] = pop(r.heap_s, r.heap, r.counts[0])
        for n in range(len(s.slots) - 1):
            if r.due_s[n] < due_s:
                due_s = float(r.due_s[n])
        now_s = min(ends_s, due_s)
        if now_s == np.inf:
            break
        moving = due_slots(s, now_s) if due_s <= now_s else -1
        # before the slot moves: a task that ends at the instant of its slot's loss has succeeded
        if ends_s <= now_s:
            ended = r.heap[0]
            r.counts[0] = pop(r.heap_s, r.heap, r.counts[0])
            replica_ends(s, r, ended, now_s)
        elif moving >= 0:
            slot_moves(s, r, moving, now_s)
        settle(s, r, now_s)
        if r.counts[2]:
            r.counts[2] = 0
            release_early(s, r, now_s)
