"""Learned records of tasks, each once, the newest of every kind at every machine.

It is a value: learning the same records again, or in other portions, gives the same.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf, isfinite, log
from typing import Any

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.traces.task_record import TaskRecord

NEWEST = 64
"""Records kept of each kind at each machine: the newest; more would not change a plan."""
APART, SURE, ENOUGH = 10.0, 4.0, 3
"""Times do not belong together if geometric means, of seconds and of seconds per byte, differ by
this factor, and by this many standard errors, with this many records of each workflow."""
_FIELDS = tuple(field.name for field in fields(TaskRecord))
_NAMES, _PLAIN = frozenset(_FIELDS), {field.name: field.default for field in fields(TaskRecord)}
_FIX = "join or separate kinds with --map, e.g. '--map {}/{}=OTHER'"


class KindRecords(ABC):
    """Records by kind, each in a fixed order: by machine, and from old to new."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Return the names, sorted."""

    @abstractmethod
    def of(self, kind: str) -> tuple[TaskRecord, ...]:
        """Return the records of one kind; none for a name without any."""

    def count(self, kind: str) -> int:
        """Return how many records a kind has."""
        return len(self.of(kind))

    def named(self, name: str) -> str:
        """Return the kind that a name means: itself, or, where only that has records, the last part
        of the full name of a process (``RNASEQ:ALIGN``), by which traces are learned."""
        last = name.rpartition(":")[2]
        return last if last != name and not self.of(name) and self.of(last) else name


@dataclass(frozen=True)
class TaskHistory(KindRecords):
    """Records in a fixed order: by kind, machine, and from old to new."""

    records: tuple[TaskRecord, ...] = ()

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        return tuple(self.by_kind)

    @cached_property
    def by_kind(self) -> Mapping[str, tuple[TaskRecord, ...]]:
        """Return the records of every kind, in order of kind names."""
        results: dict[str, list[TaskRecord]] = {}
        for record in self.records:
            results.setdefault(record.kind, []).append(record)
        return {kind: tuple(results[kind]) for kind in sorted(results)}

    def of(self, kind: str) -> tuple[TaskRecord, ...]:
        """Return the records of one kind; none for a name without any."""
        return self.by_kind.get(kind, ())


def learn(history: TaskHistory, records: Iterable[TaskRecord]) -> TaskHistory:
    """Return the history with ``records`` added. Raise InputError for an impossible record, or for
    a kind that mixes two tools."""
    fresh = [_check_record(record) for record in records]
    groups: dict[tuple[str, str], dict[TaskRecord, None]] = {}
    for record in (*history.records, *fresh):
        # a dictionary as an ordered set: a record that is learned again counts once
        groups.setdefault((record.kind, record.machine), {})[record] = None
    task_records = [
        record
        for key in sorted(groups)
        for record in sorted(groups[key], key=_make_age_key)[-NEWEST:]
    ]
    whole = TaskHistory(tuple(task_records))
    kinds = whole.by_kind
    # kinds without new records were checked when theirs came
    for kind in sorted({record.kind for record in fresh}):
        _check_mixed(kind, kinds[kind])
    return whole


def forget(history: TaskHistory, kind: str) -> TaskHistory:
    """Return the history without one kind. Raise InputError if it has no records."""
    kind = history.named(kind)
    rest = tuple(record for record in history.records if record.kind != kind)
    if len(rest) == len(history.records):
        raise InputError("no run times are recorded for this kind of task", where=kind)
    return TaskHistory(rest)


def rename_kinds(
    records: Iterable[TaskRecord], mapping: Mapping[str, str]
) -> tuple[TaskRecord, ...]:
    """Return the records with kinds renamed: a key is a kind, or ``workflow/kind``, which has
    precedence."""
    results = []
    for record in records:
        name = mapping.get(
            f"{record.workflow}/{record.kind}", mapping.get(record.kind, record.kind)
        )
        results.append(replace(record, kind=name) if name != record.kind else record)
    return tuple(results)


def record_json(record: TaskRecord) -> str:
    """Return one record as it is stored: fields at their defaults are omitted."""
    row = {
        name: value
        for name in _FIELDS
        if (value := getattr(record, name)) != _PLAIN[name] or name in ("kind", "seconds")
    }
    return json.dumps(row, sort_keys=True, allow_nan=False)


def to_json(history: TaskHistory) -> str:
    """Return a document from which :func:`from_json` restores exactly this."""
    return f'{{"version": 1, "records": [{", ".join(map(record_json, history.records))}]}}'


