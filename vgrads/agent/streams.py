"""What tasks print: files on the host's disk, of which the tails are told.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os

_MUCH = 64 << 20  # bytes of output on disk beyond which only the tail is kept


class Streams:
    """Pairs of files without a name, for standard output and error; used again by later tasks."""

    def __init__(self, folder: str) -> None:
        """``folder``: where they are made."""
        self._folder, self._made = folder, 0
        self._free: list[list[int]] = []

    @property
    def has_free(self) -> bool:
        """True where a pair is there that no task has."""
        return bool(self._free)

    def take(self) -> list[int]:
        """A pair, as descriptors; OSError where none can be made."""
        if self._free:
            return self._free.pop()
        pair = []
        for kind in ("out", "err"):
            self._made += 1
            path = os.path.join(self._folder, f"{kind}{self._made}")  # noqa: PTH118
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            try:
                pair.append(os.open(path, flags, 0o600))
            except OSError:
                self.close(pair)
                raise
            os.unlink(path)  # noqa: PTH108
        return pair

    def give_back(self, pair: list[int]) -> None:
        """Of a task of which nothing is left that might write there."""
        self._free.append(pair)

    def close(self, pair: list[int]) -> None:
        """Of a task of which something may still write there."""
        for file in pair:
            os.close(file)


def take_tail(file: int, most: int) -> str:
    """The last bytes, so many at most; the file is empty then."""
    size = os.lseek(file, 0, os.SEEK_END)
    if not size:
        return ""
    tail = os.pread(file, most, max(0, size - most))
    os.ftruncate(file, 0)
    return tail.decode("utf-8", "replace")


def cut(file: int, most: int) -> None:
    """A task that prints without end must not fill the disk: of what it printed so far only so many
    bytes are kept."""
    size = os.fstat(file).st_size
    if size > _MUCH:
        tail = os.pread(file, most, size - most)
        os.ftruncate(file, 0)
        os.write(file, tail)
