"""Workflows that run as one task of another, put in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.task import Task


def put_in_place(
    tasks: Iterable[Task], nested: Mapping[str, Sequence[Task]], where: str, reading: Reading
) -> list[Task]:
    """Replace tasks by the workflows that they stand for, by id: those of their tasks that have no
    parents begin when it would have begun, and when none is left, its children begin.

    InputError if that describes too many tasks or edges.
    """
    ends = {name: _list_last(inner) for name, inner in nested.items()}
    result: list[Task] = []
    edges = 0
    for task in tasks:
        parents = tuple(dict.fromkeys(end for p in task.parents for end in ends.get(p, (p,))))
        for inner in nested.get(task.id, (task,)):
            begins = inner is task or not inner.parents
            moved = begins and inner.parents != parents
            result.append(replace(inner, parents=parents) if moved else inner)
            edges += len(result[-1].parents)
        reading.limit(len(result), edges, where)
    return result


def _list_last(tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return the tasks that no other one waits for."""
    with_children = {parent for task in tasks for parent in task.parents}
    return tuple(task.id for task in tasks if task.id not in with_children)
