"""Files that agents send to their manager."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path


class IncomingOutput:
    """An output being received: it gets its name on disk when it is complete."""

    def __init__(self, folder: Path, digest: str, executable: bool = False) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder, self._digest = folder, digest
        self._draft = folder.with_name(f".{folder.name}.part")
        self._file = self._draft.open("wb")
        if executable:
            self._draft.chmod(self._draft.stat().st_mode | 0o111)
        self._sum = hashlib.sha256()
        self.problem = ""

    def write(self, data: bytes) -> None:
        """Write a piece."""
        try:
            self._sum.update(data)
            self._file.write(data)
        except OSError as error:
            self.problem = str(error)

    def done(self) -> None:
        """Finish a complete upload."""
        try:
            self._file.flush()
            # the content is on disk before the file gets its name
            os.fsync(self._file.fileno())
            self._file.close()
            if self._digest and self._sum.hexdigest() != self._digest:
                self.problem = "was changed during the transfer"
            if not self.problem:
                self._draft.replace(self.folder)
                return
        except OSError as error:
            self.problem = str(error)
        self.broken()

    def broken(self) -> None:
        """Discard an incomplete upload."""
        with suppress(OSError):
            self._file.close()
            self._draft.unlink()
