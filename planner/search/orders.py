"""Plans as what the search changes: which replicas are in which slot, in which order, and when each
slot is requested. Starts follow by list scheduling with insertion (Topcuoglu, Hariri, Wu, IEEE TPDS
13(3) 2002, doi:10.1109/71.993206)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Bools, Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.kernel.profile import Steps, fit, use
from vgrads.planner.plan import Placement, SlotUse
from vgrads.planner.schedule import number_tasks
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.needs import Needs

_SHARES = (0.9, 0.75, 0.5, 0.25, 0.0)
"""Probability by which a slot is planned to begin, as a share of its highest: the largest at which
everything still ends in time; else it begins when it is requested. A replica that would be too late
then may still find room, because others are omitted when a replica elsewhere is done."""
_PER_REPLICA = 25  # steps of the plain form


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """``task`` and ``slot`` of each replica, by number, in the order in which they are placed;
    ``submits_s``: when each slot of the snapshot is requested; ``spare_workflows``: as in a
    plan."""

    task: Ints
    slot: Ints
    submits_s: Floats
    spare_workflows: int

    def only(self, chosen: Bools | Ints) -> Orders:
        """Return the same with some of its replicas."""
        return Orders(self.task[chosen], self.slot[chosen], self.submits_s, self.spare_workflows)


class SetArrays(NamedTuple):
    """Tasks and slots of a snapshot as arrays. ``length_s``: reserved time at speed 1; ``kind``: of
    its needs; ``holds``: kinds × slots; ``limit_s``: latest end in each slot; ``moves``: latency
    and seconds per MiB, sites × sites; parents of task t from ``parents_at[t]`` on."""

    length_s: Floats
    procs: Ints
    kind: Ints
    parents_at: Ints
    parents: Ints
    mib: Floats
    width: Ints
    speed: Floats
    site: Ints
    limit_s: Floats
    holds: Bools
    moves: Floats


class Calendars(NamedTuple):
    """Processors in use in each slot (:class:`vgrads.kernel.profile.Steps`): the steps of slot n
    from ``rooms[n]`` on; ``ends_s``: first end of each task at each site, tasks × sites."""

    rooms: Ints
    times_s: Floats
    used: Ints
    heads: Ints
    ends_s: Floats


@compiled
def open_calendars(w: SetArrays, slot: Ints) -> Calendars:
    """Return empty calendars with room for these replicas."""
    counts = np.zeros(len(w.width), np.int64)
    for n in range(len(slot)):
        # a replica adds at most two steps, at its start and at its end
        counts[slot[n]] += 2
    rooms = np.zeros(len(w.width) + 1, np.int64)
    for m in range(len(w.width)):
        rooms[m + 1] = rooms[m] + (counts[m] + 2 if counts[m] > 0 else 0)
    heads = np.zeros((len(w.width), 2), np.int64)
    heads[:, 0] = 1
    ends_s = np.full((len(w.length_s), w.moves.shape[1]), np.inf)
    return Calendars(rooms, np.zeros(rooms[-1]), np.zeros(rooms[-1], np.int64), heads, ends_s)


@compiled
def inputs_s(w: SetArrays, c: Calendars, t: int, site: int) -> float:
    """Return when the data of all parents are at a site, each from its first replica there;
    ``inf`` if a parent has no place yet."""
    latest_s = 0.0
    for k in range(w.parents_at[t], w.parents_at[t + 1]):
        arrives_s = np.inf
        for source in range(w.moves.shape[1]):
            moved_s = w.moves[0, source, site] + w.mib[k] * w.moves[1, source, site]
            arrives_s = min(arrives_s, c.ends_s[w.parents[k], source] + moved_s)
        latest_s = max(latest_s, arrives_s)
    return latest_s


@compiled
def calendar_of(c: Calendars, m: int) -> Steps:
    """Return the calendar of a slot."""
    mine = slice(c.rooms[m], c.rooms[m + 1])
    return Steps(c.times_s[mine], c.used[mine], c.heads[m])


@compiled
def first_start_s(w: SetArrays, c: Calendars, t: int, m: int, ready_s: float) -> float:
    """Return the earliest start of a task in a slot, ``inf`` if it would end too late."""
    if not w.holds[w.kind[t], m]:
        return np.inf
    length_s = w.length_s[t] / w.speed[m]
    steps = calendar_of(c, m)
    return float(fit(steps, w.width[m], ready_s, length_s, w.procs[t], w.limit_s[m]))


@compiled
def reserve(w: SetArrays, c: Calendars, t: int, m: int, start_s: float, procs: int) -> None:
    """Use processors of a slot for a task; a negative number releases them."""
    use(calendar_of(c, m), start_s, start_s + w.length_s[t] / w.speed[m], procs)


@compiled
def put(w: SetArrays, c: Calendars, t: int, m: int, ready_s: float) -> float:
    """Place a task in a slot at its earliest; return its start, ``inf`` if it would end too
    late."""
    start_s = first_start_s(w, c, t, m, ready_s)
    if start_s < np.inf:
        reserve(w, c, t, m, start_s, w.procs[t])
        end_s = start_s + w.length_s[t] / w.speed[m]
        c.ends_s[t, w.site[m]] = min(c.ends_s[t, w.site[m]], end_s)
    return start_s


@compiled
def list_schedule(w: SetArrays, task: Ints, slot: Ints, begin_s: Floats, starts_s: Floats) -> None:
    """Place replicas in this order, each at its earliest after the data of its parents; one whose
    parents have no place yet, after the others. Fill the starts, ``inf`` for a replica that would
    end too late, or that lacks a parent."""
    c = open_calendars(w, slot)
    for n in range(len(task)):
        # -1: not placed yet
        starts_s[n] = -1.0
    changed = True
    while changed:
        changed = False
        for n in range(len(task)):
            if starts_s[n] == -1.0:
                ready_s = inputs_s(w, c, task[n], w.site[slot[n]])
                if ready_s < np.inf:
                    at_s = max(ready_s, begin_s[slot[n]])
                    starts_s[n], changed = put(w, c, task[n], slot[n], at_s), True
    for n in range(len(task)):
        if starts_s[n] == -1.0:
            starts_s[n] = np.inf


@compiled
def place_each_first(
    w: SetArrays, task: Ints, first: Ints, slots: Ints, begin_s: Floats, chosen: Ints
) -> None:
    """Place the tasks of workflows in this order, each in the slot in which it ends first (HEFT);
    tasks of workflow n from ``first[n]`` on. Fill the slot of each, -1 for a workflow of which a
    task would end too late."""
    c, starts_s = open_calendars(w, np.repeat(slots, len(task))), np.zeros(len(task))
    for f in range(len(first) - 1):
        for n in range(first[f], first[f + 1]):
            chosen[n], starts_s[n] = ends_first(w, c, task[n], slots, begin_s)
            t, m = task[n], chosen[n]
            if m < 0:
                # the workflow does not fit: it must not hold room that another could use
                for k in range(first[f], n):
                    reserve(w, c, task[k], chosen[k], starts_s[k], -w.procs[task[k]])
                    c.ends_s[task[k], w.site[chosen[k]]] = np.inf
                chosen[first[f] : first[f + 1]] = -1
                break
            reserve(w, c, t, m, starts_s[n], w.procs[t])
            c.ends_s[t, w.site[m]] = starts_s[n] + w.length_s[t] / w.speed[m]


@compiled
def ends_first(
    w: SetArrays, c: Calendars, t: int, slots: Ints, begin_s: Floats
) -> tuple[int, float]:
    """Return the slot in which a task ends first, and its start; -1 if it ends too late in all."""
    best, best_s, at_s = -1, np.inf, 0.0
    for m in slots:
        if w.holds[w.kind[t], m]:
            length_s = w.length_s[t] / w.speed[m]
            ready_s = max(begin_s[m], inputs_s(w, c, t, w.site[m]))
            # it could not end before the best even in an empty slot: no search in the calendar
            if ready_s + length_s < best_s:
                start_s = first_start_s(w, c, t, m, ready_s)
                if start_s + length_s < best_s:
                    best, best_s, at_s = m, start_s + length_s, start_s
    return best, at_s


class NumberedSet:
    """A snapshot as numbers. Tasks are numbered workflow by workflow, parents first; slots in the
    order of their offers. ``single``: no task may run twice, as programs outside release them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.slots = snapshot, snapshot.slots
        self.workflows, self.single = (
            snapshot.workflow_set.workflows,
            snapshot.workflow_set.released,
        )
        numbers = number_tasks(snapshot)
        self.first = np.append(list(numbers.by_name.values()), len(numbers.rank))
        self.workflow = np.repeat(np.arange(len(self.workflows)), np.diff(self.first))
        self.tasks = [(w.name, task_id) for w in self.workflows for task_id in w.order]
        self.kinds: dict[Needs, int] = {}
        tasks = [w.tasks[task_id] for w in self.workflows for task_id in w.order]
        kind = np.array([self.kinds.setdefault(t.needs, len(self.kinds)) for t in tasks], np.int64)
        sites: dict[str, int] = {}
        site = [sites.setdefault(slot.site, len(sites)) for slot in self.slots]
        deadline_s = snapshot.workflow_set.deadline_s
        usable = [slot.curve.best > 0 for slot in self.slots]
        holds = [
            [able and slot.holds(needs) for slot, able in zip(self.slots, usable, strict=True)]
            for needs in self.kinds
        ]
        self.work = SetArrays(
            length_s=np.concatenate([snapshot.lengths_s(w) for w in self.workflows]),
            procs=np.array([t.procs for t in tasks], np.int64),
            kind=kind,
            parents_at=np.ascontiguousarray(numbers.records["parents_at"]),
            parents=numbers.parents,
            mib=numbers.mib,
            width=np.array([slot.procs for slot in self.slots], np.int64),
            speed=np.array([slot.speed for slot in self.slots], np.float64),
            site=np.array(site, np.int64),
            limit_s=np.array([min(s.end_s, deadline_s) for s in self.slots], np.float64),
            holds=np.array(holds, np.bool_).reshape(len(self.kinds), len(self.slots)),
            moves=snapshot.moves_between(list(sites)),
        )
        self.reaches_s = np.array(
            [[s.curve.reaches_s(share) for s in self.slots] for share in _SHARES]
            # the last row: each slot begins when it is requested
            + [[s.submit_s if s.fixed else 0.0 for s in self.slots]]
        )
        self.shiftable = np.array([not slot.fixed for slot in self.slots])
        self.stated_s = np.array([slot.submit_s for slot in self.slots])
        self.paid = np.array([slot.paid for slot in self.slots])
        queues: dict[str, list[int]] = {}
        for n, slot in enumerate(self.slots):
            if slot.queue and not slot.fixed and not slot.paid:
                queues.setdefault(slot.shared, []).append(n)
        self.queues = [np.array(slots) for slots in queues.values() if len(slots) > 1]

    @cached_property
    def by_deadline(self) -> list[Ints]:
        """Tasks of each workflow by their latest finish, parents first."""
        rest_s = np.zeros(len(self.workflow))  # longest chain of reserved times below a task
        work = self.work
        # children have larger numbers than parents, so from the end on all below a task is known
        for t in range(len(rest_s) - 1, -1, -1):
            for k in range(work.parents_at[t], work.parents_at[t + 1]):
                p = work.parents[k]
                rest_s[p] = max(rest_s[p], rest_s[t] + work.length_s[t])
        results = []
        for n in range(len(self.workflows)):
            mine = np.arange(self.first[n], self.first[n + 1])
            # the longest chain below has the earliest latest finish; equal ones stay parents first
            results.append(mine[np.lexsort((mine, -rest_s[mine]))])
        return results

    def holds_workflow(self, workflow: int, slot: int) -> bool:
        """True if a slot holds every task of a workflow."""
        mine = slice(self.first[workflow], self.first[workflow + 1])
        return bool(self.work.holds[self.work.kind[mine], slot].all())

    def first_s(self, orders: Orders, level: int | Ints) -> Floats:
        """Return when each slot is planned to begin, with a share of its probability."""
        reached_s = (
            self.reaches_s[level]
            if isinstance(level, int)
            else self.reaches_s[level, np.arange(len(self.slots))]
        )
        return reached_s + np.where(self.shiftable, orders.submits_s, 0.0)

    def place(self, orders: Orders) -> tuple[Orders, Floats] | None:
        """Return the planned starts, without replicas that would end too late and without
        workflows that are incomplete then; None if fewer are left than needed."""
        orders = self._in_queue_order(self._distinct(orders))
        # what is removed leaves room, and maybe workflows incomplete: again until nothing changes
        for _ in range(len(self.workflows) + 1):
            starts_s = self.starts_s(orders, self.first_s(orders, len(_SHARES)))
            fits = starts_s < np.inf
            whole = self.complete(orders.task[fits])
            if fits.all() and whole[self.workflow[orders.task]].all():
                break
            orders = orders.only(fits & whole[self.workflow[orders.task]])
        if len(orders.task) == 0 or whole.sum() < self.snapshot.workflow_set.needed:
            return None
        later_s = self.starts_s(orders, self.first_s(orders, self._levels(orders, starts_s)))
        # levels are chosen slot by slot: data from another slot may then come too late
        return orders, later_s if (later_s < np.inf).all() else starts_s

    def pairs(self, orders: Orders) -> Ints:
        """Return workflow and slot of each replica as one number."""
        return self.workflow[orders.task] * len(self.slots) + orders.slot

    def _in_queue_order(self, orders: Orders) -> Orders:
        """Return the plan with no slot of a queue requested after a later one that is used: its
        curve assumes that only earlier ones wait before it."""
        orders = replace(
            orders, submits_s=np.where(self.shiftable, orders.submits_s, self.stated_s)
        )
        if not orders.submits_s.any():
            return orders
        submits_s, used = orders.submits_s.copy(), np.unique(orders.slot)
        for queue in self.queues:
            mine = queue[np.isin(queue, used)]
            submits_s[mine] = np.minimum.accumulate(submits_s[mine][::-1])[::-1]
        return replace(orders, submits_s=submits_s)

    def _distinct(self, orders: Orders) -> Orders:
        """Return the plan with one replica of a task in a slot, the first; with one at all where
        tasks must not run twice."""
        keys = orders.task if self.single else orders.task * len(self.slots) + orders.slot
        distinct, first = np.unique(keys, return_index=True)
        return orders if len(distinct) == len(keys) else orders.only(np.sort(first))

    def _levels(self, orders: Orders, starts_s: Floats) -> Ints:
        """Return the largest share of its probability at which each slot, begun that much later,
        still ends in time."""
        ends_s = starts_s + self.lengths_s(orders)
        last_s = np.zeros(len(self.slots))
        np.maximum.at(last_s, orders.slot, ends_s)
        with np.errstate(invalid="ignore"):  # of a slot that is never ready
            waits_s = self.reaches_s - self.reaches_s[-1]
        waits_s = np.nan_to_num(waits_s, nan=np.inf, posinf=np.inf)
        # the first, and so the largest, share that fits: argmax of truth values
        return np.asarray(np.argmax(waits_s + last_s <= self.work.limit_s + 1e-9, axis=0))

    def starts_s(self, orders: Orders, begin_s: Floats) -> Floats:
        """Return the start of each replica, with slots that begin at these instants."""
        starts_s = np.empty(len(orders.task))
        act = list_schedule.after(_PER_REPLICA * len(orders.task))
        act(self.work, orders.task, orders.slot, begin_s, starts_s)
        return starts_s

    def lengths_s(self, orders: Orders) -> Floats:
        """Return the time reserved for each replica."""
        return self.work.length_s[orders.task] / self.work.speed[orders.slot]

    def complete(self, tasks: Ints) -> Bools:
        """Return which workflows have a replica of every task among these."""
        there = np.zeros(len(self.workflow), np.bool_)
        there[tasks] = True
        missing = np.bincount(self.workflow[~there], minlength=len(self.workflows))
        return np.asarray(missing == 0)

    def orders_of(
        self, placements: Sequence[Placement], uses: Iterable[SlotUse], spare_workflows: int
    ) -> Orders:
        """Return a plan as orders, without what is not on offer or not in the set any more."""
        number = {slot.id: n for n, slot in enumerate(self.slots)}
        tasks = {key: n for n, key in enumerate(self.tasks)}
        submits_s = np.zeros(len(self.slots))
        for use_of in uses:
            if use_of.slot.id in number:
                submits_s[number[use_of.slot.id]] = use_of.submit_s
        there = (p for p in placements if p.slot in number and p.task_key in tasks)
        rows = sorted(there, key=lambda p: (p.start_s, tasks[p.task_key]))
        return Orders(
            np.array([tasks[p.task_key] for p in rows], np.int64),
            np.array([number[p.slot] for p in rows], np.int64),
            submits_s,
            spare_workflows,
        )

    def numbered(self, orders: Orders) -> Ints:
        """Return the number of each replica among those of its task."""
        turns = np.argsort(orders.task, kind="stable")
        ordered = orders.task[turns]
        result = np.empty(len(turns), np.int64)
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sizes = np.diff(np.append(begins, len(ordered)))
        result[turns] = np.arange(len(ordered)) - np.repeat(begins, sizes)
        return result

    def placements(self, orders: Orders, starts_s: Floats) -> tuple[Placement, ...]:
        """Return the replicas of a plan."""
        columns = (
            [self.tasks[n] for n in orders.task.tolist()],
            self.numbered(orders).tolist(),
            orders.slot.tolist(),
            starts_s.tolist(),
            (starts_s + self.lengths_s(orders)).tolist(),
            self.work.procs[orders.task].tolist(),
        )
        return tuple(
            Placement(name, task, replica, self.slots[slot].id, start_s, end_s, procs)
            for (name, task), replica, slot, start_s, end_s, procs in zip(*columns, strict=True)
        )
