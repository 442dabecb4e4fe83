"""Slurm's ``sacct``: a table with any columns in any order (:mod:`vgrads.traces.table`).

Required are the submission, start and end. A job could start from ``Eligible`` on: before, it was
held, or waited for another job or its begin time, which is no wait in the queue. Steps
(``123.batch``), siblings of other clusters of a federation and records of arrays whose tasks have
none of their own are no jobs; array tasks (``123_4``) and requeued attempts are, and the components
of a heterogeneous job (``123+1``) are one. Times without a zone are read as UTC unless a zone is
stated; times with an offset and seconds since 1970 (``SLURM_TIME_FORMAT=%s``) are accepted. A job
that was cancelled while it waited has no start, or, in old versions, one that equals its end: a
right-censored wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import zone_of
from vgrads.traces.array_tasks import count_tasks
from vgrads.traces.build import (
    NO_ELIGIBLE,
    UNKNOWN,
    AccountingJob,
    JobBuilder,
    requested_s,
)
from vgrads.traces.instants import NOTHING, make_instant_reader, put_in_order
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog
from vgrads.traces.table import (
    HEADER,
    JOB_IDS,
    BadRow,
    Header,
    OtherLine,
    TableRow,
    make_header_error,
    read_table,
)

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "submit": ("submit", "submit_time"),
    "eligible": ("eligible", "eligible_time"),
    "start": ("start", "start_time"),
    "end": ("end", "end_time"),
    "queue": ("partition",),
    "user": ("user", "uid"),
    "state": ("state",),
    "id": JOB_IDS,
    "cluster": ("cluster",),
}
_PROCS = ("alloccpus", "ncpus", "reqcpus", "processors_req")
_RESOURCES = ("alloctres", "reqtres")
_NODES = ("allocnodes", "nnodes", "nodes_req", "reqnodes")
_LIMITS = {"timelimit": 1.0, "wallclock_req": 1.0, "timelimitraw": 60.0}
"""Columns of the requested time, and the seconds of their unit where they are plain numbers."""
_REQUIRED = ("submit", "start", "end")
_COMPONENT = re.compile(r"(\d+)\+\d+$")
_CPUS = re.compile(r"(?:^|,)cpu=(\d+)")
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)$")
_SCALE = {"": 1, "K": 1000, "M": 10**6, "G": 10**9}
_STILL_WAITING = frozenset(("PENDING", "REQUEUED", "RESV_DEL_HOLD"))


class SlurmJob(NamedTuple):
    """A record of Slurm's accounting: ``submit``, ``eligible``, ``start`` and ``end`` in seconds
    since 1970, NaN for none; ``request_s`` −1 for none; ``procs`` 0 for none."""

    line: int
    id: str
    cluster: str
    user: str
    queue: str
    state: str
    submit: float
    eligible: float
    start: float
    end: float
    procs: int
    request_s: float


def _classify_no_job(record: SlurmJob, word: str) -> str:
    """Return what a record is that never is a job; empty for others. ``word``: of its state."""
    if "." in record.id:
        return "step"
    if word == "REVOKED":
        return "federation sibling"
    if math.isnan(record.start) and "[" in record.id and word not in _STILL_WAITING:
        return "unstarted array record"
    return ""


def _make_job(record: SlurmJob, could_start: float, start: float, end: float) -> AccountingJob:
    """Return the job of a record with these instants, NaN for none."""
    return AccountingJob(
        record.line,
        could_start,
        None if math.isnan(start) else start,
        None if math.isnan(end) else end,
        record.procs,
        record.request_s,
        record.user or UNKNOWN,
        record.queue or UNKNOWN,
    )


class SlurmJobs:
    """Collects records of Slurm's accounting, whatever their form."""

    def __init__(self, name: str, format_name: str, options: ReadingOptions) -> None:
        self.builder = JobBuilder(name, format_name, "sacct jobs")
        self._options = options
        self._job_by_key: dict[int, int] = {}
        self._last = ""
        self._waiting: dict[int, tuple[AccountingJob, int]] = {}
        self._clusters: dict[str, int] = {}
        self.has_eligible = False

    def add(self, record: SlurmJob) -> None:
        """Add a record, and count it if it is no job."""
        report = self.builder.report
        word = record.state.partition(" ")[0].rstrip("+").upper()
        kind = _classify_no_job(record, word)
        if kind:
            report.pass_over(kind)
            return
        if math.isnan(record.submit):
            report.skip("without a submission time", record.line)
            return
        self._clusters[record.cluster] = self._clusters.get(record.cluster, 0) + 1
        component = _COMPONENT.match(record.id)
        # of a long file, the keys themselves would need more memory than its jobs
        # repr, because every NaN has a hash of its own
        key = hash((record.cluster, record.id, record.submit, repr(record.start)))
        if component:
            key = hash((record.cluster, component[1], record.submit, record.queue))
        before = self._job_by_key.get(key) if record.id else None
        follows, self._last = record.id == self._last, record.id
        if before is not None and component:
            report.pass_over("further heterogeneous component")
            self.builder.widen(before, record.procs)
            return
        if before is not None and self._repeats(before, record, follows):
            report.pass_over("repeated record")
            # the record with an end replaces one that was written before it
            if math.isnan(record.end) or not math.isnan(self.builder.end_s(before)):
                return
            self.builder.drop(before)
        job = self._add_job(record, word)
        if job is not None:
            self._job_by_key[key] = job
            if self._waiting:
                self._forget_waiting(record)

    def begin_part(self) -> None:
        """Begin a part of the file that was written for itself: it may repeat jobs of the last."""
        self._last = ""

    def _repeats(self, before: int, record: SlurmJob, follows: bool) -> bool:
        """Return whether a record with the id and the times of another is the same job: one of them
        was written before its end, or records of other jobs are between them. Tasks of an array
        follow each other; in anonymous logs they have one id."""
        end_s = self.builder.end_s(before)
        open_end = math.isnan(record.end) or math.isnan(end_s)
        return open_end or (record.end == end_s and not follows)

    def _add_job(self, record: SlurmJob, word: str) -> int | None:
        start, end = record.start, record.end
        # of a job that is cancelled while it waits, sacct states its end as its start, too
        never = word == "CANCELLED" and start >= end
        if never or math.isnan(start):
            if word in _STILL_WAITING or math.isnan(end):
                self._add_waiting(record)
                return None
            start = math.nan
        eligible = record.eligible
        if math.isnan(eligible) and self.has_eligible and math.isnan(start):
            self.builder.report.pass_over("never eligible job")
            return None
        left = end if math.isnan(start) else start
        could_start = record.submit
        if record.submit < eligible <= left:
            could_start = eligible
        return self.builder.add(_make_job(record, could_start, start, end))

    def _forget_waiting(self, record: SlurmJob) -> None:
        """Forget that a job waited in an earlier part of the file."""
        if self._waiting.pop(hash((record.cluster, record.id, record.submit)), None):
            self.builder.report.pass_over("repeated record")

    def _add_waiting(self, record: SlurmJob) -> None:
        """Add a job that waits, or the tasks of an array; one that cannot start yet does not."""
        if math.isnan(record.eligible) and self.has_eligible:
            self.builder.report.pass_over("not yet eligible job")
            return
        could_start = record.submit if math.isnan(record.eligible) else record.eligible
        _, bracket, tasks = record.id.partition("[")
        could_start = max(record.submit, could_start)
        waiting = _make_job(record, could_start, math.nan, math.nan)
        key = hash((record.cluster, record.id or record.line, record.submit))
        if key in self._waiting:
            self.builder.report.pass_over("repeated record")
        self._waiting[key] = waiting, count_tasks(tasks.partition("]")[0]) if bracket else 1

    def log(self) -> JobLog:
        """Return the jobs; InputError if they are of several clusters, unless reading is forced."""
        if len(self._clusters) > 1 and not self._options.force:
            names = ", ".join(f"{name or '(none)'} {n:,}" for name, n in self._clusters.items())
            raise InputError(
                f"has jobs of several clusters: {names}",
                where=self.builder.name,
                fix="write one file for each (sacct --clusters=NAME), or give --force",
            )
        for waiting, tasks in self._waiting.values():
            self.builder.wait(waiting, tasks)
        if not self.has_eligible:
            self.builder.report.note(NO_ELIGIBLE)
        zone = self._options.zone
        if zone is None:
            return self.builder.log(self._options)
        return self.builder.log(self._options, zone=zone_of(zone))


