"""Data derived from a workflow's tasks alone; workflows that differ only in their name share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.workflows.needs import Needs
from vgrads.workflows.task import Task


class ShapeArrays(NamedTuple):
    """Tasks by their position in the order, for loops over many: ``parents`` of task t begin at
    ``parents_at[t]``, with the data that t reads from each in ``mib``; children likewise."""

    runtime_s: Floats
    procs: Ints
    memory_mib: Floats
    parents_at: Ints
    parents: Ints
    mib: Floats
    children_at: Ints
    children: Ints
    children_mib: Floats


@dataclass(frozen=True, eq=False)
class Shape:
    """Tasks, their dependencies, and an order in which they can run."""

    tasks: Mapping[str, Task]
    file_mib: Mapping[str, float]

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Task id → ids of the tasks that need it."""
        results: dict[str, list[str]] = {task_id: [] for task_id in self.tasks}
        for task in self.tasks.values():
            for parent in task.parents:
                results[parent].append(task.id)
        return {task_id: tuple(ids) for task_id, ids in results.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Task ids with every parent before its children; O(V + E)."""
        waiting = {task.id: len(task.parents) for task in self.tasks.values()}
        ready = [task_id for task_id, count in waiting.items() if count == 0]
        for task_id in ready:  # grows during the iteration
            for child in self.children[task_id]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready.append(child)
        return tuple(ready)

    @cached_property
    def edge_mib(self) -> Mapping[tuple[str, str], float]:
        """(parent, child) → data that the child reads from the parent."""
        outputs = {task.id: frozenset(task.outputs) for task in self.tasks.values()}
        sizes = self.file_mib
        return {
            (parent, task.id): sum([sizes.get(f, 0.0) for f in task.inputs if f in outputs[parent]])
            for task in self.tasks.values()
            for parent in task.parents
        }

    @cached_property
    def rank(self) -> Mapping[str, int]:
        """Task id → its position in the order."""
        return {task_id: n for n, task_id in enumerate(self.order)}

    @cached_property
    def distinct_needs(self) -> frozenset[Needs]:
        """Requirements of tasks on a slot, each kind once."""
        return frozenset(task.needs for task in self.tasks.values())

    @cached_property
    def arrays(self) -> ShapeArrays:
        """The same as arrays."""
        rank, tasks = self.rank, [self.tasks[task_id] for task_id in self.order]
        counts = np.array([len(task.parents) for task in tasks], np.int64)
        edges = [(parent, task.id) for task in tasks for parent in task.parents]
        parents = np.array([rank[parent] for parent, _ in edges], np.int64)
        mib = np.array([self.edge_mib[edge] for edge in edges], np.float64)
        by_parent = np.argsort(parents, kind="stable")
        return ShapeArrays(
            runtime_s=np.array([task.runtime_s for task in tasks], np.float64),
            procs=np.array([task.procs for task in tasks], np.int64),
            memory_mib=np.array([task.memory_mib for task in tasks], np.float64),
            parents_at=_find_begins(counts),
            parents=parents,
            mib=mib,
            children_at=_find_begins(np.bincount(parents, minlength=len(tasks))),
            children=np.repeat(np.arange(len(tasks)), counts)[by_parent],
            children_mib=mib[by_parent],
        )


def _find_begins(counts: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
