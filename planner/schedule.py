"""Placements as arrays, for functions that read them many thousand times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

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

    def numbers(self) -> Ints:
        """Return the number of each replica among those of its task."""
        result = np.empty(len(self.of_task), np.int64)
        result[self.of_task] = np.arange(len(self.of_task))
        return np.asarray(result - self.tasks.replicas_at[self.replicas.task])

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
            name: _make_objects(getattr(self, name)) for name in ("replicas", "tasks", "slots")
        }
        return self._replace(**lists, **objects)


def _make_objects(records: Records) -> list[SimpleNamespace]:
    names = records.dtype.names
    assert names is not None
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in records.tolist()]


class ReplicaRows(NamedTuple):
    """Replicas as columns: number of the slot among those used, of the task among all of the set
    (:class:`TaskNumbers`), of the replica among those of its task; processors, planned start, time
    reserved (s)."""

    slot: Ints
    task: Ints
    replica: Ints
    procs: Ints
    start_s: Floats
    length_s: Floats


def make_schedule(
    snapshot: Snapshot, placements: Sequence[Placement], submits_s: Mapping[str, float]
) -> tuple[Schedule, list[Placement]]:
    """Return the arrays of these placements, and the replicas in their order; ``submits_s``: slot →
    when it is requested."""
    number = {slot: n for n, slot in enumerate(submits_s)}
    by_name = number_tasks(snapshot).by_name
    rows = ReplicaRows(
        slot=np.array([number[p.slot] for p in placements], np.int64),
        task=np.array([by_name[p.workflow] + _rank(snapshot, p) for p in placements], np.int64),
        replica=np.array([p.replica for p in placements], np.int64),
        procs=np.array([p.procs for p in placements], np.int64),
        start_s=np.array([p.start_s for p in placements], np.float64),
        length_s=np.array([p.end_s - p.start_s for p in placements], np.float64),
    )
    schedule, turns = arrange(snapshot, rows, submits_s)
    return schedule, [placements[n] for n in turns.tolist()]


def _rank(snapshot: Snapshot, p: Placement) -> int:
    return snapshot.workflow_by_name[p.workflow].shape.rank[p.task]


def arrange(
    snapshot: Snapshot, rows: ReplicaRows, submits_s: Mapping[str, float]
) -> tuple[Schedule, Ints]:
    """Return the arrays of these replicas, and the order in which they are in them."""
    slots = [snapshot.slot_by_id[slot] for slot in submits_s]
    tasks = number_tasks(snapshot)
    keys = order_keys(
        start_s=rows.start_s,
        end_s=rows.start_s + rows.length_s,
        rank=tasks.rank[rows.task],
        turn=tasks.turn[rows.task],
        replica=rows.replica,
    )
    # lexsort orders by its last key first: slot by slot
    turns = np.lexsort((*keys, rows.slot))
    replicas = np.zeros(len(turns), _REPLICA)
    for name in ("slot", "task", "procs", "start_s", "length_s"):
        replicas[name] = getattr(rows, name)[turns]
    # the stored ones serve every plan of this snapshot
    records = tasks.records.copy()
    records["replicas_at"] = _find_begins(replicas["task"], len(records) - 1)
    places: dict[str, int] = {}
    site = [places.setdefault(s.site, len(places)) for s in slots]
    costs = [(-s.price_usd_per_hour * s.nodes, -s.procs, -n) for n, s in enumerate(slots)]
    offered = np.zeros(len(slots) + 1, _SLOT)
    offered["first_at"] = _find_begins(replicas["slot"], len(slots))
    for n, s in enumerate(slots):
        submit_s = submits_s[s.id]
        row = (s.procs, s.end_s - submit_s, submit_s, s.task_failure, site[n])
        # several fields of an array of records are a view of it, not a copy
        offered[["procs", "duration_s", "submit_s", "failure", "site"]][n] = row
    schedule = Schedule(
        replicas=replicas.view(np.recarray),
        tasks=records.view(np.recarray),
        slots=offered.view(np.recarray),
        of_task=np.argsort(replicas["task"], kind="stable"),
        parents=tasks.parents,
        mib=tasks.mib,
        children=tasks.children,
        links=snapshot.moves_between(list(places)),
        dearest=np.array(sorted(range(len(slots)), key=costs.__getitem__), np.int64),
        touched=np.zeros(len(slots) + 1, np.int64),
        workflows=len(tasks.by_name),
    )
    return schedule, turns


def _find_begins(owner: Ints, count: int) -> Ints:
    """Return the first row of each owner in a list sorted by owner; with one extra entry."""
    return np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count)))).astype(np.int64)


@dataclass(frozen=True, eq=False)
class TaskNumbers:
    """All tasks of a set, numbered workflow by workflow, parents first. ``by_name``: workflow → its
    first task; ``rank``, ``turn``: see :func:`vgrads.planner.plan.order_keys`; ``records`` and the
    edges as in :class:`Schedule`, without replicas."""

    by_name: Mapping[str, int]
    rank: Ints
    turn: Ints
    records: Records
    parents: Ints
    mib: Floats
    children: Ints


def number_tasks(snapshot: Snapshot) -> TaskNumbers:
    """Return the tasks of a snapshot as numbers; computed once."""
    stored = snapshot.computed.get("tasks")
    if stored is None:
        stored = snapshot.computed["tasks"] = _number_tasks(snapshot)
    return cast(TaskNumbers, stored)


def _number_tasks(snapshot: Snapshot) -> TaskNumbers:
    by_name: dict[str, int] = {}
    owners, ranks, sources, targets, mib, base = [], [], [], [], [], 0
    for row, flow in enumerate(snapshot.workflow_set.workflows):
        shape, count = flow.shape, len(flow.shape.order)
        by_name[flow.name] = base
        owners.append(np.full(count, row, np.int64))
        ranks.append(np.arange(count))
        sources.append(shape.arrays.parents + base)
        targets.append(np.repeat(np.arange(count), np.diff(shape.arrays.parents_at)) + base)
        mib.append(shape.arrays.mib)
        base += count
    owner, source, target = (np.concatenate(part) for part in (owners, sources, targets))
    records = np.zeros(base + 1, _TASK)
    records["workflow"][:base] = owner
    records["parents_at"], records["children_at"] = (
        _find_begins(target, base),
        _find_begins(source, base),
    )
    by_target = np.argsort(target, kind="stable")
    # sorting the order gives each name its rank
    turns = np.argsort(np.argsort(list(by_name)))
    return TaskNumbers(
        by_name=by_name,
        rank=np.concatenate(ranks),
        turn=turns[owner],
        records=records.view(np.recarray),
        parents=source[by_target],
        mib=np.concatenate(mib)[by_target],
        children=target[np.argsort(source, kind="stable")],
    )
