"""The results of All-Pairs and Wavefront: one file, appended block by block, from which a run can
resume.

The file starts with its description; then follows a record for each block: its number, its values,
a checksum. A record is valid when it is complete; a record being written when a machine died is cut
off, and damaged blocks are computed again.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import append_durably, refuse_database
from vgrads.kernel.units import format_count
from vgrads.workflows.generated.blocks import BlockGrid

_HEAD = struct.Struct("<4sIII")  # magic, number, bytes, checksum
_MAGIC = b"vgm1"
_ABOUT, _RUN, _GOAL = 2**32 - 1, 2**32 - 2, 2**32 - 3
_PIECE = 1 << 20


def joined(values: Sequence[bytes]) -> bytes:
    """Join values in a block's format: their lengths, four bytes each, then the values."""
    lengths = array("I", map(len, values))
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes() + b"".join(values)


def parted(body: bytes, count: int) -> list[bytes]:
    """Split the values of a block of this many cells. Raise InputError for invalid data."""
    if len(body) < 4 * count:
        raise InputError(
            f"has {format_count(len(body), 'byte')}, which are not {format_count(count, 'value')}",
            where="block",
        )
    lengths = array("I", body[: 4 * count])
    if sys.byteorder == "big":
        lengths.byteswap()
    if 4 * count + sum(lengths) != len(body):
        raise InputError(f"must have {format_count(count, 'value')}", where="block")
    cells, at = [], 4 * count
    for length in lengths:
        cells.append(body[at : at + length])
        at += length
    return cells


class MatrixStore:
    """A matrix file. Opened by one writer at a time; readers change nothing.

    ``about``: its description, plain values; ``grid``: its blocks; ``run``: the last bag that
    worked on it; ``goal``: the goal of its runs, plain values, empty without.
    """

    def __init__(
        self, path: Path, about: dict[str, Any] | None = None, write: bool = False
    ) -> None:
        """``about``: description of a new file, used where there is none. Raises InputError where
        it is not a matrix file, or is in use."""
        self.path = path
        refuse_database(path)
        flags = os.O_RDWR | (os.O_CREAT if about is not None else 0) if write else os.O_RDONLY
        try:
            self._file = os.open(path, flags, 0o666)
            if write:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise InputError(
                "is being written by another run",
                where=str(path),
                fix="wait for it, or name another file with --matrix",
            ) from error
        except OSError as error:
            raise InputError(f"cannot be opened: {error.strerror}", where=str(path)) from error
        try:
            self._open(about, write)
        except BaseException:
            os.close(self._file)
            raise

    def _open(self, about: dict[str, Any] | None, write: bool) -> None:
        self.run, self.count, self._size = "", 0, os.fstat(self._file).st_size
        self.goal: dict[str, Any] = {}
        header = self._record_at(0) if self._size else None
        if header is None or header[0] != _ABOUT:
            if not write or about is None or self._is_foreign():
                raise InputError(
                    "is not a matrix file, or its beginning is damaged", where=str(self.path)
                )
            os.ftruncate(self._file, 0)  # its creation was interrupted
            os.lseek(self._file, 0, os.SEEK_SET)
            self._size = append_durably(
                self._file, 0, self._packed(_ABOUT, json.dumps(about).encode())
            )
            header = self._record_at(0)
        self.about = json.loads(header[1] if header else b"{}")
        self.grid = BlockGrid(**self.about["grid"])
        self._at = array("q", [-1]) * self.grid.order.size
        whole = self._read(_HEAD.size + len(header[1] if header else b""))
        if write:
            os.ftruncate(self._file, whole)
            os.lseek(self._file, whole, os.SEEK_SET)
            self._size = whole

    def _is_foreign(self) -> bool:
        """Return True for a file that is not an interrupted start of a matrix file."""
        return not _MAGIC.startswith(os.pread(self._file, len(_MAGIC), 0)) or (self._size > _PIECE)

    def _packed(self, number: int, body: bytes) -> bytes:
        check = zlib.crc32(body, zlib.crc32(number.to_bytes(4, "little")))
        return _HEAD.pack(_MAGIC, number, len(body), check) + body

    def _record_at(self, at: int) -> tuple[int, bytes] | None:
        head = os.pread(self._file, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return None
        magic, number, length, check = _HEAD.unpack(head)
        if magic != _MAGIC or at + _HEAD.size + length > self._size:
            return None
        body = os.pread(self._file, length, at + _HEAD.size)
        if zlib.crc32(body, zlib.crc32(number.to_bytes(4, "little"))) != check:
            return None
        return number, body

    def _read(self, at: int) -> int:
        """Find all blocks from here on; return the end of the last complete record. Complete
        records after a damaged place count."""
        whole = at
        while at < self._size:
            record = self._record_at(at)
            if record is None:
                at = self._next_magic(at + 1)
                continue
            number, body = record
            if number == _RUN:
                self.run = body.decode()
            elif number == _GOAL:
                self.goal = json.loads(body)
            elif number < len(self._at):
                self._take(number, at)
            at += _HEAD.size + len(body)
            whole = at
        return whole

    def _next_magic(self, at: int) -> int:
        while at < self._size:
            offset = os.pread(self._file, _PIECE, at).find(_MAGIC)
            if offset >= 0:
                return at + offset
            at += _PIECE - len(_MAGIC)
        return self._size

    def _take(self, number: int, at: int) -> None:
        self.count += self._at[number] < 0
        self._at[number] = at

    @property
    def done(self) -> int:
        """Return the number of stored cells."""
        return sum(self.grid.count(block) for block in range(len(self._at)) if self.has(block))

    @property
    def whole(self) -> bool:
        """Return True when no block is missing."""
        return self.count == len(self._at)

    def has(self, block: int) -> bool:
        """Return True where a block's values are stored."""
        return self._at[block] >= 0

    def append(self, blocks: Iterable[tuple[int, bytes]]) -> None:
        """Append blocks in the format of :func:`joined`: they are on disk on return. Raise OSError
        where that fails, and then none of them is."""
        begins, parts, at = [], [], self._size
        for number, body in blocks:
            begins.append((number, at))
            parts.append(self._packed(number, body))
            at += len(parts[-1])
        self._size = append_durably(self._file, self._size, b"".join(parts))
        for number, begin in begins:
            self._take(number, begin)

    def note_run(self, bag: str) -> None:
        """Record the bag that works on it from now on."""
        self._size = append_durably(self._file, self._size, self._packed(_RUN, bag.encode()))
        self.run = bag

    def note_goal(self, goal: dict[str, Any]) -> None:
        """Record the goal of its runs from now on."""
        body = json.dumps(goal).encode()
        self._size = append_durably(self._file, self._size, self._packed(_GOAL, body))
        self.goal = goal

    def values(self, block: int) -> list[bytes]:
        """Return the values of a stored block. Raise InputError where it can no longer be read."""
        record = self._record_at(self._at[block])
        if record is None:
            raise InputError(f"block {block} cannot be read any more", where=str(self.path))
        return parted(record[1], self.grid.count(block))

    def cells(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (row, column, value) of all stored cells, row by row; a stripe of blocks is in
        memory."""
        here = (block for block in range(len(self._at)) if self.has(block))
        for _, stripe in groupby(here, lambda block: self.grid.area(block).top):
            for (row, col), value in merge(*map(self._placed, stripe)):
                yield row, col, value

    def _placed(self, block: int) -> Iterator[tuple[tuple[int, int], bytes]]:
        return zip(self.grid.inside(block), self.values(block), strict=True)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
