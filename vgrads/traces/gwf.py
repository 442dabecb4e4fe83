"""Grid Workload Format (Grid Workloads Archive): 29 columns per job, names allowed, ``#`` comments.

The first sixteen columns are those of SWF; users, groups and queues may be names. As there, ``#
BagField: 14`` means that column 14 is the bag of tasks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from vgrads.traces.build import NO_ELIGIBLE, AccountingJob, JobBuilder
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog
from vgrads.traces.swf import BAG_FIELD, make_bag_column

_NEEDED = 11
_CANCELLED = "5"
_START_HEADER = re.compile(r"^#\s*UnixStartTime:\s*(\d+)")
_ABSOLUTE_S = 3e8  # no log of several years counts so far from its own start
_BAG_HEADER = re.compile(rf"^#\s*BagField:\s*{BAG_FIELD}\s*$")


def read_gwf_lines(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read a log; lines that cannot be used are counted by reason."""
    builder = JobBuilder(name, "gwf", "GWF jobs")
    has_bags, start_s = False, 0.0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.lstrip().startswith("#"):
            builder.report.pass_over("comment")
            has_bags |= _BAG_HEADER.match(line) is not None
            start = _START_HEADER.match(line)
            start_s = float(start[1]) if start else start_s
            continue
        try:
            _add(line.split(), number, has_bags, builder)
        except (ValueError, IndexError):
            builder.report.skip("with fields that are not those of GWF", number)
    builder.report.note(NO_ELIGIBLE)
    if builder.first_s > _ABSOLUTE_S:  # the submissions count from 1970 themselves
        start_s = 0.0
    return builder.log(options, has_bags=has_bags, unix_start_s=start_s)


def _add(fields: list[str], number: int, has_bags: bool, builder: JobBuilder) -> None:
    """Add a job; ValueError or IndexError for a malformed line."""
    submit, wait, run, used = (float(fields[i]) for i in (1, 2, 3, 4))
    requested, request, status = float(fields[7]), float(fields[8]), fields[_NEEDED - 1]
    bag = int(_find_field(fields, BAG_FIELD - 1)) if has_bags else -1
    if not all(map(math.isfinite, (submit, wait, run, used, requested, request))):
        raise ValueError("not finite")
    if wait < 0:
        builder.report.skip("without a wait", number)
        return
    withdrawn = run < 0 or (status == _CANCELLED and (run == 0 or used == 0))
    left = submit + wait
    builder.add(
        AccountingJob(
            number,
            submit,
            None if withdrawn else left,
            left + max(run, 0.0),
            int(requested if requested > 0 else used),
            request,
            _find_field(fields, 11),
            _find_field(fields, 14),
            bag,
        )
    )


def _find_field(fields: list[str], position: int) -> str:
    return fields[position] if len(fields) > position else "-1"


def write_gwf(log: JobLog, note: str = "") -> str:
    """Return the log as GWF text; :func:`read_gwf_lines` returns the same columns."""
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
        make_bag_column(log),
        strict=True,
    )
    lines = [_format_gwf_line(number, *row) for number, row in enumerate(rows, 1)]
    return "\n".join([*head, *lines]) + "\n"


def _format_gwf_line(number: int, *row: object) -> str:
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
