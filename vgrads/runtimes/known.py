"""What has been learned: records of tasks, each once, the newest of every kind at every machine.

It is a value: learning the same records again, or in other portions, gives the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite, log
from typing import Any

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.traces.task_record import TaskRecord

NEWEST = 64
"""Records kept of each kind at each machine: the newest; beyond these nothing is gained that
changes a plan."""
APART, SURE, ENOUGH = 10.0, 4.0, 3
"""Times do not belong together if geometric means, of seconds and of seconds a byte, are so many
times apart, so many standard errors, with so many records of each workflow."""
_NAMES = frozenset(field.name for field in fields(TaskRecord))
_FIX = "say with --map which belong together or apart, e.g. '--map {}/{}=OTHER'"


@dataclass(frozen=True)
class Known:
    """Records in a fixed order: by kind, machine, and from old to new."""

    records: tuple[TaskRecord, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({record.kind for record in self.records}))

    def by_kind(self) -> dict[str, tuple[TaskRecord, ...]]:
        """The records of every kind, kinds in order of their names."""
        found: dict[str, list[TaskRecord]] = {}
        for record in self.records:
            found.setdefault(record.kind, []).append(record)
        return {kind: tuple(found[kind]) for kind in sorted(found)}

    def of(self, kind: str) -> tuple[TaskRecord, ...]:
        """The records of one kind."""
        return tuple(record for record in self.records if record.kind == kind)


def learn(known: Known, records: Iterable[TaskRecord]) -> Known:
    """With ``records`` added. InputError for an impossible record, or for a kind that mixes two
    tools."""
    fresh = [_checked(record) for record in records]
    groups: dict[tuple[str, str], dict[TaskRecord, None]] = {}
    for record in (*known.records, *fresh):
        groups.setdefault((record.kind, record.machine), {})[record] = None
    kept = [record for key in sorted(groups) for record in sorted(groups[key], key=_age)[-NEWEST:]]
    whole = Known(tuple(kept))
    kinds = whole.by_kind()
    for kind in sorted({record.kind for record in fresh}):
        _check_mixed(kind, kinds[kind])
    return whole


def forget(known: Known, kind: str) -> Known:
    """Without one kind; InputError if nothing is known of it."""
    rest = tuple(record for record in known.records if record.kind != kind)
    if len(rest) == len(known.records):
        raise InputError("nothing is known of this kind of task", where=kind)
    return Known(rest)


def mapped(records: Iterable[TaskRecord], mapping: Mapping[str, str]) -> tuple[TaskRecord, ...]:
    """Kinds renamed: a key is a kind, or ``workflow/kind``, which counts first."""
    found = []
    for record in records:
        name = mapping.get(
            f"{record.workflow}/{record.kind}", mapping.get(record.kind, record.kind)
        )
        found.append(replace(record, kind=name) if name != record.kind else record)
    return tuple(found)


def to_json(known: Known) -> str:
    """A document from which :func:`from_json` restores exactly this; fields at their defaults are
    left out."""
    plain = TaskRecord(kind="", seconds=0.0)
    rows = [
        {
            name: value
            for name, value in asdict(record).items()
            if name in ("kind", "seconds") or value != getattr(plain, name)
        }
        for record in known.records
    ]
    return json.dumps({"version": 1, "records": rows}, allow_nan=False)


def from_json(text: str) -> Known:
    """What :func:`to_json` wrote; InputError for anything else."""
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where="run times") from None
    rows = document.get("records") if isinstance(document, dict) else None
    if not isinstance(rows, list) or document.get("version") != 1:
        raise InputError("is no document of run times, version 1", where="run times")
    return learn(Known(), [_record(row, number) for number, row in enumerate(rows)])


def _record(row: object, number: int) -> TaskRecord:
    place = f"run times: records[{number}]"
    if not isinstance(row, dict) or not {"kind", "seconds"} <= set(row) <= _NAMES:
        raise InputError("is no record of a task", where=place)
    if not all(isinstance(value, str | int | float) for value in row.values()):
        raise InputError("a field of a record is a text or a number", where=place)
    return TaskRecord(**row)


def _age(record: TaskRecord) -> tuple[float, str]:
    """Old to new; without a time, and at the same one, in an order that depends on the record
    alone."""
    return (-inf if record.ended_at_s is None else record.ended_at_s, repr(record))


def _checked(record: TaskRecord) -> TaskRecord:
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
    """InputError where two workflows mean different things by one name."""
    flows: dict[str, list[TaskRecord]] = {}
    for record in records:
        if record.workflow:
            flows.setdefault(record.workflow, []).append(record)
    names = sorted(flows)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            tools = _tools(flows[one]), _tools(flows[other])
            if all(tools):
                if not tools[0] & tools[1]:
                    told = (
                        f"({', '.join(sorted(tools[0]))}) and {other} "
                        f"({', '.join(sorted(tools[1]))}) run different tools"
                    )
                    raise _mixed(kind, one, told)
            elif _apart(flows[one], flows[other]):
                raise _mixed(kind, one, f"and {other} take times that do not belong together")


def _mixed(kind: str, one: str, told: str) -> InputError:
    return InputError(f"by this name {one} {told}", where=kind, fix=_FIX.format(one, kind))


def _tools(records: list[TaskRecord]) -> set[str]:
    return {record.tool for record in records if record.tool}


def _apart(one: list[TaskRecord], other: list[TaskRecord]) -> bool:
    """See ``APART``: neither seconds nor seconds a byte could be of one program."""
    verdicts = [_far(_logs(one, False), _logs(other, False))]
    if all(record.input_bytes for record in (*one, *other)):
        verdicts.append(_far(_logs(one, True), _logs(other, True)))
    return all(verdicts)


def _logs(records: list[TaskRecord], per_byte: bool) -> list[float]:
    return [
        log(r.seconds) - (log(r.input_bytes) if per_byte and r.input_bytes else 0.0)
        for r in records
        if r.finished and r.seconds > 0
    ]


def _far(one: list[float], other: list[float]) -> bool:
    """Welch's statistic beyond ``SURE``, and means beyond ``APART``."""
    if min(len(one), len(other)) < ENOUGH:
        return False
    apart = abs(float(np.mean(one) - np.mean(other)))
    error = float(np.sqrt(np.var(one, ddof=1) / len(one) + np.var(other, ddof=1) / len(other)))
    return apart > log(APART) and apart > SURE * error
