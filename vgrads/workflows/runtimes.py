"""Run times for formats that carry none: a table by task, by kind of task, or for all; limits, for
want of better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import UNSTATED

Runtimes = Mapping[str, float]
EVERY = "*"
_OF_LIMIT, _KEPT = 3.0, 1.645  # a limit is three times the median, and 95 of 100 tasks keep it


def runtime_of(table: Runtimes, names: Iterable[str]) -> float:
    """Seconds under the first of these names that the table has, then under ``*``; UNSTATED if
    none: it will be predicted."""
    tried = [name for name in names if name]
    for name in (*tried, EVERY):
        if name in table:
            return table[name]
    return UNSTATED


def timed(
    table: Runtimes, names: Iterable[str], stated_s: float | None, limit_s: float | None
) -> dict[str, Any]:
    """``runtime_s`` and ``spread`` of a task: by the table, else as its author states, else by its
    limit.

    After a limit (a walltime) a task is stopped: that is no estimate, but better than a blind
    guess. The median is taken as a third of it, with a doubt that all tasks of the kind share and
    that reaches the limit in one case of twenty.
    """
    seconds = runtime_of(table, names)
    if not math.isnan(seconds):
        return {"runtime_s": seconds}
    if stated_s is not None:
        return {"runtime_s": stated_s}
    if limit_s is None or limit_s <= 0:
        return {"runtime_s": UNSTATED}
    spread = RuntimeSpread(kind=math.log(_OF_LIMIT) / _KEPT)
    return {"runtime_s": limit_s / _OF_LIMIT, "spread": spread}
