"""Wake-ups between processes of this machine, through named pipes: hints that there is news, which
is read from files. One that gets lost costs time only, since readers look at intervals too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class WakeupPipe:
    """A named pipe that becomes readable when :func:`wake` is called with its path."""

    def __init__(self, path: Path) -> None:
        """Make the pipe, readable for this user only; OSError where that fails."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.unlink()
        os.mkfifo(path, 0o600)
        self.path = path
        # also for writing: a pipe without writers would be readable all the time
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._descriptor

    def clear(self) -> None:
        """Forget the wake-ups so far."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, 4096)

    def close(self) -> None:
        """Remove the pipe."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)


def wake(path: Path) -> bool:
    """Wake the process that listens at a path; return False where none does."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with suppress(BlockingIOError):  # it has enough to wake up for
        os.write(descriptor, b"!")
    os.close(descriptor)
    return True


def wake_all(folder: Path) -> None:
    """Wake all processes that listen in a folder; pipes that nobody reads are removed."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 names suffice
    except OSError:
        return
    for name in names:
        if not wake(folder / name):
            (folder / name).unlink(missing_ok=True)
