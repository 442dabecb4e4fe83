"""Requests of users to a bag's dispatcher, a JSON line each in a file of the bag's folder. Few
imports.

They are durable on return, and numbered from 0 on: the dispatcher journals the number of each that
it applies, so each is applied once, also where it was dead when the request was written.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError


class StaleRequestError(InputError):
    """There are other requests than those that this one was written for."""


def append_request(path: Path, request: dict[str, Any], expected: int | None = None) -> int:
    """Append a request, durably; return its number. ``expected``: how many there must be before.
    Raise StaleRequestError where there are others, OSError where it cannot be stored."""
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = file.read().count(b"\n")
        if expected is not None and number != expected:
            raise StaleRequestError("was changed by somebody else since it was read")
        size = file.seek(0, os.SEEK_END)
        try:
            file.write((json.dumps(request) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise
    return number


def read_requests(path: Path) -> list[dict[str, Any]]:
    """Return the requests so far; a line that is still being written is not among them. Raise
    InputError for one that cannot be read."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    requests = []
    for count, line in enumerate(lines, 1):
        try:
            requests.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise InputError(f"line {count}: is not a request: {error}", where=str(path)) from error
    return requests
