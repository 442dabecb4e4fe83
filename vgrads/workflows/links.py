"""Files that one task sends to a URL and another fetches from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow
from vgrads.workflows.task import Task


def linked(tasks: Iterable[Task]) -> list[Task]:
    """Convert inputs with names of files that other tasks send into fetched files."""
    tasks = list(tasks)
    sent = {file.name: (file, task.id) for task in tasks for file in task.sends}
    if not sent:
        return tasks
    results = []
    for task in tasks:
        mine = [sent[name] for name in task.inputs if name in sent]
        fetched = tuple(file.named(task=maker) for file, maker in mine)
        inputs = tuple(name for name in task.inputs if name not in sent)
        results.append(
            replace(task, inputs=inputs, fetches=(*task.fetches, *fetched)) if mine else task
        )
    return results


def refuse_shared_targets(workflows: Iterable[Workflow], where: str) -> None:
    """Raise InputError if two tasks would send to one URL."""
    observed: dict[str, str] = {}
    for workflow in workflows:
        for task in workflow.tasks.values():
            for file in task.sends:
                url, whose = file.of(workflow.name, task.id).url, f"{workflow.name}/{task.id}"
                if url in observed:
                    raise InputError(
                        f"{observed[url]} and {whose} both send to {url}",
                        where=f"{where}: workflows",
                        fix="use {workflow} and {task} in the URL; they are replaced by the names",
                    )
                observed[url] = whose
