"""Random changes of a plan: of one replica, of a workflow in a slot, of a slot."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.planner.plan import EVERYTHING
from vgrads.planner.search.orders import NumberedSet, Orders
from vgrads.planner.search.versions import PlacedOrders

Move = Callable[[Orders], Orders | None]
Weighted = Sequence[tuple[Move, float]]
"""Moves with their weights."""
_DELAYS = (1.0, 0.75, 0.5, 0.25, 0.1)  # of the time that is left after a slot's last task


class Moves:
    """Draws changes. Each returns the changed plan, or None where it does not apply; a plan may
    lack tasks then (:meth:`NumberedSet.place` omits workflows that do)."""

    def __init__(self, problem: NumberedSet, draws: random.Random) -> None:
        self.problem, self.draws, self.share = problem, draws, 0.0
        self.ends_s: Floats = np.zeros(0)  # of the replicas of the present plan
        work = problem.work
        self.usable = np.flatnonzero(work.holds.any(axis=0)).tolist()
        workflows = range(len(problem.workflows))
        self.fitting = [[n for n in self.usable if problem.holds_workflow(w, n)] for w in workflows]
        self.more: Weighted = (
            (self.put_workflow, 4.0),
            (self.move_replica, 4.0),
            (self.add_replica, 3.0),
            (self.add_tail, 2.0),
            (self.exchange, 2.0),
            (self.reorder, 2.0),
            (self.move_workflow, 2.0),
            (self.take_some, 1.0),
            (self.drop_replica, 1.0),
            (self.delay_slot, 1.0),
            (self.release, 0.5),
        )
        self.less: Weighted = (
            (self.empty_slot, 3.0),
            (self.take_some, 5.0),
            (self.drop_workflow, 2.0),
            (self.drop_replica, 2.0),
            (self.delay_slot, 2.0),
            (self.release, 2.0),
            (self.move_workflow, 2.0),
            (self.move_replica, 1.5),
            (self.reorder, 1.0),
            (self.put_workflow, 1.0),
            (self.exchange, 1.0),
        )

    def draw(self, now: PlacedOrders, moves: Weighted) -> Orders | None:
        """Return a changed plan, by a move drawn by its weight."""
        self.ends_s = now.ends_s
        chosen = self.draws.choices([m for m, _ in moves], [weight for _, weight in moves])[0]
        return chosen(now.orders)

    # single replicas

    def move_replica(self, now: Orders) -> Orders | None:
        """Move a replica to another slot."""
        n = self._any(len(now.task))
        slot = self._slot_for(now, int(now.task[n]))
        if slot is None:
            return None
        rest = np.arange(len(now.task)) != n
        return insert(now.only(rest), np.array([now.task[n]]), slot, self._turn(now, n))

    def add_replica(self, now: Orders) -> Orders | None:
        """Add a replica of a task in a further slot."""
        n = self._any(len(now.task))
        slot = self._slot_for(now, int(now.task[n]))
        if slot is None:
            return None
        return insert(now, np.array([now.task[n]]), slot, self._turn(now, n))

    def add_tail(self, now: Orders) -> Orders | None:
        """Add replicas of a task and of all that need it in one slot."""
        problem, n = self.problem, self._any(len(now.task))
        slot = self._slot_for(now, int(now.task[n]))
        work, tail = problem.work, {int(now.task[n])}
        if slot is None:
            return None
        last = problem.first[problem.workflow[now.task[n]] + 1]
        # the tasks of a workflow are numbered parents first, so that one pass finds all descendants
        for t in range(int(now.task[n]) + 1, int(last)):
            if not tail.isdisjoint(work.parents[work.parents_at[t] : work.parents_at[t + 1]]):
                tail.add(t)
        here = set(now.task[now.slot == slot].tolist())
        tasks = [t for t in sorted(tail - here) if work.holds[work.kind[t], slot]]
        return insert(now, np.array(tasks), slot, self._turn(now, n))

    def drop_replica(self, now: Orders) -> Orders | None:
        """Omit one of several replicas of a task."""
        counts = np.bincount(now.task)
        several = np.flatnonzero(counts[now.task] > 1)
        if not len(several):
            return None
        return now.only(np.arange(len(now.task)) != several[self._any(len(several))])

    def exchange(self, now: Orders) -> Orders | None:
        """Exchange two replicas: their slots, or their turns."""
        n, m = self._any(len(now.task)), self._any(len(now.task))
        if now.task[n] == now.task[m]:
            return None
        task, slot = now.task.copy(), now.slot.copy()
        task[[n, m]] = task[[m, n]]
        # with the slots exchanged as well, each task keeps its slot, and only the turns change
        if now.slot[n] == now.slot[m] or self.draws.random() < 0.5:
            slot[[n, m]] = slot[[m, n]]
        return Orders(task, slot, now.submits_s, now.spare_workflows)

    # workflows in slots

    def put_workflow(self, now: Orders) -> Orders | None:
        """Put a whole workflow into a slot, before, between or after what is there."""
        w = self._any(len(self.fitting))
        if not self.fitting[w]:
            return None
        slot = self.fitting[w][self._any(len(self.fitting[w]))]
        rest = now.only(~((self.problem.workflow[now.task] == w) & (now.slot == slot)))
        return insert(rest, self.problem.by_deadline[w], slot, self._position(rest))

    def take_some(self, now: Orders) -> Orders | None:
        """Omit workflows in slots: as many as seem possible after the last attempts."""
        pairs = self.problem.pairs(now)
        distinct = np.unique(pairs).tolist()
        # one stays at least: a plan without any replica is none
        gone = self.draws.sample(
            distinct, min(len(distinct) - 1, max(1, round(self.share * len(distinct))))
        )
        return now.only(~np.isin(pairs, gone))

    def move_workflow(self, now: Orders) -> Orders | None:
        """Move what a slot has of a workflow to another slot."""
        n = self._any(len(now.task))
        w = int(self.problem.workflow[now.task[n]])
        slots = [m for m in self.usable if m != now.slot[n]]
        if not slots:
            return None
        slot = slots[self._any(len(slots))]
        mine = self.problem.workflow[now.task] == w
        moved = mine & (now.slot == now.slot[n])
        rest = now.only(~moved & ~(np.isin(now.task, now.task[moved]) & (now.slot == slot)))
        return insert(rest, now.task[moved], slot, self._position(rest))

    def drop_workflow(self, now: Orders) -> Orders | None:
        """Omit a workflow."""
        w = self.problem.workflow[now.task[self._any(len(now.task))]]
        return now.only(self.problem.workflow[now.task] != w)

    def reorder(self, now: Orders) -> Orders | None:
        """Put what a slot has of a workflow before, between or after the others."""
        n = self._any(len(now.task))
        w = self.problem.workflow[now.task[n]]
        moved = (self.problem.workflow[now.task] == w) & (now.slot == now.slot[n])
        rest = now.only(~moved)
        return insert(rest, now.task[moved], int(now.slot[n]), self._position(rest))

    # slots

    def empty_slot(self, now: Orders) -> Orders | None:
        """Omit a slot."""
        return now.only(now.slot != now.slot[self._any(len(now.slot))])

    def delay_slot(self, now: Orders) -> Orders | None:
        """Request a slot later, as far as its last task still ends in time, or earlier."""
        slot = int(now.slot[self._any(len(now.slot))])
        if not self.problem.shiftable[slot]:
            return None
        submits_s = now.submits_s.copy()
        last_s = float(self.ends_s[now.slot == slot].max())
        most_s = float(self.problem.work.limit_s[slot]) - last_s
        if submits_s[slot] > 0 and self.draws.random() < 0.3:
            submits_s[slot] *= self.draws.random()
        else:
            submits_s[slot] += self.draws.choice(_DELAYS) * most_s
        # samples are kept by the instant of the request, and whole seconds recur
        submits_s[slot] = float(int(submits_s[slot]))
        return Orders(now.task, now.slot, submits_s, now.spare_workflows)

    def release(self, now: Orders) -> Orders | None:
        """Release earlier or later."""
        reserve = len(self.problem.workflows) - self.problem.snapshot.workflow_set.needed
        choices = [*range(reserve + 1), EVERYTHING]
        spare_workflows = choices[self._any(len(choices))]
        if spare_workflows == now.spare_workflows or self.problem.single:
            return None
        return Orders(now.task, now.slot, now.submits_s, spare_workflows)

    # parts

    def _any(self, count: int) -> int:
        return int(self.draws.random() * count)

    def _slot_for(self, now: Orders, task: int) -> int | None:
        """Return a slot that holds a task and has no replica of it."""
        here = set(now.slot[now.task == task].tolist())
        holds = self.problem.work.holds[self.problem.work.kind[task]]
        slots = [n for n in self.usable if holds[n] and n not in here]
        return slots[self._any(len(slots))] if slots else None

    def _turn(self, now: Orders, n: int) -> int:
        """Return a position: about that of a replica, or any."""
        return min(n, len(now.task) - 1) if self.draws.random() < 0.5 else self._position(now)

    def _position(self, now: Orders) -> int:
        """Return a position: the first, the last, or any."""
        drawn = self.draws.random()
        if drawn < 0.35:
            return 0
        return len(now.task) if drawn < 0.65 else self._any(len(now.task) + 1)


def insert(now: Orders, tasks: Ints, slot: int, at: int) -> Orders:
    """Return the plan with replicas of tasks in a slot, at a position."""
    return Orders(
        np.concatenate((now.task[:at], tasks, now.task[at:])).astype(np.int64),
        np.concatenate((now.slot[:at], np.full(len(tasks), slot), now.slot[at:])),
        now.submits_s,
        now.spare_workflows,
    )
