"""Files between hosts and a dispatcher: outputs that come in, inputs that go out."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.server.http import Line, Request
from vgrads.dispatch.storage.bag_files import Arrival, BagFiles
from vgrads.kernel.errors import InputError

_CHUNK = 256 * 2**10


def arrival_of(
    request: Request, files: Mapping[int, BagFiles], bags: Mapping[int, BagState]
) -> Arrival:
    """Where an output comes in; InputError, ValueError, LookupError or OSError for what no attempt
    may send."""
    _, _, *numbers, name = request.path.split("/", 5)
    bag, task, attempt = (int(number) for number in numbers)
    tasks = bags[bag].tasks
    if not (0 <= task < len(tasks) and 0 < attempt <= tasks.attempts[task]):
        raise InputError("is an attempt that nobody was given", where=f"{bag}/{task}/{attempt}")
    place = files[bag].place(task, attempt, unquote(name))
    return Arrival(place, request.headers.get("x-sha256", ""))


async def send_input(digest: str, files: Mapping[int, BagFiles], line: Line) -> None:
    """Send the input of a digest, piece by piece."""
    path = next((p for f in files.values() if (p := f.input(digest))), None)
    try:
        if path is None:
            raise FileNotFoundError(digest)
        with path.open("rb") as file:
            size = path.stat().st_size
            await line.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
            while size > 0 and line.open and (chunk := file.read(min(_CHUNK, size))):
                size -= len(chunk)
                await line.send(chunk)
        if size:
            line.refuse(503)
    except OSError:
        line.answer(404)
