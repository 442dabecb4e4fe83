"""Tasks of one workflow that belong together by what they read and write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow
from vgrads.workflows.task import Task


def after_makers(tasks: Iterable[Task]) -> list[Task]:
    """Tasks with the parents that their inputs name: whoever alone makes a file is a parent of
    whoever reads it.

    Where several make one, ``parents`` has to say which of them is meant.
    """
    tasks = list(tasks)
    makers = _makers(
        (task.id, (*task.outputs, *(file.name for file in task.sends))) for task in tasks
    )
    return [_after(task, makers) for task in tasks]


def refuse_two_makers(workflow: Workflow, where: str) -> None:
    """InputError where two tasks write one file and neither waits for the other: which of them is
    kept would be luck.

    Tasks without a command, as recorded workflows have them, write nothing (two in Montage are
    recorded with one name).
    """
    tasks = [workflow.tasks[i] for i in workflow.order if workflow.tasks[i].command]
    for name, makers in _makers((task.id, task.outputs) for task in tasks).items():
        for earlier, later in pairwise(makers):
            if not _waits(workflow, later, earlier):
                raise InputError(
                    f"'{earlier}' and '{later}' both write '{name}'",
                    where=f"{where}: task '{later}'",
                    fix="give each its own name, or make one a parent of the other",
                )


def _makers(outputs: Iterable[tuple[str, Iterable[str]]]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for task_id, names in outputs:
        for name in dict.fromkeys(names):
            found[name].append(task_id)
    return found


def _after(task: Task, makers: Mapping[str, Sequence[str]]) -> Task:
    sole = dict.fromkeys(makers[name][0] for name in task.inputs if len(makers.get(name, ())) == 1)
    more = tuple(one for one in sole if one != task.id and one not in task.parents)
    return replace(task, parents=task.parents + more) if more else task


def _waits(workflow: Workflow, later: str, earlier: str) -> bool:
    """Whether a task descends from another."""
    seen, ahead = set[str](), [later]
    while ahead:
        for parent in workflow.tasks[ahead.pop()].parents:
            if parent == earlier:
                return True
            if parent not in seen:
                seen.add(parent)
                ahead.append(parent)
    return False
