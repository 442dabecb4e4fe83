"""The journal of the jobs of a service: JSON lines, written before they take effect."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.api.slurm.table import JobTable
from vgrads.kernel.errors import InputError, brief
from vgrads.kernel.files import replace_file
from vgrads.kernel.record_file import LINES, AppendedRecords, RecordFile

_REWRITTEN = 10_000
"""More lines than twice the jobs and these, and the journal is written anew."""


def read_journal(path: Path) -> tuple[JobTable, int]:
    """Return what is stored as a table, with the number of complete lines. Raise InputError for a
    damaged line."""
    table, number = JobTable(), 0
    if not path.exists():
        return table, number
    for number, line in enumerate(AppendedRecords(path, LINES).more(), 1):
        try:
            table.apply(json.loads(line.body))
        except Exception as error:  # whatever stands there instead of an event
            raise InputError(
                f"line {number}, from byte {line.start} on, is damaged: {brief(error)}",
                where=str(path),
                fix=(
                    "restore the file from a backup, or remove the line with: "
                    f"sed -i {number}d {shlex.quote(str(path))}; what it says of jobs is then lost"
                ),
            ) from error
    return table, number


class JobJournal:
    """The file, open for appending, and the table that it gives."""

    def __init__(self, path: Path) -> None:
        """Raises InputError for a damaged line."""
        self.table, lines = read_journal(path)
        if lines > _REWRITTEN + 2 * len(self.table.records):
            with replace_file(path) as file:
                for event in self.table.snapshot():
                    file.write(_format_line(event))
        self._file = RecordFile(path, LINES, mode=0o600)

    def write(self, event: Mapping[str, Any], durable: bool = True) -> None:
        """Store an event and apply it. OSError if it cannot be stored; then nothing changes."""
        self._file.append(_format_line(event), durable)
        self.table.apply(event)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _format_line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
