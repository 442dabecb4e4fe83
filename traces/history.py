"""Open a history: find out its compression and format, and read it as a :class:`JobLog`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kernel.errors import InputError
from kernel.files import read_text
from traces.records import JobLog
from traces.swf import read_swf

Reader = Callable[[str, str], JobLog]
FORMATS: dict[str, Reader] = {"swf": read_swf}
_SUFFIXES = re.compile(r"(\.(swf|gwf|sacct|txt|log|csv|gz|xz))+$", re.IGNORECASE)


def read_history(path: Path | str, format_name: str | None = None) -> JobLog:
    """The history in a file, plain, gzip or xz; InputError names the file and what is wrong."""
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
    """The file's name without the endings of format and compression."""
    return _SUFFIXES.sub("", Path(path).name)


def detect_format(text: str, where: str) -> str:
    """Name of the format that the first lines are written in."""
    for line in text.splitlines()[:2000]:
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        fields = line.split()
        if len(fields) >= 11 and all(_is_number(field) for field in fields[:11]):
            return "swf"
        break
    raise InputError(
        "unknown history format", where=where, fix=f"known: {', '.join(FORMATS)}; see --format"
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
