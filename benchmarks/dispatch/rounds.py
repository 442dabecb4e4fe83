"""Measurements in interleaved rounds: all programs one after the other, in an order that
changes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass
class Measured(Generic[Value]):
    """The rounds of one program: load before each, measured value, CPU seconds of its
    processes."""

    loads: list[float] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def load_range(self) -> str:
        """Return the lowest and the highest load before a measurement."""
        return f"{min(self.loads):.1f}–{max(self.loads):.1f}"


def load() -> float:
    """Return the system's average load over the last minute."""
    return os.getloadavg()[0]


def children_cpu_s() -> float:
    """Return the CPU time of processes that were waited for, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def interleaved(
    programs: Mapping[str, Callable[[], Value | str]], rounds: int
) -> dict[str, Measured[Value]]:
    """Measure all programs in each round; those that cannot be measured, which return why, are
    printed and left out."""
    left = dict(programs)
    results: dict[str, Measured[Value]] = {name: Measured() for name in programs}
    for number in range(rounds):
        names = list(left)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            before, cpu_s = load(), children_cpu_s()
            value = left[name]()
            if isinstance(value, str):
                print(f"{name}: not measured: {value}", flush=True)
                del left[name], results[name]
                continue
            results[name].loads.append(before)
            results[name].values.append(value)
            results[name].cpu_s.append(children_cpu_s() - cpu_s)
    return results


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return median(a / b for a, b in zip(numerators, denominators, strict=True))


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
