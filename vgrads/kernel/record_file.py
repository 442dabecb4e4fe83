"""Files to which records are appended: framing, torn ends, durability, locks, reading from an
offset. All journals on disk are such files; there is no other code that appends records.

What holds for each of them:

- A record is whole or it is not read. Whether it is whole follows from its bytes alone: a line from
  its line break, a packed record from its length and checksum, one of fixed size from its position.
- :meth:`RecordFile.append` returns once all of its records are in the file and, where the file is
  durable, on disk. Where it raises OSError, none of them is in the file.
- The end of a file may be torn, since a process or its machine can die while it writes. Opening it
  for appending cuts off what follows the last complete record; readers ignore that part and change
  nothing. A record is complete before the next is written, so damage that complete records follow
  is no torn end: it is never cut off. Readers see it as a gap between the offsets of two records.
- One process at a time appends. Either the file belongs to whoever holds another lock (that of a
  dispatcher's folder, the lease of a run), or ``lock`` states what to do while another has it open.
- Offsets of complete records never change, so a reader goes on where it stopped.

Standard output and other streams of bytes are no such files: they have no records that could be
torn. Programs that are sent to nodes as one file import nothing of ours; they read lines only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import sync_folder

_PIECE = 1 << 20
_MOST_MOVED = 100  # times that a file is moved away while its lock is waited for
Fields = tuple[Any, ...]


class FramedRecord(NamedTuple):
    """A complete record: its offsets, the fields of its head (of packed ones), its content."""

    start: int
    end: int
    fields: Fields
    body: bytes


class Framing(Protocol):
    """How a file is divided into records. ``file``: an open descriptor, which may be read."""

    def scan(self, file: int, start: int = 0) -> Iterator[FramedRecord]:
        """Yield the complete records from an offset at which one starts, in order."""

    def measure(self, file: int) -> int:
        """Return the offset behind the last complete record."""


class LineFraming:
    """A record is a line, without its line break."""

    def scan(self, file: int, start: int = 0) -> Iterator[FramedRecord]:
        """Yield the complete lines from an offset at which one starts."""
        at, rest = start, b""
        while part := os.pread(file, _PIECE, at + len(rest)):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                end = at + len(line) + 1
                yield FramedRecord(at, end, (), line)
                at = end

    def measure(self, file: int) -> int:
        """Return the offset behind the last line break."""
        end = os.fstat(file).st_size
        length = 1  # mostly the file ends with a line break
        while end:
            start = max(0, end - length)
            position = os.pread(file, end - start, start).rfind(b"\n")
            if position >= 0:
                return start + position + 1
            end, length = start, _PIECE
        return 0


class ListedLineFraming(LineFraming):
    """A record is a line break and a line, which need not end: what was torn spoils no other
    record, and nothing has to be cut off."""

    def measure(self, file: int) -> int:
        """Return the size of the file."""
        return os.fstat(file).st_size


class FixedFraming:
    """Records of one size. They have no checksum: whoever reads them must bear a wrong one."""

    def __init__(self, size: int) -> None:
        self._size = size

    def scan(self, file: int, start: int = 0) -> Iterator[FramedRecord]:
        """Yield the complete records from an offset at which one starts."""
        at = start
        while len(body := os.pread(file, self._size, at)) == self._size:
            yield FramedRecord(at, at + self._size, (), body)
            at += self._size

    def measure(self, file: int) -> int:
        """Return the largest multiple of the size that is in the file."""
        size = os.fstat(file).st_size
        return size - size % self._size


class Expected(NamedTuple):
    """What the head of a packed record says of its content. ``seed``: where its CRC-32 starts from,
    if the head is part of it."""

    length: int
    checksum: int
    seed: int = 0


class PackedFraming:
    """A record is a head, which starts with four bytes for its kind, and a content, whose length
    and CRC-32 follow from the head."""

    def __init__(
        self, heads: Mapping[bytes, struct.Struct], expect: Callable[[Fields], Expected]
    ) -> None:
        """``heads``: by their first bytes; ``expect``: computes the content from the fields."""
        self._heads, self._expect = heads, expect
        (self._mark,) = {kind[:3] for kind in heads}  # it finds what follows a damaged place
        self._longest = max(head.size for head in heads.values())

    def pack(self, *fields: Any, body: bytes) -> bytes:
        """Return a record; ``fields``: of its head, the first of which is its kind."""
        return self._heads[fields[0]].pack(*fields) + body

    def read_at(self, file: int, at: int) -> FramedRecord | None:
        """Return the record at this offset; None where none is complete there."""
        return self._read(_FilePart(file, 0), at)

    def scan(self, file: int, start: int = 0) -> Iterator[FramedRecord]:
        """Yield the complete records from an offset, also those after a damaged place."""
        window, at = _FilePart(file, _PIECE), start
        while at < window.size:
            record = self._read(window, at)
            if record is None:
                at = self._find(window, at + 1)
            else:
                yield record
                at = record.end

    def measure(self, file: int) -> int:
        """Return the offset behind the last complete record. Raise ValueError for a file of
        something else, which nobody may cut."""
        end = max((record.end for record in self.scan(file)), default=0)
        # zeros: a file may have grown before its data was written when its machine died
        first = os.pread(file, 4, 0)
        if not end and not any(kind.startswith(first.rstrip(b"\0")) for kind in self._heads):
            raise ValueError("it has other contents than expected")
        return end

    def _read(self, window: _FilePart, at: int) -> FramedRecord | None:
        part, offset = window.look(at, self._longest)
        head = self._heads.get(part[offset : offset + 4])
        if head is None or offset + head.size > len(part):
            return None
        fields = head.unpack_from(part, offset)
        length, checksum, seed = self._expect(fields)
        start = at + head.size
        end = start + length
        if end > window.size:  # a damaged length: the rest of the file need not be read
            return None
        part, offset = window.look(start, length)
        body = part[offset : offset + length]
        if len(body) < length or zlib.crc32(body, seed) != checksum:
            return None
        return FramedRecord(at, end, fields, body)

    def _find(self, window: _FilePart, at: int) -> int:
        """Return the next offset at which a record may start; the size where there is none."""
        # a mark may lie across two parts
        overlap = len(self._mark) - 1
        while at + overlap < window.size:
            part, offset = window.look(at, len(self._mark))
            position = part.find(self._mark, offset)
            if position >= 0:
                return at + position - offset
            if len(part) - offset <= overlap:  # it was cut while it was read
                break
            at += len(part) - offset - overlap
        return window.size


class _FilePart:
    """The part of a file that is being read; ``piece``: how much is read at once at least."""

    def __init__(self, file: int, piece: int) -> None:
        self.size, self._file, self._piece = os.fstat(file).st_size, file, piece
        self._at, self._part = 0, b""

    def look(self, at: int, length: int) -> tuple[bytes, int]:
        """Return a part of the file that has so many bytes from this offset on, fewer at the end of
        the file, and where in it they start."""
        offset = at - self._at
        is_last = self._at + len(self._part) >= self.size
        if offset < 0 or (offset + length > len(self._part) and not is_last):
            count = min(max(length, self._piece), self.size - at)
            self._at, self._part, offset = at, os.pread(self._file, count, at), 0
        return self._part, offset


LINES = LineFraming()
LISTED_LINES = ListedLineFraming()


class RecordFile:
    """A file of records, open for appending."""

    def __init__(
        self,
        path: Path,
        framing: Framing,
        *,
        durable: bool = True,
        lock: Literal["none", "wait", "refuse"] = "none",
        mode: int | None = 0o666,
        mend: bool = True,
    ) -> None:
        """``durable``: records outlive a crash of the machine, not only of this process; ``lock``:
        while another has it open, ``wait``, or ``refuse`` with BlockingIOError; ``mode``: of a new
        file, less the umask, None where it must exist; ``mend``: cut off a torn end now. OSError
        where it cannot be opened."""
        self._durable = durable
        self.file = _open(path, lock, mode)
        try:
            self.size = os.fstat(self.file).st_size
            if durable and not self.size:
                sync_folder(path.parent)  # what is in an unnamed file is lost with its machine
            if mend:
                self.cut(framing.measure(self.file))
        except ValueError as error:
            os.close(self.file)
            raise InputError(f"is not used: {error}", where=str(path)) from error
        except BaseException:
            os.close(self.file)
            raise

    def append(self, body: bytes, durable: bool = True) -> None:
        """Append complete records. OSError where that fails; then none of them is in the file.
        ``durable``: unless the file is not."""
        try:
            left = memoryview(body)
            while left:
                left = left[os.write(self.file, left) :]
            if durable and self._durable:
                os.fdatasync(self.file)
        except OSError:
            with suppress(OSError):  # of a device; the next who opens the file mends it
                os.ftruncate(self.file, self.size)
            raise
        self.size += len(body)

    def cut(self, size: int) -> None:
        """Cut off what follows an offset."""
        if size != self.size:
            os.ftruncate(self.file, size)
            self.size = size

    def close(self) -> None:
        """Close the file, and release its lock."""
        os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path, lock: Literal["none", "wait", "refuse"], mode: int | None) -> int:
    """Open a file for appending. One that was moved away while this process waited for its lock is
    not the file of this name any more: then the next one is opened."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (0 if mode is None else os.O_CREAT)
    for _ in range(_MOST_MOVED):
        file = os.open(path, flags, mode or 0)
        try:
            if lock == "none":
                return file
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if lock == "refuse" else 0))
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    raise OSError(errno.ESTALE, "is replaced each time that it is opened", str(path))


class AppendedRecords:
    """Reads a file of records incrementally, while another process appends to it or not."""

    def __init__(self, path: Path, framing: Framing) -> None:
        """``path``: need not exist yet."""
        self._path, self._framing = path, framing
        self.at = 0
        """Offset behind the last record that was returned; :meth:`more` goes on there."""

    def more(self) -> Iterator[FramedRecord]:
        """Yield the complete records since the last call. OSError where it cannot be read."""
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for record in self._framing.scan(file, self.at):
                self.at = record.end
                yield record
        finally:
            os.close(file)


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yield the JSON values of the lines of a file, without those that are torn or damaged. OSError
    where it cannot be read."""
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError):
                yield json.loads(line)
