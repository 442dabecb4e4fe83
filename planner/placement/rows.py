"""Tasks of a workflow, or of several, as arrays in the order of placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vgrads.planner.placement.deadlines import latest_finishes, typical_speed
from vgrads.planner.placement.window_packing import TASK
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.needs import Needs


@dataclass(frozen=True, kw_only=True)
class TaskRows:
    """Common data of equal workflows: their tasks in the order of placement, which is that of their
    latest starts, and the kinds of their needs."""

    order: tuple[str, ...]
    latest_s: Any
    tasks: Any
    parents: Any
    mib: Any
    kinds: tuple[Needs, ...]


def make_rows(workflow: Workflow, snapshot: Snapshot) -> TaskRows:
    """Return the tasks of a workflow by their latest start, parents first."""
    latest = latest_finishes(workflow, snapshot)
    lengths = dict(zip(workflow.order, snapshot.lengths_s(workflow), strict=True))
    position = {task_id: n for n, task_id in enumerate(workflow.order)}
    speed = typical_speed(snapshot)  # with it, parents never start after their children
    begins = {task_id: latest[task_id] - length_s / speed for task_id, length_s in lengths.items()}
    order = sorted(workflow.order, key=lambda t: (begins[t], position[t]))
    place = {task_id: n for n, task_id in enumerate(order)}
    kinds: dict[Needs, int] = {}
    same: dict[tuple[float, int], int] = {}
    tasks = np.zeros(len(order) + 1, TASK)
    parents: list[int] = []
    mib: list[float] = []
    for n, task_id in enumerate(order):
        task = workflow.tasks[task_id]
        kind = kinds.setdefault(task.needs, len(kinds))
        tasks[n] = (
            lengths[task_id],
            task.procs,
            kind,
            same.setdefault((lengths[task_id], task.procs), len(same)),
            len(parents),
            snapshot.workflow_set.deadline_s - latest[task_id],
        )
        parents += [place[parent] for parent in task.parents]
        mib += [workflow.transfer_mib(parent, task_id) for parent in task.parents]
    # the extra row ends the range of the last task's parents
    tasks[-1]["parents_at"] = len(parents)
    return TaskRows(
        order=tuple(order),
        latest_s=np.array([begins[task_id] for task_id in order]),
        tasks=tasks.view(np.recarray),
        parents=np.array(parents, np.int64),
        mib=np.array(mib, np.float64),
        kinds=tuple(kinds),
    )


def merge_workflows(parts: Sequence[TaskRows]) -> tuple[TaskRows, Any]:
    """Return the tasks of several workflows as one, by their latest starts; and for each position
    the task number, counted through the parts. Parents stay before their children."""
    sizes = np.array([len(part.order) for part in parts])
    tasks = np.concatenate([part.tasks[:-1] for part in parts])
    before = np.concatenate(([0], np.cumsum(sizes)))
    read = np.concatenate(([0], np.cumsum([len(part.parents) for part in parts])))
    kinds: dict[Needs, int] = {}
    same: dict[int, int] = {}  # of equal workflows
    for n, part in enumerate(parts):
        own = slice(before[n], before[n + 1])
        kinds_of = np.array([kinds.setdefault(kind, len(kinds)) for kind in part.kinds])
        tasks["kind"][own] = kinds_of[tasks["kind"][own]]
        tasks["same"][own] += same.setdefault(id(part), before[n])
        tasks["parents_at"][own] += read[n]
    latest_s = np.concatenate([part.latest_s for part in parts])
    turns = np.argsort(latest_s, kind="stable")
    turn_of = np.empty_like(turns)
    turn_of[turns] = np.arange(len(turns))
    parents = np.concatenate([part.parents + before[n] for n, part in enumerate(parts)])
    begins = np.append(tasks["parents_at"], len(parents))
    counts = np.diff(begins)[turns]
    ends = np.cumsum(counts)
    edges = np.repeat(begins[turns] - (ends - counts), counts) + np.arange(len(parents))
    mib = np.concatenate([part.mib for part in parts])
    result = np.zeros(len(tasks) + 1, TASK)
    result[:-1] = tasks[turns]
    result["parents_at"] = np.concatenate(([0], ends))
    rows = TaskRows(
        order=(),
        latest_s=latest_s[turns],
        tasks=result.view(np.recarray),
        parents=turn_of[parents][edges],
        mib=mib[edges],
        kinds=tuple(kinds),
    )
    return rows, turns
