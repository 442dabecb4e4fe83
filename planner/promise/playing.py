"""One execution of a plan, event by event, in records: what :mod:`vgrads.execmgr.core.step` does, a
hundred thousand times a second.

Every function here has its like in :mod:`vgrads.execmgr.core.turn`; a property test holds the two
together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.heap import pop, push
from vgrads.planner.promise.schedule import Schedule
from vgrads.planner.rules import ATTEMPTS, LOOK_AHEAD, SLACK_S, may_pass, needless

_WAITS, _RUNS, _ENDED = 0, 1, 2  # copies
_UNASKED, _ASKED, _READY, _CLOSED = 0, 1, 2, 3  # slots


class Run(NamedTuple):
    """What a run has beside the records of its schedule.

    ``lengths_s``: how long each copy runs; ``fails``: at which share of it each attempt fails,
    ``inf`` where it does not, nothing where none can; ``limits``: see
    :func:`vgrads.planner.rules.needless`; ``heap_s``, ``heap``: the copies that run by their ends,
    a binary heap; ``counts``: of these, of workflows done, and whether something has become surer.
    """

    lengths_s: Floats
    fails: Floats
    limits: Floats
    heap_s: Floats
    heap: Ints
    tasks_left: Ints
    counts: Ints


@compiled
def end_copy(s: Schedule, c: int) -> None:
    """A copy comes to its end, however it was."""
    k = s.copies[c]
    slot = s.slots[k.slot]
    if k.state == _RUNS:
        slot.room += k.procs
    k.state = _ENDED
    s.tasks[k.task].left -= 1
    slot.touched = 1


@compiled
def lose(s: Schedule, task: int) -> None:
    """A task of which no copy is left is lost, and everything that needs it."""
    if s.tasks[task].left > 0 or s.tasks[task].done_s < np.inf:
        return
    pending = [task]
    while len(pending) > 0:
        t = pending.pop()
        for n in range(s.tasks[t].children_at, s.tasks[t + 1].children_at):
            child, waited = s.children[n], False
            for m in range(s.tasks[child].copies_at, s.tasks[child + 1].copies_at):
                if s.copies[s.of_task[m]].state == _WAITS:
                    end_copy(s, s.of_task[m])
                    waited = True
            if waited:
                pending.append(child)


@compiled
def deliver(s: Schedule, r: Run, c: int, now_s: float) -> None:
    """The first copy of a task has ended well."""
    t = s.copies[c].task
    task = s.tasks[t]
    task.done_s, task.site = now_s, s.slots[s.copies[c].slot].site
    for n in range(task.copies_at, s.tasks[t + 1].copies_at):
        if s.copies[s.of_task[n]].state != _ENDED:
            end_copy(s, s.of_task[n])
    for n in range(task.children_at, s.tasks[t + 1].children_at):
        child = s.children[n]
        s.tasks[child].missing -= 1
        if s.tasks[child].missing == 0:
            for m in range(s.tasks[child].copies_at, s.tasks[child + 1].copies_at):
                s.slots[s.copies[s.of_task[m]].slot].touched = 1
    r.tasks_left[task.workflow] -= 1
    if r.tasks_left[task.workflow] == 0:
        r.counts[1] += 1
        r.counts[2] = 1


@compiled
def inputs_at(s: Schedule, c: int) -> float:
    """When the outputs of all parents, which are done, are at the copy's site."""
    k, latest_s = s.copies[c], 0.0
    site = s.slots[k.slot].site
    for n in range(s.tasks[k.task].parents_at, s.tasks[k.task + 1].parents_at):
        p = s.tasks[s.parents[n]]
        moved_s = s.links[0, p.site, site] + s.mib[n] * s.links[1, p.site, site]
        latest_s = max(latest_s, p.done_s + moved_s)
    k.here_s = latest_s
    return float(latest_s)


@compiled
def last_end(s: Schedule, r: Run, n: int) -> float:
    """By when what runs in a slot must have ended, give or take what rounding may cost."""
    slot = s.slots[n]
    if slot.phase == _READY:
        return float(min(r.limits[3], slot.ready_s + slot.held_s) + SLACK_S)
    return float(r.limits[3] + SLACK_S)


