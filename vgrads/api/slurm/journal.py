"""The journal of the jobs of a service: JSON lines, written before they take effect."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.api.slurm.table import JobTable
from vgrads.kernel.errors import InputError, brief
from vgrads.kernel.files import append_durably, replacing

_REWRITTEN = 10_000
"""More lines than twice the jobs and these, and the journal is written anew."""


def read_journal(path: Path) -> tuple[JobTable, int, int]:
    """Return what is stored as a table, with the number of lines and of bytes that are complete.
    Raise InputError for a damaged line."""
    table, at = JobTable(), 0
    body = path.read_bytes() if path.exists() else b""
    lines = body[: body.rfind(b"\n") + 1].splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            table.apply(json.loads(line))
        except Exception as error:  # whatever stands there instead of an event
            raise InputError(
                f"line {number}, from byte {at} on, is damaged: {brief(error)}",
                where=str(path),
                fix=(
                    "restore the file from a backup, or remove the line with: "
                    f"sed -i {number}d {shlex.quote(str(path))}; what it says of jobs is then lost"
                ),
            ) from error
        at += len(line)
    return table, len(lines), at


class JobJournal:
    """The file, open for appending, and the table that it gives."""

    def __init__(self, path: Path) -> None:
        """Raises InputError for a damaged line."""
        self.table, lines, size = read_journal(path)
        if path.exists():
            os.truncate(path, size)  # a line that a crash has left incomplete
        if lines > _REWRITTEN + 2 * len(self.table.records):
            with replacing(path) as file:
                for event in self.table.snapshot():
                    file.write(_line(event))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.lseek(self._file, 0, os.SEEK_END)

    def write(self, event: Mapping[str, Any], durable: bool = True) -> None:
        """Store an event and apply it. OSError if it cannot be stored; then nothing changes."""
        self._size = append_durably(self._file, self._size, _line(event), durable)
        self.table.apply(event)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
