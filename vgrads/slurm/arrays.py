"""Indices of job arrays: ``0-9,20-30:2%5`` and ``[3-9%2]``.

Source: --array in sbatch(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PART = re.compile(r"\s*(\d+)(?:-(\d+)(?::(\d+))?)?\s*")


@dataclass(frozen=True)
class ArraySpec:
    """The indices of an array in ascending order, and how many may run at once (None: all)."""

    indices: tuple[int, ...]
    limit: int | None = None

    @property
    def step(self) -> int:
        """The common difference of the indices, 1 if there is none."""
        steps = {b - a for a, b in zip(self.indices, self.indices[1:], strict=False)}
        return steps.pop() if len(steps) == 1 else 1

    def __str__(self) -> str:
        return format_indices(self.indices, self.limit)


def parse_array(text: str, max_size: int = 1_000_001) -> ArraySpec:
    """Parse an array's indices, all below ``max_size`` (MaxArraySize). Raises ValueError.

    >>> str(parse_array("0-10:5,20,30-32%2"))
    '0,5,10,20,30-32%2'
    """
    body, percent, throttle = text.partition("%")
    body = body.strip()
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1]
    if percent and not throttle.strip().isdigit():
        raise ValueError(text)
    limit = int(throttle) if percent else 0
    indices = parse_indices(body, max_size)
    if not indices:
        raise ValueError(text)
    return ArraySpec(indices, limit or None)


def parse_indices(text: str, max_size: int = 1_000_001) -> tuple[int, ...]:
    """Parse ``0-9:3,20`` into ascending indices. Raises ValueError."""
    result: set[int] = set()
    for part in text.rstrip(",").split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(text)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        step = int(match[3]) if match[3] else 1
        if last < first or step < 1 or last >= max_size:
            raise ValueError(text)
        result.update(range(first, last + 1, step))
    return tuple(sorted(result))


def format_indices(indices: Sequence[int], limit: int | None = None) -> str:
    """Format ascending indices as Slurm does: runs of consecutive numbers as ranges.

    >>> format_indices([0, 1, 2, 5, 7, 8], 2)
    '0-2,5,7-8%2'
    """
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs(indices))
    return f"{text}%{limit}" if limit else text


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return first and last number of each run of consecutive numbers."""
    result: list[tuple[int, int]] = []
    for number in numbers:
        if result and number == result[-1][1] + 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result
