"""Retries of a bag's tasks: requests are applied, attempts before them are distinguished from
later ones.

``retries.json``: the requests that were applied, each as [first task, last task, attempts before]
of its ranges.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from vgrads.dispatch.core.step import Core, find_retriable, group_numbers
from vgrads.dispatch.storage.retry_requests import retry_requests
from vgrads.dispatch.storage.status import read_json
from vgrads.kernel.files import write_whole

_APPLIED = "retries.json"


def apply_requests(folder: Path, number: int, core: Core, at_s: float) -> bool:
    """Apply the new requests of a bag; return True where there was one.

    What a request changes is written before it takes effect, and again after a crash.
    """
    bag = core.state.bags[number]
    requests = retry_requests(folder, number)[bag.retried :]
    for tasks in requests:
        runs = [
            [first, last, count]
            for group in group_numbers(find_retriable(bag.tasks.status, tasks))
            for first, last, count in _split_range(group, bag.tasks.attempts)
        ]
        # an entry beyond those of the journal was written before a crash, and is replaced
        applied = _read(folder, number)[: bag.retried]
        write_whole(_read_bag(folder, number) / _APPLIED, json.dumps([*applied, runs]).encode())
        core.retry(number, tasks, at_s, bag.retried)
    return bool(requests)


def _split_range(group: Sequence[int], attempts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split a range where the number of attempts changes."""
    first, last = group
    ranges, at = [], first
    for count, same in groupby(attempts[first : last + 1]):
        size = sum(1 for _ in same)
        ranges.append((at, at + size - 1, count))
        at += size
    return ranges


class AttemptRounds:
    """Which attempts of a bag's tasks were before a retry. A round ends with each retry of a task:
    then its failures do not count any more."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._size = -1
        self._before: list[np.ndarray] = []
        self.look()

    def look(self) -> None:
        """Read the retries that were applied since the last call."""
        try:
            size = (_read_bag(self._folder, self._number) / _APPLIED).stat().st_size
        except FileNotFoundError:
            return
        if size == self._size:
            return
        self._size, self._before = size, []
        for runs in _read(self._folder, self._number):
            # the largest number means "not retried here": no attempt
            # reaches it (state.MOST_ATTEMPTS)
            before = np.full(max((last for _, last, _ in runs), default=-1) + 1, 2**16 - 1, "u2")
            for first, last, count in runs:
                before[first : last + 1] = count
            self._before.append(before)

    def of(self, task: int, attempt: int) -> int:
        """Return the round of an attempt, from 0 on."""
        return sum(task < len(before) and attempt > before[task] for before in self._before)

    def latest(self, tasks: np.ndarray, attempts: np.ndarray) -> np.ndarray:
        """Return for each of these attempts whether its task was not retried after it."""
        late = np.ones(len(tasks), bool)
        for before in self._before:
            inside = tasks < len(before)
            counts = before[tasks[inside]]
            late[inside] &= (attempts[inside] > counts) | (counts == 2**16 - 1)
        return late


def _read(folder: Path, number: int) -> list[list[list[int]]]:
    return list(read_json(_read_bag(folder, number) / _APPLIED, []))


def _read_bag(folder: Path, number: int) -> Path:
    return folder / "bags" / f"{number:04d}"
