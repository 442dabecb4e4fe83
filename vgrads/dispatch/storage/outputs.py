"""Output of tasks, and small values of functions, in one file per bag: appended, indexed by a
single scan."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from vgrads.exchange.messages import PrintedOutput
from vgrads.kernel.files import append_durably

_HEAD = struct.Struct("<4sIHIII")
_MAGIC, _MAGIC_VALUE = b"vgo1", b"vgo2"
_LENGTH = struct.Struct("<I")
"""After the head of an entry with a value: its length."""


class Outputs:
    """Appends output of tasks. A file that ends within an entry is truncated there on opening."""

    def __init__(self, path: Path, durable: bool = True) -> None:
        self._path, self._durable = path, durable
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = whole_length(path)
        os.ftruncate(self._file, self._size)
        os.lseek(self._file, 0, os.SEEK_END)

    def append(self, printed: Sequence[PrintedOutput]) -> None:
        """Append output; it is on disk on return, if durable. Raise OSError where that fails, and
        then none of it is there."""
        body = b"".join(map(_pack, printed))
        self._size = append_durably(self._file, self._size, body, self._durable)

    def close(self) -> None:
        """Close for writing."""
        os.close(self._file)


def _pack(printed: PrintedOutput) -> bytes:
    out, err = printed.out.encode(errors="replace"), printed.err.encode(errors="replace")
    value = printed.value.encode()
    body, magic = out + err + value, _MAGIC_VALUE if value else _MAGIC
    which = (printed.task, printed.attempt)
    head = _HEAD.pack(magic, *which, len(out), len(err), zlib.crc32(body))
    return head + (_LENGTH.pack(len(value)) if value else b"") + body


def _read_entry(file: BinaryIO) -> tuple[int, PrintedOutput | None]:
    """Read the entry at this position: its length, and its content; (0, None) where it is
    incomplete."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return 0, None
    magic, task, attempt, out, err, check = _HEAD.unpack(head)
    length, value = _HEAD.size, 0
    if magic == _MAGIC_VALUE:
        more = file.read(_LENGTH.size)
        if len(more) < _LENGTH.size:
            return 0, None
        length, (value,) = length + _LENGTH.size, _LENGTH.unpack(more)
    body = file.read(out + err + value)
    intact = len(body) == out + err + value and zlib.crc32(body) == check
    if magic not in (_MAGIC, _MAGIC_VALUE) or not intact:
        return 0, None
    texts = body[:out].decode(), body[out : out + err].decode(), body[out + err :].decode()
    return length + len(body), PrintedOutput(0, task, attempt, *texts)


def whole_length(path: Path) -> int:
    """Return the length of a file up to the end of its last complete entry."""
    at = 0
    with path.open("rb") as file:
        while length := _read_entry(file)[0]:
            at += length
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
            while True:
                length, printed = _read_entry(file)
                if printed is None:
                    return
                self._at += length
                yield printed
