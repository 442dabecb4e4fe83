"""The tasks of one bag as columns: three bytes each while they wait, nothing else.

Changed in place, by :mod:`dispatch.state` alone (decision 0020).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

import numpy as np

PENDING, GIVEN, DONE, FAILED, DROPPED = range(5)
"""What becomes of a task: it waits, a host has it, it succeeded, it failed for good, its bag was cancelled."""
ENDED = (DONE, FAILED, DROPPED)
WORDS = ("waits", "runs", "done", "failed", "dropped")
"""The same for people."""


class Tasks:
    """Status and attempts of each task, and which are next."""

    __slots__ = (
        "again", "attempts", "blamed", "copies", "counts", "cursor", "failures", "losses", "resting", "status", "where",
    )  # fmt: skip

    def __init__(self, count: int) -> None:
        self.status = bytearray(count)
        self.attempts = array("H", bytes(2 * count))
        self.counts = [count, 0, 0, 0, 0]
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
        """Those that failed before an instant are next again: others have had the time to show what their host is."""
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
        """A host has it no more; True where it was the last one, and something else is to become of the task."""
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
        """It waits again, before those that were never given; behind them where it has just failed."""
        self.move(task, PENDING)
        self.where.pop(task, None)
        self.copies.pop(task, None)
        if failed_s is None:
            self.again[task] = None
        else:
            self.resting[task] = failed_s

    def end(self, task: int, how: int) -> None:
        """It has ended."""
        if self.status[task] == PENDING:
            self.again.pop(task, None)
            self.resting.pop(task, None)
        self.move(task, how)
        self.where.pop(task, None)
        if self.copies:
            self.copies.pop(task, None)

    def drop(self) -> list[int]:
        """All that have not ended are dropped; those that hosts have, for these to be told."""
        given = list(self.where)
        column = np.frombuffer(self.status, np.uint8)
        column[(column == PENDING) | (column == GIVEN)] = DROPPED
        del column  # a column that is looked at cannot grow
        self.cursor = len(self.status)
        dropped = self.counts[PENDING] + self.counts[GIVEN]
        self.counts[PENDING] = self.counts[GIVEN] = 0
        self.counts[DROPPED] += dropped
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
        self.counts = [self.status.count(kind) for kind in range(5)]
        self.where, self.copies = where, copies
        begun = np.flatnonzero(
            (np.frombuffer(attempts, np.uint16) > 0) | (np.frombuffer(status, np.uint8) != PENDING)
        )
        self.cursor = int(begun[-1]) + 1 if len(begun) else 0
        early = np.flatnonzero(np.frombuffer(status, np.uint8)[: self.cursor] == PENDING)
        self.again = OrderedDict.fromkeys(map(int, early))
