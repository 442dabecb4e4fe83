"""Run times for formats that carry none: a table by task, by kind of task, or for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workflows.dag import UNSTATED

Runtimes = Mapping[str, float]
EVERY = "*"


def runtime_of(table: Runtimes, names: Iterable[str]) -> float:
    """Seconds under the first of these names that the table has, then under ``*``; UNSTATED if none: it will be
    predicted."""
    tried = [name for name in names if name]
    for name in (*tried, EVERY):
        if name in table:
            return table[name]
    return UNSTATED
