"""Which waiting jobs start now? Pure choices over a queue and what is running.

FCFS starts jobs from the head while they fit. EASY (Lifka, JSSPP 1995,
doi:10.1007/3-540-60153-8_35) gives the head a reservation at the earliest instant at which enough
processors will be free by the requested times, and lets later jobs start if they do not delay it.
Conservative backfilling gives every job a reservation when it comes, and lets none be delayed past
it (Mu'alem and Feitelson, IEEE TPDS 12(6) 2001, doi:10.1109/71.932708).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgrads.kernel.errors import InputError
from vgrads.kernel.profile import Profile, running_profile


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the batch system knows it, and how long it will really run (it does not know)."""

    id: str
    procs: int
    request_s: float
    run_s: float

    @property
    def limit_s(self) -> float:
        """For how long the system believes that it runs; one that runs over was allowed to."""
        return max(self.request_s, self.run_s)


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
    ends = sorted([*running, *((now_s + job.limit_s, job.procs) for job in chosen)])
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


class Conservative:
    """A reservation for every job, kept between calls: it may come sooner, never later.

    Where something ended before its time, each job in turn gives its reservation up and takes the
    earliest place, which is at worst the one that it gave up. O(queue × profile) then, and O(new
    jobs × profile) where jobs only arrived.
    """

    def __init__(self) -> None:
        self._starts: dict[str, float] = {}
        self._running: list[tuple[float, int]] = []

    def __call__(
        self, queue: Sequence[Job], free: int, running: Running, now_s: float
    ) -> list[Job]:
        """Jobs whose reservation is now, in the order of the queue."""
        unchanged = self._running == list(running)
        kept = {job.id: self._starts[job.id] for job in queue if job.id in self._starts}
        self._starts = kept
        profile = running_profile(now_s, free, running)
        for job in queue:
            if job.id in kept:
                _take(profile, max(now_s, kept[job.id]), job, job.procs)
        for job in queue:
            if job.id not in kept or not unchanged or kept[job.id] <= now_s:
                self._place(job, profile, now_s)
        chosen = [job for job in queue if self._starts[job.id] <= now_s]
        ends = ((now_s + job.limit_s, job.procs) for job in chosen)
        self._running = sorted([*running, *ends])
        return chosen

    def _place(self, job: Job, profile: Profile, now_s: float) -> None:
        """The earliest place for a job, its own reservation given up for it."""
        if job.id in self._starts:
            _take(profile, max(now_s, self._starts[job.id]), job, -job.procs)
        found = profile.earliest_fit(now_s, _asked_s(job), job.procs)
        start_s = float("inf") if found is None else found
        self._starts[job.id] = start_s
        _take(profile, start_s, job, job.procs)

    def reserved_s(self, job_id: str) -> float:
        """When a waiting job will start at the latest; ``inf`` for one not seen yet."""
        return self._starts.get(job_id, float("inf"))


def _take(profile: Profile, start_s: float, job: Job, procs: int) -> None:
    """Processors for a job's time; a negative number releases them. One that never starts takes
    none."""
    if start_s < float("inf"):
        profile.add(start_s, start_s + _asked_s(job), procs)


def _asked_s(job: Job) -> float:
    """A job that asks for no time still takes its processors for a moment."""
    return max(1.0, job.request_s)


Policy = Callable[[Sequence[Job], int, Running, float], list[Job]]
_POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": lambda: fcfs,
    "easy": lambda: easy,
    "conservative": Conservative,
}


def make_policy(name: str) -> Policy:
    """A policy by name, with a memory of its own where it needs one."""
    if name not in _POLICIES:
        raise InputError(f"no policy '{name}'", fix=f"one of {', '.join(_POLICIES)}")
    return _POLICIES[name]()
