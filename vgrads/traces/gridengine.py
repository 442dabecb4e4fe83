"""Grid Engine ``accounting`` (accounting(5)): one job per line, 40 or more fields between colons.

Times are seconds since 1970 (milliseconds in newer dialects); a start of 0 means that the job never
started. Lines of the slave tasks of a parallel job (``pe_taskid``) are not separate jobs.
"""

from __future__ import annotations

import re

from vgrads.traces.build import AccountingJob, broken_warning, build_log, refuse_broken, requested_s
from vgrads.traces.records import JobLog

_QUEUE, _OWNER, _SUBMIT, _START, _END, _SLOTS, _CATEGORY, _TASK = 0, 3, 8, 9, 10, 34, 39, 41
_LEAST = 36
_LIMIT = re.compile(r"h_rt=([\d:]+)")
_MILLISECONDS = 1e11


def read_gridengine(text: str, name: str) -> JobLog:
    """Parse an accounting file; malformed lines are skipped up to 1 %, then the file is
    rejected."""
    jobs: list[AccountingJob] = []
    broken: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(":")
        if len(fields) > _TASK and fields[_TASK] not in ("NONE", ""):
            continue
        try:
            jobs.append(_job(fields))
        except (ValueError, IndexError):
            broken.append(number)
    refuse_broken(broken, len(jobs), name, "Grid Engine jobs")
    return build_log(jobs, name, broken_warning(broken))


def _job(fields: list[str]) -> AccountingJob:
    if len(fields) < _LEAST:
        raise ValueError("too few fields")
    submit, start, end = (_seconds(fields[i]) for i in (_SUBMIT, _START, _END))
    limit = _LIMIT.search(":".join(fields[_CATEGORY:]))
    return AccountingJob(
        submit_s=submit,
        start_s=start or None,
        end_s=max(end, submit),
        procs=max(1, int(fields[_SLOTS])),
        request_s=requested_s(limit[1]) if limit else -1.0,
        user=fields[_OWNER],
        queue=fields[_QUEUE],
    )


def _seconds(text: str) -> float:
    value = float(text)
    return value / 1000 if value > _MILLISECONDS else value
