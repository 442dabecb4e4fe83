"""Grid Workload Format (Grid Workloads Archive): 29 columns per job, names allowed, ``#`` comments.

The first sixteen columns are those of SWF; users, groups and queues may be names. As there, ``#
BagField: 14`` means that column 14 is the bag of tasks.
"""

from __future__ import annotations

import re

from vgrads.traces.build import AccountingJob, broken_warning, build_log, refuse_broken
from vgrads.traces.records import JobLog
from vgrads.traces.swf import BAG_FIELD, bag_column

_NEEDED = 11
_CANCELLED = "5"
_BAG_HEADER = re.compile(rf"^#\s*BagField:\s*{BAG_FIELD}\s*$", re.MULTILINE)


def read_gwf(text: str, name: str) -> JobLog:
    """Parse a whole log; malformed lines are skipped up to 1 %, then the file is rejected."""
    jobs: list[AccountingJob] = []
    broken: list[int] = []
    unknown = 0
    identifies_bags = _BAG_HEADER.search(text) is not None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            job = _job(line.split(), identifies_bags)
        except (ValueError, IndexError):
            broken.append(number)
            continue
        if job is None:
            unknown += 1
        else:
            jobs.append(job)
    refuse_broken(broken, len(jobs) + unknown, name, "GWF jobs")
    return build_log(jobs, name, broken_warning(broken))


def _job(fields: list[str], identifies_bags: bool) -> AccountingJob | None:
    """Parse a job; None for one whose wait is unknown; ValueError or IndexError for a malformed
    line."""
    submit, wait, run, used = (float(fields[i]) for i in (1, 2, 3, 4))
    requested, request, status = float(fields[7]), float(fields[8]), fields[_NEEDED - 1]
    if wait < 0:
        return None
    withdrawn = run < 0 or (status == _CANCELLED and (run == 0 or used == 0))
    start = None if withdrawn else submit + wait
    return AccountingJob(
        submit_s=submit,
        start_s=start,
        end_s=submit + wait + max(run, 0.0),
        procs=max(1, int(requested if requested > 0 else used)),
        request_s=request,
        user=_field(fields, 11),
        queue=_field(fields, 14),
        bag=int(_field(fields, BAG_FIELD - 1)) if identifies_bags else None,
    )


def _field(fields: list[str], position: int) -> str:
    return fields[position] if len(fields) > position else "-1"


def write_gwf(log: JobLog, note: str = "") -> str:
    """Return the log as GWF text; :func:`read_gwf` returns the same columns."""
    head = [f"# Grid: {log.name}", f"# UnixStartTime: {log.unix_start_s:.0f}"]
    head += [f"# BagField: {BAG_FIELD}"] if log.bag is not None else []
    head += [f"# {line}" for line in note.splitlines()]
    rows = zip(
        log.submit_s,
        log.wait_s,
        log.run_s,
        log.procs,
        log.request_s,
        log.user,
        log.queue,
        log.started,
        bag_column(log),
        strict=True,
    )
    lines = [_gwf_line(number, *row) for number, row in enumerate(rows, 1)]
    return "\n".join([*head, *lines]) + "\n"


def _gwf_line(number: int, *row: object) -> str:
    """Return a line: JobID, submit, wait, run, processors, CPU, memory, requested processors, time,
    memory, status, user, group, program, queue, and the unknown columns."""
    submit, wait, run, procs, request, user, queue, started, bag = row
    fields = [
        number,
        f"{submit:.3f}".rstrip("0").rstrip("."),
        f"{wait:.0f}",
        f"{run:.0f}",
        procs,
        -1,
        -1,
        procs,
        f"{request:.0f}",
        -1,
        1 if started else 5,
        user,
        -1,
        bag,
        queue,
    ]
    return " ".join(str(f) for f in fields) + " -1" * 14
