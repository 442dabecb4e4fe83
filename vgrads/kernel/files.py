"""Text files at the border: plain, gzip or xz, with errors that name them."""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from pathlib import Path

from vgrads.kernel.errors import InputError


def read_text(path: Path, errors: str = "strict") -> str:
    """UTF-8 text of a plain, gzip or xz file; ``errors`` as in ``bytes.decode``."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        elif raw[:6] == b"\xfd7zXZ\x00":
            raw = lzma.decompress(raw)
        return raw.decode("utf-8", errors)
    except FileNotFoundError as error:
        raise InputError("no such file", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(path)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise InputError("the compressed file is cut off or damaged", where=str(path)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def write_text(path: Path, text: str) -> None:
    """UTF-8 text to a file; InputError where it cannot be written."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, body: bytes) -> None:
    """Bytes to a file; InputError where it cannot be written."""
    try:
        path.write_bytes(body)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def append_durably(descriptor: int, size: int, body: bytes) -> int:
    """Append to a file of this size, on the disk when this returns; the new size. OSError where it
    cannot be, and then the file is as before."""
    try:
        left = memoryview(body)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fdatasync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)
        raise
    return size + len(body)
