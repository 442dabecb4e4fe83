"""A dispatcher's journal: written ahead in groups, cut into segments, compacted in the background.

``seg-N.log``: groups of records, each with its length and checksum. ``image-N.bin``: the state at
the start of segment N. ``ends-N.bin``: the ends of attempts recorded in segment N, by bag, for
requests of results: all that is left of a segment when it is compacted.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import numpy as np

from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.records import END, Record, pack, packed_ends, unpack
from vgrads.dispatch.core.snapshot import (
    EARLIER_JOURNAL,
    pack_snapshot,
    snapshot_of,
    state_of,
    unpack_snapshot,
)
from vgrads.dispatch.core.state import State
from vgrads.kernel.errors import InputError, brief
from vgrads.kernel.files import append_durably, sync_folder, write_whole

_FRAME = struct.Struct("<4sII")
_MAGIC, _PACKED = b"vgj3", b"vgj4"
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
        numbers = _numbers(folder, "seg")
        self._number = numbers[-1] if numbers else 1
        self._file = os.open(self._segment(self._number), os.O_WRONLY | os.O_CREAT, 0o600)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        sync_folder(folder)

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
        if len(body) >= _WORTH and len(packed := zlib.compress(body, 1)) < len(body):
            magic, body = _PACKED, packed
        return _FRAME.pack(magic, len(body), zlib.crc32(body)) + body

    def write(self, group: bytes) -> None:
        """Write a group to disk. Raise OSError where that fails, and then none of it is there."""
        begun_s = time.monotonic()
        self._size = append_durably(self._file, self._size, group, self._durable)
        took_s = time.monotonic() - begun_s
        self.commit_s += (took_s - self.commit_s) * (_FRESH if self.commit_s else 1.0)

    @property
    def full(self) -> bool:
        """Return True where the segment is to be closed. Not while records are collected: the state
        contains them already, and a replay would apply them twice after its snapshot."""
        return self._size >= self._most and not self._group

    def roll(self, state: State) -> Roll:
        """Start a new segment with this state; the returned work must be carried out soon, in any
        thread."""
        self._number += 1
        os.close(self._file)
        self._file = os.open(self._segment(self._number), os.O_WRONLY | os.O_CREAT, 0o600)
        self._size = 0
        sync_folder(self.folder)  # data in an unnamed file is lost with its machine
        return Roll(self.folder, self._number, pack_snapshot(snapshot_of(state)), self._rolling)

    def close(self) -> None:
        """Close for writing."""
        os.close(self._file)

    def _segment(self, number: int) -> Path:
        return self.folder / f"seg-{number:06d}.log"


class Roll:
    """Work left after a new segment was started: store the state, compact the older segments."""

    def __init__(self, folder: Path, number: int, snapshot: bytes, alone: Lock) -> None:
        self._folder, self._number, self._snapshot, self._alone = folder, number, snapshot, alone

    def carry_out(self) -> None:
        """Do the work; any part of it may be repeated after a crash."""
        with self._alone:  # a slow one and the next could compact the same segment
            write_whole(self._folder / f"image-{self._number:06d}.bin", self._snapshot)
            for old in _numbers(self._folder, "seg"):
                if old < self._number:
                    compact(self._folder, old)
            for old in _numbers(self._folder, "image"):
                if old < self._number:
                    (self._folder / f"image-{old:06d}.bin").unlink(missing_ok=True)


def compact(folder: Path, number: int) -> None:
    """Reduce a closed segment to the ends of attempts."""
    segment = folder / f"seg-{number:06d}.log"
    by_bag: dict[int, list[bytes]] = {}
    for group in _groups(
        segment, last=False
    ):  # agents are answered concurrently: records stay packed
        for bag, ends in packed_ends(group):
            by_bag.setdefault(bag, []).append(ends)
    whole = {bag: b"".join(ends) for bag, ends in sorted(by_bag.items())}
    body = b"".join(
        _BLOCK.pack(bag, len(ends) // END.itemsize) + ends for bag, ends in whole.items()
    )
    write_whole(folder / f"ends-{number:06d}.bin", zlib.compress(body, 6))
    segment.unlink()


def look(folder: Path) -> State:
    """Return the state of a journal that another process may be writing: nothing is changed."""
    return read_state(folder, mend=False)


def read_state(folder: Path, mend: bool = True) -> State:
    """Return the state of a journal; a group that was being written when its manager died is cut
    off."""
    images = _numbers(folder, "image")
    first = images[-1] if images else 0
    state = State()
    if images:
        state = state_of(unpack_snapshot((folder / f"image-{first:06d}.bin").read_bytes()))
    segments = [number for number in _numbers(folder, "seg") if number >= first]
    for number in segments:
        path = folder / f"seg-{number:06d}.log"
        for record in read_segment(path, last=number == segments[-1], mend=mend):
            try:
                apply(state, record)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise InputError(
                    f"a record does not match the records before it: {brief(error)}",
                    where=str(path),
                ) from error
    return state


def read_segment(path: Path, last: bool, mend: bool = True) -> Iterator[Record]:
    """Return the records of a segment; ``last``: its end may be torn, and with ``mend`` is then cut
    off."""
    for group in _groups(path, last, mend):
        yield from unpack(group)


def _groups(path: Path, last: bool, mend: bool = True) -> Iterator[bytes]:
    body = path.read_bytes()
    at = 0
    while at < len(body):
        group = _group_at(body, at)
        if group is None:
            if body[at : at + len(_MAGIC)] in _EARLIER:
                raise InputError(EARLIER_JOURNAL, where=str(path), fix=_BEGIN_ANEW)
            if last and not _goes_on(body, at + 1):
                if mend:
                    os.truncate(path, at)
                return
            raise InputError(
                f"is damaged at byte {at}", where=str(path), fix="restore it from a backup"
            )
        at, records = group
        yield records


def _group_at(body: bytes, at: int) -> tuple[int, bytes] | None:
    """Return the end of the group that starts here, and its records; None where it is
    incomplete."""
    end = at + _FRAME.size
    if end > len(body):
        return None
    magic, length, check = _FRAME.unpack_from(body, at)
    group = body[end : end + length]
    if magic not in (_MAGIC, _PACKED) or len(group) < length or zlib.crc32(group) != check:
        return None
    return end + length, zlib.decompress(group) if magic == _PACKED else group


def records_in(group: bytes) -> Iterator[Record]:
    """Return the records of a group from :meth:`DispatchJournal.take`."""
    whole = _group_at(group, 0)
    yield from unpack(whole[1] if whole else b"")


def _goes_on(body: bytes, at: int) -> bool:
    """Return True where a complete group follows: each is on disk before the next, so the data
    before it is not torn."""
    while (at := body.find(_MAGIC[:-1], at)) >= 0:
        if _group_at(body, at) is not None:
            return True
        at += 1
    return False


class EndReader:
    """Reads the ends of a bag's attempts in order and incrementally, while the journal grows, is
    cut into segments and is compacted."""

    def __init__(self, folder: Path, bag: int) -> None:
        self._folder, self._bag = folder, bag
        self._number = self._at = self._read_count = 0

    def more(self) -> Iterator[np.ndarray]:
        """Return the ends since the last call, in arrays of
        :data:`vgrads.dispatch.core.records.END`."""
        while True:
            later = sorted({*_numbers(self._folder, "ends"), *_numbers(self._folder, "seg")})
            number = next((n for n in later if n >= self._number), None)
            if number is None:
                return
            if number != self._number:
                self._number, self._at, self._read_count = number, 0, 0
            whole = (self._folder / f"ends-{number:06d}.bin").exists() or number < later[-1]
            try:
                yield from self._of_segment()
            except FileNotFoundError:
                yield from self._of_compacted()
                whole = True
            if not whole:
                return
            self._number, self._at, self._read_count = number + 1, 0, 0

    def _of_segment(self) -> Iterator[np.ndarray]:
        """Return the ends of the complete groups of the current segment."""
        segments = []
        with (self._folder / f"seg-{self._number:06d}.log").open("rb") as file:
            file.seek(self._at)
            while len(head := file.read(_FRAME.size)) == _FRAME.size:
                whole = _group_at(head + file.read(_FRAME.unpack(head)[1]), 0)
                if whole is None:
                    break
                self._at += whole[0]
                segments += [ends for bag, ends in packed_ends(whole[1]) if bag == self._bag]
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


def _numbers(folder: Path, kind: str) -> list[int]:
    return sorted(
        int(p.stem.partition("-")[2]) for p in folder.glob(f"{kind}-*.*") if p.suffix != ".draft"
    )
