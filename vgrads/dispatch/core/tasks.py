"""The tasks of one bag as columns: three bytes each while they wait, nothing else.

Changed in place, by :mod:`vgrads.dispatch.core.state` alone (decision 0020).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from vgrads.workflows.generated.lazy import Lazy

PENDING, ASSIGNED, DONE, FAILED, DROPPED, BLOCKED = range(6)
"""States of a task: waiting, assigned, succeeded, failed for good, not needed or never ready, not
ready yet."""
ENDED = (DONE, FAILED, DROPPED)
WORDS = ("waits", "runs", "done", "failed", "dropped", "not ready")
"""Display names of the states."""


class TaskTable:
    """Status and attempts of each task, its agents, and the next tasks."""

    __slots__ = (
        "again",
        "attempts",
        "blamed",
        "counts",
        "cursor",
        "failures",
        "losses",
        "replicas",
        "resting",
        "status",
        "where",
    )

    def __init__(self, count: int) -> None:
        self.status = bytearray(count)
        self.attempts = array("H", bytes(2 * count))
        self.counts = [count, 0, 0, 0, 0, 0]
        self.cursor = 0  # tasks from here on were never assigned
        self.again: OrderedDict[int, None] = OrderedDict()  # tasks before it that wait again
        self.resting: OrderedDict[int, float] = (
            OrderedDict()
        )  # and those that have just failed, with the time
        self.where: dict[int, int] = {}  # assigned task → its first agent
        self.replicas: dict[int, list[int]] = {}  # the other agents that also have it
        self.failures: dict[int, int] = {}
        self.blamed: dict[int, int] = {}  # failures on nodes that do not fail all tasks
        self.losses: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.status)

    @property
    def pending(self) -> int:
        """Return the number of waiting tasks."""
        return self.counts[PENDING]

    @property
    def left(self) -> int:
        """Return the number of tasks that are not terminal."""
        return self.counts[PENDING] + self.counts[ASSIGNED] + self.counts[BLOCKED]

    @property
    def over(self) -> bool:
        """Return True when all tasks are terminal."""
        # blocked tasks do not count: where nothing waits or runs, none of them can become ready
        return not self.counts[PENDING] and not self.counts[ASSIGNED]

    def add_tasks(self, count: int) -> None:
        """Append tasks."""
        self.status.extend(bytes(count))
        self.attempts.frombytes(bytes(2 * count))
        self.counts[PENDING] += count

    def move(self, task: int, to: int) -> None:
        """Change the state of a task."""
        self.counts[self.status[task]] -= 1
        self.counts[to] += 1
        self.status[task] = to

    def next(self, most: int) -> list[int]:
        """Return up to ``most`` waiting tasks, in the order in which they are due; nothing
        changes."""
        tasks = list(islice(self.again, most))
        left = most - len(tasks)
        if left > 0:
            # tasks that have just failed come last: otherwise nodes that fail every task at once
            # would take the same few until these have used up their retries
            tasks += range(self.cursor, min(self.cursor + left, len(self.status)))
            tasks += islice(self.resting, most - len(tasks))
        return tasks

    def wake(self, until_s: float) -> None:
        """Queue tasks again that failed before an instant: other agents have had time to show
        whether the node is faulty."""
        while self.resting and next(iter(self.resting.values())) <= until_s:
            self.again[self.resting.popitem(last=False)[0]] = None

    def give(self, tasks: Iterable[int], agent: int) -> None:
        """Assign tasks to an agent, each in a new attempt."""
        status, attempts, where = self.status, self.attempts, self.where
        again, resting = self.again, self.resting
        cursor, count = self.cursor, 0
        for task in tasks:
            if task == cursor:
                cursor += 1
            elif task < cursor:
                again.pop(task, None)
                resting.pop(task, None)
            else:  # out of order: tasks before it wait again
                again.update(dict.fromkeys(range(cursor, task)))
                cursor = task + 1
            status[task] = ASSIGNED
            attempts[task] += 1
            where[task] = agent
            count += 1
        self.cursor = cursor
        self.counts[PENDING] -= count
        self.counts[ASSIGNED] += count

    def replica(self, task: int, agent: int) -> None:
        """Assign a task to one more agent, in a new attempt."""
        self.attempts[task] += 1
        self.replicas.setdefault(task, []).append(agent)

    def agents_of(self, task: int) -> list[int]:
        """Return the agents that have a task."""
        first = self.where.get(task)
        return [] if first is None else [first, *self.replicas.get(task, ())]

    def take(self, task: int, agent: int) -> bool:
        """Remove a task from an agent; return True where it was the last one, and the task needs a
        new state."""
        others = [number for number in self.agents_of(task) if number != agent]
        if not others:
            return True
        # the oldest replica takes its place, so that every assigned task has a first agent
        self.where[task] = others[0]
        if others[1:]:
            self.replicas[task] = others[1:]
        else:
            self.replicas.pop(task, None)
        return False

    def give_back(self, task: int, failed_s: float | None = None) -> None:
        """Queue a task again, before those that were never assigned; behind them where it has just
        failed."""
        self.move(task, PENDING)
        self.where.pop(task, None)
        self.replicas.pop(task, None)
        if failed_s is None:
            self.again[task] = None
        else:
            self.resting[task] = failed_s


class TaskColumns(TaskTable):
    """Tasks until they are terminal. ``order``: which become ready when; without, all are."""

    __slots__ = ("order",)

    def __init__(self, count: int, order: Lazy | None = None) -> None:
        super().__init__(count)
        self.order = order
        if order is not None and count:
            self._hold(order)

    def end(self, task: int, how: int) -> bool:
        """End a task; return True where others become ready because of it."""
        if self.status[task] == PENDING:
            self.again.pop(task, None)
            self.resting.pop(task, None)
        self.move(task, how)
        self.where.pop(task, None)
        if self.replicas:
            self.replicas.pop(task, None)
        return self.order is not None and self._follow(self.order, task)

    # tasks that are not ready

    def _hold(self, order: Lazy) -> None:
        """Queue only the tasks that are ready at the start; the others follow as they become
        ready."""
        count = len(self.status)
        self.status = bytearray([BLOCKED]) * count
        self.counts[PENDING], self.counts[BLOCKED] = 0, count
        # none is implied by the cursor: ready tasks are listed in again
        self.cursor = count
        self._release(order.first())

    def _release(self, tasks: Iterable[int]) -> bool:
        some = False
        for task in tasks:
            if self.status[task] == BLOCKED:
                self.move(task, PENDING)
                self.again[task] = None
                some = True
        return some

    def _follow(self, order: Lazy, task: int) -> bool:
        """Queue the tasks that an end makes ready. Where no task waits or runs any more, the rest
        never becomes ready: it depends on a failed task."""
        some = self.status[task] == DONE and self._release(order.after(task, self._is_done))
        self._abandon()
        return some

    def _abandon(self) -> None:
        if self.counts[BLOCKED] and self.over:
            self._drop(BLOCKED)

    def _is_done(self, task: int) -> bool:
        return self.status[task] == DONE

    def had(self, tasks: Sequence[int]) -> None:
        """Mark these tasks as done without a run here: their results existed before."""
        for task in tasks:
            self.where.pop(task, None)
            self.replicas.pop(task, None)
            self.move(task, DONE)
        if self.order is not None:
            for task in tasks:
                self._release(self.order.after(task, self._is_done))
            self._abandon()
        # all waiting tasks before the cursor are listed in again by the next call
        self.resting.clear()
        self._line_up()

    def retry(self, tasks: Sequence[int]) -> None:
        """Queue terminal tasks again, as if they had never failed; with an order, those that need
        others wait for them."""
        for task in tasks:
            self.move(task, PENDING if self.order is None else BLOCKED)
            for count in (self.failures, self.blamed, self.losses):
                count.pop(task, None)
        if self.order is not None:
            self._release(task for task in tasks if all(map(self._is_done, self.order.needs(task))))
            self._abandon()
        self.resting.clear()
        self._line_up()

    def _drop(self, *kinds: int) -> None:
        # a view, written in place; it must not outlive this call, since a
        # bytearray that is viewed cannot grow
        column = np.frombuffer(self.status, np.uint8)
        for kind in kinds:
            column[column == kind] = DROPPED
            self.counts[DROPPED] += self.counts[kind]
            self.counts[kind] = 0

    def last_waiting(self, most: int) -> list[int]:
        """Return up to ``most`` waiting tasks, the last first."""
        waiting = (
            task for task in range(len(self.status) - 1, -1, -1) if self.status[task] == PENDING
        )
        return list(islice(waiting, min(most, self.counts[PENDING])))

    def drop_waiting(self, tasks: Iterable[int]) -> None:
        """Drop those of these tasks that wait; they are no longer needed."""
        # tasks behind the cursor are implied: to remove some of them, all must be listed
        self.again.update(dict.fromkeys(range(self.cursor, len(self.status))))
        self.cursor = len(self.status)
        for task in tasks:
            if self.status[task] == PENDING:
                self.end(task, DROPPED)

    def drop(self) -> list[int]:
        """Drop all tasks that are not terminal; return the assigned ones, for notification of their
        agents."""
        values = list(self.where)
        self._drop(PENDING, ASSIGNED, BLOCKED)
        self.cursor = len(self.status)
        self.where.clear()
        self.replicas.clear()
        self.again.clear()
        self.resting.clear()
        return values

    def restore(
        self, status: bytes, attempts: bytes, where: dict[int, int], replicas: dict[int, list[int]]
    ) -> None:
        """Restore stored columns; waiting tasks that were assigned before come first again."""
        self.status = bytearray(status)
        self.attempts = array("H")
        self.attempts.frombytes(attempts)
        self.counts = [self.status.count(kind) for kind in range(len(WORDS))]
        self.where, self.replicas = where, replicas
        self._line_up()

    def _line_up(self) -> None:
        """Compute the first task that was never assigned, and the waiting ones before it."""
        status = np.frombuffer(self.status, np.uint8)
        begun = np.flatnonzero((np.frombuffer(self.attempts, np.uint16) > 0) | (status != PENDING))
        self.cursor = int(begun[-1]) + 1 if len(begun) else 0
        early = np.flatnonzero(status[: self.cursor] == PENDING)
        self.again = OrderedDict.fromkeys(map(int, early))
