"""The file to which issued forecasts are appended before they are stored in the database.

An answer waits for one write of the operating system, not for a disk: what was written survives the
end of the process, not that of the machine. Lines that cannot be read are skipped.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vgrads.api.config import home, make_home
from vgrads.api.queues.issued import IssuedForecast
from vgrads.kernel.record_file import LINES, RecordFile, read_json_lines
from vgrads.portal.records.reader import database_url

Json = dict[str, Any]
_MOST_BYTES = 512 * 2**20
"""Limit of the file where nothing moves it to a database; later forecasts are not recorded."""


class ForecastJournal:
    """The forecasts that wait for the database of an URL (default: that of the user)."""

    def __init__(self, url: str | None = None) -> None:
        name = hashlib.sha256((url or database_url()).encode()).hexdigest()[:12]
        self._path = home() / "forecasts" / f"{name}.jsonl"

    def append(self, forecasts: Iterable[IssuedForecast]) -> None:
        """Append forecasts. A full disk, or a home that cannot be written, costs no answer: then
        nothing is recorded."""
        with suppress(OSError):
            self.write([forecast.as_json() for forecast in forecasts])

    def write(self, documents: list[Json]) -> None:
        """Append documents. Raise OSError where that is not possible."""
        if not documents:
            return
        lines = "".join(f"{json.dumps(document)}\n" for document in documents)
        with self._open() as file:
            if file.size < _MOST_BYTES:
                file.append(lines.encode())

    def _open(self) -> RecordFile:
        """Open the file for appending, under a lock that :meth:`take` waits for."""
        try:
            return _open_locked(self._path, 0o600)
        except FileNotFoundError:
            make_home()
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            return _open_locked(self._path, 0o600)

    def take(self) -> list[Path]:
        """Move the forecasts aside; return the files that are to be stored and then removed, also
        those of a process that died before it removed them."""
        aside = self._path.with_name(f"{self._path.stem}.{secrets.token_hex(4)}.taken")
        with suppress(FileNotFoundError):
            self._path.rename(aside)
            with _open_locked(aside):  # who opened it before has written, or will open the next one
                pass
        return sorted(self._path.parent.glob(f"{self._path.stem}.*.taken"))

    @contextmanager
    def claimed(self, path: Path) -> Iterator[bool]:
        """Hold a file that was moved aside for a block; False where another process or thread has
        stored and removed it."""
        try:
            file = _open_locked(path)
        except FileNotFoundError:
            yield False
            return
        with file:
            yield True

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to take."""
        return not self._path.exists() and not any(
            self._path.parent.glob(f"{self._path.stem}.*.taken")
        )


def _open_locked(path: Path, mode: int | None = None) -> RecordFile:
    return RecordFile(path, LINES, durable=False, lock="wait", mode=mode)


def read_documents(path: Path) -> Iterator[Json]:
    """Return the documents of a file, without torn lines."""
    for document in read_json_lines(path):
        if isinstance(document, dict):
            yield document
