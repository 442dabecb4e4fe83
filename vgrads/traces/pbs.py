"""PBS, OpenPBS and Torque accounting: ``date time;type;job;key=value …``.

``E`` (ended) and ``S`` (started) contain everything in seconds since 1970; each start of a job that
was run again is an attempt of its own. ``Q`` (queued) with ``D`` (deleted) or ``A`` (aborted) and
no start is a job that was cancelled while waiting, a right-censored wait; these records have local
times. A job could start from ``etime`` on, or, if it was run again, from the record of that.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from vgrads.traces.build import UNKNOWN, AccountingJob, JobBuilder, requested_s
from vgrads.traces.pbs_processors import processors_of
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog

_PAIR = re.compile(r"(\S+?)=(\S*)")
_QUARTER_S = 900.0
_FURTHER = "further record"
_NO_JOBS: Mapping[str, str] = {
    **dict.fromkeys("L", "licence record"),
    **dict.fromkeys("BFKUYkruwxyz", "reservation record"),
    **dict.fromkeys("acpPsetvCTMmoH", "other event"),
}
"""Types of records that never are jobs; the others: OpenPBS and Torque administrators' guides."""

Fields = dict[str, str]


@dataclass(slots=True)
class _Attempt:
    """The records of one start of a job."""

    line: int
    fields: Fields
    again_s: float | None = None  # when it was put back into the queue before, as if UTC


@dataclass(slots=True)
class _QueuedRecord:
    """The records of a job that has not started."""

    line: int
    queued_s: float
    fields: Fields
    gone_s: float | None = None


@dataclass(slots=True)
class _Accounting:
    attempts: dict[tuple[str, str], _Attempt] = field(default_factory=dict)
    waiting: dict[str, _QueuedRecord] = field(default_factory=dict)
    again_s: dict[str, float] = field(default_factory=dict)
    offsets: list[tuple[float, float]] = field(default_factory=list)


