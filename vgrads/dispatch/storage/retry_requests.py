"""Requests to retry tasks of a bag, in its folder: written by users, applied by its dispatcher
(:mod:`vgrads.dispatch.storage.retries`). Few imports.

``given/retries.ndjson``: a request on each line, ``{"tasks": [7, 9]}``, or ``{"tasks": null}`` for
all that did not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vgrads.dispatch.storage.request_lines import append_request, read_requests
from vgrads.kernel.errors import InputError


def request_retry(folder: Path, number: int, tasks: Sequence[int] | None) -> None:
    """Store a request, durably: these tasks, or None for all that did not succeed. OSError where
    that fails."""
    numbers = None if tasks is None else sorted(set(tasks))
    append_request(_read_requests(folder, number), {"tasks": numbers})


def retry_requests(folder: Path, number: int) -> list[list[int] | None]:
    """Return the requests so far. Raise InputError for one that cannot be read."""
    path = _read_requests(folder, number)
    requests = read_requests(path)
    for count, request in enumerate(requests, 1):
        if "tasks" not in request:
            raise InputError(f"line {count}: is not a request: no 'tasks'", where=str(path))
    return [request["tasks"] for request in requests]


def has_request(folder: Path, number: int, applied: int) -> bool:
    """Return True where a bag has more requests than those that were applied."""
    path = _read_requests(folder, number)
    return path.exists() and len(retry_requests(folder, number)) > applied


def _read_requests(folder: Path, number: int) -> Path:
    return folder / "bags" / f"{number:04d}" / "given" / "retries.ndjson"
