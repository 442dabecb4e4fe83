"""Conversion of a set to a document: as a user would write it, regardless of its source files."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from vgrads.workflows.alarm_rules import written_rules
from vgrads.workflows.dag import Workflow
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import TaskEnvironment


def write_document(workflow_set: WorkflowSet) -> dict[str, Any]:
    """Return a :class:`vgrads.workflows.sets.SetDocument` as plain values; equal adjacent workflows
    appear once, with a count."""
    entries: list[dict[str, Any]] = []
    for workflow in workflow_set.workflows:
        entry = _make_entry(workflow)
        if entries and {**entries[-1], "count": 1} == entry:
            entries[-1]["count"] += 1
        else:
            entries.append(entry)
    result: dict[str, Any] = {
        "name": workflow_set.name,
        "deadline": workflow_set.deadline_s,
        "at_least": workflow_set.needed,
        "probability": workflow_set.probability,
        "runtime_spread": workflow_set.runtime_spread,
        "when_lost": workflow_set.when_lost,
        "env": dict(workflow_set.env),
        "workflows": entries,
    }
    if workflow_set.budget_usd is not None:
        result["budget_usd"] = workflow_set.budget_usd
    if workflow_set.alarms is not None:
        result["alarms"] = written_rules(workflow_set.alarms)
    return result


def _make_entry(workflow: Workflow) -> dict[str, Any]:
    """Return one workflow, without the number that reading a set appends to each name."""
    return {
        "name": workflow.name.rpartition("-")[0] or workflow.name,
        "count": 1,
        "tasks": [_make_task(task) for task in workflow.tasks.values()],
        "file_mib": dict(workflow.file_mib),
        "notes": workflow.notes,
    }


def _make_task(task: Task) -> dict[str, Any]:
    """Return a task, without a run time if none is stated."""
    result = {**asdict(task), "runtime_s": task.runtime_s if task.stated else None}
    del result["environment"], result["threads"], result["fetches"], result["sends"]
    result["inputs"] = [*task.inputs, *map(_make_fetched, task.fetches)]
    result["outputs"] = [
        *task.outputs,
        *({"name": file.name, "url": file.url} for file in task.sends),
    ]
    result["resources"] = dict(task.resources)
    if task.spread is not None:
        result["spread"] = task.spread.stated
    if task.threads:
        result["procs"] = task.threads
    return result | _make_environment_document(task.environment)


def _make_fetched(file: RemoteFile) -> dict[str, str]:
    kind, _, digest = file.digest.partition(":")
    return {"url": file.url, "as": file.name} | ({kind: digest} if kind else {})


def _make_environment_document(environment: TaskEnvironment) -> dict[str, Any]:
    """Return the stated fields of a task's environment."""
    text = {field.name: getattr(environment, field.name) for field in fields(environment)}
    text["env"] = dict(environment.env)
    text["errors"] = [
        {
            "exit": list(rule.exits) or "any",
            "retries": rule.retries,
            "memory": rule.memory,
            "time": rule.time,
        }
        for rule in environment.errors
    ]
    box = environment.container
    if box is not None:
        text["container"] = {
            "image": box.image,
            "engine": box.engine or None,
            "options": list(box.options),
        }
    return {name: value for name, value in text.items() if value or value == ""}
