"""The file to which issued forecasts are appended before they are stored in the database.

An answer waits for one write of the operating system, not for a disk: what was written survives the
end of the process, not that of the machine. A line may be torn where the disk was full, so each
begins with a line break, and lines that cannot be read are skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vgrads.api.config import home, make_home
from vgrads.api.queues.issued import IssuedForecast
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
        lines = "".join(f"\n{json.dumps(document)}\n" for document in documents)
        with self._open() as file:
            if os.fstat(file).st_size < _MOST_BYTES:
                os.write(file, lines.encode())

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Open the file for appending, under a lock that :meth:`take` waits for."""
        while True:
            try:
                file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            except FileNotFoundError:
                make_home()
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
                if _is_at(file, self._path):
                    yield file
                    return
            finally:
                os.close(file)

    def take(self) -> list[Path]:
        """Move the forecasts aside; return the files that are to be stored and then removed, also
        those of a process that died before it removed them."""
        aside = self._path.with_name(f"{self._path.stem}.{secrets.token_hex(4)}.taken")
        with suppress(FileNotFoundError):
            self._path.rename(aside)
            file = os.open(aside, os.O_RDONLY)
            try:  # those who had opened it have written, or will open the next one
                fcntl.flock(file, fcntl.LOCK_EX)
            finally:
                os.close(file)
        return sorted(self._path.parent.glob(f"{self._path.stem}.*.taken"))

    @contextmanager
    def claimed(self, path: Path) -> Iterator[bool]:
        """Hold a file that was moved aside for a block; False where another process or thread has
        stored and removed it."""
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield _is_at(file, path)
        finally:
            os.close(file)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to take."""
        return not self._path.exists() and not any(
            self._path.parent.glob(f"{self._path.stem}.*.taken")
        )


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.fstat(file).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def read_documents(path: Path) -> Iterator[Json]:
    """Return the documents of a file, without torn lines."""
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict):
                    yield document