def read_sacct(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read a table of jobs; records that cannot be used are counted by reason."""
    jobs = SlurmJobs(name, "sacct", options)
    report = jobs.builder.report
    columns = _Columns(Header(()), options)
    for item in read_table(lines, name, options.columns):
        if isinstance(item, OtherLine):
            report.pass_over(item.kind)
            if item is HEADER:
                jobs.begin_part()
        elif isinstance(item, BadRow):
            report.skip(item.why, item.line)
        else:
            if item.header is not columns.header:
                columns = _Columns(item.header, options)
                columns.check(name)
                columns.describe(jobs)
            try:
                record = columns.job(item)
            except ValueError as error:
                report.skip(str(error), item.line)
            else:
                jobs.add(record)
    return jobs.log()


class _Columns:
    """Where the fields of a job are in the rows of a table."""

    def __init__(self, header: Header, options: ReadingOptions) -> None:
        self.header = header
        columns = {key: header.positions(titles) for key, titles in _COLUMNS.items()}
        self._at = {key: positions[0] for key, positions in columns.items() if positions}
        self._procs = header.positions(_PROCS)
        self._tres = header.positions(_RESOURCES)
        self._nodes = header.positions(_NODES)
        self._limit_at = next(iter(header.positions(_LIMITS)), None)
        self._zoned = options.zone is not None
        self._read = make_instant_reader(options.zone)
        self._limits: dict[str, float] = {}

    def check(self, name: str) -> None:
        """Raise InputError if a required column is missing."""
        missing = [_COLUMNS[key] for key in _REQUIRED if key not in self._at]
        if len(missing) == len(_REQUIRED):
            raise make_header_error(name)
        if not (self._procs or self._tres or self._nodes):
            missing.append(_PROCS[:3])
        if missing:
            raise InputError(
                f"no column {' or '.join(missing[0])}",
                where=name,
                fix="request it from sacct with -o",
            )

    def describe(self, jobs: SlurmJobs) -> None:
        """Note what this table does not state."""
        jobs.has_eligible |= "eligible" in self._at
        if not (self._procs or self._tres):
            jobs.builder.report.note("the history states nodes, which count as processors")
        for key, text in (("queue", "queues"), ("user", "users")):
            if key not in self._at:
                jobs.builder.report.note(f"the history states no {text}")

    def job(self, row: TableRow) -> SlurmJob:
        """Return the job of a row; ValueError with the reason if it cannot be used."""
        cells, at = row.cells, self._at
        read = self._read
        try:
            submit, start = read(cells[at["submit"]]), read(cells[at["start"]])
            end = read(cells[at["end"]])
            eligible = read(cells[at["eligible"]]) if "eligible" in at else math.nan
        except ValueError:
            raise ValueError("with an unreadable time") from None
        # one hour occurs twice when clocks are set back: the order of events tells which is meant
        if self._zoned:
            submit, start, end = put_in_order((submit, start, end))
            _, eligible, _ = put_in_order((submit, eligible, start))
        return SlurmJob(
            row.line,
            cells[at["id"]].strip() if "id" in at else "",
            cells[at["cluster"]].strip() if "cluster" in at else "",
            cells[at["user"]].strip() if "user" in at else "",
            cells[at["queue"]].strip() if "queue" in at else "",
            cells[at["state"]].strip() if "state" in at else "",
            submit,
            eligible,
            start,
            end,
            self._procs_of(cells),
            self._limit(cells),
        )

    def _procs_of(self, cells: list[str]) -> int:
        """Return processors: allocated ones, else requested ones; 0 if none are stated."""
        for position in self._procs:
            count = _count(cells[position])
            if count > 0:
                return count
        for position in self._tres:
            match = _CPUS.search(cells[position])
            if match:
                return int(match[1])
        if self._procs or self._tres:
            return 0
        return max((_count(cells[position]) for position in self._nodes), default=0)

    def _limit(self, cells: list[str]) -> float:
        """Return requested seconds; few texts are distinct, so each is parsed once."""
        if self._limit_at is None:
            return -1.0
        text = cells[self._limit_at]
        if text not in self._limits:
            seconds = requested_s(text)
            unit_s = _LIMITS[self.header.names[self._limit_at]]
            self._limits[text] = seconds if seconds <= 0 else seconds * unit_s
        return self._limits[text]


def _count(text: str) -> int:
    """Return a number such as 16 or 1.5K; ValueError for any other text, 0 for none."""
    if text.isdigit():
        return int(text)
    match = _COUNT.match(text.strip())
    if match:
        return round(float(match[1]) * _SCALE[match[2]])
    if text.strip().lower() in NOTHING:
        return 0
    raise ValueError("with an unreadable number of processors")
