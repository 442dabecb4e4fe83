"""Replay of whole logs: the same choices as :mod:`vgrads.simulator.backfill`, compiled.

For studies over years of history and for simulations from the state of a queue, without further
input. :class:`vgrads.simulator.cluster.BatchCluster` is for stepwise use; tests compare the two
start by start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.errors import InputError
from vgrads.kernel.heap import pop, push
from vgrads.kernel.profile import position

_POLICIES = ("fcfs", "easy")


def _select_none() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Jobs in the order of their submission, and running jobs (``placed``).

    Columns of equal length: seconds and processors. ``placed_ends_s`` are real ends,
    ``placed_limits_s`` those that the scheduler expects from the requested times.
    """

    submit_s: Floats
    procs: Ints
    request_s: Floats
    run_s: Floats
    placed_ends_s: Floats = field(default_factory=_select_none)
    placed_limits_s: Floats = field(default_factory=_select_none)
    placed_procs: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def replay_starts(load: Workload, procs: int, policy: str = "easy") -> Floats:
    """Return when each job starts on a cluster of ``procs`` processors; wider jobs get all of
    it."""
    if policy not in _POLICIES:
        raise InputError(
            f"no compiled scheduling policy '{policy}'", fix=f"choose one of {', '.join(_POLICIES)}"
        )
    width = np.minimum(load.procs, procs).astype(np.int64)
    # the time that the scheduler expects: a job that exceeds its request was allowed to
    message = np.maximum(load.request_s, load.run_s)
    order = np.argsort(load.placed_limits_s, kind="stable")
    placed = (load.placed_ends_s[order], load.placed_limits_s[order], load.placed_procs[order])
    jobs = (load.submit_s, width, load.request_s, load.run_s, message)
    return np.asarray(replay_compiled(jobs, placed, procs, policy == "easy", (-1, np.inf)))


@compiled
def replay_compiled(
    jobs: tuple[Floats, Ints, Floats, Floats, Floats],
    placed: tuple[Floats, Floats, Ints],
    procs: int,
    backfill: bool,
    until: tuple[int, float],
) -> Floats:
    """Run the loop, for compiled callers: columns as tuples, widths within the cluster.

    ``until`` is a job (−1: none) and an instant: the replay ends when that job has started or the
    instant is passed.
    """
    stop, last_s = until
    submit, width, _, run, message = jobs
    count, reserved = len(submit), len(placed[0])
    starts = np.empty(count)
    after = np.empty(count, dtype=np.int64)  # the queue, a chain of jobs
    for n in range(count):
        starts[n], after[n] = np.inf, -1
    head, tail = -1, -1
    heap_s = np.empty(count + reserved)  # real ends, a binary heap
    heap_j = np.empty(count + reserved, dtype=np.int64)
    ends_s = np.empty(count + reserved)  # expected ends, ascending
    ends_p = np.empty(count + reserved, dtype=np.int64)
    free, beating, running, coming = procs, 0, 0, 0
    for n in range(reserved):
        free -= placed[2][n]
        beating = push(heap_s, heap_j, beating, placed[0][n], count + n)
        running = _insert(ends_s, ends_p, running, placed[1][n], placed[2][n])
    while coming < count or (head >= 0 and beating > 0):
        if stop >= 0 and starts[stop] < np.inf:
            break
        now = np.inf
        if beating:
            now = heap_s[0]
        if coming < count and submit[coming] < now:
            now = submit[coming]
        if now > last_s:
            break
        # ends before arrivals of the same instant, so that their processors are free for these
        while beating and heap_s[0] <= now:
            job = heap_j[0]
            beating = pop(heap_s, heap_j, beating)
            # numbers from `count` on are those of placed jobs
            if job >= count:
                end_s, size = placed[1][job - count], placed[2][job - count]
            else:
                end_s, size = starts[job] + message[job], width[job]
            running = _remove(ends_s, ends_p, running, end_s, size)
            free += size
        while coming < count and submit[coming] <= now:
            if head < 0:
                head = coming
            else:
                after[tail] = coming
            tail = coming
            coming += 1
        while head >= 0 and width[head] <= free:
            starts[head] = now
            free -= width[head]
            beating = push(heap_s, heap_j, beating, now + run[head], head)
            running = _insert(ends_s, ends_p, running, now + message[head], width[head])
            head = after[head]
        if head < 0 or free <= 0 or not backfill:
            continue
        free, tail, beating, running = _backfill_queue(
            (head, tail, after, starts),
            jobs,
            (heap_s, heap_j, beating),
            (ends_s, ends_p, running),
            (free, now),
        )
    return starts


@compiled
def _backfill_queue(
    queue: tuple[int, int, Ints, Floats],
    jobs: tuple[Floats, Ints, Floats, Floats, Floats],
    heap: tuple[Floats, Ints, int],
    ends: tuple[Floats, Ints, int],
    at: tuple[int, float],
) -> tuple[int, int, int, int]:
    """Start jobs that do not delay the head; return the new free processors, tail and sizes."""
    head, tail, after, starts = queue
    _, width, request, run, message = jobs
    (heap_s, heap_j, beating), (ends_s, ends_p, running), (free, now) = heap, ends, at
    shadow, spare = _reserve_head(ends_s, ends_p, running, free, width[head])
    before, job = head, after[head]
    while job >= 0 and free > 0:
        harmless = now + request[job] <= shadow
        if width[job] <= free and (harmless or width[job] <= spare):
            starts[job] = now
            free -= width[job]
            # a job that ends before the head starts takes nothing of what stays free beside it
            if not harmless:
                spare -= width[job]
            beating = push(heap_s, heap_j, beating, now + run[job], job)
            running = _insert(ends_s, ends_p, running, now + message[job], width[job])
            after[before] = after[job]
            if job == tail:
                tail = before
        else:
            before = job
        job = after[job]
    return free, tail, beating, running


@compiled
def _reserve_head(
    ends_s: Floats, ends_p: Ints, running: int, free: int, required: int
) -> tuple[float, int]:
    """As :func:`vgrads.simulator.backfill.find_reservation`."""
    reached = np.inf
    for n in range(running):
        if ends_s[n] > reached:
            break
        free += ends_p[n]
        if free >= required:
            reached = ends_s[n]
    return reached, (free - required if free >= required else 0)


@compiled
def _insert(ends_s: Floats, ends_p: Ints, size: int, end_s: float, procs: int) -> int:
    spot = size
    while spot > 0 and ends_s[spot - 1] > end_s:
        ends_s[spot], ends_p[spot] = ends_s[spot - 1], ends_p[spot - 1]
        spot -= 1
    ends_s[spot], ends_p[spot] = end_s, procs
    return size + 1


@compiled
def _remove(ends_s: Floats, ends_p: Ints, size: int, end_s: float, procs: int) -> int:
    spot = position(ends_s, size, end_s)
    while ends_p[spot] != procs:  # among equal ends any of the same width: they are equal
        spot += 1
    for n in range(spot, size - 1):
        ends_s[n], ends_p[n] = ends_s[n + 1], ends_p[n + 1]
    return size - 1
