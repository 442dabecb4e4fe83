"""Histories of queues: read once while their files do not change."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from vgrads.kernel.errors import InputError
from vgrads.traces.reading_options import DETECTED, ReadingOptions

if TYPE_CHECKING:
    from vgrads.traces.records import JobLog

Instant = float | datetime | None
"""An instant of a history: seconds of its log's clock, or a date; None: its end."""


@lru_cache(maxsize=64)
def _cached_log(path: str, _changed_ns: int, reading: ReadingOptions) -> JobLog:
    from vgrads.traces.history import read_history  # noqa: PLC0415 late: what was learned before needs none of it

    return read_history(path, reading)


def open_history(path: str | Path, reading: ReadingOptions = DETECTED) -> JobLog:
    """Open a history, read once while its file does not change."""
    file = Path(path)
    check_there(file)
    return _cached_log(str(file), file.stat().st_mtime_ns, reading)


def check_there(file: Path) -> None:
    """Raise InputError if there is no such file."""
    if not file.is_file():
        is_folder = file.is_dir()
        raise InputError(
            "is a folder, not a file" if is_folder else "no such file", where=str(file)
        )
