"""Deadlines of tasks from the deadline of the workflow, bottom-up through the DAG (SC'09
§3.2.2)."""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.dag import Workflow

_CAUTIOUS_SPEED = 0.5  # quantile of the offered speeds, used for tasks


def latest_finishes(workflow: Workflow, snapshot: Snapshot) -> Mapping[str, float]:
    """Return task id → the latest finish that still lets all its descendants finish by the
    deadline.

    Run times at the median offered speed; transfers between tasks over the default link, because it
    is not known yet whether they will share a site.
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
        latest[task_id] = min(margins, default=snapshot.workflow_set.deadline_s)
    return latest


def deadline_order(workflow: Workflow, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the task ids by latest finish, parents first."""
    latest = latest_finishes(workflow, snapshot)
    rank = workflow.shape.rank
    return tuple(sorted(workflow.order, key=lambda task_id: (latest[task_id], rank[task_id])))


def typical_speed(snapshot: Snapshot) -> float:
    """Return the speed assumed for tasks without a slot: the median offered speed."""
    speeds = sorted(slot.speed for slot in snapshot.slots) or [1.0]
    return speeds[int(_CAUTIOUS_SPEED * (len(speeds) - 1))]
