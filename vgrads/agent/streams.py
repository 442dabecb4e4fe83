"""Output of tasks: files on the node's disk, whose tails are reported.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os

_MUCH = 64 << 20  # bytes of output on disk; beyond it only the tail is kept


class Streams:
    """Pairs of unnamed files for standard output and error; reused by later tasks."""

    def __init__(self, folder: str) -> None:
        """``folder``: where the files are created."""
        self.folder, self._created = folder, 0
        self._free: list[list[int]] = []

    @property
    def has_free(self) -> bool:
        """Return True where an unused pair exists."""
        return bool(self._free)

    def take(self, account: int = 0) -> list[int]:
        """Return a pair as descriptors; ``account``: whose they are, if not this process's. Raise
        OSError where none can be created."""
        pair = self._free.pop() if self._free else self._create()
        if account:  # which may open them again, as /dev/stdout
            for file in pair:
                os.fchown(file, account, account)
        return pair

    def _create(self) -> list[int]:
        pair = []
        for kind in ("out", "err"):
            self._created += 1
            path = os.path.join(self.folder, f"{kind}{self._created}")  # noqa: PTH118
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            try:
                pair.append(os.open(path, flags, 0o600))
            except OSError:
                self.close(pair)
                raise
            os.unlink(path)  # noqa: PTH108
        return pair

    def give_back(self, pair: list[int]) -> None:
        """Return a pair for reuse, after no process of its task can write to it."""
        self._free.append(pair)

    def close(self, pair: list[int]) -> None:
        """Close a pair to which processes of its task may still write."""
        for file in pair:
            os.close(file)


def take_tail(file: int, most: int) -> str:
    """Return the last bytes, at most this many, and empty the file."""
    size = os.lseek(file, 0, os.SEEK_END)
    if not size:
        return ""
    tail = os.pread(file, most, max(0, size - most))
    os.ftruncate(file, 0)
    return tail.decode("utf-8", "replace")


def read_lines(file: int, position: int, most: int) -> tuple[str, int]:
    """Return the complete lines after a position, at most this many bytes, and the new position."""
    position = min(position, os.fstat(file).st_size)
    body = os.pread(file, most, position)
    if len(body) < most:
        body = body[: body.rfind(b"\n") + 1]
    return body.decode("utf-8", "replace"), position + len(body)


def cut(file: int, most: int) -> None:
    """Limit the file of a task that prints without end to its last bytes, so that it does not fill
    the disk."""
    size = os.fstat(file).st_size
    if size > _MUCH:
        tail = os.pread(file, most, size - most)
        os.ftruncate(file, 0)
        os.write(file, tail)
