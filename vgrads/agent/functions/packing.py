"""Packed parts: a call, its arguments or its result as one piece of bytes.

A head, the number and the lengths of the parts, then the parts, each at a multiple of 64 bytes: an
array in a file can be used where it lies, without a copy. The first part of a packed object is its
pickle; the others are its buffers (pickle protocol 5, PEP 574).

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import struct
from typing import Protocol, Sequence, Union

Part = Union[bytes, memoryview]


class Writable(Protocol):
    """What packed parts can be written to."""

    def write(self, data: Part, /) -> object:
        """Write bytes."""


CURRENT = struct.Struct("<Qd")
"""What the page of an interpreter holds: number of its call (0: none), and its start, monotonic."""
LONGEST = 128 << 10
"""The longest message in bytes: a socket accepts about 200 KiB."""
INLINE = 48 << 10
"""Bytes of the parts of an object that travel with a call or its report, 64 KiB as text; larger
ones are files."""
IN_FILE = "@"
"""Before the digest of the file that holds a call, in place of its text: no letter of base64."""
_MAGIC = b"vgrads-1"
_COUNT = struct.Struct("<8sQ")
_LINE = 64
_GAPS = [bytes(size) for size in range(_LINE)]


def packed_size(parts: Sequence[Part]) -> int:
    """Return the number of bytes of packed parts."""
    at = _begin(len(parts))
    for part in parts:
        # -at % _LINE: the bytes up to the next multiple
        at += -at % _LINE + len(part)
    return at


def write_packed(parts: Sequence[Part], file: Writable) -> None:
    """Write packed parts to a file; none is copied."""
    for piece in pieces_of(parts):
        file.write(piece)


def pack(parts: Sequence[Part]) -> bytes:
    """Return packed parts."""
    return b"".join(pieces_of(parts))


def pieces_of(parts: Sequence[Part]) -> list[Part]:
    """Return the pieces of which packed parts consist; none is copied."""
    count, lengths = len(parts), [len(part) for part in parts]
    pieces: list[Part] = [struct.pack(f"<8sQ{count}Q", _MAGIC, count, *lengths)]
    at = _begin(count)
    for part, length in zip(parts, lengths):
        gap = -at % _LINE
        pieces += (_GAPS[gap], part)
        at += gap + length
    return pieces


def unpack(body: Part) -> list[memoryview]:
    """Return the parts as views of the packed bytes. Raise ValueError where they are damaged."""
    view = memoryview(body)
    try:
        magic, count = _COUNT.unpack_from(view)
        if magic != _MAGIC:
            raise ValueError("not packed by vgrads")
        lengths = struct.unpack_from(f"<{count}Q", view, _COUNT.size)
    except (struct.error, OverflowError, MemoryError) as error:
        raise ValueError(f"a packed object is damaged: {error}") from None
    parts, at = [], _begin(count)
    for length in lengths:
        at += -at % _LINE
        parts.append(view[at : at + length])
        at += length
    if at > len(view):
        raise ValueError("a packed object is cut off")
    return parts


def _begin(count: int) -> int:
    return _COUNT.size + 8 * count
