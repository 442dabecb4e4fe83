"""Pilot runs that can be started: the task of each kind that says most of those that can be run
alone, and the set of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.api.plans.pilot_choice import SHARE, choose_pilot_size, distance
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.runtimes import sum_input_bytes
from vgrads.planner.snapshot import TaskKey
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PilotTask:
    """The task of a kind to run as its pilot, and its run time in seconds; without one that can be
    run alone, ``reason`` says why the best cannot."""

    key: TaskKey | None
    runtime_s: float
    reason: str = ""


def choose_pilot_tasks(planned: Planned) -> dict[str, PilotTask]:
    """Return for each kind the task whose input size says most, of those that can be run alone on
    the inputs that they have in the set; without sizes, the shortest."""
    original = {workflow.name: workflow for workflow in planned.workflow_set.workflows}
    kinds: dict[str, list[tuple[float, float, str, Task]]] = {}
    for workflow in planned.snapshot.workflow_set.workflows:
        for task in workflow.tasks.values():
            size, seconds = sum_input_bytes(workflow, task) or 0.0, max(0.1, task.runtime_s)
            row = (size, seconds, workflow.name, task)
            kinds.setdefault(planned.grid.run_times.derive_kind(task), []).append(row)
    files: dict[str, bool] = {}
    results: dict[str, PilotTask] = {}
    for kind, rows in kinds.items():
        aim = choose_pilot_size([row[0] for row in rows])
        ordered = sorted(rows, key=lambda row: (distance(row[0], aim), row[1]))
        for _, seconds, name, task in ordered:
            reason = _find_obstacle(planned.workflow_set, original[name].tasks[task.id], files)
            if not reason:
                results[kind] = PilotTask((name, task.id), seconds)
                break
            results.setdefault(kind, PilotTask(None, seconds, f"{name}/{task.id} {reason}"))
    return results


def _find_obstacle(workflow_set: WorkflowSet, task: Task, files: dict[str, bool]) -> str:
    """Return why a task cannot be run alone, and without changing files of its user; empty if it
    can. ``files``: inputs that were looked up."""
    if workflow_set.released:
        return "waits for its release by another program"
    if not task.command:
        return "has no command"
    if task.sends:
        return "sends its outputs elsewhere"
    if task.environment.workdir:
        return "runs in a folder of its own choice"
    for name in task.inputs:
        if name not in files:
            files[name] = (Path(workflow_set.directory) / name).exists()
        if not files[name]:
            return f"reads '{name}', which does not exist yet"
    # what it takes from them is not known then
    if task.parents and not task.inputs:
        return f"follows {task.parents[0]} and names no inputs"
    return ""


def make_pilot_set(planned: Planned, items: Iterable[Json]) -> WorkflowSet:
    """Return the set of these pilot runs, each a workflow of one task. Its name differs from that
    of the planned set, so that no later run takes its outputs for results."""
    original = planned.workflow_set
    by_name = {workflow.name: workflow for workflow in original.workflows}
    workflows = tuple(_make_single_task_workflow(by_name[item["workflow"]], item) for item in items)
    budget = original.budget_usd
    return replace(
        original,
        name=f"pilots of {original.name}"[:200],
        workflows=workflows,
        needed=len(workflows),
        # pilots take at most this share of the work, and so of the money
        budget_usd=None if budget is None else SHARE * budget,
    )


def _make_single_task_workflow(workflow: Workflow, item: Json) -> Workflow:
    task = replace(workflow.tasks[item["task"]], parents=(), kind=item["kind"])
    return make_workflow(f"pilot-{workflow.name}-{task.id}"[:200], [task], workflow.file_mib)
