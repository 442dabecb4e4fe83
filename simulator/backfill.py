"""Which waiting jobs start now? Pure choices over a queue and what is running.

FCFS starts jobs from the head while they fit. EASY (Lifka, JSSPP 1995, doi:10.1007/3-540-60153-8_35)
gives the head a reservation at the earliest instant at which enough processors will be free by the
requested times, and lets later jobs start if they do not delay it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the batch system knows it, and how long it will really run (it does not know)."""

    id: str
    procs: int
    request_s: float
    run_s: float


Running = Sequence[tuple[float, int]]
"""``(expected end, processors)`` of running jobs in ascending order."""


def fcfs(queue: Sequence[Job], free: int, running: Running, now_s: float) -> list[Job]:
    """Jobs from the head of the queue while they fit."""
    chosen: list[Job] = []
    for job in queue:
        if job.procs > free:
            break
        free -= job.procs
        chosen.append(job)
    return chosen


def easy(queue: Sequence[Job], free: int, running: Running, now_s: float) -> list[Job]:
    """FCFS, then backfilling behind the head's reservation. O(queue + running)."""
    chosen = fcfs(queue, free, running, now_s)
    if len(chosen) == len(queue) or free <= 0:
        return chosen
    free -= sum(job.procs for job in chosen)
    if free <= 0:
        return chosen
    ends = sorted([*running, *((now_s + job.request_s, job.procs) for job in chosen)])
    shadow_s, extra = reservation(queue[len(chosen)].procs, free, ends)
    for job in queue[len(chosen) + 1 :]:
        if job.procs > free:
            continue
        harmless = now_s + job.request_s <= shadow_s
        if harmless or job.procs <= extra:
            chosen.append(job)
            free -= job.procs
            extra -= 0 if harmless else job.procs
            if free <= 0:
                break
    return chosen


def reservation(procs: int, free: int, ends: Running) -> tuple[float, int]:
    """When ``procs`` will be free by the requested times, and how many more are free then.

    All that is released at that very instant counts.
    """
    reached_s = float("inf")
    for end_s, released in ends:
        if end_s > reached_s:
            break
        free += released
        if free >= procs:
            reached_s = end_s
    return (reached_s, free - procs) if free >= procs else (float("inf"), 0)


Policy = Callable[[Sequence[Job], int, Running, float], list[Job]]
POLICIES: dict[str, Policy] = {"fcfs": fcfs, "easy": easy}
