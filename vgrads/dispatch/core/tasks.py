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

PENDING, GIVEN, DONE, FAILED, DROPPED, HELD = range(6)
"""What becomes of a task: it waits, a host has it, it succeeded, it failed for good, it is not
wanted or can never be ready, it is not ready yet."""
ENDED = (DONE, FAILED, DROPPED)
WORDS = ("waits", "runs", "done", "failed", "dropped", "not ready")
"""The same for people."""


class TaskTable:
    """Status and attempts of each task, who has them, and which are next."""

    __slots__ = (
        "again",
        "attempts",
        "blamed",
        "copies",
        "counts",
        "cursor",
        "failures",
        "losses",
        "resting",
        "status",
        "where",
    )

    def __init__(self, count: int) -> None:
        self.status = bytearray(count)
        self.attempts = array("H", bytes(2 * count))
        self.counts = [count, 0, 0, 0, 0, 0]
        self.cursor = 0  # tasks from here on were never given
        self.again: OrderedDict[int, None] = OrderedDict()  # those before it that wait anew
        self.resting: OrderedDict[int, float] = (
            OrderedDict()
        )  # and those that have just failed, since when
        self.where: dict[int, int] = {}  # given task → its host, the first of them
        self.copies: dict[int, list[int]] = {}  # the other hosts that have it too
        self.failures: dict[int, int] = {}
        self.blamed: dict[int, int] = {}  # failures on hosts that do not fail at everything
        self.losses: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.status)

    @property
    def pending(self) -> int:
        """How many wait."""
        return self.counts[PENDING]

    @property
    def left(self) -> int:
        """How many have not ended."""
        return self.counts[PENDING] + self.counts[GIVEN] + self.counts[HELD]

    @property
    def over(self) -> bool:
        """True when all have ended."""
        return not self.counts[PENDING] and not self.counts[GIVEN]

    def grow(self, count: int) -> None:
        """More tasks, behind those that there are."""
        self.status.extend(bytes(count))
        self.attempts.frombytes(bytes(2 * count))
        self.counts[PENDING] += count

    def move(self, task: int, to: int) -> None:
        """Change what becomes of a task."""
        self.counts[self.status[task]] -= 1
        self.counts[to] += 1
        self.status[task] = to

    def next(self, most: int) -> list[int]:
        """Up to ``most`` tasks that wait, in the order in which they are due; nothing changes."""
        found = list(islice(self.again, most))
        left = most - len(found)
        if left > 0:
            found += range(self.cursor, min(self.cursor + left, len(self.status)))
            found += islice(self.resting, most - len(found))
        return found

    def wake(self, until_s: float) -> None:
        """Those that failed before an instant are next again: others have had the time to show what
        their host is."""
        while self.resting and next(iter(self.resting.values())) <= until_s:
            self.again[self.resting.popitem(last=False)[0]] = None

    def give(self, tasks: Iterable[int], host: int) -> None:
        """A host has them now: each in an attempt of its own."""
        status, attempts, where = self.status, self.attempts, self.where
        again, resting = self.again, self.resting
        cursor, given = self.cursor, 0
        for task in tasks:
            if task == cursor:
                cursor += 1
            elif task < cursor:
                again.pop(task, None)
                resting.pop(task, None)
            else:  # out of order: those before it wait anew
                again.update(dict.fromkeys(range(cursor, task)))
                cursor = task + 1
            status[task] = GIVEN
            attempts[task] += 1
            where[task] = host
            given += 1
        self.cursor = cursor
        self.counts[PENDING] -= given
        self.counts[GIVEN] += given

    def copy(self, task: int, host: int) -> None:
        """One more host has it, in an attempt of its own."""
        self.attempts[task] += 1
        self.copies.setdefault(task, []).append(host)

    def hosts_of(self, task: int) -> list[int]:
        """The hosts that have it."""
        first = self.where.get(task)
        return [] if first is None else [first, *self.copies.get(task, ())]

    def take(self, task: int, host: int) -> bool:
        """A host has it no more; True where it was the last one, and something else is to become of
        the task."""
        others = [number for number in self.hosts_of(task) if number != host]
        if not others:
            return True
        self.where[task] = others[0]
        if others[1:]:
            self.copies[task] = others[1:]
        else:
            self.copies.pop(task, None)
        return False

    def give_back(self, task: int, failed_s: float | None = None) -> None:
        """It waits again, before those that were never given; behind them where it has just
        failed."""
        self.move(task, PENDING)
        self.where.pop(task, None)
        self.copies.pop(task, None)
        if failed_s is None:
            self.again[task] = None
        else:
            self.resting[task] = failed_s


