"""Forecast cache: values learned from a file, stored with the user's other data, readable only by
this user.

The key covers all inputs of a value: the file's content, the question's settings, the version of
the method. Values are pickled, and read only if no other user can have written them.
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
from typing import Any, TypeVar

from vgrads.api.config import choose_learned_folder, home, make_home
from vgrads.kernel.user_files import open_user_file

Value = TypeVar("Value")
_MOST_BYTES = 512 * 2**20
"""Limit of the whole cache; the least recently used entries are removed first."""
_METHOD = ("qbets", "qbets/state", "traces", "api/queues", "simulator", "kernel")


def cached(file: Path, question: object, make: Callable[[], Value]) -> Value:
    """Return the result of ``make``, computed once for a file's content and a question (identified
    by its ``repr``)."""
    with open_user_file(file) as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    result: Value | None = stored((digest, question))
    if result is None:
        result = make()
        store((digest, question), result)
    return result


def stored(key: object) -> Any:
    """Return the value of a key (identified by its ``repr``), None where there is none."""
    path = _make_path(key)
    if _is_private(path):
        with suppress(Exception):  # damaged, or of another Python version: compute again
            with path.open("rb") as file:
                result = pickle.load(file)
            # as used just now, because the least recently used entries are removed first
            os.utime(path)
            return result
    return None


def store(key: object, value: object) -> None:
    """Store the value of a key."""
    with suppress(OSError):  # a full disk prevents no answer
        _put(_make_path(key), value)


def _make_path(key: object) -> Path:
    name = hashlib.sha256(f"{key!r} {_compute_method_digest()}".encode()).hexdigest()[:32]
    return choose_learned_folder() / f"{name}.bin"


@cache
def _compute_method_digest() -> str:
    """Return a digest that changes with the code that computed the value."""
    base = Path(__file__).parents[2]
    files = sorted(path for name in _METHOD for path in (base / name).glob("*.py"))
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


def _is_private(path: Path) -> bool:
    """True if the file exists and only this user can have written it."""
    try:
        states = [path.stat(), path.parent.stat()]
    except OSError:
        return False
    # reading a pickle can run any code, so whoever can write the file would act as this user
    return all(state.st_uid == os.geteuid() and not state.st_mode & 0o022 for state in states)


def _put(path: Path, value: object) -> None:
    if path.is_relative_to(home()):
        make_home()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # another process may store the same value at the same time: each has a draft of its own
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            pickle.dump(value, file, protocol=5)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _make_room(path.parent)


def _make_room(folder: Path) -> None:
    entries = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in folder.glob("*.bin"))
    size = sum(bytes_ for _, bytes_, _ in entries)
    for _, bytes_, path in entries[:-1]:
        if size <= _MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        size -= bytes_
