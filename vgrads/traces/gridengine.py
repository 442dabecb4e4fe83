"""Grid Engine ``accounting`` (accounting(5)): one job or array task per line, 40 or more fields
between colons.

Times are seconds since 1970 (milliseconds in newer dialects); a start of 0 means that the job never
started. The category (the request) may contain colons, so the fields behind it are those that look
like them. Lines of the slave tasks of a parallel job (``pe_taskid``) are not separate jobs. A task
that was run again has a line for each attempt: it could start again from the end of the last one.
The file does not state how long a job was held or waited for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vgrads.traces.build import NO_ELIGIBLE, AccountingJob, JobBuilder, requested_s
from vgrads.traces.instants import parse_unix_time
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog

_LINE = re.compile(
    r"(?P<queue>[^:]*):[^:]*:[^:]*:(?P<owner>[^:]*):.*?:(?P<job>\d+):[^:]*:-?\d+:"
    r"(?P<submit>\d+):(?P<start>\d+):(?P<end>\d+):\d+:-?\d+:"
    r"(?:[^:]*:){18}"  # use of resources
    r"[^:]*:[^:]*:[^:]*:(?P<slots>\d+):(?P<task>\d+):(?:[^:]*:){3}(?P<rest>.*)"
)
_AFTER_CATEGORY = re.compile(
    r":-?[\d.]+(?:e[+-]?\d+)?:(NONE||\d+\.[^:]+):-?[\d.]+(?:e[+-]?\d+)?(:|$)"
)
_LIMIT = re.compile(r"\bh_rt=(\d+:\d+:\d+|\d+)")
_SLOTS = re.compile(r"-pe \S+ (\d+)")
_DEPENDENT = "-hold_jid"


def read_gridengine(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read an accounting file; lines that cannot be used are counted by reason."""
    builder = JobBuilder(name, "gridengine", "Grid Engine jobs")
    last_end: dict[tuple[str, str, str], float] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.startswith("#"):
            builder.report.pass_over("comment")
            continue
        match = _LINE.match(line)
        if match is None:
            count = line.count(":") + 1
            builder.report.skip(f"with {count} fields that are not those of accounting(5)", number)
        else:
            _add(match, number, last_end, builder)
    builder.report.note(NO_ELIGIBLE)
    return builder.log(options)


def _add(
    match: re.Match[str],
    number: int,
    last_end: dict[tuple[str, str, str], float],
    builder: JobBuilder,
) -> None:
    rest = match["rest"].rstrip("\r\n")
    after = _AFTER_CATEGORY.search(rest)
    if after and after[1] not in ("", "NONE"):
        builder.report.pass_over("slave task")
        return
    category = rest[: after.start()] if after else rest
    submit, start, end = (parse_unix_time(float(match[key])) for key in ("submit", "start", "end"))
    if not start and not end:
        builder.report.skip("without a start and an end", number)
        return
    if _DEPENDENT in rest:
        builder.report.skip("held for other jobs for an unknown time", number)
        return
    limit, slots = _LIMIT.search(category), _SLOTS.search(category)
    key = (match["job"], match["task"], match["submit"])
    # a job that has run before waits again from the end of that run
    again = last_end.get(key, 0.0)
    last_end[key] = end
    builder.add(
        AccountingJob(
            number,
            again if submit < again <= start else submit,
            start or None,
            end or None,
            # a job that never started may have 0 slots: those that it requested count
            max(int(match["slots"]), int(slots[1]) if slots and not start else 0),
            requested_s(limit[1]) if limit else -1.0,
            match["owner"],
            match["queue"],
        )
    )
