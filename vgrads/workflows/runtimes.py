"""Run times for formats without them: a table by task, by kind of task, or for all; otherwise
limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import UNSTATED

Runtimes = Mapping[str, float]
EVERY = "*"
_OF_LIMIT, _LIMIT_QUANTILE = 3.0, 1.645  # limit = 3 × median; 95 of 100 tasks stay below it
OF_LIMIT = RuntimeSpread(kind=math.log(_OF_LIMIT) / _LIMIT_QUANTILE)
"""Spread of a task whose run time is taken from its limit; no other task has it."""


def find_runtime(table: Runtimes, names: Iterable[str]) -> float:
    """Return the seconds of the first of these names in the table, otherwise of ``*``; UNSTATED if
    none: it will be predicted."""
    tried = [name for name in names if name]
    for name in (*tried, EVERY):
        if name in table:
            return table[name]
    return UNSTATED


def timed(
    table: Runtimes, names: Iterable[str], stated_s: float | None, limit_s: float | None
) -> dict[str, Any]:
    """Return ``runtime_s`` and ``spread`` of a task: from the table, otherwise as its author
    states, otherwise from its limit.

    After a limit (a walltime) a task is stopped: that is not an estimate, but better than a blind
    guess. The median is assumed to be a third of it, with an uncertainty that all tasks of the kind
    share and that reaches the limit in one case of twenty.
    """
    seconds = find_runtime(table, names)
    if not math.isnan(seconds):
        return {"runtime_s": seconds}
    if stated_s is not None:
        return {"runtime_s": stated_s}
    if limit_s is None or limit_s <= 0:
        return {"runtime_s": UNSTATED}
    return {"runtime_s": limit_s / _OF_LIMIT, "spread": OF_LIMIT}