def from_json(text: str) -> TaskHistory:
    """Read the output of :func:`to_json`. Raise InputError for anything else."""
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise InputError(f"is not valid JSON: {error}", where="run times") from None
    rows = document.get("records") if isinstance(document, dict) else None
    if not isinstance(rows, list) or document.get("version") != 1:
        raise InputError("is not a document of run times, version 1", where="run times")
    return learn(TaskHistory(), [_record(row, number) for number, row in enumerate(rows)])


def parse_records(bodies: Sequence[str]) -> list[TaskRecord]:
    """Read records as :func:`record_json` wrote them."""
    rows = json.loads(f"[{','.join(bodies)}]")
    return [_record(row, number) for number, row in enumerate(rows)]


def _record(row: object, number: int) -> TaskRecord:
    place = f"run times: records[{number}]"
    if not isinstance(row, dict) or not {"kind", "seconds"} <= set(row) <= _NAMES:
        raise InputError("is not a record of a task", where=place)
    if not all(isinstance(value, str | int | float) for value in row.values()):
        raise InputError("a field of a record must be a string or a number", where=place)
    return TaskRecord(**row)


def _make_age_key(record: TaskRecord) -> tuple[float, str]:
    """Return a sort key, old to new; without a time, and at the same one, in an order that depends
    on the record alone."""
    return (-inf if record.ended_at_s is None else record.ended_at_s, repr(record))


def _check_record(record: TaskRecord) -> TaskRecord:
    numbers = {
        "seconds": record.seconds,
        "input_bytes": record.input_bytes,
        "memory_bytes": record.memory_bytes,
        "cpu_seconds": record.cpu_seconds,
        "procs": record.procs,
    }
    if not record.kind:
        raise InputError("a record needs the kind of its task", where=record.task or record.run)
    for name, value in numbers.items():
        if value is None:
            continue
        least = 1 if name == "procs" else 0
        if isinstance(value, str) or not isfinite(value) or value < least:
            raise InputError(
                f"must be a number of at least {least}, not {value}", where=f"{record.kind}: {name}"
            )
    return record


def _check_mixed(kind: str, records: tuple[TaskRecord, ...]) -> None:
    """Raise InputError where two workflows use one name for different programs."""
    flows: dict[str, list[TaskRecord]] = {}
    for record in records:
        if record.workflow:
            flows.setdefault(record.workflow, []).append(record)
    names = sorted(flows)
    for at, name in enumerate(names):
        for other in names[at + 1 :]:
            tools = _list_tools(flows[name]), _list_tools(flows[other])
            if all(tools):
                if not tools[0] & tools[1]:
                    text = (
                        f"({', '.join(sorted(tools[0]))}) and {other} "
                        f"({', '.join(sorted(tools[1]))}) run different tools"
                    )
                    raise _describe_mixed(kind, name, text)
            elif _are_apart(flows[name], flows[other]):
                raise _describe_mixed(
                    kind, name, f"and {other} have run times that do not belong together"
                )


def _describe_mixed(kind: str, name: str, text: str) -> InputError:
    return InputError(f"under this name, {name} {text}", where=kind, fix=_FIX.format(name, kind))


def _list_tools(records: list[TaskRecord]) -> set[str]:
    return {record.tool for record in records if record.tool}


def _are_apart(task_records: list[TaskRecord], other: list[TaskRecord]) -> bool:
    """Return True where neither seconds nor seconds per byte could be of one program, see
    ``APART``."""
    verdicts = [_is_far(_compute_logs(task_records, False), _compute_logs(other, False))]
    # where sizes differ between workflows, their times may, and the seconds per byte decide
    if all(record.input_bytes for record in (*task_records, *other)):
        verdicts.append(_is_far(_compute_logs(task_records, True), _compute_logs(other, True)))
    return all(verdicts)


def _compute_logs(records: list[TaskRecord], per_byte: bool) -> list[float]:
    return [
        log(r.seconds) - (log(r.input_bytes) if per_byte and r.input_bytes else 0.0)
        for r in records
        if r.finished and r.seconds > 0
    ]


def _is_far(values: list[float], other: list[float]) -> bool:
    """Return True where Welch's statistic is beyond ``SURE``, and means are beyond ``APART``."""
    if min(len(values), len(other)) < ENOUGH:
        return False
    apart = abs(float(np.mean(values) - np.mean(other)))
    error = float(
        np.sqrt(np.var(values, ddof=1) / len(values) + np.var(other, ddof=1) / len(other))
    )
    return apart > log(APART) and apart > SURE * error