class Tasks(TaskTable):
    """Tasks until they have ended. ``order``: which become ready when; without, all are."""

    __slots__ = ("order",)

    def __init__(self, count: int, order: Lazy | None = None) -> None:
        super().__init__(count)
        self.order = order
        if order is not None and count:
            self._hold(order)

    def end(self, task: int, how: int) -> bool:
        """It has ended; True where others are ready now because of it."""
        if self.status[task] == PENDING:
            self.again.pop(task, None)
            self.resting.pop(task, None)
        self.move(task, how)
        self.where.pop(task, None)
        if self.copies:
            self.copies.pop(task, None)
        return self.order is not None and self._follow(self.order, task)

    # tasks that are not ready

    def _hold(self, order: Lazy) -> None:
        """Only what is ready at the beginning waits; all others come behind it, as they are
        ready."""
        count = len(self.status)
        self.status = bytearray([HELD]) * count
        self.counts[PENDING], self.counts[HELD] = 0, count
        self.cursor = count
        self._release(order.first())

    def _release(self, tasks: Iterable[int]) -> bool:
        some = False
        for task in tasks:
            if self.status[task] == HELD:
                self.move(task, PENDING)
                self.again[task] = None
                some = True
        return some

    def _follow(self, order: Lazy, task: int) -> bool:
        """What an end makes ready. Where nothing waits or runs any more, what is not ready never
        will be: it needs something that failed."""
        some = self.status[task] == DONE and self._release(order.after(task, self._is_done))
        self._give_up()
        return some

    def _give_up(self) -> None:
        if self.counts[HELD] and self.over:
            self._drop(HELD)

    def _is_done(self, task: int) -> bool:
        return self.status[task] == DONE

    def had(self, tasks: Sequence[int]) -> None:
        """These are done without having run here: their results were there before."""
        for task in tasks:
            self.where.pop(task, None)
            self.copies.pop(task, None)
            self.move(task, DONE)
        if self.order is not None:
            for task in tasks:
                self._release(self.order.after(task, self._is_done))
            self._give_up()
        self.resting.clear()
        self._line_up()

    def _drop(self, *kinds: int) -> None:
        column = np.frombuffer(self.status, np.uint8)
        for kind in kinds:
            column[column == kind] = DROPPED
            self.counts[DROPPED] += self.counts[kind]
            self.counts[kind] = 0

    def last_waiting(self, most: int) -> list[int]:
        """Up to ``most`` tasks that wait, the last first."""
        waiting = (
            task for task in range(len(self.status) - 1, -1, -1) if self.status[task] == PENDING
        )
        return list(islice(waiting, min(most, self.counts[PENDING])))

    def drop_waiting(self, tasks: Iterable[int]) -> None:
        """These are not wanted any more; those of them that wait are dropped."""
        self.again.update(dict.fromkeys(range(self.cursor, len(self.status))))
        self.cursor = len(self.status)
        for task in tasks:
            if self.status[task] == PENDING:
                self.end(task, DROPPED)

    def drop(self) -> list[int]:
        """All that have not ended are dropped; those that hosts have, for these to be told."""
        given = list(self.where)
        self._drop(PENDING, GIVEN, HELD)
        self.cursor = len(self.status)
        self.where.clear()
        self.copies.clear()
        self.again.clear()
        self.resting.clear()
        return given

    def restore(
        self, status: bytes, attempts: bytes, where: dict[int, int], copies: dict[int, list[int]]
    ) -> None:
        """Take over columns that were kept; what waits and was given before comes first again."""
        self.status = bytearray(status)
        self.attempts = array("H")
        self.attempts.frombytes(attempts)
        self.counts = [self.status.count(kind) for kind in range(len(WORDS))]
        self.where, self.copies = where, copies
        self._line_up()

    def _line_up(self) -> None:
        """Where those that were never given begin, and what waits before them."""
        status = np.frombuffer(self.status, np.uint8)
        begun = np.flatnonzero((np.frombuffer(self.attempts, np.uint16) > 0) | (status != PENDING))
        self.cursor = int(begun[-1]) + 1 if len(begun) else 0
        early = np.flatnonzero(status[: self.cursor] == PENDING)
        self.again = OrderedDict.fromkeys(map(int, early))
