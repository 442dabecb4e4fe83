"""What a dispatcher's journal tells: a record for each bundle of tasks, packed.

A record is a kind, its length and its body. What happens to tasks comes in arrays; what is rare is
JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vgrads.dispatch.core.events import Event, OfBag, as_json, from_json
from vgrads.kernel.errors import InputError

_HEAD = struct.Struct("<BI")
_TASKS = struct.Struct("<II")
_END = struct.Struct("<IIIhHfeeeee")
END = np.dtype(
    [
        ("task", "<u4"),
        ("host", "<u4"),
        ("at_cs", "<u4"),
        ("code", "<i2"),
        ("attempt", "<u2"),
        ("ran_s", "<f4"),
        ("waited_s", "<f2"),
        ("fetched_s", "<f2"),
        ("sent_s", "<f2"),
        ("cpu_s", "<f2"),
        ("peak_gib", "<f2"),
    ]
)
"""How an attempt ended, 30 bytes: ``at_cs`` in hundredths of a second since the dispatcher began
(497 days); ``code``: exit code, minus the signal, or :data:`COULD_NOT`."""
COULD_NOT = -32768
"""Instead of an exit code: the host could not run the task."""
_ENDED, _EVENT = 4, 5  # kinds of records: of ends, of what is rare
_HALF = 65504.0  # the largest number of two bytes (IEEE 754 binary16)


class End(NamedTuple):
    """How an attempt ended. Times in seconds; see :data:`END`."""

    task: int
    host: int
    at_s: float
    code: int
    attempt: int
    ran_s: float = 0.0
    waited_s: float = 0.0
    fetched_s: float = 0.0
    sent_s: float = 0.0
    cpu_s: float = 0.0
    peak_gib: float = 0.0

    def pack(self) -> bytes:
        """As 30 bytes."""
        return _END.pack(
            self.task,
            self.host,
            min(int(self.at_s * 100.0), 2**32 - 1),
            self.code,
            self.attempt,
            self.ran_s,
            min(self.waited_s, _HALF),
            min(self.fetched_s, _HALF),
            min(self.sent_s, _HALF),
            min(self.cpu_s, _HALF),
            min(self.peak_gib, _HALF),
        )


@dataclass(frozen=True, slots=True)
class OfTasks:
    """Something that befell tasks of a bag, and the host that it was about."""

    host: int
    bag: int
    tasks: Sequence[int]


class Given(OfTasks):
    """A host was given tasks, each in a new attempt."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """Attempts that a host told the end of."""

    bag: int
    ends: Sequence[End]


class Back(OfTasks):
    """Tasks that a host gave back, or never got: they wait again, nobody is to blame."""

    __slots__ = ()


class Kept(OfTasks):
    """Tasks that a host has although they were taken from it: it goes on with them."""

    __slots__ = ()


class Copied(OfTasks):
    """A host was given tasks that other hosts have too, each in a new attempt."""

    __slots__ = ()


class Late(OfTasks):
    """Tasks that were taken from a host because their time was over: they wait again, and count
    against it."""

    __slots__ = ()


Record = OfTasks | Ended | Event


def bag_of(record: Record) -> int:
    """The number of the bag that a record is about; -1 where it is about none, or about several."""
    if isinstance(record, OfTasks | Ended):
        return record.bag
    return record.number if isinstance(record, OfBag) else -1


_OF_TASKS: dict[int, type[OfTasks]] = {
    1: Given,
    2: Back,
    3: Kept,
    6: Copied,
    7: Late,
}
_KINDS = {of: kind for kind, of in _OF_TASKS.items()}


def pack(record: Record) -> bytes:
    """A record as bytes."""
    if isinstance(record, Ended):
        kind, body = _ENDED, struct.pack("<I", record.bag) + b"".join(e.pack() for e in record.ends)
    elif isinstance(record, OfTasks):
        kind = _KINDS[type(record)]
        numbers = struct.pack(f"<{len(record.tasks)}I", *record.tasks)
        body = _TASKS.pack(record.host, record.bag) + numbers
    else:
        kind, body = _EVENT, json.dumps(as_json(record)).encode()
    return _HEAD.pack(kind, len(body)) + body


def unpack(body: bytes) -> Iterator[Record]:
    """The records in these bytes; InputError for what is none."""
    at = 0
    while at < len(body):
        try:
            kind, length = _HEAD.unpack_from(body, at)
            at += _HEAD.size
            yield _record(kind, body[at : at + length])
        except (struct.error, ValueError, LookupError, TypeError) as error:
            raise InputError(f"is not a record: {error}", where=f"byte {at}") from error
        at += length


def packed_ends(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Of the records in these bytes only the ends, as they are: bag, and 30 bytes for each
    (:data:`END`)."""
    at = 0
    while at < len(body):
        kind, length = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        if kind == _ENDED:
            yield int.from_bytes(body[at : at + 4], "little"), body[at + 4 : at + length]
        at += length


def _record(kind: int, body: bytes) -> Record:
    if kind == _EVENT:
        return from_json(*json.loads(body))
    if kind == _ENDED:
        (bag,) = struct.unpack_from("<I", body)
        return Ended(bag, [_end(fields) for fields in _END.iter_unpack(body[4:])])
    host, bag = _TASKS.unpack_from(body)
    tasks = struct.unpack(f"<{(len(body) - _TASKS.size) // 4}I", body[_TASKS.size :])
    return _OF_TASKS[kind](host, bag, tasks)


def _end(fields: tuple[Any, ...]) -> End:
    task, host, at_cs, code, attempt, *times = fields
    return End(task, host, at_cs / 100.0, code, attempt, *times)
