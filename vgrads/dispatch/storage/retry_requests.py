"""Requests to retry tasks of a bag, in its folder: written by users, applied by its dispatcher
(:mod:`vgrads.dispatch.storage.retries`). Few imports.

``given/retries.ndjson``: a request on each line, ``{"tasks": [7, 9]}``, or ``{"tasks": null}`` for
all that did not succeed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

from vgrads.kernel.errors import InputError

_REQUESTS = "retries.ndjson"


def request_retry(folder: Path, number: int, tasks: Sequence[int] | None) -> None:
    """Store a request, durably: these tasks, or None for all that did not succeed. OSError where
    that fails."""
    line = json.dumps({"tasks": None if tasks is None else sorted(set(tasks))}) + "\n"
    with (_bag(folder, number) / "given" / _REQUESTS).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        try:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise


def retry_requests(folder: Path, number: int) -> list[list[int] | None]:
    """Return the requests so far; a line that is still being written is not among them. Raise
    InputError for one that cannot be read."""
    path = _bag(folder, number) / "given" / _REQUESTS
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    requests = []
    for count, line in enumerate(lines, 1):
        try:
            requests.append(json.loads(line)["tasks"])
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(f"line {count}: is not a request: {error}", where=str(path)) from error
    return requests


def has_request(folder: Path, number: int, applied: int) -> bool:
    """Return True where a bag has more requests than those that were applied."""
    path = _bag(folder, number) / "given" / _REQUESTS
    return path.exists() and len(retry_requests(folder, number)) > applied


def _bag(folder: Path, number: int) -> Path:
    return folder / "bags" / f"{number:04d}"