def read_pbs(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read accounting records; those that cannot be used are counted by reason."""
    builder = JobBuilder(name, "pbs", "PBS records")
    accounting = _Accounting()
    for number, line in enumerate(lines, 1):
        if line.strip():
            _read_record(line, number, accounting, builder)
    offset = _Offsets(accounting.offsets)
    for (job, _), attempt in accounting.attempts.items():
        # it has started: its record as a queued job must not count as a withdrawn one
        if accounting.waiting.pop(job, None):
            builder.report.pass_over(_FURTHER)
        _add_attempt(attempt, offset, builder)
    for waiting in accounting.waiting.values():
        _add_withdrawn(waiting, offset, builder)
    return builder.log(options)


def _read_record(line: str, number: int, accounting: _Accounting, builder: JobBuilder) -> None:
    parts = line.rstrip("\r\n").split(";", 3)
    if len(parts) < 4 or not parts[2]:
        builder.report.skip(f"with {len(parts)} of 4 parts", number)
        return
    stamp, kind, job, rest = parts
    try:
        when_s = _parse_local_s(stamp)
    except ValueError:
        builder.report.skip("with an unreadable date", number)
        return
    if "[]" in job:
        builder.report.pass_over("array parent")
    elif kind in _NO_JOBS:
        builder.report.pass_over(_NO_JOBS[kind])
    elif kind in ("S", "E"):
        _read_attempt((number, when_s, kind, job), _parse_fields(rest), accounting, builder)
    elif kind in ("Q", "D", "A", "R"):
        _read_change((number, when_s, kind, job), _parse_fields(rest), accounting, builder)
    else:
        builder.report.skip(f"of the unknown type {kind[:8]!r}", number)


def _read_change(
    head: tuple[int, float, str, str],
    fields: Fields,
    accounting: _Accounting,
    builder: JobBuilder,
) -> None:
    """Read that a job was queued, deleted, aborted, or put back into the queue."""
    number, when_s, kind, job = head
    waiting = accounting.waiting.get(job)
    if kind == "Q" and waiting is None:
        accounting.waiting[job] = _QueuedRecord(number, when_s, fields)
        return
    builder.report.pass_over(_FURTHER)
    if kind == "R":
        accounting.again_s[job] = when_s
    elif waiting is not None and kind == "Q":  # a routing queue sent it on
        waiting.fields |= fields
    elif waiting is not None:
        waiting.gone_s = when_s


def _parse_fields(text: str) -> Fields:
    return dict(_PAIR.findall(text))


def _read_attempt(
    head: tuple[int, float, str, str],
    fields: Fields,
    accounting: _Accounting,
    builder: JobBuilder,
) -> None:
    """Collect the fields of one start of a job; of a repeated record the last one counts."""
    number, when_s, kind, job = head
    start = fields.get("start", "")
    if not start.isdigit():
        builder.report.skip("without a start", number)
        return
    if kind == "E" and fields.get("end", "").isdigit():
        accounting.offsets.append((when_s, float(fields["end"]) - when_s))
    key = (job, start)
    attempt = accounting.attempts.get(key)
    if attempt is None:
        again_s = accounting.again_s.pop(job, None)
        accounting.attempts[key] = _Attempt(number, fields, again_s)
    else:
        attempt.fields |= fields
        builder.report.pass_over(_FURTHER)


def _parse_local_s(stamp: str) -> float:
    """Return the seconds since 1970 of ``04/21/2026 10:00:00`` as if it were UTC; ValueError for
    anything else."""
    month, day, year = stamp[:2], stamp[3:5], stamp[6:10]
    when = datetime.fromisoformat(f"{year}-{month}-{day}T{stamp[11:]}")
    return when.replace(tzinfo=UTC).timestamp()


class _Offsets:
    """What must be added to local times, by the records that have both: it changes with daylight
    saving time."""

    def __init__(self, offsets: list[tuple[float, float]]) -> None:
        # zones differ from UTC by quarters of an hour; the rest is the delay of the record
        ordered = sorted((at, round(by / _QUARTER_S) * _QUARTER_S) for at, by in offsets)
        self.at_s = [at for at, _ in ordered]
        self.by_s = [by for _, by in ordered]

    def unix_s(self, local_s: float) -> float:
        """Return seconds since 1970 of a local instant, with the offset of the nearest record."""
        if not self.at_s:
            return local_s
        right = min(bisect_left(self.at_s, local_s), len(self.at_s) - 1)
        left = max(right - 1, 0)
        near = min((left, right), key=lambda n: abs(self.at_s[n] - local_s))
        return local_s + self.by_s[near]


def _add_attempt(attempt: _Attempt, offset: _Offsets, builder: JobBuilder) -> None:
    fields = attempt.fields
    submitted = fields.get("qtime") or fields.get("ctime", "")
    if not submitted.isdigit():
        builder.report.skip("without a submission time", attempt.line)
        return
    start = float(fields["start"])
    instants = [float(submitted)]
    eligible = fields.get("etime", "")
    if eligible.isdigit():
        instants.append(float(eligible))
    if attempt.again_s is not None:
        instants.append(offset.unix_s(attempt.again_s))
    # the last of submission, eligibility and return to the queue that is not after the start
    could_start = max(t for t in instants if t <= start) if min(instants) <= start else instants[0]
    end = fields.get("end", "")
    end_s = float(end) if end.isdigit() else None
    builder.add(_make_job(fields, attempt.line, (could_start, start, end_s)))


def _add_withdrawn(waiting: _QueuedRecord, offset: _Offsets, builder: JobBuilder) -> None:
    """Add a job that was queued and never started: a wait until it was removed, if it was."""
    fields = waiting.fields
    # etime 0: held, or waiting for another job
    if "etime" in fields and not fields["etime"].strip("0"):
        builder.report.pass_over("not yet eligible job")
        return
    gone_s = None if waiting.gone_s is None else offset.unix_s(waiting.gone_s)
    times = (offset.unix_s(waiting.queued_s), None, gone_s)
    builder.add(_make_job(fields, waiting.line, times))


def _make_job(
    fields: Fields, line: int, times: tuple[float, float | None, float | None]
) -> AccountingJob:
    """Return the job with these attributes; ``times``: from which it could start, of its start, of
    its end."""
    return AccountingJob(
        line,
        *times,
        processors_of(fields),
        requested_s(fields.get("Resource_List.walltime", "")),
        fields.get("user", UNKNOWN),
        fields.get("queue", UNKNOWN),
    )
