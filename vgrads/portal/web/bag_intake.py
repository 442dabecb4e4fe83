"""Commands that are added to an open bag: read from a request's stream, in bundles."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.api.config import dispatcher_folder
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.portal.records.reading.bags import ENDED, BagEntry

_MOST_LINE = 1 << 20
BUNDLE = 10_000


async def take_tasks(row: BagEntry, request: Request) -> int:
    """Store the commands of a request; return how many. 409 where the bag accepts none."""
    count, folder = 0, dispatcher_folder(row.dispatcher)
    await run_in_threadpool(_check_open, row)
    # imported late, after _check_open, which loads it in a thread
    from vgrads.dispatch.storage.folder import NotOpen, append_commands

    async for lines in _split_into_bundles(request.stream()):
        try:
            count += await run_in_threadpool(
                append_commands, folder, row.number, commands_of(lines, count)
            )
        except NotOpen as error:
            raise HTTPException(
                409, f"{error}; {format_count(count, 'task', 'were')} accepted"
            ) from error
        except InputError as error:
            raise InputError(
                f"{error.what}; {format_count(count, 'task', 'were')} accepted", where=error.where
            ) from error
    return count


def _check_open(row: BagEntry) -> None:
    """Raise 409, with the reason, for a bag that accepts no more tasks."""
    # imported late: the service starts without the dispatcher
    from vgrads.dispatch.storage.folder import NotOpen, check_open

    if row.state in ENDED or row.stop:
        raise HTTPException(
            409, f"bag '{row.id}' has ended: {row.state if row.state in ENDED else row.stop}"
        )
    try:
        check_open(dispatcher_folder(row.dispatcher), row.number)
    except NotOpen as error:
        raise HTTPException(409, f"{row.id}: {error}") from error


async def _split_into_bundles(stream: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a stream, in bundles."""
    left = b""
    lines: list[bytes] = []
    async for part in stream:
        *whole, left = (left + part).split(b"\n")
        # a line without an end would fill the memory
        if len(left) > _MOST_LINE:
            raise InputError(f"a command is longer than {_MOST_LINE} bytes", where="body")
        lines += [line for line in whole if line.strip()]
        while len(lines) >= BUNDLE:
            yield lines[:BUNDLE]
            lines = lines[BUNDLE:]
    if left.strip():
        lines.append(left)
    if lines:
        yield lines


def commands_of(lines: list[bytes], first: int) -> list[str]:
    """Parse commands from lines, as one piece where all are valid, which is faster."""
    try:  # texts contain no newline: valid together, valid singly
        result = json.loads(b"[" + b",\n".join(lines) + b"]")
    except (ValueError, RecursionError):
        result = []
    good = len(result) == len(lines) and all(isinstance(c, str) and _is_storable(c) for c in result)
    return result if good else [_parse_command(line, first + i) for i, line in enumerate(lines)]


def _is_storable(command: str) -> bool:
    """Return True for a command that can be stored, and run."""
    try:
        command.encode()  # half of a surrogate pair is no text
    except UnicodeEncodeError:
        return False
    return bool(command.strip()) and "\0" not in command


def _parse_command(line: bytes, number: int) -> str:
    try:
        command = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number + 1}: is not JSON", where="body") from error
    if not isinstance(command, str) or not _is_storable(command):
        raise InputError(f"line {number + 1}: a command must be a non-empty text", where="body")
    return command
