"""Open a history: detect its compression and format, and read it as a :class:`JobLog`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.traces.build import GENERATED
from vgrads.traces.condor_history import is_condor_ad, read_condor_history
from vgrads.traces.foreign_formats import describe_foreign
from vgrads.traces.gridengine import read_gridengine
from vgrads.traces.gwf import read_gwf_lines
from vgrads.traces.json_jobs import is_json_jobs, read_json_jobs
from vgrads.traces.lines import CutOffError, open_lines
from vgrads.traces.lsf import JOB_FINISH, read_lsf
from vgrads.traces.pbs import read_pbs
from vgrads.traces.plausibility import find_implausible
from vgrads.traces.reading_options import DETECTED, ReadingOptions
from vgrads.traces.records import JobLog
from vgrads.traces.report import SMALL_SHARE, ReadingReport
from vgrads.traces.sacct import read_sacct
from vgrads.traces.swf import read_swf_lines
from vgrads.traces.table import is_padded

Reader = Callable[[Iterable[str], str, ReadingOptions], JobLog]
FORMATS: dict[str, Reader] = {
    "swf": read_swf_lines,
    "gwf": read_gwf_lines,
    "sacct": read_sacct,
    "pbs": read_pbs,
    "gridengine": read_gridengine,
    "lsf": read_lsf,
    "condor": read_condor_history,
    "json": read_json_jobs,
}
_PBS_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];")
_LSF_RECORD = re.compile(r'"[A-Z_]+" "[\d.]+" \d+ ')
_SUBMIT = re.compile(r"(?i)\bsubmit(_time)?\b")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_SUFFIXES = re.compile(r"(\.(swf|gwf|sacct|txt|log|csv|json|gz|xz))+$", re.IGNORECASE)
_DELIMITER = re.compile(r"[|;,\t^]")
_NO_TEXT = re.compile(r"\\x[89a-f][0-9a-f]")
_CONDOR_SUBMIT = "QDate = "
_GRID_ENGINE_COLONS, _SWF_FIELDS, _GWF_FIELDS = 35, 11, 25  # in a line, at least
_HEAD = 100  # lines by which the format is detected
_UNDERSTOOD = (
    "understood: SWF, GWF, tables of sacct, sacct --json, accounting of PBS, Torque and Grid "
    "Engine, lsb.acct of LSF, condor_history -long and -json (docs/formats.md)"
)


def read_history(path: Path | str, options: ReadingOptions | str | None = None) -> JobLog:
    """Read the history in a file, plain, gzip or xz; InputError names the file and the problem.

    The log's ``report`` says what became of each line, its ``warnings`` what is wrong or unlikely.
    ``options``: how to read it, or the name of its format.
    """
    chosen = _make_options(options)
    path = Path(path)
    lines = _read_lines(path, chosen.force)
    head = list(islice(lines, _HEAD))
    if not any(line.strip() for line in head) and not next(filter(str.strip, lines), ""):
        raise InputError("the history is empty", where=str(path))
    name = chosen.format or _detect_format(head, str(path), chosen)
    if name not in FORMATS:
        raise InputError(
            f"unknown format '{name}'", where=str(path), fix=f"known: {', '.join(FORMATS)}"
        )
    counted = _CountedLines(chain(head, lines))
    log = FORMATS[name](counted, str(path), chosen)
    if log.report is None:
        return log
    report = log.report if log.report.lines else replace(log.report, lines=counted.count)
    if counted.odd_lines:
        odd = format_count(counted.odd_lines, "line", "are")
        note = f"{odd} not UTF-8: other bytes are written as \\x.."
        report = replace(report, notes=(*report.notes, note))
    unlikely = () if GENERATED in report.notes else find_implausible(log)
    warnings = (*log.warnings, *_make_warnings(report), *unlikely)
    return replace(log, report=report, warnings=warnings)


def _make_options(options: ReadingOptions | str | None) -> ReadingOptions:
    if options is None:
        return DETECTED
    return ReadingOptions(format=options) if isinstance(options, str) else options


def _read_lines(path: Path, force: bool) -> Iterator[str]:
    """Return the lines of a file; where a compressed one is cut off, those before, if forced."""
    try:
        # a wrong byte in a name must not lose the record
        yield from open_lines(path, errors="backslashreplace")
    except CutOffError:
        if not force:
            raise


class _CountedLines:
    """Lines, and how many of them are not blank, or have bytes that are no text."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.count = self.odd_lines = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if not line.isspace():
                self.count += 1
                if "\\x" in line and _NO_TEXT.search(line):
                    self.odd_lines += 1
            yield line


def _make_warnings(report: ReadingReport) -> tuple[str, ...]:
    """Return the report as a warning if too many records could not be used."""
    return (report.summary(),) if report.unused_share > SMALL_SHARE else ()


def history_name(path: Path | str) -> str:
    """Return the file's name without the extensions of format and compression."""
    return _SUFFIXES.sub("", Path(path).name)


def detect_format(text: str, where: str) -> str:
    """Return the name of the format of a text; InputError says what it is instead, if that is
    recognised."""
    return _detect_format(text[:200_000].splitlines(keepends=True)[:_HEAD], where, DETECTED)


def _detect_format(head: list[str], where: str, options: ReadingOptions) -> str:
    if options.columns:
        return "sacct"
    for number, line in enumerate(head):
        if line.strip() and not line.lstrip().startswith((";", "#")):
            name = _format_of(line, head[number:], head)
            if name:
                return name
            break
    foreign = describe_foreign("".join(head))
    if foreign:
        what, fix = foreign
        raise InputError(f"is {what}", where=where, fix=fix)
    raise InputError("unknown history format", where=where, fix=_UNDERSTOOD)


def _format_of(line: str, below: list[str], head: list[str]) -> str | None:
    """Return the format of a first line, with the lines from it on, and from the beginning."""
    name: str | None
    fields = line.split()
    is_table = re.search(r"[^\w\s\"]|\t", line) or (len(below) > 1 and is_padded(line, below[1]))
    if _PBS_RECORD.match(line):
        name = "pbs"
    elif line.lstrip()[0] in "[{" and is_json_jobs("".join(below)):
        name = "json"
    elif _LSF_RECORD.match(line) and any(item.startswith(JOB_FINISH) for item in below):
        name = "lsf"
    elif _SUBMIT.search(line) and is_table:
        name = "sacct"
    elif line.count(":") >= _GRID_ENGINE_COLONS:
        name = "gridengine"
    elif len(fields) >= _SWF_FIELDS and all(map(_is_number, fields[:_SWF_FIELDS])):
        name = "gwf" if len(fields) >= _GWF_FIELDS or head[0].startswith("#") else "swf"
    elif is_condor_ad(line) and any(_CONDOR_SUBMIT in item for item in below):
        name = "condor"
    elif len(_ISO.findall(line)) > 1 and _DELIMITER.search(line):
        name = "sacct"  # which asks for the names of its columns
    else:
        name = None
    return name


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
