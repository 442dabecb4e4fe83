"""Deadlines of tasks from the deadline of the workflow, bottom-up through the DAG (SC'09
§3.2.2)."""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.dag import Workflow

_CAUTIOUS_SPEED = 0.5  # quantile of the offered speeds that a task is reckoned with


def latest_finishes(workflow: Workflow, snapshot: Snapshot) -> Mapping[str, float]:
    """Task id → the latest finish that still lets all its descendants finish by the deadline.

    Run times at the median speed on offer; transfers between tasks as over the default link,
    because nobody knows yet whether they will share a site.
    """
    speed = typical_speed(snapshot)
    latest: dict[str, float] = {}
    for task_id in reversed(workflow.order):
        margins = [
            latest[child]
            - snapshot.length_s(workflow.tasks[child]) / speed
            - snapshot.transfer_s(workflow, task_id, child, ("?", "??"))
            for child in workflow.children[task_id]
        ]
        latest[task_id] = min(margins, default=snapshot.wanted.deadline_s)
    return latest


def typical_speed(snapshot: Snapshot) -> float:
    """The speed that tasks are reckoned with before they have a slot: the median on offer."""
    speeds = sorted(slot.speed for slot in snapshot.slots) or [1.0]
    return speeds[int(_CAUTIOUS_SPEED * (len(speeds) - 1))]
