"""The folder of a run's results: one run at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vgrads.kernel.errors import InputError


@contextmanager
def exclusive(folder: Path | None, where: str) -> Iterator[None]:
    """Lock a folder that the user chose; InputError if another run uses it. None: nothing to
    lock."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # a lock on the folder itself leaves no file in it
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"cannot be used: {error.strerror}", where=where) from error
    try:
        with suppress(OSError):  # of file systems without such locks
            _lock(descriptor, where)
        yield
    finally:
        # this releases the lock
        os.close(descriptor)


def _lock(descriptor: int, where: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError("another run uses it", where=where, fix="choose another folder") from error
