"""A set as a document again: what a person would have to write to ask for it, whatever files it came from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from workflows.dag import Task, Workflow
from workflows.sets import WorkflowSet


def document_of(wanted: WorkflowSet) -> dict[str, Any]:
    """A :class:`workflows.sets.SetDocument` as plain values; equal neighbours stand there once, with a count."""
    entries: list[dict[str, Any]] = []
    for workflow in wanted.workflows:
        entry = _entry(workflow)
        if entries and {**entries[-1], "count": 1} == entry:
            entries[-1]["count"] += 1
        else:
            entries.append(entry)
    found: dict[str, Any] = {
        "name": wanted.name, "deadline": wanted.deadline_s, "at_least": wanted.needed,
        "probability": wanted.probability, "runtime_spread": wanted.runtime_spread, "env": dict(wanted.env),
        "workflows": entries,
    }  # fmt: skip
    return found if wanted.budget_usd is None else found | {"budget_usd": wanted.budget_usd}


def _entry(workflow: Workflow) -> dict[str, Any]:
    """One workflow; the number that reading a set puts behind each name is left out again."""
    return {
        "name": workflow.name.rpartition("-")[0] or workflow.name, "count": 1,
        "tasks": [_task(task) for task in workflow.tasks.values()], "file_mib": dict(workflow.file_mib),
        "notes": workflow.notes,
    }  # fmt: skip


def _task(task: Task) -> dict[str, Any]:
    """A task; a run time that nobody stated is left out."""
    return {**asdict(task), "runtime_s": task.runtime_s if task.stated else None}
