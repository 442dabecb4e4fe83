"""Sources of a bag's values and commands: lines of files, numbers of ranges, none of them held in
memory."""

from __future__ import annotations

import json
from array import array
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import read_user_file

_CHUNK = 16 * 2**20
_AHEAD = 1 << 14  # bytes
_NEWLINE = 10


def _add_ends(ends: array[int], part: bytes | memoryview, begin: int) -> int:
    """Append the offsets after each newline of a part, which begins at ``begin``; return the length
    of its complete lines."""
    lines = np.flatnonzero(np.frombuffer(part, np.uint8) == _NEWLINE).astype(np.uint64) + 1
    ends.frombytes((lines + begin).tobytes())
    return int(lines[-1]) if len(lines) else 0


class FileLines:
    """The lines of a file by number: only their offsets are in memory, eight bytes per line.

    Blank lines, comments (``# …``) and a byte order mark are no values: ``ignored`` lines are left
    out.
    """

    def __init__(self, path: Path, where: str, chunk: int = _CHUNK) -> None:
        try:
            self._body = read_user_file(path)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=where) from error
        self._starts = array("Q", [0] if self._body else [])
        for at in range(0, len(self._body), chunk):
            _add_ends(self._starts, memoryview(self._body)[at : at + chunk], at)
        # after the last newline nothing begins
        if self._starts and self._starts[-1] == len(self._body):
            self._starts.pop()
        self._check(where)
        self.ignored = 0
        self._ignore()

    def _check(self, where: str) -> None:
        """Check that the file is text; report the number of a line that is not."""
        if b"\0" in self._body:
            line = self._body[: self._body.index(b"\0")].count(b"\n") + 1
            raise InputError(f"line {line}: has a NUL character", where=where)
        try:
            self._body.decode()
        except UnicodeDecodeError as error:
            line = self._body[: error.start].count(b"\n") + 1
            raise InputError(f"line {line}: is not UTF-8 text", where=where) from error

    def _ignore(self) -> None:
        """Leave out what is no value."""
        if self._body[: len(BOM_UTF8)] == BOM_UTF8:
            self._starts[0] = len(BOM_UTF8)
        if not self._starts or self._starts[0] == len(self._body):
            self._starts = array("Q")
            return
        starts = np.frombuffer(self._starts, np.uint64)
        first = np.frombuffer(self._body, np.uint8)[starts]
        # few lines begin so: only these are decoded and looked at in full
        suspects = np.flatnonzero(np.isin(first, np.frombuffer(b"#\n\r \t\v\f", np.uint8)))
        ignored = [n for n in suspects.tolist() if self[n].strip()[:1] in ("", "#")]
        if ignored:
            self.ignored = len(ignored)
            self._starts = array("Q", np.delete(starts, ignored).tobytes())

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> str:
        begin = self._starts[index]
        end = self._body.find(b"\n", begin)
        return self._body[begin : end if end >= 0 else None].decode().rstrip("\r")


class GrowingCommands:
    """Commands of an open bag: a file to which lines are appended, each a command as a JSON
    string."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts, self._end = array("Q"), 0
        self._recent_at, self._recent = 0, b""  # the lines added last: they are read next
        self._latest = -1, ""  # the command that was read last: a task is read for its files too
        self._opened: BinaryIO | None = None
        self.look()

    @property
    def _file(self) -> BinaryIO:
        if self._opened is None:
            self._opened = self._path.open("rb")
        return self._opened

    def rest(self) -> None:
        """Close the file until the next read: a dispatcher may have many finished bags."""
        opened, self._opened = getattr(self, "_opened", None), None
        self._recent = b""
        if opened is not None:
            opened.close()

    def __del__(self) -> None:
        self.rest()

    def look(self) -> int:
        """Return the number of complete lines added since the last check."""
        self._file.seek(self._end)
        before = len(self._starts)
        while part := self._file.read(_CHUNK):
            self._recent_at, self._recent = self._end, part
            # the start of a line is known by the end of the line before it
            begins = array("Q", [self._end])
            whole = _add_ends(begins, part, self._end)
            self._starts.extend(begins[:-1])
            self._end += whole
            if not whole or len(part) < _CHUNK:
                break
            self._file.seek(self._end)
        return len(self._starts) - before

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> str:
        if index == self._latest[0]:
            return self._latest[1]
        self._latest = index, self._read(index)
        return self._latest[1]

    def _read(self, index: int) -> str:
        begin = self._starts[index]
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self._end
        if begin < self._recent_at or end - self._recent_at > len(self._recent):
            self._file.seek(begin)
            if index == self._latest[0] + 1:  # in order: lines after it too, but only whole ones
                end = max(end, min(self._end, begin + _AHEAD))
            self._recent_at, self._recent = begin, self._file.read(end - begin)
        at = begin - self._recent_at
        line = self._recent[at : self._recent.index(b"\n", at)]
        return str(json.loads(str(line, "utf-8", "surrogatepass")))


@dataclass(frozen=True)
class FileRows(Sequence[tuple[str, ...]]):
    """The lines of a file as the rows of an axis."""

    lines: FileLines

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: Any) -> Any:
        return (self.lines[index],)


@dataclass(frozen=True)
class RangeSteps(Sequence[tuple[str, ...]]):
    """The numbers of a range as the rows of an axis: none of them is stored."""

    start: int | float
    step: int | float
    many: int

    def __len__(self) -> int:
        return self.many

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.many:
            raise IndexError(index)
        return (plain(self.start + index * self.step),)


def plain(value: str | float | int) -> str:
    """Return a value as text for a command: whole numbers without a point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)
