"""Standard Workload Format 2.2 (Feitelson, Parallel Workloads Archive): 18 columns per job.

Deviations: extra columns are ignored and missing trailing ones read as −1, because existing logs
have both. Header comments (``; Key: value``) contain clock, zone, size and queue names; ``;
BagField: 14``, which vgrads writes, means that the application of a job (column 14) is its bag of
tasks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.traces.build import GENERATED, NO_ELIGIBLE
from vgrads.traces.reading_options import DETECTED, ReadingOptions
from vgrads.traces.records import Bools, Floats, Ints, JobLog
from vgrads.traces.report import ReportBuilder

FIELDS = 18
_DAY_S = 86400.0
_NEEDED = 11  # up to the status; shorter lines are not jobs
_HEADER = re.compile(r";\s*([A-Za-z]\w*)\s*:\s*(.*)")
_QUEUE = re.compile(r"\s*(\d+)\s*(?:-\s*)?(\S*)")
_COMMENT = re.compile(r"^[^\S\n]*;", re.MULTILINE)
_CANCELLED = 5  # status of a job cancelled before its end
BAG_FIELD = 14
"""Column of a job's bag if the log has bags, counted from 1; the same in GWF."""


def read_swf_lines(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read a log; lines that cannot be used are counted by reason."""
    return read_swf("".join(lines), name, options)


def read_swf(text: str, name: str, options: ReadingOptions = DETECTED) -> JobLog:
    """Parse a whole log; lines that cannot be used are counted by reason."""
    report = ReportBuilder("swf")
    header, body_start = _read_header(text)
    first_line = text.count("\n", 0, body_start) + 1
    body = text[body_start:]
    table, numbers = _parse(body, name, first_line, report)
    comments = len(_COMMENT.findall(text[:body_start] if ";" not in body else text))
    if comments:
        report.pass_over("comment", comments)
    without_wait = table[:, 2] < 0  # unknown: neither a wait nor a censored one
    for row in np.flatnonzero(without_wait):
        report.skip("without a wait", numbers(int(row)))
    report.note(NO_ELIGIBLE)
    if any("Not a recorded log" in note for note in header.get("Note", ())):
        report.note(GENERATED)
    return _convert_to_log(table[~without_wait], header, name, options, report)


def _read_header(text: str) -> tuple[dict[str, list[str]], int]:
    header: dict[str, list[str]] = {}
    position = 0
    for line in io.StringIO(text):
        if line.strip() and not line.lstrip().startswith(";"):
            break
        position += len(line)
        match = _HEADER.match(line.strip())
        if match:
            header.setdefault(match[1], []).append(match[2].strip())
    return header, position


LineNumber = Callable[[int], int]
"""The line of a row of the table."""


def _parse(
    body: str, name: str, first_line: int, report: ReportBuilder
) -> tuple[Floats, LineNumber]:
    """Return rows × 18 numbers and the lines of the rows; malformed lines are reported."""
    if not body.strip():
        raise InputError("the history has no jobs", where=name)

    def all_numbers() -> list[int]:
        lines = enumerate(body.split("\n"), first_line)
        return [n for n, line in lines if line.strip() and not line.lstrip().startswith(";")]

    try:
        # the whole table at once is many times faster than line by line
        table = np.loadtxt(io.StringIO(body), comments=";", usecols=range(FIELDS), ndmin=2)
    except ValueError:  # a line is shorter, or malformed
        return _parse_lines(body, first_line, report)
    if np.isnan(table[:, :_NEEDED]).any() or not np.isfinite(table[:, :5]).all():
        return _parse_lines(body, first_line, report)
    # lines are counted only where one is reported
    return np.nan_to_num(table, nan=-1.0), lambda row: all_numbers()[row]


def _parse_lines(body: str, first_line: int, report: ReportBuilder) -> tuple[Floats, LineNumber]:
    """Parse line by line, slowly, for logs with short or malformed lines."""
    rows: list[list[float]] = []
    numbers: list[int] = []
    lines = body.split("\n")
    for number, line in enumerate(lines, first_line):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        row = _parse_line(line)
        if row is not None:
            rows.append(row)
            numbers.append(number)
        # nothing follows the last newline unless the file was cut off
        elif number - first_line == len(lines) - 1:
            report.skip("cut off at the end of the file", number)
        else:
            report.skip("with fields that are not those of SWF", number)
    return np.array(rows, dtype=np.float64).reshape(-1, FIELDS), numbers.__getitem__


def _parse_line(line: str) -> list[float] | None:
    try:
        row = [float(field) for field in line.partition(";")[0].split()[:FIELDS]]
    except ValueError:
        return None
    if len(row) < _NEEDED or not np.isfinite(row).all():
        return None
    return row + [-1.0] * (FIELDS - len(row))


def _convert_to_log(
    table: Floats,
    header: dict[str, list[str]],
    name: str,
    options: ReadingOptions,
    builder: ReportBuilder,
) -> JobLog:
    report = builder.report(len(table))
    report.refuse_unusable(name, "SWF jobs", options.force)
    table = table[np.argsort(table[:, 1], kind="stable")]
    # a job waits for the processors that it requested, not for those that it used
    procs = np.where(table[:, 7] > 0, table[:, 7], table[:, 4]).astype(np.int64)
    queue, names = _find_queues(table, header)
    zone, unsure = _find_zone(header)
    identifies_bags = header.get("BagField", [""])[0] == str(BAG_FIELD)
    return JobLog(
        name=name,
        submit_s=table[:, 1].copy(),
        wait_s=table[:, 2].copy(),
        run_s=table[:, 3].copy(),
        procs=procs,
        request_s=table[:, 8].copy(),
        user=table[:, 11].astype(np.int64),
        queue=queue,
        started=_find_started(table),
        unix_start_s=_parse_header_number(header, "UnixStartTime"),
        max_procs=int(
            _parse_header_number(header, "MaxProcs") or _parse_header_number(header, "MaxNodes")
        ),
        queue_names=names,
        warnings=unsure,
        report=report,
        zone=zone,
        bag=table[:, BAG_FIELD - 1].astype(np.int64) if identifies_bags else None,
    )


def _find_zone(header: dict[str, list[str]]) -> tuple[tzinfo, tuple[str, ...]]:
    """Return ``TimeZoneString``, a name such as Europe/Paris; otherwise ``TimeZone``, seconds east
    of Greenwich; otherwise UTC."""
    name = header.get("TimeZoneString", [""])[0]
    try:
        if name:
            return ZoneInfo(name), ()
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        pass
    east_s = _parse_header_number(header, "TimeZone")
    if header.get("TimeZone") and abs(east_s) < _DAY_S:
        return timezone(timedelta(seconds=east_s)), ()
    unsure = f"unknown time zone '{name}': hours of the day are in UTC"
    return UTC, (unsure,) if name else ()


def _find_started(table: Floats) -> Bools:
    """Return whether each job started. Run time −1, or cancelled without processors or run time: it
    never started."""
    run, procs, status = table[:, 3], table[:, 4], table[:, 10]
    never: Bools = (run < 0) | ((status == _CANCELLED) & ((run <= 0) | (procs == 0)))
    return ~never


def _find_queues(table: Floats, header: dict[str, list[str]]) -> tuple[np.ndarray, dict[int, str]]:
    """Return the queue column (15), or the partition (16) if the log has one queue and many
    partitions."""
    queues, partitions = table[:, 14].astype(np.int64), table[:, 15].astype(np.int64)
    if _are_equal(queues) and not _are_equal(partitions):
        return partitions, _parse_names(header.get("Partition", []))
    return queues, _parse_names(header.get("Queue", []))


def _are_equal(codes: Ints) -> bool:
    return bool((codes == codes[:1]).all())


def _parse_names(lines: list[str]) -> dict[int, str]:
    match = [_QUEUE.match(line) for line in lines]
    return {int(m[1]): m[2].strip('"') for m in match if m and m[2]}


def _parse_header_number(header: dict[str, list[str]], key: str) -> float:
    digits = re.match(r"-?\d+(\.\d+)?", header.get(key, [""])[0])
    return float(digits[0]) if digits else 0.0


def write_swf(log: JobLog, note: str = "") -> str:
    """Return the log as SWF text; :func:`read_swf` returns the same columns."""
    head = [
        "; Version: 2.2",
        f"; Computer: {log.name}",
        f"; MaxJobs: {len(log)}",
        f"; UnixStartTime: {log.unix_start_s:.0f}",
        f"; MaxProcs: {log.max_procs}",
    ]
    zone = write_zone_header(log.zone)
    head += [f"; {zone}"] if zone else []
    head += [f"; BagField: {BAG_FIELD}"] if log.bag is not None else []
    head += [f"; Queue: {code} {title}" for code, title in sorted(log.queue_names.items())]
    head += [f"; Note: {line}" for line in note.splitlines()]
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
    lines = [_format_swf_line(number, *row) for number, row in enumerate(rows, 1)]
    return "\n".join(head + lines) + "\n"


def _format_swf_line(number: int, *row: float) -> str:
    submit, wait, run, procs, request, user, queue, started, bag = row
    status = 1 if started else _CANCELLED
    return (
        f"{number} {_format_number(submit)} {_format_number(wait)} {_format_number(run)} "
        f"{int(procs) if started else 0} -1 -1 {int(procs)} {_format_number(request)} -1 {status} "
        f"{int(user)} -1 {int(bag)} {int(queue)} -1 -1 -1"
    )


def make_bag_column(log: JobLog) -> Ints:
    """Return the bag of each job; −1 if the log has none."""
    return np.full(len(log), -1, dtype=np.int64) if log.bag is None else log.bag


def write_zone_header(zone: tzinfo) -> str:
    """Return the header for a zone; nothing for UTC."""
    if isinstance(zone, ZoneInfo):
        return f"TimeZoneString: {zone.key}"
    east = zone.utcoffset(None)
    return f"TimeZone: {east.total_seconds():.0f}" if east else ""


def _format_number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{float(value)!r}"
