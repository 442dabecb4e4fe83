"""Bags as columns: their user and submission, and the run times of their tasks on a reference
processor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.traces.records import JobLog

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SIZE_CLASSES = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Lower ends of the nine classes of §3.4: 2–4, 5–9, 10–19, 20–49, 50–99, 100–199, 200–499, 500–999,
1000 and over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BagColumns:
    """Columns over bags, in the order of their submission, and ``runtime_s`` over tasks, bag after
    bag.

    The tasks of bag b are those from ``first[b]`` to ``first[b + 1]``. ``home``: the cluster whose
    stream contains it. ``user``: a number that is a priority, 0 the highest, assigned at random:
    submitting much does not raise a user's priority.
    """

    submit_s: Floats
    user: Ints
    home: Ints
    first: Ints
    runtime_s: Floats

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def sizes(self) -> Ints:
        """Return the number of tasks of each bag."""
        return np.diff(self.first)

    @property
    def bag_of(self) -> Ints:
        """Return the bag of each task."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def work_s(self) -> Floats:
        """Return the sum of the run times of each bag's tasks, on a reference processor."""
        return np.add.reduceat(self.runtime_s, self.first[:-1])

    def check(self) -> None:
        """Raise InputError where the columns contradict each other."""
        if len(self) == 0:
            raise InputError("there is no bag")
        if (
            len(self.first) != len(self) + 1
            or self.first[0] != 0
            or self.first[-1] != len(self.runtime_s)
        ):
            raise InputError("first and run times do not fit")
        if (self.sizes < 1).any():
            raise InputError("a bag has at least one task", where="size")
        if (np.diff(self.submit_s) < 0).any() or (self.runtime_s <= 0).any():
            raise InputError("bags must be in order of submission, and tasks must take time")

    def only(self, mask: NDArray[np.bool_]) -> BagColumns:
        """Return some of the bags."""
        tasks = np.repeat(mask, self.sizes)
        first = np.concatenate([[0], np.cumsum(self.sizes[mask])]).astype(np.int64)
        return BagColumns(
            submit_s=self.submit_s[mask],
            user=self.user[mask],
            home=self.home[mask],
            first=first,
            runtime_s=self.runtime_s[tasks],
        )

    def as_log(self, name: str) -> JobLog:
        """Return a log with a sequential job for each task, with its bag; the queue is the home
        cluster. Waits are 0: nothing has run yet."""
        count, bag = len(self.runtime_s), self.bag_of
        return JobLog(
            name=name,
            submit_s=self.submit_s[bag],
            wait_s=np.zeros(count),
            # whole seconds, at least one: 0 would be a job that did not run
            run_s=np.ceil(self.runtime_s),
            procs=np.ones(count, dtype=np.int64),
            request_s=np.full(count, -1.0),
            user=self.user[bag],
            queue=self.home[bag],
            started=np.ones(count, dtype=np.bool_),
            bag=bag + 1,
        )


def size_class(sizes: Ints) -> Ints:
    """Return the class of each size, 0 for 2–4 … 8 for 1000 and over; −1 for single tasks."""
    return np.searchsorted(SIZE_CLASSES, sizes, side="right") - 1


def class_bounds(k: int) -> tuple[int, int | None]:
    """Return the least and the largest size of a class; None: no upper limit."""
    low = SIZE_CLASSES[k] if k >= 0 else 1
    return low, SIZE_CLASSES[k + 1] - 1 if k + 1 < len(SIZE_CLASSES) else None
