"""A space-shared batch cluster in virtual time, with background load around our own jobs."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from vgrads.kernel.events import EventQueue
from vgrads.simulator.backfill import BatchJob, make_policy
from vgrads.simulator.closed_windows import ClosedWindows

_END, _FAIL, _ARRIVE, _LOOK = range(4)  # processors become free before the next job needs them
_DOWN = "!down:"  # holder of processors that are down


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of a job in the cluster."""

    time_s: float
    kind: Literal["started", "ended", "killed"]
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Processors that break at ``at_s`` and are repaired after ``length_s``.

    ``position`` in [0, 1) selects them: the jobs that run there are killed.
    """

    at_s: float
    procs: int
    length_s: float
    position: float


@dataclass(slots=True)
class _Run:
    job: BatchJob
    expected_s: float
    ticket: int


class BatchCluster:
    """Jobs arrive, wait, run and end; :meth:`advance` returns the events.

    Waiting jobs are examined when a job arrives or ends; a step costs O(waiting + running). If
    ``cycle_s`` is above 0, jobs start only at ``cycle_phase_s`` and whole cycles before and after
    it.
    """

    def __init__(
        self, procs: int, policy: str = "easy", cycle_s: float = 0.0, cycle_phase_s: float = 0.0
    ) -> None:
        self.procs = procs
        self.cycle_s, self.cycle_phase_s = cycle_s, cycle_phase_s
        self._cycle_queued_s = -math.inf  # the latest cycle among the events
        self.now_s = -math.inf
        self._choose = make_policy(policy)
        self._events: EventQueue[BatchJob | Outage | None] = EventQueue()
        self._queue: list[BatchJob] = []
        self._running: dict[str, _Run] = {}
        self._ends: list[tuple[float, int]] = []  # (expected end, processors), ascending
        self._used = 0
        self._outages = count()
        self._windows = ClosedWindows()

    def submit(self, job: BatchJob, at_s: float) -> None:
        """Submit a job that arrives at ``at_s``; one wider than the cluster gets all of it."""
        if job.procs > self.procs:
            job = BatchJob(job.id, self.procs, job.request_s, job.run_s)
        self._events.push(at_s, job, priority=_ARRIVE)

    def place(self, job: BatchJob, started_s: float) -> None:
        """Add a job that was already running when the simulation begins."""
        self._start(job, started_s)

    def break_down(self, outage: Outage) -> None:
        """Add a failure of nodes; jobs on them are killed, not queued again."""
        self._events.push(outage.at_s, outage, priority=_FAIL)

    def close(self, begin_s: float, end_s: float, left: int = 0) -> None:
        """Add a closed window, in which at most ``left`` processors are in use: no job starts that
        would by its requested time run into it."""
        self._windows.add(begin_s, end_s, left)

    def cancel(self, job_id: str) -> bool:
        """Remove a job, waiting or running; return False if it does not exist (any more).

        Jobs that can start in its place do so at the next :meth:`advance`, at this instant.
        """
        run = self._running.get(job_id)
        if run is not None:
            self._events.cancel(run.ticket)
            self._finish(run)
        else:
            left = [job for job in self._queue if job.id != job_id]
            if len(left) == len(self._queue):
                return False
            self._queue = left
        if self._queue:
            self._events.push(self.now_s, None, priority=_LOOK)
        return True

    def next_time(self) -> float:
        """Return when the next event happens by itself; ``inf`` if never."""
        return self._events.peek_time()

    def advance(self, until_s: float) -> list[Happening]:
        """Advance the time; return the events in order."""
        happened: list[Happening] = []
        while len(self._events) and self._events.peek_time() <= until_s:
            instant = self._events.peek_time()
            # all events of an instant before the queue is examined: what ends now frees processors
            for _, what in self._events.pop_until(instant):
                happened += self._happen(what, instant)
            self.now_s = instant
            happened += self._schedule(instant)
        self.now_s = max(self.now_s, until_s)
        return happened

    def _happen(self, what: BatchJob | Outage | None, now_s: float) -> list[Happening]:
        if isinstance(what, Outage):
            return self._fail(what, now_s)
        if what is None:
            return []
        run = self._running.get(what.id)
        if run is None:
            self._queue.append(what)
            return []
        self._finish(run)
        return [] if what.id.startswith(_DOWN) else [Happening(now_s, "ended", what.id)]

    def _fail(self, outage: Outage, now_s: float) -> list[Happening]:
        """Kill the jobs on the broken processors, then hold these until they are repaired.

        Running jobs occupy adjacent processors in the order of their starts, free processors
        follow.
        """
        procs = min(outage.procs, self.procs)
        first = int(outage.position * (self.procs - procs + 1))
        killed, row = [], 0
        for run in list(self._running.values()):
            hit = row < first + procs and row + run.job.procs > first
            row += run.job.procs
            if hit and not run.job.id.startswith(_DOWN):
                self._events.cancel(run.ticket)
                self._finish(run)
                killed.append(Happening(now_s, "killed", run.job.id))
        # processors that are down already cannot break again
        procs = min(procs, self.procs - self._used)
        if procs:
            name = f"{_DOWN}{next(self._outages)}"
            self._start(BatchJob(name, procs, outage.length_s, outage.length_s), now_s)
        return killed

    def _schedule(self, now_s: float) -> list[Happening]:
        if not self._queue or self._used >= self.procs or self._between_cycles(now_s):
            return []
        may_start, opens_s = self._windows.startable(self._queue, self._ends, now_s)
        for instant_s in opens_s:
            self._events.push(instant_s, None, priority=_LOOK)
        if not may_start:
            return []
        chosen = self._choose(may_start, self.procs - self._used, self._ends, now_s)
        if chosen:
            taken = {job.id for job in chosen}
            self._queue = [job for job in self._queue if job.id not in taken]
        for job in chosen:
            self._start(job, now_s)
        return [Happening(now_s, "started", job.id) for job in chosen]

    def _between_cycles(self, now_s: float) -> bool:
        """True if no job may start now; the queue is then examined in the next cycle."""
        if self.cycle_s <= 0:
            return False
        cycles = math.ceil((now_s - self.cycle_phase_s) / self.cycle_s - 1e-9)
        next_s = self.cycle_phase_s + cycles * self.cycle_s
        if next_s <= now_s:
            return False
        if self._cycle_queued_s < next_s:
            self._cycle_queued_s = next_s
            self._events.push(next_s, None, priority=_LOOK)
        return True

    def _start(self, job: BatchJob, at_s: float) -> None:
        ticket = self._events.push(at_s + job.run_s, job, priority=_END)
        expected = at_s + job.limit_s
        self._running[job.id] = _Run(job, expected, ticket)
        insort(self._ends, (expected, job.procs))
        self._used += job.procs

    def _finish(self, run: _Run) -> None:
        del self._running[run.job.id]
        del self._ends[bisect_left(self._ends, (run.expected_s, run.job.procs))]
        self._used -= run.job.procs

    @property
    def waiting(self) -> Sequence[BatchJob]:
        """Jobs in the queue, head first."""
        return tuple(self._queue)

    @property
    def running(self) -> Sequence[tuple[BatchJob, float]]:
        """Running jobs, oldest first, with their starts; without outages."""
        return tuple(
            (run.job, run.expected_s - run.job.limit_s)
            for run in self._running.values()
            if not run.job.id.startswith(_DOWN)
        )

    def check(self) -> None:
        """Check that processors are conserved, no job both waits and runs, and the records
        agree."""
        used = sum(run.job.procs for run in self._running.values())
        ends = sorted((run.expected_s, run.job.procs) for run in self._running.values())
        both = {job.id for job in self._queue} & set(self._running)
        if used != self._used or ends != self._ends or both:
            raise AssertionError(
                f"used {self._used} against {used}; ends {self._ends} against {ends}; both {both}"
            )
        self._events.check()
