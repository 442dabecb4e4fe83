"""From the records of any accounting format to a :class:`JobLog`: names become numbers, and what
became of each record is counted."""

from __future__ import annotations

import math
from array import array
from datetime import UTC, tzinfo
from typing import NamedTuple

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, parse_duration
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import Floats, Ints, JobLog, WaitingQueue
from vgrads.traces.report import ReportBuilder

UNKNOWN = "unknown"
WAITING = "waiting job"
GENERATED = "the log was generated, so its values are not judged"
NO_ELIGIBLE = (
    "waits count from the submission, since the history does not state from when jobs could start"
)


def requested_s(text: str) -> float:
    """Parse requested seconds; −1 for UNLIMITED, nothing, and any other text that is no
    duration."""
    try:
        return parse_duration(text)
    except InputError:
        return -1.0


class AccountingJob(NamedTuple):
    """A job of an accounting file, and its line (from 1).

    Seconds since 1970 from which it could start, of its start (None: it never started) and of its
    end (None: it still runs); requested seconds (−1: none stated); processors (0: none stated);
    the bag as in :class:`JobLog`.
    """

    line: int
    submit_s: float
    start_s: float | None
    end_s: float | None
    procs: int
    request_s: float
    user: str
    queue: str
    bag: int = -1


class JobBuilder:
    """Collects the jobs of a history as columns, and the report on its lines."""

    def __init__(self, name: str, format_name: str, what: str = "jobs") -> None:
        self.name = name
        self.report = ReportBuilder(format_name)
        self._what = what
        # arrays of machine numbers: lists take several times as much memory for millions of jobs
        self._times = {key: array("d") for key in ("submit", "start", "end", "request")}
        self._codes = {key: array("q") for key in ("procs", "user", "queue", "bag")}
        self._users: dict[str, int] = {}
        self._queues: dict[str, int] = {}
        self._waiting: list[AccountingJob] = []
        self._unknown_procs = self._unknown_ends = 0

    def __len__(self) -> int:
        return len(self._times["submit"])

    def add(self, job: AccountingJob) -> int | None:
        """Add a job. Return its number; None if it cannot be used, which is reported."""
        line, submit, start, end, procs, request_s, user, queue, bag = job
        left = end if start is None else start
        if left is None:
            self.wait(job)
            return None
        if left < submit:
            what = "start" if start is not None else "end"
            self.report.skip(f"with a {what} before the submission", line)
            return None
        if end is not None and end < left:
            self._unknown_ends += 1
            end = None
        if procs < 1:
            self._unknown_procs += 1
            procs = 1
        self._times["submit"].append(submit)
        self._times["start"].append(math.nan if start is None else start)
        self._times["end"].append(math.nan if end is None else end)
        self._times["request"].append(request_s)
        self._codes["procs"].append(procs)
        self._codes["user"].append(self._users.setdefault(user, len(self._users) + 1))
        self._codes["queue"].append(self._queues.setdefault(queue, len(self._queues) + 1))
        self._codes["bag"].append(bag)
        return len(self) - 1

    @property
    def first_s(self) -> float:
        """Return the first submission that was read; 0 if there is none."""
        return next(iter(self._times["submit"]), 0.0)

    def wait(self, job: AccountingJob, tasks: int = 1) -> None:
        """Count a job that still waits, or the waiting tasks of an array."""
        self.report.pass_over(WAITING)
        self._waiting += [job] * tasks

    def widen(self, job: int, procs: int) -> None:
        """Add processors to a job, those of a further component."""
        self._codes["procs"][job] += procs

    def end_s(self, job: int) -> float:
        """Return the end of a job, NaN for an unknown one."""
        return self._times["end"][job]

    def drop(self, job: int) -> None:
        """Remove a job that a later record replaces."""
        # marked and not deleted, so that the numbers of other jobs stay
        self._times["submit"][job] = math.nan

    def log(
        self,
        options: ReadingOptions,
        *,
        has_bags: bool = False,
        zone: tzinfo = UTC,
        unix_start_s: float = 0.0,
    ) -> JobLog:
        """Return columns on a clock whose zero is the first submission; ``unix_start_s``: zero of
        the jobs' own clock, if it is not 1970. InputError if there are no jobs, or if most records
        cannot be used, unless the reading is forced."""
        submit = np.array(self._times["submit"])
        rows = np.flatnonzero(~np.isnan(submit))
        # stable, so that jobs of one second keep the order of the file
        rows = rows[np.argsort(submit[rows], kind="stable")]
        self._note_assumptions()
        if self._waiting:
            tasks = format_count(len(self._waiting), "job", "wait")
            self.report.note(f"{tasks} when the history is taken: the queue at that instant")
        report = self.report.report(len(rows))
        report.refuse_unusable(self.name, self._what, options.force)
        start, end, request = (
            np.array(self._times[key])[rows] for key in ("start", "end", "request")
        )
        procs, user, queue, bag = (
            np.array(self._codes[key], dtype=np.int64)[rows]
            for key in ("procs", "user", "queue", "bag")
        )
        started = ~np.isnan(start)
        left = np.where(started, start, end)
        # -1 as in SWF: the run time is unknown
        run = np.where(started & ~np.isnan(end), end - left, -1.0)
        zero = float(submit[rows[0]])
        return JobLog(
            name=self.name,
            submit_s=submit[rows] - zero,
            wait_s=left - submit[rows],
            run_s=run,
            procs=procs,
            request_s=request,
            user=user,
            user_names=_sort_by_code(self._users),
            queue=queue,
            started=started,
            unix_start_s=unix_start_s + zero,
            max_procs=int(procs.max()),
            queue_names=_sort_by_code(self._queues),
            report=report,
            waiting=self._waiting_jobs(zero, start, end, options.taken_at_s),
            bag=bag if has_bags else None,
            zone=zone,
        )

    def _waiting_jobs(
        self, zero_s: float, start: Floats, end: Floats, taken_at_s: float | None
    ) -> WaitingQueue | None:
        """Return the waiting jobs at the newest event, or at the stated instant; None if none wait
        and no job runs: then the history is finished."""
        runs = bool((~np.isnan(start) & np.isnan(end)).any())
        if not (self._waiting or runs or taken_at_s is not None):
            return None
        submit = [job.submit_s for job in self._waiting]
        newest = max(float(np.nanmax(np.concatenate([start, end, submit]))), zero_s)
        taken_s = newest if taken_at_s is None else taken_at_s
        waiting = [job for job in self._waiting if job.submit_s <= taken_s]
        return WaitingQueue(
            taken_s=taken_s - zero_s,
            is_listed=bool(self._waiting) or taken_at_s is not None,
            submit_s=np.array([job.submit_s - zero_s for job in waiting], dtype=np.float64),
            procs=np.array([max(1, job.procs) for job in waiting], dtype=np.int64),
            request_s=np.array([job.request_s for job in waiting], dtype=np.float64),
            user=_number_names(self._users, [job.user for job in waiting]),
            queue=_number_names(self._queues, [job.queue for job in waiting]),
        )

    def _note_assumptions(self) -> None:
        if self._unknown_procs:
            jobs = format_count(self._unknown_procs, "job")
            self.report.note(f"1 processor is assumed of {jobs} without a number of processors")
        if self._unknown_ends:
            jobs = format_count(self._unknown_ends, "job", "have")
            self.report.note(f"{jobs} an unknown run time, since the end is before the start")


def _number_names(codes: dict[str, int], names: list[str]) -> Ints:
    """Return the numbers of names; −1 for one that no other job has."""
    return np.array([codes.get(name, -1) for name in names], dtype=np.int64)


def _sort_by_code(codes: dict[str, int]) -> dict[int, str]:
    return {code: name for name, code in codes.items()}
