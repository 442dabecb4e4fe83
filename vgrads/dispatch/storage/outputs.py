"""Output of tasks, and small values of functions, in one file per bag: appended, indexed by a
single scan."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vgrads.exchange.messages import PrintedOutput
from vgrads.kernel.record_file import (
    AppendedRecords,
    Expected,
    Fields,
    FramedRecord,
    PackedFraming,
    RecordFile,
)

_PRINTED, _WITH_VALUE = b"vgo1", b"vgo2"


def _expect(fields: Fields) -> Expected:
    value = fields[6] if len(fields) > 6 else 0
    return Expected(fields[3] + fields[4] + value, fields[5])


_ENTRIES = PackedFraming(
    # kind, task, attempt, length of standard output, of standard error, checksum, length of value
    {_PRINTED: struct.Struct("<4sIHIII"), _WITH_VALUE: struct.Struct("<4sIHIIII")},
    _expect,
)


class Outputs:
    """Appends output of tasks."""

    def __init__(self, path: Path, durable: bool = True) -> None:
        self._file = RecordFile(path, _ENTRIES, durable=durable, mode=0o600)

    def append(self, printed: Sequence[PrintedOutput]) -> None:
        """Append output; it is on disk on return, if durable. Raise OSError where that fails, and
        then none of it is there."""
        self._file.append(b"".join(map(_pack, printed)))

    def close(self) -> None:
        """Close for writing."""
        self._file.close()


def _pack(printed: PrintedOutput) -> bytes:
    # JSON of an agent may contain lone surrogates, which UTF-8 cannot encode
    out, err = printed.out.encode(errors="replace"), printed.err.encode(errors="replace")
    value = printed.value.encode()
    body = out + err + value
    fields = (printed.task, printed.attempt, len(out), len(err), zlib.crc32(body))
    if value:
        return _ENTRIES.pack(_WITH_VALUE, *fields, len(value), body=body)
    return _ENTRIES.pack(_PRINTED, *fields, body=body)


class OutputReader:
    """Reads output of tasks incrementally."""

    def __init__(self, path: Path) -> None:
        self._path, self._entries = path, AppendedRecords(path, _ENTRIES)

    def more(self) -> Iterator[PrintedOutput]:
        """Return the output since the last call, in order."""
        if self._path.exists():
            yield from map(_unpack, self._entries.more())


def _unpack(entry: FramedRecord) -> PrintedOutput:
    _, task, attempt, out, err, *_ = entry.fields
    body, both = entry.body, out + err
    texts = body[:out].decode(), body[out:both].decode(), body[both:].decode()
    return PrintedOutput(0, task, attempt, *texts)
