"""Requests to drop waiting tasks of a bag, in its folder: written by a service, answered by the
bag's dispatcher. Few imports.

``given/drops/ID.request`` has the numbers of the tasks, ``ID.taken`` while it is answered;
``ID.dropped`` those that no agent had.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from vgrads.dispatch.storage.status import news_pipe
from vgrads.kernel.files import write_whole
from vgrads.kernel.wakeups import wake

_PAUSE_S = 0.01


def request_drop(folder: Path, number: int, tasks: Sequence[int], patience_s: float) -> list[int]:
    """Have a dispatcher drop those of these tasks that wait; return them. Raise TimeoutError where
    it does not answer in time, OSError where the request cannot be stored."""
    place, name = _place(folder, number), secrets.token_hex(8)
    place.mkdir(exist_ok=True)
    request, answer = place / f"{name}.request", place / f"{name}.dropped"
    write_whole(request, json.dumps(sorted(set(tasks))).encode())
    wake(news_pipe(folder))
    if not _wait_until_answered(answer, patience_s):
        try:
            request.unlink()
        except FileNotFoundError:  # taken just now: what it drops must not go unnoticed
            if not _wait_until_answered(answer, patience_s):
                raise TimeoutError from None
        else:
            raise TimeoutError
    dropped: list[int] = json.loads(answer.read_bytes())
    answer.unlink()
    return dropped


def _wait_until_answered(answer: Path, patience_s: float) -> bool:
    end_s = time.monotonic() + patience_s
    while not answer.exists():
        if time.monotonic() >= end_s:
            return False
        time.sleep(_PAUSE_S)
    return True


def answer_drops(folder: Path, number: int, drop: Callable[[Sequence[int]], Sequence[int]]) -> bool:
    """Answer new requests for a bag: ``drop`` drops waiting tasks and returns them. Return True
    where there was one."""
    place = _place(folder, number)
    if not place.is_dir():
        return False
    requests = sorted(place.glob("*.request"))
    for request in requests:
        with suppress(FileNotFoundError):  # nobody waits for the answer any more
            # the rename decides: afterwards the client can no longer withdraw the request
            taken = request.rename(request.with_suffix(".taken"))
            dropped = list(drop(json.loads(taken.read_bytes())))
            # written as a whole, since the client reads the answer as soon as the file exists
            write_whole(request.with_suffix(".dropped"), json.dumps(dropped).encode())
            taken.unlink()
    return bool(requests)


def _place(folder: Path, number: int) -> Path:
    return folder / "bags" / f"{number:04d}" / "given" / "drops"
