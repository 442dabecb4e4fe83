"""Placements as arrays, for functions that read them many thousand times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from vgrads.kernel.arrays import Floats, Ints, Records
from vgrads.planner.plan import Placement, order_keys
from vgrads.planner.snapshot import Snapshot

_REPLICA = np.dtype(
    [
        ("slot", "i8"),
        ("task", "i8"),
        ("procs", "i8"),
        ("start_s", "f8"),
        ("length_s", "f8"),
        ("state", "i8"),
        ("tries", "i8"),
        ("end_s", "f8"),
        ("here_s", "f8"),
        ("after", "i8"),
    ]
)
_TASK = np.dtype(
    [
        ("workflow", "i8"),
        ("replicas_at", "i8"),
        ("parents_at", "i8"),
        ("children_at", "i8"),
        ("done_s", "f8"),
        ("site", "i8"),
        ("missing", "i8"),
        ("left", "i8"),
    ]
)
_SLOT = np.dtype(
    [
        ("first_at", "i8"),
        ("procs", "i8"),
        ("duration_s", "f8"),
        ("submit_s", "f8"),
        ("failure", "f8"),
        ("site", "i8"),
        ("ready_s", "f8"),
        ("lifetimes_s", "f8"),
        ("phase", "i8"),
        ("room", "i8"),
        ("next", "i8"),
        ("wake_s", "f8"),
        ("until_s", "f8"),
        ("touched", "i8"),
    ]
)


class Schedule(NamedTuple):
    """Records of replicas (slot by slot, in the order in which slots start them), tasks (workflow
    by workflow, parents first) and slots; tasks and slots have one extra row.

    ``…_at``: first row of each task's replicas in ``of_task``, of its parents, of its children; for
    slots, of their replicas. ``mib``: MiB that a task reads from each parent. ``links``: latency
    and seconds per MiB, sites × sites. ``dearest``: slots by price, then width. For the
    simulation: fields from ``state``, ``done_s`` and ``ready_s`` on, and ``touched``, the number of
    slots that may have changed, then these.
    """

    replicas: Records
    tasks: Records
    slots: Records
    of_task: Ints
    parents: Ints
    mib: Floats
    children: Ints
    links: Floats
    dearest: Ints
    touched: Ints
    workflows: int

    def copied(self) -> Schedule:
        """Return the same with separate records."""
        return self._replace(
            replicas=self.replicas.copy(),
            tasks=self.tasks.copy(),
            slots=self.slots.copy(),
            touched=self.touched.copy(),
        )

    def as_objects(self) -> Schedule:
        """Return the same with separate objects instead of records, for Python: numpy takes ten
        times as long to read a field."""
        lists: dict[str, Any] = {
            name: getattr(self, name).tolist()
            for name in ("of_task", "parents", "mib", "children", "dearest", "touched")
        }
        objects: dict[str, Any] = {
            name: _objects(getattr(self, name)) for name in ("replicas", "tasks", "slots")
        }
        return self._replace(**lists, **objects)


def _objects(records: Records) -> list[SimpleNamespace]:
    names = records.dtype.names
    assert names is not None
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in records.tolist()]


def make_schedule(
    snapshot: Snapshot, placements: Sequence[Placement], submits_s: Mapping[str, float]
) -> tuple[Schedule, list[Placement]]:
    """Return the arrays of these placements, and the replicas in their order; ``submits_s``: slot →
    when it is requested."""
    slots = [snapshot.slot_by_id[slot] for slot in submits_s]
    number = {slot.id: n for n, slot in enumerate(slots)}
    in_slot = np.array([number[p.slot] for p in placements], np.int64)
    turns = np.lexsort((*order_keys(placements, snapshot), in_slot))
    ordered = [placements[n] for n in turns.tolist()]
    names = [workflow.name for workflow in snapshot.workflow_set.workflows]
    tasks, dag = _tasks(snapshot, names)
    replicas = np.zeros(len(ordered), _REPLICA)
    replicas["slot"] = [number[p.slot] for p in ordered]
    replicas["task"] = [tasks[p.workflow][p.task] for p in ordered]
    replicas["procs"] = [p.procs for p in ordered]
    replicas["start_s"] = [p.start_s for p in ordered]
    replicas["length_s"] = [p.end_s - p.start_s for p in ordered]
    total = len(dag["workflow"])
    records = np.zeros(total + 1, _TASK)
    records["workflow"][:total] = dag["workflow"]
    records["replicas_at"] = _begins(replicas["task"], total)
    records["parents_at"], records["children_at"] = (
        _begins(dag["target"], total),
        _begins(dag["source"], total),
    )
    by_target = np.argsort(dag["target"], kind="stable")
    by_source = np.argsort(dag["source"], kind="stable")
    places: dict[str, int] = {}
    site = [places.setdefault(s.site, len(places)) for s in slots]
    costs = [(-s.price_usd_per_hour * s.nodes, -s.procs, -n) for n, s in enumerate(slots)]
    offered = np.zeros(len(slots) + 1, _SLOT)
    offered["first_at"] = _begins(replicas["slot"], len(slots))
    for n, s in enumerate(slots):
        submit_s = submits_s[s.id]
        row = (s.procs, s.end_s - submit_s, submit_s, s.task_failure, site[n])
        offered[["procs", "duration_s", "submit_s", "failure", "site"]][n] = row
    schedule = Schedule(
        replicas=replicas.view(np.recarray),
        tasks=records.view(np.recarray),
        slots=offered.view(np.recarray),
        of_task=np.argsort(replicas["task"], kind="stable"),
        parents=dag["source"][by_target],
        mib=dag["mib"][by_target],
        children=dag["target"][by_source],
        links=snapshot.moves_between(list(places)),
        dearest=np.array(sorted(range(len(slots)), key=costs.__getitem__), np.int64),
        touched=np.zeros(len(slots) + 1, np.int64),
        workflows=len(names),
    )
    return schedule, ordered


def _begins(owner: Ints, count: int) -> Ints:
    """Return the first row of each owner in a list sorted by owner; with one extra entry."""
    return np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count)))).astype(np.int64)


Dag = dict[str, Any]


def _tasks(snapshot: Snapshot, names: Sequence[str]) -> tuple[dict[str, Mapping[str, int]], Dag]:
    """Return workflow → task → its number, and all edges; equal workflows share the computed
    arrays."""
    numbers: dict[str, Mapping[str, int]] = {}
    owners, sources, targets, mib = [], [], [], []
    base = 0
    for row, name in enumerate(names):
        shape = snapshot.workflow_by_name[name].shape
        count = len(shape.order)
        numbers[name] = {task: base + n for task, n in shape.rank.items()} if base else shape.rank
        owners.append(np.full(count, row, np.int64))
        sources.append(shape.arrays.parents + base)
        targets.append(np.repeat(np.arange(count), np.diff(shape.arrays.parents_at)) + base)
        mib.append(shape.arrays.mib)
        base += count
    parts: dict[str, list[Any]] = {
        "workflow": owners,
        "source": sources,
        "target": targets,
        "mib": mib,
    }
    return numbers, {name: np.concatenate(rows) for name, rows in parts.items()}