@compiled
def walk(s: Schedule, r: Run, n: int, now_s: float) -> float:
    """Go along what waits in a slot; when to look again if nothing is reported."""
    slot, wake_s, horizon_s = s.slots[n], np.inf, np.inf
    c, before, in_front, looked, passed = slot.next, -1, True, 0, 0
    ready, end_s = slot.phase == _READY, last_end(s, r, n)
    while c < s.slots[n + 1].first_at and looked < LOOK_AHEAD:
        k = s.copies[c]
        if k.state == _WAITS:
            latest_s, here_s = end_s - k.length_s, np.inf
            if not ready and in_front and slot.wake_s > now_s:
                return float(slot.wake_s)  # nothing is due before
            if s.tasks[k.task].missing == 0:
                here_s = k.here_s if k.here_s >= 0 else inputs_at(s, c)
            able = ready and here_s <= now_s + 1e-9
            if latest_s < now_s:
                end_copy(s, c)
                lose(s, k.task)
            elif ready and k.procs > slot.room and (able or slot.room == 0):
                wake_s = min(wake_s, latest_s + SLACK_S / 2)
                break
            elif able and may_pass(now_s + k.length_s, k.procs, horizon_s, passed, slot.room):
                k.state = _RUNS
                slot.room -= k.procs
                share = r.fails[c, k.tries] if len(r.fails) else np.inf
                k.end_s = now_s + r.lengths_s[c] * min(share, 1.0)
                r.counts[0] = push(r.heap_s, r.heap, r.counts[0], k.end_s, c)
            else:
                looked, in_front, passed = looked + 1, False, passed + k.procs
                wake_s = min(
                    wake_s, latest_s + SLACK_S / 2, horizon_s + SLACK_S if able else np.inf
                )
                if ready and here_s > now_s:
                    wake_s = min(wake_s, here_s)
                if k.start_s + SLACK_S > now_s:
                    horizon_s = min(horizon_s, k.start_s)
        if k.state == _WAITS:
            before = c
        elif before >= 0:
            s.copies[before].after = k.after  # what waits no more is not looked at again
        c = k.after
        if in_front:
            slot.next = c
    return wake_s


@compiled
def settle(s: Schedule, r: Run, now_s: float) -> None:
    """Walk along slots for which something may have changed, until nothing changes."""
    again = True
    while again:
        again = False
        for n in range(len(s.slots) - 1):
            if s.slots[n].touched == 1:
                s.slots[n].touched, again = 2, True
        for n in range(len(s.slots) - 1):
            slot = s.slots[n]
            if slot.touched != 2:  # since this pass began
                continue
            slot.touched = 0
            if slot.phase == _CLOSED:
                slot.wake_s = np.inf
                continue
            wake_s = walk(s, r, n, now_s)
            if slot.next == s.slots[n + 1].first_at and slot.room == slot.procs:
                slot.until_s, slot.phase, wake_s = now_s, _CLOSED, np.inf
            elif slot.phase == _UNASKED:
                if now_s >= slot.submit_s:
                    slot.phase = _ASKED
                else:
                    wake_s = min(wake_s, slot.submit_s)
            slot.wake_s = wake_s


@compiled
def copy_ends(s: Schedule, r: Run, c: int, now_s: float) -> None:
    """A running copy comes to its end: well, or it tries once more where it is the last of its
    task, or not."""
    k = s.copies[c]
    if len(r.fails) == 0 or r.fails[c, k.tries] == np.inf:
        end_copy(s, c)
        deliver(s, r, c, now_s)
    elif (
        k.tries + 1 < ATTEMPTS
        and last_end(s, r, k.slot) - k.length_s >= now_s
        and s.tasks[k.task].left == 1
    ):
        slot = s.slots[k.slot]
        k.tries += 1
        k.state = _WAITS
        slot.room += k.procs
        slot.next = min(slot.next, c)
        slot.touched = 1
        for n in range(slot.first_at, s.slots[k.slot + 1].first_at):
            s.copies[n].after = n + 1
    else:
        end_copy(s, c)
        lose(s, k.task)


@compiled
def slot_moves(s: Schedule, r: Run, n: int, now_s: float) -> None:
    """A slot that was asked for is there, or one that was there is lost with everything in it."""
    slot = s.slots[n]
    slot.touched = 1
    if slot.phase == _ASKED:
        slot.phase, slot.wake_s, r.counts[2] = _READY, now_s, 1
        return
    slot.phase, slot.until_s = _CLOSED, now_s
    for c in range(slot.first_at, s.slots[n + 1].first_at):
        if s.copies[c].state != _ENDED:
            end_copy(s, c)
            lose(s, s.copies[c].task)


