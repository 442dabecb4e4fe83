"""How surely the copies succeed of a workflow that lies whole in one slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vgrads.planner.plan import Placement
from vgrads.planner.promise.probability import Scenarios
from vgrads.planner.snapshot import CopyKey, Snapshot
from vgrads.workflows.dag import Workflow

Placed = Mapping[str, Sequence[Placement]]
"""Copies of a workflow's tasks, by task."""


def chances_of_gangs(
    scenarios: Scenarios, snapshot: Snapshot, gangs: Iterable[tuple[str, Placed, int]]
) -> dict[CopyKey, float]:
    """Success probability of every copy of workflows that lie whole in slots: each by its name,
    its placements and how many copies it has."""
    by_slot = defaultdict[str, list[tuple[CopyKey, float, float]]](list)
    for name, placed, count in gangs:
        for p, first_s in _begins(snapshot.workflow_by_name[name], placed, count):
            by_slot[p.slot].append((p.key, first_s, p.end_s))
    found = dict[CopyKey, float]()
    for slot_id, rows in by_slot.items():
        keys, firsts_s, ends_s = zip(*rows, strict=True)
        chances = scenarios.chances(snapshot.slot_by_id[slot_id], firsts_s, ends_s)
        found.update(zip(keys, chances.tolist(), strict=True))
    return found


def _begins(workflow: Workflow, placed: Placed, count: int) -> Iterator[tuple[Placement, float]]:
    """A task succeeds where the slot is ready by the first start before it, which is told, and
    lives to its end."""
    for n in range(count):
        first_s = dict[str, float]()
        for task_id in workflow.order:
            p = placed[task_id][n]
            begin_s = p.start_s
            for parent in workflow.tasks[task_id].parents:
                begin_s = min(begin_s, first_s[parent])
            first_s[task_id] = begin_s
            yield p, begin_s
