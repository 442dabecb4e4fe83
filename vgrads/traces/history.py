"""Open a history: detect its compression and format, and read it as a :class:`JobLog`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.traces.build import is_padded
from vgrads.traces.gridengine import read_gridengine
from vgrads.traces.gwf import read_gwf
from vgrads.traces.pbs import read_pbs
from vgrads.traces.records import JobLog
from vgrads.traces.swf import read_swf


def _read_sacct(text: str, name: str) -> JobLog:
    from vgrads.traces.sacct import read_sacct  # noqa: PLC0415 late: the only format that needs pandas

    return read_sacct(text, name)


Reader = Callable[[str, str], JobLog]
FORMATS: dict[str, Reader] = {
    "swf": read_swf,
    "gwf": read_gwf,
    "sacct": _read_sacct,
    "pbs": read_pbs,
    "gridengine": read_gridengine,
}
_PBS_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];")
_TABLE_HEADER = re.compile(r"(?i)(^|[|,])\"?submit(_time)?\"?([|,]|\s*$)")
_SUFFIXES = re.compile(r"(\.(swf|gwf|sacct|txt|log|csv|gz|xz))+$", re.IGNORECASE)


def read_history(path: Path | str, format_name: str | None = None) -> JobLog:
    """Read the history in a file, plain, gzip or xz; InputError names the file and the problem."""
    path = Path(path)
    text = read_text(path, errors="replace")
    if not text.strip():
        raise InputError("the history is empty", where=str(path))
    chosen = format_name or detect_format(text, str(path))
    if chosen not in FORMATS:
        raise InputError(
            f"unknown format '{chosen}'", where=str(path), fix=f"known: {', '.join(FORMATS)}"
        )
    return FORMATS[chosen](text, str(path))


def history_name(path: Path | str) -> str:
    """Return the file's name without the extensions of format and compression."""
    return _SUFFIXES.sub("", Path(path).name)


def detect_format(text: str, where: str) -> str:
    """Return the name of the format of the first line that is not blank."""
    for line in text[:200_000].splitlines():
        if line.strip() and not line.lstrip().startswith((";", "#")):
            name = _format_of(line, text)
            if name:
                return name
            break
    raise InputError(
        "unknown history format",
        where=where,
        fix=f"choose one of {', '.join(FORMATS)} with --format",
    )


def _format_of(line: str, text: str) -> str | None:
    if _PBS_RECORD.match(line):
        return "pbs"
    if _TABLE_HEADER.search(line) or is_padded(text):
        return "sacct"
    if line.count(":") >= 35:
        return "gridengine"
    fields = line.split()
    if len(fields) >= 11 and all(_is_number(field) for field in fields[:11]):
        return "gwf" if len(fields) >= 25 or text.lstrip().startswith("#") else "swf"
    return None


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
