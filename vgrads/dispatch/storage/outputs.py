"""Output of tasks, in one file per bag: appended, indexed by a single scan."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vgrads.exchange.messages import PrintedOutput
from vgrads.kernel.files import append_durably

_HEAD = struct.Struct("<4sIHIII")
_MAGIC = b"vgo1"


class Outputs:
    """Appends output of tasks. A file that ends within an entry is truncated there on opening."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = whole_length(path)
        os.ftruncate(self._file, self._size)
        os.lseek(self._file, 0, os.SEEK_END)

    def append(self, printed: Sequence[PrintedOutput]) -> None:
        """Append output; it is on disk on return. Raise OSError where that fails, and then none of
        it is there."""
        body = b"".join(map(_pack, printed))
        self._size = append_durably(self._file, self._size, body)

    def close(self) -> None:
        """Close for writing."""
        os.close(self._file)


def _pack(printed: PrintedOutput) -> bytes:
    out, err = printed.out.encode(errors="replace"), printed.err.encode(errors="replace")
    check = zlib.crc32(out + err)
    return _HEAD.pack(_MAGIC, printed.task, printed.attempt, len(out), len(err), check) + out + err


def whole_length(path: Path) -> int:
    """Return the length of a file up to the end of its last complete entry."""
    at, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while at + _HEAD.size <= size:
            file.seek(at)
            magic, _, _, out, err, _ = _HEAD.unpack(file.read(_HEAD.size))
            if magic != _MAGIC or at + _HEAD.size + out + err > size:
                break
            at += _HEAD.size + out + err
    return at


class OutputReader:
    """Reads output of tasks incrementally."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def more(self) -> Iterator[PrintedOutput]:
        """Return the output since the last call, in order."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                magic, task, attempt, out, err, check = _HEAD.unpack(head)
                body = file.read(out + err)
                if magic != _MAGIC or len(body) < out + err or zlib.crc32(body) != check:
                    return
                self._at += _HEAD.size + out + err
                yield PrintedOutput(0, task, attempt, body[:out].decode(), body[out:].decode())
