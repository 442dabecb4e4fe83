"""Records of the files of a bag's tasks, by which a later run of the bag sees whether they are
unchanged.

``inputs.ndjson``: name and digest of each input when it was first sent, and of each change.
``outputs.bin``: :data:`OUTPUT` for each output that was committed. A file without a record, because
the disk was full, is not reused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from vgrads.kernel.record_file import LINES, FixedFraming, Framing, RecordFile, read_json_lines

_INPUTS, _OUTPUTS = "inputs.ndjson", "outputs.bin"
OUTPUT = np.dtype([("task", "<u4"), ("at", "<u4"), ("size", "<u8"), ("changed_ns", "<u8")])
"""An output: its task, its position among the task's outputs, bytes, last change (ns since 1970).
"""
_PACKED = struct.Struct("<IIQQ")


class FileRecords:
    """Appends records to the folder of a bag."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: dict[str, str] | None = None
        self._files: dict[str, RecordFile] = {}

    def sent(self, name: str, digest: str) -> None:
        """Record that an input was sent."""
        if self._sent is None:
            self._sent = dict(_read_lines(self._folder))
        if self._sent.get(name) != digest:
            self._sent[name] = digest
            self._append(_INPUTS, LINES, f"{json.dumps([name, digest])}\n".encode())

    def committed(self, task: int, paths: Iterable[Path]) -> None:
        """Record the outputs of a task, in order."""
        body = b""
        for at, path in enumerate(paths):
            with suppress(OSError):
                stat = path.lstat()
                body += _PACKED.pack(task, at, stat.st_size, stat.st_mtime_ns)
        self._append(_OUTPUTS, FixedFraming(_PACKED.size), body)

    def _append(self, name: str, framing: Framing, body: bytes) -> None:
        with suppress(OSError):
            if name not in self._files:
                # not durable: a record that is lost only means that the file is not reused
                self._files[name] = RecordFile(self._folder / name, framing, durable=False)
            self._files[name].append(body)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def _read_lines(folder: Path) -> Iterable[tuple[str, str]]:
    with suppress(OSError):
        for value in read_json_lines(folder / _INPUTS):
            match value:
                case [str(name), str(digest)]:
                    yield name, digest


def read_sent_inputs(folder: Path) -> dict[str, str]:
    """Return the digests of the inputs that were sent; empty where the content changed during the
    work."""
    digests: dict[str, str] = {}
    for name, digest in _read_lines(folder):
        digests[name] = digest if digests.get(name, digest) == digest else ""
    return digests


def read_committed_outputs(folder: Path) -> np.ndarray:
    """Return the last record of each output, in the order of tasks and positions."""
    try:
        body = (folder / _OUTPUTS).read_bytes()
    except OSError:
        body = b""
    # the newest first, since np.unique returns the first position of each key
    records = np.frombuffer(body, OUTPUT, len(body) // OUTPUT.itemsize)[::-1]
    keys = records["task"].astype(np.uint64) << np.uint64(32) | records["at"]
    _, last = np.unique(keys, return_index=True)
    return records[last]
