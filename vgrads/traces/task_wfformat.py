"""WfFormat 1.3 to 1.6 (WfCommons) as task records: run times of the tasks of a recorded workflow.

A task's kind is its category; if it has none, its program, if its name begins with that; otherwise
its name without numbers and without the prefix of its process. The size of its input is known if
all its input files have one. Stage-in, stage-out and cleaning tasks of the recording system (type
``transfer``, ``auxiliary``) are omitted. https://github.com/wfcommons/WfFormat
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.kinds import recorded_kind
from vgrads.traces.task_lines import (
    BACKWARDS,
    NO_TIME,
    Broken,
    Item,
    find_tool,
    parse_number,
    parse_procs,
    parse_task_instant,
)
from vgrads.traces.task_record import TaskRecord

Json = Mapping[str, Any]
_STAMPED = re.compile(r"-\d{8}T\d{6}Z?(-\d+)?$|-0$")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Common data of all tasks of the document."""

    workflow: str
    run: str
    sizes: Mapping[str, float | None]
    machine: str  # if there was only one, otherwise empty


def read_wfformat_tasks(document: Json, where: str) -> Iterator[Item]:
    """Read the tasks of a parsed document; InputError if it is not WfFormat."""
    body = document.get("workflow")
    if not isinstance(body, Mapping):
        raise InputError("no field 'workflow'", where=where)
    name = str(document.get("name") or "workflow")
    stamp = body.get("executedAt") or document.get("createdAt") or ""
    run = "/".join(str(part) for part in (name, document.get("runName"), stamp) if part)
    specification, execution = (
        _require_mapping(body.get(key)) for key in ("specification", "execution")
    )
    if specification:
        executed = {str(task.get("id")): task for task in _require_list(execution.get("tasks"))}
        stated = _require_list(specification.get("tasks"))
        pairs = [(task, executed.get(str(task.get("id")), {})) for task in stated]
    else:
        pairs = [(task, task) for task in _require_list(body.get("tasks") or body.get("jobs"))]
    machines = [str(m.get("nodeName")) for m in _require_list((execution or body).get("machines"))]
    only = machines[0] if len(machines) == 1 else ""
    shared = _Recorded(_STAMPED.sub("", name), run, _read_sizes(specification), only)
    if not pairs:
        raise InputError("contains no tasks", where=where)
    for number, (stated_task, run_task) in enumerate(pairs, 1):
        yield _read_task(stated_task, run_task, shared, number)


def _require_mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _require_list(value: object) -> list[Json]:
    return (
        [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    )


def _read_sizes(specification: Json) -> dict[str, float | None]:
    return {
        str(f.get("id")): _read_bytes(f.get("sizeInBytes"))
        for f in _require_list(specification.get("files"))
    }


def _read_bytes(value: object) -> float | None:
    number = parse_number(value)
    return number if number is not None and number >= 0 else None


def _read_task(stated: Json, ran: Json, shared: _Recorded, number: int) -> Item:
    if stated.get("type", "compute") in ("transfer", "auxiliary"):
        return "staging"
    message = ran.get("runtimeInSeconds", ran.get("runtime"))
    if message is None:
        return NO_TIME
    took = parse_number(message)
    if took is None:
        return Broken(0, f"task {number}: runtimeInSeconds", f"'{message!s:.40}' is not a number")
    if took < 0:
        return BACKWARDS
    kind = _find_kind(stated, ran)
    if not kind:
        return Broken(0, f"task {number}: name", "is empty")
    begun = parse_task_instant(ran.get("executedAt", ""))
    return TaskRecord(
        kind=kind,
        seconds=took,
        workflow=shared.workflow,
        run=shared.run,
        task=str(stated.get("id") or stated.get("name") or ""),
        machine=_find_machine(ran) or shared.machine,
        procs=parse_procs(ran.get("coreCount", ran.get("cores"))),
        input_bytes=_sum_input(stated, shared.sizes),
        memory_bytes=_read_bytes(ran.get("memoryInBytes")) or None,
        tool=find_tool(_find_program(ran)),
        ended_at_s=None if begun is None else begun + took,
    )


def _find_program(ran: Json) -> str:
    command = ran.get("command")
    if isinstance(command, Mapping):
        return str(command.get("program") or "")
    return command if isinstance(command, str) else ""


def _find_kind(stated: Json, ran: Json) -> str:
    category = stated.get("category") or ran.get("category")
    if category:
        return str(category)
    name, program = str(stated.get("name") or stated.get("id") or ""), _find_program(ran)
    return recorded_kind(name, program)


def _find_machine(ran: Json) -> str:
    """Return the machine, if there was only one."""
    several = ran.get("machines")
    listed = several if isinstance(several, list) else [ran.get("machine")]
    return str(listed[0]) if len(listed) == 1 and isinstance(listed[0], str) else ""


def _sum_input(stated: Json, sizes: Mapping[str, float | None]) -> float | None:
    """Return bytes of all input files; None if there are none, or if one has no size."""
    names = stated.get("inputFiles")
    if isinstance(names, list):
        results = [sizes.get(str(name)) for name in names]
    else:
        files = [f for f in _require_list(stated.get("files")) if f.get("link") == "input"]
        results = [_read_bytes(f.get("sizeInBytes", f.get("size"))) for f in files]
    present = [size for size in results if size is not None]
    return sum(present) if present and len(present) == len(results) else None
