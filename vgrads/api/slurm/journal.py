"""The journal of the jobs of a service: JSON lines, written before they take effect."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.api.slurm.table import JobTable
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import append_durably, replacing

_REWRITTEN = 10_000
"""More lines than twice the jobs and these, and the journal is written anew."""


class JobJournal:
    """The file, open for appending, and the table that it gives."""

    def __init__(self, path: Path) -> None:
        self._path, self.table = path, JobTable()
        lines = self._read()
        if lines > _REWRITTEN + 2 * len(self.table.records):
            with replacing(path) as file:
                for event in self.table.snapshot():
                    file.write(_line(event))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.lseek(self._file, 0, os.SEEK_END)

    def _read(self) -> int:
        """Fold what is stored; cut off a line that a crash has left incomplete."""
        try:
            body = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        whole = body[: body.rfind(b"\n") + 1]
        if len(whole) < len(body):
            os.truncate(self._path, len(whole))
        lines = whole.splitlines()
        for number, line in enumerate(lines, 1):
            try:
                self.table.apply(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"line {number} is damaged: {error!r}", where=str(self._path)
                ) from error
        return len(lines)

    def write(self, event: Mapping[str, Any], durable: bool = True) -> None:
        """Store an event and apply it. OSError if it cannot be stored; then nothing changes."""
        self._size = append_durably(self._file, self._size, _line(event), durable)
        self.table.apply(event)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
