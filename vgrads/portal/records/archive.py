"""Serialisation of values for the database: versioned documents, independent of the location of
classes.

A document is MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) under zlib, after
two bytes of format. It has its own table of kinds (a permanent name, the names of the fields), then
parts: one for each value, written once even if shared, in an order in which every part follows
those that it refers to; then the value itself. A field that was added later takes its default; an
unknown kind or field was written by a newer vgrads. To rename or drop a field: raise
:data:`FORMAT`, and let a migration step rewrite the stored documents.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from vgrads.api.plans.run_setup import RunOptions, Setup
from vgrads.drivers.api import SiteAccess
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.kernel.errors import InputError
from vgrads.kernel.values import field_values
from vgrads.planner.plan import Done, PhaseReport, Placement, Plan, Promise, Relaxation, SlotUse
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Catalog, Link, NodeType, Queue, Site
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.workflows.alarm_rules import AlarmEscalation, AlarmRule, QuietHours
from vgrads.workflows.dag import Workflow
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import Container, ErrorRule, TaskEnvironment

FORMAT = 3
KINDS: Mapping[str, type] = {
    "setup": Setup,
    "run-options": RunOptions,
    "execution-plan": ExecutionPlan,
    "plan": Plan,
    "promise": Promise,
    "placement": Placement,
    "slot-use": SlotUse,
    "phase-report": PhaseReport,
    "relaxation": Relaxation,
    "snapshot": Snapshot,
    "workflow-set": WorkflowSet,
    "workflow": Workflow,
    "task": Task,
    "slot": Slot,
    "start-curve": StartCurve,
    "catalog": Catalog,
    "site": Site,
    "queue": Queue,
    "node-type": NodeType,
    "link": Link,
    "access": SiteAccess,
    "runtime-spread": RuntimeSpread,
    "task-environment": TaskEnvironment,
    "container": Container,
    "error-rule": ErrorRule,
    "remote-file": RemoteFile,
    "done": Done,
    "alarm-rule": AlarmRule,
    "quiet-hours": QuietHours,
    "alarm-escalation": AlarmEscalation,
}
"""Permanent name → its current class."""
_PART, _ARRAY, _SET, _PATH, _INSTANT = range(1, 6)
_MAP = ""
"""The kind of a mapping part: workflows of one shape share theirs."""


@dataclass(frozen=True, slots=True)
class Described:
    """A decomposed value: the permanent name of its kind, the names of its fields, their values."""

    kind: str
    names: Sequence[str]
    values: Sequence[Any]


def pack(value: object) -> bytes:
    """Encode a value as bytes."""
    names = {kind: name for name, kind in KINDS.items()}

    def describe(item: Any) -> Described:
        stored = field_values(item)
        return Described(names[type(item)], list(stored), list(stored.values()))

    return Writer(describe).document(value)


def unpack(body: bytes, where: str) -> Any:
    """Decode a value. Raise InputError where another version of vgrads wrote it, or it is
    damaged."""
    value = int.from_bytes(body[:2], "big")
    if value > FORMAT:
        raise _make_newer_error(f"format {value}; this version reads {FORMAT}", where)
    try:
        kinds, parts, root = msgpack.unpackb(zlib.decompress(body[2:]), **_AS_WRITTEN)
        return _DocumentReader(kinds, where).read(parts, root)
    except (zlib.error, ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise InputError(f"cannot be read: {error}", where=where) from error


class Writer:
    """Writes one document. ``describe`` decomposes a value that MessagePack does not support."""

    def __init__(self, describe: Callable[[Any], Described]) -> None:
        self._describe = describe
        self._kinds: dict[str, tuple[int, Sequence[str]]] = {}
        self._parts: list[bytes] = []
        # id → number; the value is kept too, or its id would be reused
        self._written: dict[int, tuple[int, Any]] = {}

    def document(self, value: object) -> bytes:
        """Return the whole document."""
        root = self._packed(value)
        kinds = [[kind, list(names)] for kind, (_, names) in self._kinds.items()]
        body = msgpack.packb([kinds, self._parts, root])
        return FORMAT.to_bytes(2, "big") + zlib.compress(body, level=3)

    def _packed(self, value: object) -> bytes:
        packed: bytes = msgpack.packb(value, default=self._foreign, strict_types=False)
        return packed

    def _foreign(self, value: object) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return self._part(value, self._array)
        if isinstance(value, frozenset):
            return msgpack.ExtType(_SET, self._packed(sorted(value)))
        # sorted, so that equal sets are stored as equal bytes
        if isinstance(value, Path):
            return msgpack.ExtType(_PATH, str(value).encode())
        if isinstance(value, datetime):
            return msgpack.ExtType(_INSTANT, value.isoformat().encode())
        return self._part(value, self._value)

    def _part(self, value: object, write: Callable[[Any], bytes]) -> msgpack.ExtType:
        """Return a reference to a part that is written once."""
        if id(value) not in self._written:
            body = write(value)
            self._parts.append(body)
            self._written[id(value)] = len(self._parts) - 1, value
        return msgpack.ExtType(_PART, msgpack.packb(self._written[id(value)][0]))

    def _value(self, value: object) -> bytes:
        described = self._describe(value)
        number, _ = self._kinds.setdefault(described.kind, (len(self._kinds), described.names))
        reserved = [
            self._part(v, self._map) if isinstance(v, dict) and v else v for v in described.values
        ]
        return self._packed([number, reserved])

    def _map(self, value: object) -> bytes:
        number, _ = self._kinds.setdefault(_MAP, (len(self._kinds), ()))
        return self._packed([number, value])

    def _array(self, value: Any) -> bytes:
        body = msgpack.packb([value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()])
        return self._packed(msgpack.ExtType(_ARRAY, body))


_AS_WRITTEN = {"use_list": False, "strict_map_key": False}


class _DocumentReader:
    """Reads the parts of a document, each after those that it refers to."""

    def __init__(self, kinds: Any, where: str) -> None:
        self._kinds = [(_find_class(kind, names, where), names) for kind, names in kinds]
        self._where = where
        self._values: list[Any] = []

    def read(self, parts: Sequence[bytes], root: bytes) -> Any:
        for part in parts:
            reserved = self._unpacked(part)
            self._values.append(
                reserved if isinstance(reserved, np.ndarray) else self._build(*reserved)
            )
        return self._unpacked(root)

    def _unpacked(self, body: bytes) -> Any:
        return msgpack.unpackb(body, ext_hook=self._ext, **_AS_WRITTEN)

    def _build(self, number: int, reserved: Any) -> Any:
        kind, names = self._kinds[number]
        return reserved if kind is None else kind(**dict(zip(names, reserved, strict=True)))

    def _ext(self, code: int, body: bytes) -> Any:
        if code == _PART:
            return self._values[msgpack.unpackb(body)]
        if code == _ARRAY:
            kind, shape, raw = msgpack.unpackb(body, use_list=False)
            return np.frombuffer(raw, dtype=np.dtype(kind)).reshape(shape)
        if code == _SET:
            return frozenset(self._unpacked(body))
        if code == _PATH:
            return Path(body.decode())
        if code == _INSTANT:
            return datetime.fromisoformat(body.decode())
        raise _make_newer_error(f"a value of type {code}", self._where)


def _find_class(kind: str, names: Sequence[str], where: str) -> Any:
    """Return the class of a kind, which must have all these fields and need no others; None for a
    mapping."""
    if kind == _MAP:
        return None
    if kind not in KINDS:
        raise _make_newer_error(f"a {kind}", where)
    declared = {field.name: field for field in fields(KINDS[kind])}
    unknown = [name for name in names if name not in declared]
    if unknown:
        raise _make_newer_error(f"the field '{unknown[0]}' of a {kind}", where)
    needed = [
        n for n, f in declared.items() if f.default is MISSING and f.default_factory is MISSING
    ]
    lacking = [name for name in needed if name not in names]
    if lacking:
        raise InputError(f"cannot be read: a {kind} without '{lacking[0]}'", where=where)
    return KINDS[kind]


def _make_newer_error(what: str, where: str) -> InputError:
    return InputError(
        f"was written by a newer vgrads ({what})", where=where, fix="read it with that version"
    )