@compiled
def withdraw(s: Schedule, r: Run, now_s: float) -> None:
    """Give up what the promise does not need any more."""
    r.limits[0] = r.counts[1]
    if r.limits[2] > s.workflows and r.counts[1] < r.limits[1]:
        return  # nothing before enough is done
    slots, copies = len(s.slots) - 1, len(s.copies)
    ready, late_s = np.zeros(slots, np.bool_), np.zeros(slots)
    for n in range(slots):
        slot = s.slots[n]
        ready[n] = slot.phase == _READY
        if ready[n]:
            late_s[n] = max(0.0, slot.ready_s - s.copies[slot.first_at].start_s)
    live, done = np.zeros(copies, np.bool_), np.zeros(len(s.tasks) - 1, np.bool_)
    for c in range(copies):
        live[c] = s.copies[c].state != _ENDED
    for t in range(len(done)):
        done[t] = s.tasks[t].done_s < np.inf
    spare = np.zeros(copies, np.bool_)
    if needless(s, ready, live, done, late_s, r.limits, spare):
        for c in range(copies):
            if spare[c] and s.copies[c].state != _ENDED:
                end_copy(s, c)
                lose(s, s.copies[c].task)
        settle(s, r, now_s)


@compiled
def begin(s: Schedule, ready_s: Floats, lives_s: Floats) -> Ints:
    """Before anything happened; tasks of each workflow."""
    for c in range(len(s.copies)):
        k = s.copies[c]
        k.state, k.tries, k.here_s, k.after = _WAITS, 0, -1.0, c + 1
    tasks = np.zeros(s.workflows, np.int64)
    for t in range(len(s.tasks) - 1):
        task = s.tasks[t]
        task.done_s = np.inf
        task.missing = s.tasks[t + 1].parents_at - task.parents_at
        task.left = s.tasks[t + 1].copies_at - task.copies_at
        tasks[task.workflow] += 1
    for n in range(len(s.slots) - 1):
        slot = s.slots[n]
        slot.ready_s, slot.lives_s, slot.until_s = ready_s[n], lives_s[n], 0.0
        slot.phase, slot.room, slot.next = _UNASKED, slot.procs, slot.first_at
        slot.touched, slot.wake_s = 1, 0.0
    return tasks


@compiled
def play(s: Schedule, r: Run) -> None:
    """One scenario from the beginning to the end."""
    now_s = 0.0
    settle(s, r, now_s)
    while now_s < np.inf:
        ends_s, wakes_s, moves_s, moving = np.inf, np.inf, np.inf, -1
        while r.counts[0]:
            k = s.copies[r.heap[0]]
            if k.state == _RUNS and k.end_s == r.heap_s[0]:
                ends_s = r.heap_s[0]
                break
            # of a copy that was stopped
            r.counts[0] = pop(r.heap_s, r.heap, r.counts[0])
        for n in range(len(s.slots) - 1):
            slot, at_s = s.slots[n], np.inf
            wakes_s = min(wakes_s, slot.wake_s)
            if slot.phase == _ASKED:
                at_s = slot.ready_s
            elif slot.phase == _READY:
                at_s = slot.lives_s
            if at_s < moves_s:
                moves_s, moving = at_s, n
        now_s = min(ends_s, moves_s, wakes_s)
        if wakes_s <= now_s < np.inf:
            for n in range(len(s.slots) - 1):
                if s.slots[n].wake_s <= now_s:
                    s.slots[n].touched = 1
        if now_s == np.inf:
            break
        if ends_s <= now_s:
            ended = r.heap[0]
            r.counts[0] = pop(r.heap_s, r.heap, r.counts[0])
            copy_ends(s, r, ended, now_s)
        elif moves_s <= now_s:
            slot_moves(s, r, moving, now_s)
        settle(s, r, now_s)
        if r.counts[2]:
            r.counts[2] = 0
            withdraw(s, r, now_s)


@compiled
def play_all(
    s: Schedule,
    fates_s: Floats,
    lengths_s: Floats,
    fails: Floats,
    limits: Floats,
    done_s: Floats,
    until_s: Floats,
) -> None:
    """All scenarios. ``fates_s``: ready and lost, scenarios × 2 × slots. Filled: when each workflow
    is done (``inf``: not by the deadline), until when each slot was held."""
    size = ATTEMPTS * len(s.copies) + 1
    heap_s, heap = np.zeros(size), np.zeros(size, np.int64)
    for n in range(len(done_s)):
        tasks = begin(s, fates_s[n, 0], fates_s[n, 1])
        own = lengths_s[n if len(lengths_s) > 1 else 0]
        faults = fails[n if len(fails) > 1 else 0]
        r = Run(own, faults, limits, heap_s, heap, tasks, np.zeros(3, np.int64))
        play(s, r)
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
