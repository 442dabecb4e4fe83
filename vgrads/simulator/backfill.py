"""Scheduling policies of batch systems: pure choices over a queue and the running jobs.

FCFS starts jobs from the head while they fit. EASY (Lifka, JSSPP 1995,
doi:10.1007/3-540-60153-8_35) gives the head a reservation at the earliest instant at which enough
processors will be free by the requested times, and lets later jobs start if they do not delay it.
Conservative backfilling gives every job a reservation on arrival, and delays none beyond it
(Mu'alem and Feitelson, IEEE TPDS 12(6) 2001, doi:10.1109/71.932708).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgrads.kernel.errors import InputError
from vgrads.kernel.profile import Profile, running_profile


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job as the batch system sees it, and its real run time (unknown to the system)."""

    id: str
    procs: int
    request_s: float
    run_s: float

    @property
    def limit_s(self) -> float:
        """Run time expected by the system; a job that exceeds its request was allowed to."""
        return max(self.request_s, self.run_s)


Running = Sequence[tuple[float, int]]
"""``(expected end, processors)`` of running jobs in ascending order."""


def fcfs(queue: Sequence[BatchJob], free: int, running: Running, now_s: float) -> list[BatchJob]:
    """Choose jobs from the head of the queue while they fit."""
    chosen: list[BatchJob] = []
    for job in queue:
        if job.procs > free:
            break
        free -= job.procs
        chosen.append(job)
    return chosen


def easy(queue: Sequence[BatchJob], free: int, running: Running, now_s: float) -> list[BatchJob]:
    """Choose by FCFS, then backfill behind the head's reservation. O(queue + running)."""
    chosen = fcfs(queue, free, running, now_s)
    if len(chosen) == len(queue) or free <= 0:
        return chosen
    free -= sum(job.procs for job in chosen)
    if free <= 0:
        return chosen
    # jobs that start now run, too, until the head can start
    ends = sorted([*running, *((now_s + job.limit_s, job.procs) for job in chosen)])
    shadow_s, extra = find_reservation(queue[len(chosen)].procs, free, ends)
    for job in queue[len(chosen) + 1 :]:
        if job.procs > free:
            continue
        harmless = now_s + job.request_s <= shadow_s
        if harmless or job.procs <= extra:
            chosen.append(job)
            free -= job.procs
            # a job that ends before the head starts takes nothing of what stays free beside it
            extra -= 0 if harmless else job.procs
            if free <= 0:
                break
    return chosen


def find_reservation(procs: int, free: int, ends: Running) -> tuple[float, int]:
    """Return when ``procs`` will be free by the requested times, and how many more are free then.

    All processors released at that instant count.
    """
    reached_s = float("inf")
    for end_s, released in ends:
        if end_s > reached_s:
            break
        free += released
        if free >= procs:
            reached_s = end_s
    return (reached_s, free - procs) if free >= procs else (float("inf"), 0)


class Conservative:
    """A reservation for every job, kept between calls: it may become earlier, never later.

    If a job ended before its time, each job in turn releases its reservation and takes the earliest
    place, which is at worst the released one. Then O(queue × profile), and O(new jobs × profile) if
    jobs only arrived.
    """

    def __init__(self) -> None:
        self._starts: dict[str, float] = {}
        self._running: list[tuple[float, int]] = []

    def __call__(
        self, queue: Sequence[BatchJob], free: int, running: Running, now_s: float
    ) -> list[BatchJob]:
        """Return jobs whose reservation is now, in the order of the queue."""
        unchanged = self._running == list(running)
        stored = {job.id: self._starts[job.id] for job in queue if job.id in self._starts}
        self._starts = stored
        profile = running_profile(now_s, free, running)
        for job in queue:
            if job.id in stored:
                _take(profile, max(now_s, stored[job.id]), job, job.procs)
        for job in queue:
            if job.id not in stored or not unchanged or stored[job.id] <= now_s:
                self._place(job, profile, now_s)
        chosen = [job for job in queue if self._starts[job.id] <= now_s]
        ends = ((now_s + job.limit_s, job.procs) for job in chosen)
        self._running = sorted([*running, *ends])
        return chosen

    def _place(self, job: BatchJob, profile: Profile, now_s: float) -> None:
        """Reserve the earliest place for a job, and release its own reservation for it."""
        if job.id in self._starts:
            _take(profile, max(now_s, self._starts[job.id]), job, -job.procs)
        value = profile.earliest_fit(now_s, _find_requested_time_s(job), job.procs)
        start_s = float("inf") if value is None else value
        self._starts[job.id] = start_s
        _take(profile, start_s, job, job.procs)


def _take(profile: Profile, start_s: float, job: BatchJob, procs: int) -> None:
    """Reserve processors for a job's time; a negative number releases them. A job that never starts
    takes none."""
    if start_s < float("inf"):
        profile.add(start_s, start_s + _find_requested_time_s(job), procs)


def _find_requested_time_s(job: BatchJob) -> float:
    """Return the requested time; a job that requests no time still takes its processors for a
    moment."""
    return max(1.0, job.request_s)


Policy = Callable[[Sequence[BatchJob], int, Running, float], list[BatchJob]]
_POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": lambda: fcfs,
    "easy": lambda: easy,
    "conservative": Conservative,
}


def make_policy(name: str) -> Policy:
    """Return a policy by name, with its own state if it needs one."""
    if name not in _POLICIES:
        raise InputError(
            f"unknown scheduling policy '{name}'", fix=f"choose one of {', '.join(_POLICIES)}"
        )
    return _POLICIES[name]()
