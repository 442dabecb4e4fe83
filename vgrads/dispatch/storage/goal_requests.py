"""Requests to change the goal of a bag, in its folder: written by users, applied by its dispatcher
(:mod:`vgrads.dispatch.fleet.goal_changes`). Few imports.

``given/goals.ndjson``: a request on each line, the fields of
:class:`vgrads.dispatch.goal_change.GoalRequest`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vgrads.dispatch.storage.request_lines import append_request, read_requests
from vgrads.dispatch.storage.status import news_pipe
from vgrads.kernel.wakeups import wake


def request_goal(
    folder: Path, number: int, request: dict[str, Any], expected: int | None = None
) -> int:
    """Store a request, durably; return its number, from 0 on. ``expected``: how many there must be
    before. Raise StaleRequestError where there are others, OSError where it cannot be stored."""
    count = append_request(_read_requests(folder, number), request, expected)
    wake(news_pipe(folder))
    return count


def read_goal_requests(folder: Path, number: int) -> list[dict[str, Any]]:
    """Return the requests so far. Raise InputError for one that cannot be read."""
    return read_requests(_read_requests(folder, number))


def _read_requests(folder: Path, number: int) -> Path:
    return folder / "bags" / f"{number:04d}" / "given" / "goals.ndjson"
