"""What two million tasks cost: columns changed in place against an immutable map of statuses
(decision 0020).

python benchmarks/bench_columns.py [TASKS]      # default 200,000
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from immutables import Map

from vgrads.dispatch.core.tasks import ASSIGNED, DONE, TaskColumns


@dataclass(frozen=True, slots=True)
class ImmutableStatus:
    """A task as an immutable value: how it stands, which attempt, where."""

    status: int
    attempt: int
    host: int


def columns(count: int) -> TaskColumns:
    return TaskColumns(count)


def change_columns(tasks: TaskColumns) -> TaskColumns:
    for task in range(len(tasks)):
        tasks.give((task,), 1)
        tasks.end(task, DONE)
    return tasks


def immutable(count: int) -> Map[int, ImmutableStatus]:
    return Map({task: ImmutableStatus(0, 0, -1) for task in range(count)})


def change_immutable(state: Map[int, ImmutableStatus]) -> Map[int, ImmutableStatus]:
    for task in range(len(state)):
        state = state.set(task, ImmutableStatus(ASSIGNED, 1, 1))
        state = state.set(task, ImmutableStatus(DONE, 1, 1))
    return state


def measure(
    make: Callable[[int], Any], change: Callable[[Any], Any], count: int
) -> tuple[float, float]:
    """Bytes a task, microseconds a change (two of each task)."""
    tracemalloc.start()
    state = make(count)
    reserved = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    begun = time.perf_counter()
    change(state)
    return reserved, 1e6 * (time.perf_counter() - begun) / (2 * count)


def main(count: int) -> None:
    """Measure and print both."""
    for name, make, change in (
        ("columns", columns, change_columns),
        ("immutable map", immutable, change_immutable),
    ):
        reserved, change_us = measure(make, change, count)
        print(f"{name}: {reserved:.1f} bytes a task, {change_us:.2f} µs a change ({count:,} tasks)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
