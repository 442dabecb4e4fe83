"""A dispatcher's journal: written ahead in groups, cut into segments, compacted in the background.

``seg-N.log``: groups of records, each with its length and checksum. ``image-N.bin``: the state at
the start of segment N. ``ends-N.bin``: the ends of attempts recorded in segment N, by bag, for
requests of results: all that is left of a segment when it is compacted.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import NoReturn

import numpy as np

from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.records import END, Record, pack, packed_ends, unpack
from vgrads.dispatch.core.snapshot import (
    EARLIER_JOURNAL,
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.state import State
from vgrads.kernel.errors import InputError, brief
from vgrads.kernel.files import write_whole
from vgrads.kernel.record_file import (
    AppendedRecords,
    Expected,
    FramedRecord,
    PackedFraming,
    RecordFile,
)

_HEAD = struct.Struct("<4sII")  # kind, length, checksum
_MAGIC, _PACKED = b"vgj3", b"vgj4"
_GROUPS = PackedFraming(
    {_MAGIC: _HEAD, _PACKED: _HEAD}, lambda fields: Expected(fields[1], fields[2])
)
_EARLIER = b"vgj1", b"vgj2"  # of versions that were never published
_WORTH = 256  # bytes from which a group is compressed
_BLOCK = struct.Struct("<II")
_FRESH = 0.05
_BEGIN_ANEW = "choose a new folder, or move the old one away"
SEGMENT_BYTES = 32 * 2**20
"""Size at which a segment is closed, in bytes."""


class DispatchJournal:
    """Appends groups of records. One thread adds, one at a time writes.

    Nothing is durable before :meth:`write` has returned: then the group is on disk.
    """

    def __init__(
        self, folder: Path, segment_bytes: int = SEGMENT_BYTES, durable: bool = True
    ) -> None:
        """``durable``: groups outlive a crash of the machine, not only of this process."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._most, self._durable = folder, segment_bytes, durable
        self._group: list[bytes] = []
        self._rolling = Lock()
        self.commit_s = 0.0  # time to write a group to disk: aged mean
        numbers = _list_numbers(folder, "seg")
        self._number = numbers[-1] if numbers else 1
        self._file = self._open_segment(self._number)

    def add(self, record: Record) -> None:
        """Add a record to the next group."""
        self._group.append(pack(record))

    def take(self) -> bytes:
        """Return the collected group, ready to write; empty where there is none."""
        if not self._group:
            return b""
        body = b"".join(self._group)
        self._group = []
        magic = _MAGIC
        # the fastest level: agents wait until the group is on disk
        if len(body) >= _WORTH and len(packed := zlib.compress(body, 1)) < len(body):
            magic, body = _PACKED, packed
        return _GROUPS.pack(magic, len(body), zlib.crc32(body), body=body)

    def write(self, group: bytes) -> None:
        """Write a group to disk. Raise OSError where that fails, and then none of it is there."""
        begun_s = time.monotonic()
        self._file.append(group)
        took_s = time.monotonic() - begun_s
        self.commit_s += (took_s - self.commit_s) * (_FRESH if self.commit_s else 1.0)

    @property
    def full(self) -> bool:
        """Return True where the segment is to be closed. Not while records are collected: the state
        contains them already, and a replay would apply them twice after its snapshot."""
        return self._file.size >= self._most and not self._group

    def roll(self, state: State) -> Roll:
        """Start a new segment with this state; the returned work must be carried out soon, in any
        thread."""
        # opened before the old one is closed: where that fails, the journal is as it was
        following = self._open_segment(self._number + 1)
        self._file.close()
        self._number, self._file = self._number + 1, following
        return Roll(self.folder, self._number, pack_snapshot(take_snapshot(state)), self._rolling)

    def close(self) -> None:
        """Close for writing."""
        self._file.close()

    def _open_segment(self, number: int) -> RecordFile:
        path = self.folder / f"seg-{number:06d}.log"
        return RecordFile(path, _GROUPS, durable=self._durable, mode=0o600)


class Roll:
    """Work left after a new segment was started: store the state, compact the older segments."""

    def __init__(self, folder: Path, number: int, snapshot: bytes, alone: Lock) -> None:
        self._folder, self._number, self._snapshot, self._alone = folder, number, snapshot, alone

    def carry_out(self) -> None:
        """Do the work; any part of it may be repeated after a crash."""
        with self._alone:  # a slow one and the next could compact the same segment
            # the state first: until it is on disk, a restart needs the older segments
            write_whole(self._folder / f"image-{self._number:06d}.bin", self._snapshot)
            # also those that an earlier roll left when it was interrupted
            for old in _list_numbers(self._folder, "seg"):
                if old < self._number:
                    compact(self._folder, old)
            for old in _list_numbers(self._folder, "image"):
                if old < self._number:
                    (self._folder / f"image-{old:06d}.bin").unlink(missing_ok=True)


