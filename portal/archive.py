"""Values of ours as bytes for the database, and back: only our own kinds of values, only of this format.

Pickled, for plans and books are graphs that share their parts; unpickled by a reader that knows nothing
but plain data and the frozen values of vgrads, so a database that was tampered with can name nothing else.
"""

from __future__ import annotations

import io
import pickle
import zlib
from typing import Any

from kernel.errors import InputError

FORMAT = 1
"""Raised whenever an archived value changes shape."""
_OURS = (
    "kernel.",
    "traces.",
    "workflows.",
    "vgrid.",
    "planner.",
    "execmgr.",
    "portal.",
    "drivers.api",
)
_PLAIN = {
    ("builtins", "set"), ("builtins", "frozenset"), ("pathlib", "PosixPath"), ("datetime", "datetime"),
    ("datetime", "timezone"), ("datetime", "timedelta"), ("numpy", "ndarray"), ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"), ("numpy.core.multiarray", "_reconstruct"), ("numpy.core.multiarray", "scalar"),
}  # fmt: skip


_MOVED = {"pathlib._local": "pathlib"}
"""Where Python 3.13 says that its paths live."""


def pack(value: Any) -> bytes:
    """A value as bytes."""
    body = zlib.compress(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), level=3)
    return FORMAT.to_bytes(2, "big") + body


def unpack(body: bytes, where: str) -> Any:
    """The value; InputError where another version of vgrads wrote it."""
    given = int.from_bytes(body[:2], "big")
    if given != FORMAT:
        age = "newer" if given > FORMAT else "older"
        raise InputError(
            f"was written by a{'n' if age == 'older' else ''} {age} vgrads (format {given}, this one reads {FORMAT})",
            where=where, fix="resume it with that version",
        )  # fmt: skip
    try:
        return _Reader(io.BytesIO(zlib.decompress(body[2:]))).load()
    except (pickle.UnpicklingError, zlib.error, EOFError, AttributeError, ImportError) as error:
        raise InputError(f"cannot be read: {error}", where=where) from error


class _Reader(pickle.Unpickler):
    """Builds our frozen values and plain data, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        module = _MOVED.get(module, module)
        ours = module.startswith(_OURS) and "." not in name
        found = super().find_class(module, name) if ours or (module, name) in _PLAIN else None
        if found is None or (ours and not isinstance(found, type)):
            raise pickle.UnpicklingError(f"{module}.{name} has no place in an archive")
        return found
