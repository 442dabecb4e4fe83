"""WfFormat 1.3 to 1.5 (WfCommons): workflows recorded from real runs, as JSON.

Read by code of vgrads, because the library downloads its schema. 1.5 separates structure and
execution; before, each task had both, and tasks referred to each other by name.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.kinds import recorded_kind
from vgrads.kernel.units import format_count
from vgrads.workflows.by_files import add_makers
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.task import UNSTATED, Task

MIB = 1024 * 1024
Json = Mapping[str, Any]
_SHELL = ["/bin/sh", "-c"]
_MOST = 1e18


def read_wfformat(document: Json, where: str, reading: Reading | None = None) -> Workflow:
    """Read the workflow of a parsed WfFormat document. Where it names no dependencies, they are
    those of its files."""
    reading = reading or Reading(Path(where))
    body = document.get("workflow")
    if not isinstance(body, Mapping):
        raise InputError("no field 'workflow'", where=where)
    name = str(document.get("name") or "workflow")
    try:
        if "specification" in body:
            return _read_split(body, name, where, reading)
        return _read_joined(body, name, where, reading)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"is not valid WfFormat: {type(error).__name__} {error}", where=where
        ) from error


def _read_split(body: Json, name: str, where: str, reading: Reading) -> Workflow:
    """Read WfFormat 1.5: ``specification`` and ``execution``."""
    _say_machines(body.get("execution", {}).get("machines"), reading)
    executed = {str(t["id"]): t for t in body.get("execution", {}).get("tasks", [])}
    listed = body["specification"]["tasks"]
    tasks = [
        _make_task(
            t,
            executed.get(str(t["id"]), {}),
            tuple(map(_normalise_name, t.get("inputFiles", ()))),
            tuple(map(_normalise_name, t.get("outputFiles", ()))),
            where,
        )
        for t in listed
    ]
    sizes = {
        _normalise_name(f["id"]): _convert_to_mib(f.get("sizeInBytes"), f"file {f['id']}", where)
        for f in body["specification"].get("files", [])
    }
    return make_workflow(name, _add_links(tasks, listed, {}, reading), sizes, where)


def _read_joined(body: Json, name: str, where: str, reading: Reading) -> Workflow:
    """Read WfFormat 1.3 and 1.4: one list of tasks, with the files in each."""
    _say_machines(body.get("machines"), reading)
    tasks, sizes = [], {}
    listed = body.get("tasks") or body.get("jobs") or []
    # these versions refer to parents by name, not by id
    ids = {str(t["name"]): str(t.get("id", t["name"])) for t in listed}
    for entry in listed:
        files = entry.get("files", [])
        for file in files:
            key = "sizeInBytes" if "sizeInBytes" in file else "size"
            sizes[_read_file_name(file)] = _convert_to_mib(
                file.get(key), f"file {_read_file_name(file)}", where
            )
        ends = [
            tuple(_read_file_name(f) for f in files if f.get("link") == link)
            for link in ("input", "output")
        ]
        with_id = {**entry, "id": ids[str(entry["name"])]}
        with_id["parents"] = [ids.get(str(p), str(p)) for p in entry.get("parents", [])]
        tasks.append(_make_task(with_id, entry, ends[0], ends[1], where))
    return make_workflow(name, _add_links(tasks, listed, ids, reading), sizes, where)


def _add_links(
    tasks: list[Task], listed: Sequence[Json], ids: Mapping[str, str], reading: Reading
) -> list[Task]:
    """Add the dependencies that only ``children`` state, and those of files to tasks that state no
    parents; to all, if no task states any."""
    more: dict[str, dict[str, None]] = {task.id: dict.fromkeys(task.parents) for task in tasks}
    for task, entry in zip(tasks, listed, strict=True):
        for child in map(str, entry.get("children", ())):
            more.setdefault(ids.get(child, child), {})[task.id] = None
    silent = not any(more.values())
    by_file = {task.id: task.parents for task in add_makers(tasks)}
    result, added = [], 0
    for task, entry in zip(tasks, listed, strict=True):
        parents = more[task.id]
        if silent or "parents" not in entry:
            before = len(parents)
            parents |= dict.fromkeys(by_file[task.id])
            added += len(parents) - before
        result.append(replace(task, parents=tuple(parents)))
    if added:
        reading.count("edge", "are", "derived from files", added)
    return result


def _say_machines(machines: object, reading: Reading) -> None:
    """Say where the run times were recorded, which are not adjusted to other machines."""
    if not isinstance(machines, list) or not machines:
        return
    speeds = {
        float(speed)
        for machine in machines
        if isinstance(speed := (machine.get("cpu") or {}).get("speedInMHz"), int | float)
    }
    span = ""
    if speeds:
        low, high = f"{min(speeds):,.0f}", f"{max(speeds):,.0f}"
        span = f" of {low} MHz" if low == high else f" of {low} to {high} MHz"
    reading.say(f"run times as recorded on {format_count(len(machines), 'machine')}{span}")


def _read_file_name(file: Json) -> str:
    return _normalise_name(file.get("id", file.get("name")))


def _normalise_name(recorded: object) -> str:
    """Return a file name as recorded; an absolute path of the recording machine becomes a path
    below a task's folder."""
    return str(recorded).lstrip("/")