def compact(folder: Path, number: int) -> None:
    """Reduce a closed segment to the ends of attempts."""
    segment = folder / f"seg-{number:06d}.log"
    by_bag: dict[int, list[bytes]] = {}
    for group in _read_groups(
        segment, last=False
    ):  # agents are answered concurrently: records stay packed
        for bag, ends in packed_ends(group):
            by_bag.setdefault(bag, []).append(ends)
    whole = {bag: b"".join(ends) for bag, ends in sorted(by_bag.items())}
    body = b"".join(
        _BLOCK.pack(bag, len(ends) // END.itemsize) + ends for bag, ends in whole.items()
    )
    # before the segment is removed: a reader that does not find the one finds the other
    write_whole(folder / f"ends-{number:06d}.bin", zlib.compress(body, 6))
    segment.unlink()


def read_state(folder: Path) -> State:
    """Return the state of a journal, which another process may be writing: nothing is changed. A
    group that was being written when its manager died is ignored."""
    images = _list_numbers(folder, "image")
    # an image gets its name when it is whole, so the newest one can be relied on
    first = images[-1] if images else 0
    state = State()
    if images:
        state = restore_state(unpack_snapshot((folder / f"image-{first:06d}.bin").read_bytes()))
    segments = [number for number in _list_numbers(folder, "seg") if number >= first]
    for number in segments:
        path = folder / f"seg-{number:06d}.log"
        for record in read_segment(path, last=number == segments[-1]):
            try:
                apply(state, record)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise InputError(
                    f"a record does not match the records before it: {brief(error)}",
                    where=str(path),
                ) from error
    return state


def read_segment(path: Path, last: bool) -> Iterator[Record]:
    """Return the records of a segment; ``last``: its end may be torn."""
    for group in _read_groups(path, last):
        yield from unpack(group)


def _read_groups(path: Path, last: bool) -> Iterator[bytes]:
    end = 0
    for group in AppendedRecords(path, _GROUPS).more():
        if group.start > end:
            _refuse(path, end)
        end = group.end
        yield _decode_group(group)
    with path.open("rb") as file:
        file.seek(end)
        # incomplete data at the end is a torn write in the last segment, and damage in any other
        rest = file.read(len(_MAGIC))
    if rest in _EARLIER or (rest and not last):
        _refuse(path, end)


def _refuse(path: Path, at: int) -> NoReturn:
    with path.open("rb") as file:
        file.seek(at)
        if file.read(len(_MAGIC)) in _EARLIER:
            raise InputError(EARLIER_JOURNAL, where=str(path), fix=_BEGIN_ANEW)
    raise InputError(f"is damaged at byte {at}", where=str(path), fix="restore it from a backup")


def _decode_group(group: FramedRecord) -> bytes:
    return zlib.decompress(group.body) if group.fields[0] == _PACKED else group.body


def list_records(group: bytes) -> Iterator[Record]:
    """Return the records of a group from :meth:`DispatchJournal.take`."""
    if group:
        kind, body = group[: len(_MAGIC)], group[_HEAD.size :]
        yield from unpack(zlib.decompress(body) if kind == _PACKED else body)


class EndReader:
    """Reads the ends of a bag's attempts in order and incrementally, while the journal grows, is
    cut into segments and is compacted."""

    def __init__(self, folder: Path, bag: int) -> None:
        self._folder, self._bag = folder, bag
        self._go_to(0)

    def _go_to(self, number: int) -> None:
        """Go on at the start of a segment."""
        self._number, self._read_count = number, 0
        self._segment = AppendedRecords(self._folder / f"seg-{number:06d}.log", _GROUPS)

    def more(self) -> Iterator[np.ndarray]:
        """Return the ends since the last call, in arrays of
        :data:`vgrads.dispatch.core.records.END`."""
        while True:
            # both kinds: while a segment is compacted, it is there as either or as both
            later = sorted(
                {*_list_numbers(self._folder, "ends"), *_list_numbers(self._folder, "seg")}
            )
            number = next((n for n in later if n >= self._number), None)
            if number is None:
                return
            if number != self._number:
                self._go_to(number)
            # computed before it is read: a segment that was closed only
            # afterwards may have grown since
            whole = (self._folder / f"ends-{number:06d}.bin").exists() or number < later[-1]
            try:
                yield from self._of_segment()
            except FileNotFoundError:
                # it was compacted after it was listed; the ends that were read from it are skipped
                yield from self._of_compacted()
                whole = True
            if not whole:
                return
            self._go_to(number + 1)

    def _of_segment(self) -> Iterator[np.ndarray]:
        """Return the ends of the complete groups of the current segment."""
        segments = []
        for group in self._segment.more():
            records = packed_ends(_decode_group(group))
            segments += [ends for bag, ends in records if bag == self._bag]
        if segments:
            ends = np.frombuffer(b"".join(segments), END)
            self._read_count += len(ends)
            yield ends

    def _of_compacted(self) -> Iterator[np.ndarray]:
        body = zlib.decompress((self._folder / f"ends-{self._number:06d}.bin").read_bytes())
        at = 0
        while at < len(body):
            of, count = _BLOCK.unpack_from(body, at)
            at += _BLOCK.size
            if of == self._bag and count > self._read_count:
                yield np.frombuffer(body, END, count, at)[self._read_count :]
            at += count * END.itemsize


def read_ends(folder: Path, bag: int) -> Iterator[np.ndarray]:
    """Return the ends of a bag's attempts in order, in arrays of
    :data:`vgrads.dispatch.core.records.END`."""
    return EndReader(folder, bag).more()


def _list_numbers(folder: Path, kind: str) -> list[int]:
    return sorted(
        int(p.stem.partition("-")[2]) for p in folder.glob(f"{kind}-*.*") if p.suffix != ".draft"
    )
