"""LSF's ``lsb.acct`` (lsb.acct(5)): one record per line, fields between blanks, text in quotes,
quotes in it doubled.

``JOB_FINISH`` records are jobs and array tasks that ended or were killed while they waited. A job
could start from ``beginTime`` on (``bsub -b``); from version 10 on the file states how long it was
not eligible. Processors are the largest of the requested and the allocated slots.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from vgrads.traces.build import NO_ELIGIBLE, AccountingJob, JobBuilder
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog

JOB_FINISH = '"JOB_FINISH"'
_PROCS, _SUBMIT, _BEGIN, _START, _USER, _QUEUE, _DEPENDENCY, _REQUESTED_HOSTS = (
    6,
    7,
    8,
    10,
    11,
    12,
    14,
    22,
)
_END = 2
_TO_TAIL = 53
"""Fields from ``jStatus`` to ``jobDescription``: 4, use of resources 19, and 30 behind."""
_TO_NETWORKS = 13
"""Fields from ``avgMem`` to ``num_network``."""
_OTHER_RECORDS = "other event"


def read_lsf(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read an accounting file; records that cannot be used are counted by reason."""
    builder = JobBuilder(name, "lsf", "LSF jobs")
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            if line.strip():
                builder.report.pass_over("comment")
            continue
        if not line.startswith(JOB_FINISH):
            if line.startswith('"'):
                builder.report.pass_over(_OTHER_RECORDS)
            else:
                builder.report.skip("that does not begin with the type of a record", number)
            continue
        try:
            fields = next(csv.reader([line], delimiter=" ", strict=True))
            _add(fields, number, builder)
        except (ValueError, IndexError, csv.Error):
            builder.report.skip("with fields that are not those of JOB_FINISH", number)
    return builder.log(options)


def _add(fields: Sequence[str], number: int, builder: JobBuilder) -> None:
    submit, begin, start, end = (float(fields[n]) for n in (_SUBMIT, _BEGIN, _START, _END))
    hosts_at = _REQUESTED_HOSTS + 1 + int(fields[_REQUESTED_HOSTS])
    count = int(fields[hosts_at])
    hosts = fields[hosts_at + 1 : hosts_at + 1 + count]
    if count < 0 or len(hosts) < count:
        raise ValueError("too few fields")
    limit_s, ineligible_s = _parse_tail(fields[hosts_at + 1 + count + _TO_TAIL :])
    if ineligible_s is None:
        builder.report.note(NO_ELIGIBLE)
        if fields[_DEPENDENCY]:
            builder.report.skip("held for other jobs for an unknown time", number)
            return
    left = start or end
    eligible = [t for t in (begin, submit + (ineligible_s or 0.0)) if submit < t <= left]
    builder.add(
        AccountingJob(
            number,
            max(eligible, default=submit),
            start or None,
            end,
            max(int(fields[_PROCS]), sum(map(_count_slots, hosts))),
            limit_s,
            fields[_USER],
            fields[_QUEUE],
        )
    )


def _count_slots(host: str) -> int:
    """Return the slots of ``host`` or ``16*host``."""
    times, mark, _ = host.partition("*")
    return int(times) if mark and times.isdigit() else 1


def _parse_tail(fields: Sequence[str]) -> tuple[float, float | None]:
    """Return requested seconds (−1: none) and the seconds in which the job could not start (None:
    not stated). They stand behind fields of variable number, in newer versions only."""
    limit_s, ineligible_s = -1.0, None
    try:
        at = 1 + 2 * int(fields[0])  # pairs of the submission's extension
        at += 1 + 5 * int(fields[at])  # use of resources by host
        flags_and_limit = [int(field) for field in fields[at : at + 2]]
        # bit flags, whose place differs between versions, are no whole minutes
        limits = [n for n in reversed(flags_and_limit) if n > 0 and n % 60 == 0]
        limit_s = float(limits[0]) if limits else -1.0
        at += 2 + _TO_NETWORKS
        at += 1 + 2 * int(fields[at]) + 6  # networks, affinity, energy and counters
        at += 1 + int(fields[at])  # allocated slots
        ineligible_s = float(fields[at]) if float(fields[at]) >= 0 else None
    except (ValueError, IndexError):
        pass
    return limit_s, ineligible_s
