"""Which tasks of a bag fail by their own command: with which exit status, and on which machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_KILLED = frozenset({128 + 9, 128 + 15})
"""How a shell reports that a site or the memory limit killed what it ran."""
_MOST_TASKS = 10_000
_ENOUGH_MACHINES = 2


class FailedExit(NamedTuple):
    """The last exit status of a task, and up to two machines where it failed with it."""

    code: int
    machines: tuple[str, ...]

    @property
    def is_repeated(self) -> bool:
        """Return whether it failed alike on two machines: neither is the cause."""
        return len(self.machines) >= _ENOUGH_MACHINES


class FailedExits:
    """The failed exits of a bag's tasks that did not succeed since, the newest last; of so many
    tasks at most."""

    __slots__ = ("_by_task",)

    def __init__(self, by_task: Mapping[int, FailedExit] | None = None) -> None:
        self._by_task = dict(by_task or {})

    def record(self, task: int, code: int, machine: str) -> None:
        """Record the end of an attempt; no effect unless its command itself failed."""
        if code <= 0 or code in _KILLED:
            return
        before = self._by_task.pop(task, None)
        machines = before.machines if before is not None and before.code == code else ()
        if machine not in machines:
            machines = (*machines, machine)[:_ENOUGH_MACHINES]
        if len(self._by_task) < _MOST_TASKS:
            self._by_task[task] = FailedExit(code, machines)

    def forget(self, tasks: Iterable[int]) -> None:
        """Forget tasks that succeeded, or are done again."""
        for task in tasks if self._by_task else ():
            self._by_task.pop(task, None)

    def exonerate(self, task: int, machine: str) -> None:
        """Forget what a task did on a machine that fails every task."""
        exit_ = self._by_task.get(task)
        if exit_ is None or machine not in exit_.machines:
            return
        others = tuple(other for other in exit_.machines if other != machine)
        if others:
            self._by_task[task] = FailedExit(exit_.code, others)
        else:
            del self._by_task[task]

    def __iter__(self) -> Iterator[tuple[int, FailedExit]]:
        return iter(self._by_task.items())

    def __len__(self) -> int:
        return len(self._by_task)

    def as_json(self) -> list[list[object]]:
        """Return the storage format."""
        return [[task, e.code, list(e.machines)] for task, e in self._by_task.items()]


def decode_exits(stored: Sequence[Sequence[object]]) -> FailedExits:
    """Decode stored exits."""
    rows = {task: FailedExit(code, tuple(machines)) for task, code, machines in stored}  # type: ignore[arg-type]
    return FailedExits(rows)  # type: ignore[arg-type]
