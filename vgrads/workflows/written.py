"""A set as a document again: what a person would have to write to ask for it, whatever files it
came from."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from vgrads.workflows.dag import Workflow
from vgrads.workflows.manner import Manner
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task


def document_of(wanted: WorkflowSet) -> dict[str, Any]:
    """A :class:`vgrads.workflows.sets.SetDocument` as plain values; equal neighbours stand there
    once, with a count."""
    entries: list[dict[str, Any]] = []
    for workflow in wanted.workflows:
        entry = _entry(workflow)
        if entries and {**entries[-1], "count": 1} == entry:
            entries[-1]["count"] += 1
        else:
            entries.append(entry)
    found: dict[str, Any] = {
        "name": wanted.name,
        "deadline": wanted.deadline_s,
        "at_least": wanted.needed,
        "probability": wanted.probability,
        "runtime_spread": wanted.runtime_spread,
        "env": dict(wanted.env),
        "workflows": entries,
    }
    return found if wanted.budget_usd is None else found | {"budget_usd": wanted.budget_usd}


def _entry(workflow: Workflow) -> dict[str, Any]:
    """One workflow; the number that reading a set puts behind each name is left out again."""
    return {
        "name": workflow.name.rpartition("-")[0] or workflow.name,
        "count": 1,
        "tasks": [_task(task) for task in workflow.tasks.values()],
        "file_mib": dict(workflow.file_mib),
        "notes": workflow.notes,
    }


def _task(task: Task) -> dict[str, Any]:
    """A task; a run time that nobody stated is left out."""
    found = {**asdict(task), "runtime_s": task.runtime_s if task.stated else None}
    del found["manner"], found["threads"], found["fetches"], found["sends"]
    found["inputs"] = [*task.inputs, *map(_fetched, task.fetches)]
    found["outputs"] = [
        *task.outputs,
        *({"name": file.name, "url": file.url} for file in task.sends),
    ]
    found["resources"] = dict(task.resources)
    if task.threads:
        found["procs"] = task.threads
    return found | _manner(task.manner)


def _fetched(file: RemoteFile) -> dict[str, str]:
    kind, _, digest = file.digest.partition(":")
    return {"url": file.url, "as": file.name} | ({kind: digest} if kind else {})


def _manner(manner: Manner) -> dict[str, Any]:
    """How a task runs, as far as anything is said."""
    said = {field.name: getattr(manner, field.name) for field in fields(manner)}
    said["env"] = dict(manner.env)
    said["errors"] = [
        {
            "exit": list(rule.exits) or "any",
            "retries": rule.retries,
            "memory": rule.memory,
            "time": rule.time,
        }
        for rule in manner.errors
    ]
    box = manner.container
    if box is not None:
        said["container"] = {
            "image": box.image,
            "engine": box.engine or None,
            "options": list(box.options),
        }
    return {name: value for name, value in said.items() if value or value == ""}
