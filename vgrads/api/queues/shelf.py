"""What was learned from a file, kept for the next question: beside the user's other data, for
nobody else.

A value is found again by everything that it was made from: the file's content, the question's
settings, the version of the method. It is kept as Python writes its own objects, which is read only
where nobody but this user can have written it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from vgrads.api.config import home

Value = TypeVar("Value")
_MOST_BYTES = 512 * 2**20
"""On the whole shelf; what was not used for longest goes first."""
_METHOD = ("qbets", "traces", "api/queues")


def shelved(file: Path, question: object, make: Callable[[], Value]) -> Value:
    """What ``make`` gives, made once for a file's content and a question (told apart by their
    ``repr``)."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    name = hashlib.sha256(f"{digest} {question!r} {_method()}".encode()).hexdigest()[:32]
    path = home() / "cache" / "learned" / f"{name}.bin"
    if _only_ours(path):
        with suppress(Exception):  # damaged, or of a Python that is no more: made anew
            with path.open("rb") as kept:
                found: Value = pickle.load(kept)
            os.utime(path)
            return found
    value = make()
    with suppress(OSError):  # a full disk keeps nobody from an answer
        _put(path, value)
    return value


@cache
def _method() -> str:
    """Changes whenever the code does that made the value."""
    base = Path(__file__).parents[2]
    files = sorted(path for name in _METHOD for path in (base / name).glob("*.py"))
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


def _only_ours(path: Path) -> bool:
    """True where a file is there that only this user can have written."""
    try:
        states = [path.stat(), path.parent.stat()]
    except OSError:
        return False
    return all(one.st_uid == os.geteuid() and not one.st_mode & 0o022 for one in states)


def _put(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as kept:
            pickle.dump(value, kept, protocol=5)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _make_room(path.parent)


def _make_room(folder: Path) -> None:
    kept = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in folder.glob("*.bin"))
    size = sum(bytes_ for _, bytes_, _ in kept)
    for _, bytes_, path in kept[:-1]:
        if size <= _MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        size -= bytes_
