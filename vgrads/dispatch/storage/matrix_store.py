"""The results of All-Pairs and Wavefront: one file, appended block by block, from which a run can
resume.

The file starts with its description; then follows a record for each block: its number, its values,
a checksum. A record is valid when it is complete; a record being written when a machine died is cut
off, and damaged blocks are computed again.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from io import UnsupportedOperation
from itertools import groupby
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import refuse_database
from vgrads.kernel.record_file import Expected, PackedFraming, RecordFile
from vgrads.kernel.units import format_count
from vgrads.workflows.generated.blocks import BlockGrid

_MAGIC = b"vgm1"
# records that are no blocks: no matrix has so many blocks that their numbers would be used
_ABOUT, _RUN, _GOAL = 2**32 - 1, 2**32 - 2, 2**32 - 3
_LONGEST_ABOUT = 1 << 20  # bytes; a longer file without a description is of somebody else


def _make_seed(number: int) -> int:
    # part of the checksum, so that values never count for another block
    return zlib.crc32(number.to_bytes(4, "little"))


_BLOCKS = PackedFraming(
    {_MAGIC: struct.Struct("<4sIII")},  # kind, number, length, checksum of number and values
    lambda fields: Expected(fields[2], fields[3], _make_seed(fields[1])),
)


def join_values(values: Sequence[bytes]) -> bytes:
    """Join values in a block's format: their lengths, four bytes each, then the values."""
    lengths = array("I", map(len, values))
    if sys.byteorder == "big":
        # the file is little-endian on every machine
        lengths.byteswap()
    return lengths.tobytes() + b"".join(values)


def split_values(body: bytes, count: int) -> list[bytes]:
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
        self._writer: RecordFile | None = None
        try:
            if write:
                # without a description only an existing file is opened
                mode = None if about is None else 0o666
                # nothing is cut off yet: the file may be of something
                # else, which must stay as it is
                self._writer = RecordFile(path, _BLOCKS, lock="refuse", mode=mode, mend=False)
            self._file = self._writer.file if self._writer else os.open(path, os.O_RDONLY)
        except BlockingIOError as error:
            raise InputError(
                "is being written by another run",
                where=str(path),
                fix="wait for it, or name another file with --matrix",
            ) from error
        except OSError as error:
            raise InputError(f"cannot be opened: {error.strerror}", where=str(path)) from error
        try:
            self._open(about)
        except BaseException:
            self.close()
            raise

    def _open(self, about: dict[str, Any] | None) -> None:
        self.run, self.count = "", 0
        self.goal: dict[str, Any] = {}
        header = _BLOCKS.read_at(self._file, 0)
        if header is None or header.fields[1] != _ABOUT:
            if self._writer is None or about is None or self._is_foreign():
                raise InputError(
                    "is not a matrix file, or its beginning is damaged", where=str(self.path)
                )
            self._writer.cut(0)  # its creation was interrupted
            self._append(self._packed(_ABOUT, json.dumps(about).encode()))
            header = _BLOCKS.read_at(self._file, 0)
        self.about = json.loads(header.body if header else b"{}")
        self.grid = BlockGrid(**self.about["grid"])
        self._at = array("q", [-1]) * self.grid.order.size
        whole = self._read(header.end if header else 0)
        if self._writer is not None:
            # cut only now that the file is known to be a matrix file
            self._writer.cut(whole)

    def _is_foreign(self) -> bool:
        """Return True for a file that is not an interrupted start of a matrix file."""
        first = os.pread(self._file, len(_MAGIC), 0)
        return not _MAGIC.startswith(first) or os.fstat(self._file).st_size > _LONGEST_ABOUT

    def _packed(self, number: int, body: bytes) -> bytes:
        checksum = zlib.crc32(body, _make_seed(number))
        return _BLOCKS.pack(_MAGIC, number, len(body), checksum, body=body)

    def _append(self, records: bytes) -> int:
        """Append records; return the offset of the first."""
        if self._writer is None:
            raise UnsupportedOperation("is open for reading")
        start = self._writer.size
        self._writer.append(records)
        return start

    def _read(self, at: int) -> int:
        """Find all blocks from here on; return the end of the last complete record. Complete
        records after a damaged place count."""
        whole = at
        for record in _BLOCKS.scan(self._file, at):
            number = record.fields[1]
            if number == _RUN:
                self.run = record.body.decode()
            elif number == _GOAL:
                self.goal = json.loads(record.body)
            elif number < len(self._at):
                self._take(number, record.start)
            whole = record.end
        return whole

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
        """Append blocks in the format of :func:`join_values`: they are on disk on return. Raise
        OSError where that fails, and then none of them is."""
        records = [(number, self._packed(number, body)) for number, body in blocks]
        at = self._append(b"".join(record for _, record in records))
        for number, record in records:
            self._take(number, at)
            at += len(record)

    def note_run(self, bag: str) -> None:
        """Record the bag that works on it from now on."""
        self._append(self._packed(_RUN, bag.encode()))
        self.run = bag

    def note_goal(self, goal: dict[str, Any]) -> None:
        """Record the goal of its runs from now on."""
        self._append(self._packed(_GOAL, json.dumps(goal).encode()))
        self.goal = goal

    def values(self, block: int) -> list[bytes]:
        """Return the values of a stored block. Raise InputError where it can no longer be read."""
        record = _BLOCKS.read_at(self._file, self._at[block])
        if record is None:
            raise InputError(f"block {block} cannot be read any more", where=str(self.path))
        return split_values(record.body, self.grid.count(block))

    def cells(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (row, column, value) of all stored cells, row by row; a stripe of blocks is in
        memory."""
        # blocks are numbered stripe by stripe, so nothing needs to be sorted
        here = (block for block in range(len(self._at)) if self.has(block))
        for _, stripe in groupby(here, lambda block: self.grid.area(block).top):
            for (row, col), value in merge(*map(self._placed, stripe)):
                yield row, col, value

    def _placed(self, block: int) -> Iterator[tuple[tuple[int, int], bytes]]:
        return zip(self.grid.inside(block), self.values(block), strict=True)

    def close(self) -> None:
        """Close the file."""
        if self._writer is None:
            os.close(self._file)
        else:
            self._writer.close()
