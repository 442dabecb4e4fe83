"""Python objects as packed parts: pickled so that functions, lambdas and closures travel too.

Shipped to nodes: the standard library and cloudpickle, Python 3.8 or newer.
"""

from __future__ import annotations

import io
import pickle
from typing import IO, Any, Sequence

PLAIN = (int, float, str, bytes, bool, type(None))
_DEEPEST = 8
_LARGE = 1 << 20  # bytes of a pickle that is not copied to be read


class CannotBePickled(TypeError, pickle.PicklingError):
    """An object that cannot be sent to another process."""


class _View(io.RawIOBase):
    """Bytes as a file."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._body[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def opened(part: memoryview) -> IO[bytes]:
    """Return a pickle as a file; large objects are read from it without another copy."""
    return io.BytesIO(part) if len(part) < _LARGE else io.BufferedReader(_View(part))


def load(parts: Sequence[memoryview]) -> Any:
    """Return an object from its parts."""
    return pickle.loads(parts[0], buffers=parts[1:])


def dump(value: object) -> list[Any]:
    """Return the parts of an object: its pickle, and its buffers, which are not copied."""
    if type(value) in PLAIN:
        return [pickle.dumps(value, 5)]
    import cloudpickle  # noqa: PLC0415 only here: plain values need it not

    buffers: list[pickle.PickleBuffer] = []
    body = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [body, *(buffer.raw() for buffer in buffers)]


def blame(value: object) -> str:
    """Return, in words, the innermost item or attribute of a value that cannot be pickled."""
    path = ""
    for _ in range(_DEEPEST):
        inner = next((item for item in _list_items(value) if not _can(item[1])), None)
        if inner is None:
            break
        path, value = path + inner[0], inner[1]
    return f" (at {path}, of type {type(value).__qualname__})" if path else ""


def _list_items(value: object) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{n}]", item) for n, item in enumerate(value)]
    names = list(getattr(value, "__dict__", None) or {})
    closure = getattr(value, "__closure__", None) or ()
    code = getattr(value, "__code__", None)
    items = [(f".{name}", getattr(value, name, None)) for name in names]
    if code is not None:
        for name, cell in zip(code.co_freevars, closure):
            try:
                items.append((f" variable '{name}'", cell.cell_contents))
            except ValueError:
                continue
        scope = getattr(value, "__globals__", {})
        items += [(f" global '{name}'", scope[name]) for name in code.co_names if name in scope]
    return items


def _can(value: object) -> bool:
    try:
        dump(value)
    except BaseException:
        return False
    return True
