"""Success probability of replicas of workflows with single-slot placement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vgrads.planner.plan import Placement
from vgrads.planner.promise.probability import Scenarios
from vgrads.planner.snapshot import ReplicaKey, Snapshot
from vgrads.workflows.dag import Workflow

Placed = Mapping[str, Sequence[Placement]]
"""Replicas of a workflow's tasks, by task."""


def single_slot_probabilities(
    scenarios: Scenarios,
    snapshot: Snapshot,
    single_slot_placements: Iterable[tuple[str, Placed, int]],
) -> dict[ReplicaKey, float]:
    """Return the success probability of every replica of workflows with single-slot placement: each
    by its name, its placements and its number of replicas."""
    by_slot = defaultdict[str, list[tuple[ReplicaKey, float, float]]](list)
    for name, placed, count in single_slot_placements:
        for p, first_s in _find_begins(snapshot.workflow_by_name[name], placed, count):
            by_slot[p.slot].append((p.key, first_s, p.end_s))
    success = dict[ReplicaKey, float]()
    for slot_id, rows in by_slot.items():
        keys, firsts_s, ends_s = zip(*rows, strict=True)
        chances = scenarios.chances(snapshot.slot_by_id[slot_id], firsts_s, ends_s)
        success.update(zip(keys, chances.tolist(), strict=True))
    return success


def _find_begins(
    workflow: Workflow, placed: Placed, count: int
) -> Iterator[tuple[Placement, float]]:
    """Return each placement with the earliest start among it and its ancestors. A task succeeds if
    the slot is ready by that start, and lives to the task's end."""
    for n in range(count):
        first_s = dict[str, float]()
        for task_id in workflow.order:
            p = placed[task_id][n]
            begin_s = p.start_s
            for parent in workflow.tasks[task_id].parents:
                begin_s = min(begin_s, first_s[parent])
            first_s[task_id] = begin_s
            yield p, begin_s
