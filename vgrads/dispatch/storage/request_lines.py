"""Requests of users to a bag's dispatcher, a JSON line each in a file of the bag's folder. Few
imports.

They are durable on return, and numbered from 0 on: the dispatcher journals the number of each that
it applies, so each is applied once, also where it was dead when the request was written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.record_file import LINES, AppendedRecords, RecordFile


class StaleRequestError(InputError):
    """There are other requests than those that this one was written for."""


def append_request(path: Path, request: dict[str, Any], expected: int | None = None) -> int:
    """Append a request, durably; return its number. ``expected``: how many there must be before.
    Raise StaleRequestError where there are others, OSError where it cannot be stored."""
    with RecordFile(path, LINES, lock="wait") as file:
        # counted under the lock: two requests never get the same number
        number = sum(1 for _ in AppendedRecords(path, LINES).more())
        if expected is not None and number != expected:
            raise StaleRequestError("was changed by somebody else since it was read")
        file.append(json.dumps(request).encode() + b"\n")
    return number


def read_requests(path: Path) -> list[dict[str, Any]]:
    """Return the requests so far; a line that is still being written is not among them. Raise
    InputError for one that cannot be read."""
    requests: list[dict[str, Any]] = []
    try:
        for line in AppendedRecords(path, LINES).more():
            requests.append(dict(json.loads(line.body)))
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        where = f"line {len(requests) + 1}"
        raise InputError(f"{where}: is not a request: {error}", where=str(path)) from error
    return requests
