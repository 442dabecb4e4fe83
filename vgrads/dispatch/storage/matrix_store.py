"""The results of All-Pairs and Wavefront: one file, appended block by block, from which a run goes
on.

The file begins with what it is of; then comes a record for each block: its number, its values, a
checksum. A record counts when it is whole; what was being written when a machine died is cut off,
and what is damaged is computed again.
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
from vgrads.kernel.files import append_durably
from vgrads.workflows.generated.blocks import Grid

_HEAD = struct.Struct("<4sIII")  # magic, number, bytes, checksum
_MAGIC = b"vgm1"
_ABOUT, _RUN = 2**32 - 1, 2**32 - 2
_PIECE = 1 << 20


def joined(values: Sequence[bytes]) -> bytes:
    """Values as a block keeps them: their lengths, four bytes each, then themselves."""
    lengths = array("I", map(len, values))
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes() + b"".join(values)


def parted(body: bytes, count: int) -> list[bytes]:
    """The values of a block of so many cells; InputError for what is none."""
    if len(body) < 4 * count:
        raise InputError(f"has {len(body):,} bytes, which are not {count:,} values", where="block")
    lengths = array("I", body[: 4 * count])
    if sys.byteorder == "big":
        lengths.byteswap()
    if 4 * count + sum(lengths) != len(body):
        raise InputError(f"is not {count:,} values long", where="block")
    found, at = [], 4 * count
    for length in lengths:
        found.append(body[at : at + length])
        at += length
    return found


class MatrixStore:
    """A matrix file. Opened by one writer at a time; who only looks changes nothing.

    ``about``: what it is of, plain values; ``grid``: its blocks; ``run``: the last bag that worked
    on it.
    """

    def __init__(
        self, path: Path, about: dict[str, Any] | None = None, write: bool = False
    ) -> None:
        """``about``: begin the file with this where there is none. InputError where it is no such
        file, or is in use."""
        self.path = path
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
        found = self._record_at(0) if self._size else None
        if found is None or found[0] != _ABOUT:
            if not write or about is None or self._is_foreign():
                raise InputError(
                    "is no matrix file, or its beginning is damaged", where=str(self.path)
                )
            os.ftruncate(self._file, 0)  # it was being begun
            os.lseek(self._file, 0, os.SEEK_SET)
            self._size = append_durably(
                self._file, 0, self._packed(_ABOUT, json.dumps(about).encode())
            )
            found = self._record_at(0)
        self.about = json.loads(found[1] if found else b"{}")
        self.grid = Grid(**self.about["grid"])
        self._at = array("q", [-1]) * self.grid.order.size
        whole = self._read(_HEAD.size + len(found[1] if found else b""))
        if write:
            os.ftruncate(self._file, whole)
            os.lseek(self._file, whole, os.SEEK_SET)
            self._size = whole

    def _is_foreign(self) -> bool:
        """True for a file that is not a matrix that was being begun."""
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
        """Find all blocks from here on; the end of the last whole record. Behind a damaged place
        whole ones count."""
        whole = at
        while at < self._size:
            found = self._record_at(at)
            if found is None:
                at = self._next_magic(at + 1)
                continue
            number, body = found
            if number == _RUN:
                self.run = body.decode()
            elif number < len(self._at):
                self._take(number, at)
            at += _HEAD.size + len(body)
            whole = at
        return whole

    def _next_magic(self, at: int) -> int:
        while at < self._size:
            found = os.pread(self._file, _PIECE, at).find(_MAGIC)
            if found >= 0:
                return at + found
            at += _PIECE - len(_MAGIC)
        return self._size

    def _take(self, number: int, at: int) -> None:
        self.count += self._at[number] < 0
        self._at[number] = at

    @property
    def done(self) -> int:
        """How many cells are here."""
        return sum(self.grid.count(block) for block in range(len(self._at)) if self.has(block))

    @property
    def whole(self) -> bool:
        """True when no block is missing."""
        return self.count == len(self._at)

    def has(self, block: int) -> bool:
        """True where a block's values are here."""
        return self._at[block] >= 0

    def append(self, blocks: Iterable[tuple[int, bytes]]) -> None:
        """More blocks, as :func:`joined` gives them: on the disk when this returns. OSError, and
        then none of them is."""
        begins, parts, at = [], [], self._size
        for number, body in blocks:
            begins.append((number, at))
            parts.append(self._packed(number, body))
            at += len(parts[-1])
        self._size = append_durably(self._file, self._size, b"".join(parts))
        for number, begin in begins:
            self._take(number, begin)

    def note_run(self, bag: str) -> None:
        """A bag works on it from now on."""
        self._size = append_durably(self._file, self._size, self._packed(_RUN, bag.encode()))
        self.run = bag

    def values(self, block: int) -> list[bytes]:
        """The values of a block that is here; InputError where it cannot be read any more."""
        found = self._record_at(self._at[block])
        if found is None:
            raise InputError(f"block {block} cannot be read any more", where=str(self.path))
        return parted(found[1], self.grid.count(block))

    def cells(self) -> Iterator[tuple[int, int, bytes]]:
        """(row, column, value) of all cells that are here, row by row; a stripe of blocks is in
        memory."""
        here = (block for block in range(len(self._at)) if self.has(block))
        for _, stripe in groupby(here, lambda block: self.grid.area(block).top):
            for (row, col), value in merge(*map(self._placed, stripe)):
                yield row, col, value

    def _placed(self, block: int) -> Iterator[tuple[tuple[int, int], bytes]]:
        return zip(self.grid.inside(block), self.values(block), strict=True)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
