"""Dependencies between tasks of one workflow by the files that they read and write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow
from vgrads.workflows.task import Task


def add_makers(tasks: Iterable[Task]) -> list[Task]:
    """Add the parents that the inputs of tasks imply: the only task that writes a file is a parent
    of each task that reads it.

    If several write it, ``parents`` must state which of them is meant.
    """
    tasks = list(tasks)
    makers = _index_makers(
        (task.id, (*task.outputs, *(file.name for file in task.sends))) for task in tasks
    )
    return [_list_parents(task, makers) for task in tasks]


def refuse_two_makers(workflow: Workflow, where: str) -> None:
    """Raise InputError if two tasks write one file and neither waits for the other: the remaining
    file would be a matter of chance.

    Tasks without a command, as in recorded workflows, write nothing (two in Montage are recorded
    with one name).
    """
    tasks = [workflow.tasks[i] for i in workflow.order if workflow.tasks[i].command]
    for name, makers in _index_makers((task.id, task.outputs) for task in tasks).items():
        for earlier, later in pairwise(makers):
            if not _is_descendant(workflow, later, earlier):
                raise InputError(
                    f"'{earlier}' and '{later}' both write '{name}'",
                    where=f"{where}: task '{later}'",
                    fix="give each its own name, or make one a parent of the other",
                )


def _index_makers(outputs: Iterable[tuple[str, Iterable[str]]]) -> Mapping[str, Sequence[str]]:
    results: dict[str, list[str]] = defaultdict(list)
    for task_id, names in outputs:
        for name in dict.fromkeys(names):
            results[name].append(task_id)
    return results


def _list_parents(task: Task, makers: Mapping[str, Sequence[str]]) -> Task:
    sole = dict.fromkeys(makers[name][0] for name in task.inputs if len(makers.get(name, ())) == 1)
    more = tuple(name for name in sole if name != task.id and name not in task.parents)
    return replace(task, parents=task.parents + more) if more else task


def _is_descendant(workflow: Workflow, later: str, earlier: str) -> bool:
    """Return whether a task descends from another."""
    observed, ahead = set[str](), [later]
    while ahead:
        for parent in workflow.tasks[ahead.pop()].parents:
            if parent == earlier:
                return True
            if parent not in observed:
                observed.add(parent)
                ahead.append(parent)
    return False