def _make_task(
    spec: Json, run: Json, inputs: tuple[str, ...], outputs: tuple[str, ...], where: str
) -> Task:
    task_id = str(spec["id"])
    runtime = run.get("runtimeInSeconds", run.get("runtime"))
    command = _read_command(run.get("command"))
    program = command.split()[0] if command.strip() else ""
    category = spec.get("category", run.get("category"))
    return Task(
        id=task_id,
        kind=recorded_kind(str(spec.get("name") or task_id), program)
        if category is None
        else str(category),
        runtime_s=UNSTATED if runtime is None else float(runtime),
        procs=max(1, round(_read_number(run.get("coreCount", run.get("cores")), task_id, where))),
        parents=tuple(dict.fromkeys(str(p) for p in spec.get("parents", ()))),
        command=command,
        inputs=inputs,
        outputs=outputs,
        memory_mib=_convert_to_mib(run.get("memoryInBytes"), f"task {task_id}", where),
    )


def _read_command(command: object) -> str:
    if isinstance(command, str):
        return command
    if not isinstance(command, Mapping):
        return ""
    words = [str(command.get("program", "")), *map(str, command.get("arguments", ()))]
    # the shell itself is how a command that needs one was written
    return words[2] if words[:2] == _SHELL and len(words) == 3 else shlex.join(words)


def _describe_command(command: str) -> dict[str, Any]:
    """Return program and arguments; for a command that needs a shell, the shell, as which it would
    run anyway."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    # only a command that comes out the same from its words needs no shell
    if shlex.join(words) != command or words[:2] == _SHELL:
        words = [*_SHELL, command]
    return {"program": words[0], "arguments": words[1:]}


def _convert_to_mib(size_bytes: Any, what: str, where: str) -> float:
    return _read_number(size_bytes, what, where) / MIB


def _read_number(value: Any, what: str, where: str) -> float:
    """Return a recorded number of bytes or processors, 0 for none."""
    number = float(value or 0)
    if not 0 <= number <= _MOST:  # also for nan
        raise InputError(f"{what}: {value} is not a number from 0 to {_MOST:g}", where=where)
    return number


def write_wfformat(workflow: Workflow) -> dict[str, Any]:
    """Return the workflow as a WfFormat 1.5 document; :func:`read_wfformat` reads the same, except
    for uncertainty of run times."""
    has_runtimes = all(task.stated for task in workflow.tasks.values())
    return {
        "name": workflow.name,
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [_describe_task(workflow, t) for t in workflow.tasks.values()],
                "files": [
                    {"id": f, "sizeInBytes": round(m * MIB)} for f, m in workflow.file_mib.items()
                ],
            },
            "execution": {
                **({"makespanInSeconds": workflow.critical_path_s()} if has_runtimes else {}),
                "tasks": [_run_json(t) for t in workflow.tasks.values()],
            },
        },
    }


def _describe_task(workflow: Workflow, task: Task) -> dict[str, Any]:
    return {
        "name": task.id,
        "id": task.id,
        "category": task.kind,
        "parents": list(task.parents),
        "children": list(workflow.children[task.id]),
        "inputFiles": list(task.inputs),
        "outputFiles": list(task.outputs),
    }


def _run_json(task: Task) -> dict[str, Any]:
    row: dict[str, Any] = {"id": task.id, "coreCount": task.procs}
    if task.stated:
        row["runtimeInSeconds"] = task.runtime_s
    if task.command.strip():
        row["command"] = _describe_command(task.command)
    if task.memory_mib:
        row["memoryInBytes"] = round(task.memory_mib * MIB)
    return row


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; InputError names the line of an error."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not valid JSON: {error.msg} in line {error.lineno}", where=where
        ) from error
