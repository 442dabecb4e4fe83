"""Records of a dispatcher's journal: one for each bundle of tasks, packed.

A record is a kind, its length and its body. Task records are arrays; rare events are JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vgrads.dispatch.core.events import BagEvent, Event, as_json, from_json
from vgrads.exchange.values import AttemptEnd
from vgrads.kernel.errors import InputError

_HEAD = struct.Struct("<BI")
_TASKS = struct.Struct("<II")
# the layout of END: written one by one with struct, read as a column with numpy
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
"""End of an attempt, 30 bytes: ``at_cs`` in hundredths of a second since the dispatcher started
(497 days); ``code``: exit code, minus the signal, or :data:`vgrads.exchange.values.COULD_NOT`."""
_ENDED, _EVENT = 4, 5  # kinds of records: ends, rare events
_HALF = 65504.0  # the largest number of two bytes (IEEE 754 binary16)


def pack_end(end: AttemptEnd) -> bytes:
    """Encode as 30 bytes."""
    return _END.pack(
        end.task,
        end.agent,
        # larger values are stored as the largest: struct would raise, and
        # an end must always be written
        min(int(end.at_s * 100.0), 2**32 - 1),
        end.code,
        end.attempt,
        end.ran_s,
        min(end.waited_s, _HALF),
        min(end.fetched_s, _HALF),
        min(end.sent_s, _HALF),
        min(end.cpu_s, _HALF),
        min(end.peak_gib, _HALF),
    )


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """An event of tasks of a bag, and the agent concerned."""

    agent: int
    bag: int
    tasks: Sequence[int]


class TasksAssigned(TaskEvent):
    """Tasks were assigned to an agent, each in a new attempt."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AttemptsEnded:
    """Attempts whose ends an agent reported."""

    bag: int
    ends: Sequence[AttemptEnd]


class TasksReturned(TaskEvent):
    """Tasks that an agent returned, or never received: they wait again, without blame."""

    __slots__ = ()


class TasksRetained(TaskEvent):
    """Tasks that an agent still holds although they were evicted: it continues them."""

    __slots__ = ()


class TasksReplicated(TaskEvent):
    """Tasks were assigned to an agent that other agents also have, each in a new attempt."""

    __slots__ = ()


class TasksExpired(TaskEvent):
    """Tasks evicted from an agent because their deadline has passed: they wait again, and count as
    its failures."""

    __slots__ = ()


# all that damaged bytes can cause in struct, json and the constructors of events;
# deeply nested JSON raises RecursionError
_READ_ERRORS = (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)
Record = TaskEvent | AttemptsEnded | Event


def find_bag_number(record: Record) -> int:
    """Return the number of the bag that a record is about; -1 where it is about none, or about
    several."""
    if isinstance(record, TaskEvent | AttemptsEnded):
        return record.bag
    return record.number if isinstance(record, BagEvent) else -1


# numbers of kinds are in journals on disk, so none may change; 4 and 5 are above
_OF_TASKS: dict[int, type[TaskEvent]] = {
    1: TasksAssigned,
    2: TasksReturned,
    3: TasksRetained,
    6: TasksReplicated,
    7: TasksExpired,
}
_KINDS = {of: kind for kind, of in _OF_TASKS.items()}


def pack(record: Record) -> bytes:
    """Encode a record as bytes."""
    if isinstance(record, AttemptsEnded):
        kind, body = (
            _ENDED,
            struct.pack("<I", record.bag) + b"".join(pack_end(e) for e in record.ends),
        )
    elif isinstance(record, TaskEvent):
        kind = _KINDS[type(record)]
        numbers = struct.pack(f"<{len(record.tasks)}I", *record.tasks)
        body = _TASKS.pack(record.agent, record.bag) + numbers
    else:
        kind, body = _EVENT, json.dumps(as_json(record)).encode()
    return _HEAD.pack(kind, len(body)) + body


def unpack(body: bytes) -> Iterator[Record]:
    """Decode records. Raise InputError for invalid ones."""
    at = 0
    while at < len(body):
        try:
            kind, length = _HEAD.unpack_from(body, at)
            at += _HEAD.size
            yield _record(kind, body[at : at + length])
        except _READ_ERRORS as error:
            raise InputError(f"is not a record: {error}", where=f"byte {at}") from error
        at += length


def packed_ends(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Return only the ends of encoded records, undecoded: bag, and 30 bytes for each
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
        return AttemptsEnded(bag, [_end(fields) for fields in _END.iter_unpack(body[4:])])
    agent, bag = _TASKS.unpack_from(body)
    tasks = struct.unpack(f"<{(len(body) - _TASKS.size) // 4}I", body[_TASKS.size :])
    return _OF_TASKS[kind](agent, bag, tasks)


def _end(fields: tuple[Any, ...]) -> AttemptEnd:
    task, agent, at_cs, code, attempt, *times = fields
    return AttemptEnd(task, agent, at_cs / 100.0, code, attempt, *times)
