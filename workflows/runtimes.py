"""Run times for formats that carry none: a table by task, by kind of task, or for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernel.errors import InputError

Runtimes = Mapping[str, float]
EVERY = "*"


def runtime_of(table: Runtimes, names: Iterable[str], where: str) -> float:
    """Seconds under the first of these names that the table has, then under ``*``; InputError if none."""
    tried = [name for name in names if name]
    for name in (*tried, EVERY):
        if name in table:
            return table[name]
    raise InputError(
        f"has no run time; its format carries none and 'runtimes' has none of {', '.join(tried)}, *",
        where=where,
    )
